// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/leases/figures.h"
#include "tools/bench/leases/sections.h"

#include <fmt/format.h>

#include <optional>
#include <thread>
#include <unistd.h>

namespace fencekv::bench {
namespace {

using namespace std::chrono_literals;

/// Fills a store and ends like a process that is killed, or cleanly.
bool fill(const std::filesystem::path& directory, std::size_t leases, bool is_killed) {
  auto store = open(Kind::process, directory);
  const LiveLeases live(*store, "live", leases);
  if (is_killed) _exit(live.are_right() ? 0 : 1);
  return live.are_right();
}

bool measure_opened(const std::filesystem::path& directory, std::size_t leases,
                    std::string_view how) {
  const auto before = resident_bytes();
  const auto began = Time::now();
  const auto store = open(Kind::process, directory);
  const auto took = milliseconds_since(began);
  // The first answer, of a lease that is there.
  const auto lease = store->execute(Inspect{.name = "live/" + std::to_string(leases - 1)});
  row(fmt::format("open a store with {} leases", leases), "process",
      fmt::format("{:.0f} ms {}, first answer after {:.0f} ms, {:.0f} MiB more resident", took, how,
                  milliseconds_since(began),
                  static_cast<double>(resident_bytes() - before) / (1024 * 1024)));
  return lease && lease->holders.size() == 1 && store->stats().lease_names == leases;
}

bool measure_memory(Kind kind, const Settings& settings) {
  const Scratch scratch(settings.directory);
  const auto store = open(kind, scratch.path() / "store");
  const auto before = resident_bytes();
  const LiveLeases live(*store, "live", settings.leases);
  const auto after = resident_bytes();
  row("resident memory a lease, just taken", to_string(kind),
      fmt::format("{:.0f} bytes of {}",
                  (static_cast<double>(after) - static_cast<double>(before)) /
                      static_cast<double>(settings.leases),
                  settings.leases));
  return live.are_right();
}

/// As long and as hard to compress as a UUID in hex.
std::string random_owner(std::uint64_t number) {
  const auto mixed = [](std::uint64_t bits) {
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31);
  };
  return fmt::format("{:016x}{:016x}", mixed(2 * number + 1), mixed(2 * number + 2));
}

/// Enough for what is in flight together. A released grant counts until then where it is decided
/// what can be reclaimed, since nobody writes down when it was released.
constexpr auto kChurnTtl = 2s;

bool churn(const std::filesystem::path& directory, std::size_t names) {
  auto store = open(Kind::process, directory);
  const auto began = Time::now();
  bool is_right = true;
  constexpr std::size_t kTogether = 2000;
  std::vector<Token> tokens(kTogether);
  for (std::size_t first = 0; first < names; first += kTogether) {
    const auto count = std::min(kTogether, names - first);
    const auto name = [first](std::size_t i) { return fmt::format("job/{:012}", first + i); };
    const auto owner = [first](std::size_t i) { return random_owner(first + i); };
    Pipeline line(*store);
    for (std::size_t i = 0; i < count; ++i) {
      line.submit(Acquire{.name = name(i), .owner = owner(i), .ttl = kChurnTtl},
                  [&tokens, i](const Acquire::Reply& reply) {
                    if (reply) tokens[i] = reply->token;
                    return reply.has_value();
                  });
    }
    // All are granted before the first is released.
    is_right = line.finish() && is_right;
    for (std::size_t i = 0; i < count; ++i) {
      line.submit(Release{.name = name(i), .owner = owner(i), .token = tokens[i]},
                  [](std::monostate) { return true; });
    }
    is_right = line.finish() && is_right;
  }
  row(fmt::format("{} names acquired and released once", names), "process",
      fmt::format("{:.1f} us a name",
                  milliseconds_since(began) * 1000 / static_cast<double>(names)));
  is_right = is_right && store->stats().lease_names == names;
  store.reset();
  row("bytes on disk a name, as it was left", "process",
      fmt::format("{:.1f}",
                  static_cast<double>(bytes_below(directory)) / static_cast<double>(names)));
  return is_right;
}

}  // namespace

bool measure_opening(const Settings& settings) {
  bool is_right = true;
  for (const bool is_killed : {false, true}) {
    const Scratch scratch(settings.directory);
    const auto directory = scratch.path() / "store";
    is_right =
        in_own_process([&] { return fill(directory, settings.leases, is_killed); }) && is_right;
    const auto* how = is_killed ? "after a kill" : "after a clean stop";
    const auto opened = [&] { return measure_opened(directory, settings.leases, how); };
    is_right = in_own_process(opened) && is_right;
  }
  for (const auto kind : {Kind::memory, Kind::process}) {
    is_right = in_own_process([&] { return measure_memory(kind, settings); }) && is_right;
  }
  return is_right;
}

bool measure_reclaiming(const Settings& settings) {
  const Scratch scratch(settings.directory);
  auto directory = settings.keep;
  bool is_right = true;
  if (directory.empty()) {
    directory = scratch.path() / "store";
    is_right = in_own_process([&] { return churn(directory, settings.names); });
  }
  const auto reclaim = [&] {
    Options options{.durability = Durability::process};
    // As if a week had passed.
    options.fence_retention = 1ns;
    auto store = open_rocksdb(directory, options);
    if (!store) return false;
    const auto names = (*store)->stats().lease_names;
    std::this_thread::sleep_for(kChurnTtl);
    const auto began = Time::now();
    const auto reclaimed = (*store)->reclaim();
    const auto left = (*store)->stats().lease_names;
    row("lease names reclaimed under the floor", "process",
        fmt::format("{} of {}, {:.1f} us each", names - left, names,
                    milliseconds_since(began) * 1000 / static_cast<double>(names)));
    // The floor never rises above the newest token, so the name that has it stays.
    return reclaimed && left <= 1;
  };
  return in_own_process(reclaim) && is_right;
}

bool measure_churn(const Settings& settings) {
  const Scratch scratch(settings.directory);
  const auto directory = settings.keep.empty() ? scratch.path() / "store" : settings.keep;
  bool is_right = in_own_process([&] { return churn(directory, settings.names); });
  // An opening moves the log into a table.
  const auto reopen = [&] {
    auto store = open(Kind::process, directory);
    const bool is_whole = store->stats().lease_names == settings.names;
    store.reset();
    row("bytes on disk a name, opened once more", "process",
        fmt::format("{:.1f}", static_cast<double>(bytes_below(directory)) /
                                  static_cast<double>(settings.names)));
    return is_whole;
  };
  is_right = in_own_process(reopen) && is_right;
  return is_right;
}

}  // namespace fencekv::bench
