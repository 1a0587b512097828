// SPDX-License-Identifier: Apache-2.0
/// A settlement worker on fencekv's own client, with a lease that is renewed in the background.
///
///     settlement_worker NAME SOCKET ROWS.CSV
///
/// The twin of settlement_worker.py: takes the lease settlement:123, sums up its rows, waits for a
/// line on standard input, and saves under the token of its lease.
///
/// Exit code: 0 saved, 3 refused because a newer holder exists, 1 anything else.

#include "fencekv/client.h"
#include "fencekv/lease_guard.h"

#include <charconv>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <syncstream>
#include <thread>

namespace {

using namespace std::chrono_literals;

constexpr int kRefused = 3;
constexpr std::string_view kLease = "settlement:123";
constexpr std::string_view kSettlement = "123";
constexpr auto kTtl = 2000ms;

/// One line to whoever started the worker, at once: it decides what happens next by it.
template <class... Parts>
void say(const Parts&... parts) {
  std::osyncstream line(std::cout);
  (line << ... << parts) << std::endl;
}

int fail(std::string_view what, const fencekv::Error& error) {
  say("cannot ", what, ": ", error.line());
  return 1;
}

/// Takes the next field of a line.
std::string_view take_field(std::string_view& rest) {
  const auto field = rest.substr(0, rest.find(','));
  rest.remove_prefix(std::min(rest.size(), field.size() + 1));
  return field;
}

/// The summary of the settlement as the text that is saved; nullopt: the file cannot be understood.
std::optional<std::string> summarise(const char* path, std::string_view worker) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  if (line != "transaction,settlement,merchant,kind,amount_cents") return std::nullopt;
  std::int64_t rows = 0;
  std::int64_t sales = 0;
  std::int64_t refunds = 0;
  while (std::getline(file, line)) {
    std::string_view rest = line;
    take_field(rest);
    const auto settlement = take_field(rest);
    take_field(rest);
    const auto kind = take_field(rest);
    const auto text = take_field(rest);
    std::int64_t cents = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), cents);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    if (settlement != kSettlement) continue;
    ++rows;
    (kind == "refund" ? refunds : sales) += cents;
  }
  return "rows=" + std::to_string(rows) + " sales=" + std::to_string(sales) +
         " refunds=" + std::to_string(refunds) + " net=" + std::to_string(sales - refunds) +
         " by=" + std::string(worker);
}

/// The lease, once it is free.
fencekv::Result<fencekv::LeaseGuard> acquire(fencekv::Client& client) {
  const fencekv::LeaseOptions options{.ttl = kTtl, .on_lost = [](const fencekv::LeaseLoss& loss) {
                                        say("is told that its lease is lost: ",
                                            fencekv::to_string(loss.reason));
                                      }};
  for (bool waiting = false;; waiting = true) {
    auto lease = fencekv::LeaseGuard::try_acquire(client, kLease, options);
    if (!lease) return lease.error();
    if (*lease) return *std::move(*lease);
    if (!waiting) say("lease ", kLease, " is held by another worker, asking again");
    std::this_thread::sleep_for(50ms);
  }
}

enum class Saved { yes, refused, failed };

/// The token goes along with the write; the store decides.
Saved save(fencekv::Client& client, std::string_view what, std::string_view value,
           fencekv::Token token) {
  const auto key = std::string(kLease) + ":" + std::string(what);
  const auto version = client.set(key, value, token, {.lease = std::string(kLease)});
  if (version) {
    say("saved ", key, " (version ", *version, ")");
    return Saved::yes;
  }
  say("REFUSED to save ", key, ": ", version.error().line());
  return version.error().code() == fencekv::Errc::fenced ? Saved::refused : Saved::failed;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string name = argv[1];
  auto client = fencekv::Client::connect({.unix_path = argv[2], .name = "worker-" + name});
  if (!client) return fail("connect", client.error());

  auto lease = acquire(*client);
  if (!lease) return fail("acquire", lease.error());
  say("has lease ", kLease, " for ", kTtl.count(), " ms, token ", lease->token().number());
  const auto summary = summarise(argv[3], name);
  if (!summary) {
    say("cannot read ", argv[3]);
    return 1;
  }
  say("computed, about to save: ", *summary);
  std::string line;
  std::getline(std::cin, line);

  // No look at lease->valid() here, although it would often help: whatever a worker checks, it can
  // be frozen right behind the check. Only the store can compare and save in one step.
  auto saved = save(*client, "summary", *summary, lease->token());
  if (name == "A" && saved != Saved::failed) {
    // A key that B never writes: the fence of the lease, not of the key, has to hold A back.
    const auto report = save(*client, "report", "report by A", lease->token());
    if (report != Saved::yes) saved = report;
  }
  if (saved != Saved::yes) return saved == Saved::refused ? kRefused : 1;
  if (const auto released = lease->release(); !released) return fail("release", released.error());
  say("released lease ", kLease);
  return 0;
}
