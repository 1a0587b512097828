// SPDX-License-Identifier: Apache-2.0
#include "client/client_core.h"

#include "client/boot_clock.h"
#include "client/command_codec.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace fencekv {
namespace {

using namespace std::chrono_literals;

// What the end of a client may cost those who close it, while a server is silent.
constexpr auto kLongestEnd = 1s;
constexpr std::chrono::milliseconds kReleaseTimeout = 1s;
constexpr std::chrono::milliseconds kLongestPause = 500ms;

/// Grants on their way back.
struct Return {
  std::vector<Holding> grants;
  std::chrono::nanoseconds until;
  std::shared_ptr<Debt> debt;
  Pauses pauses;
  std::function<void()> tried;
};

/// One attempt, and another one if it fails. A refusal is an end, too: then it was over before.
void attempt(ClientCore& core, const std::shared_ptr<Return>& back) {
  const bool single = back->grants.size() == 1;
  auto done = [&core, back, single](Result<resp::Value> reply) {
    std::optional<Error> failure;
    if (!reply) {
      failure = std::move(reply).error();
    } else if (single) {
      auto released = decode<Release>(*std::move(reply));
      if (!released) failure = std::move(released).error();
    } else {
      auto released = decode<ReleaseMany>(*std::move(reply));
      if (!released) failure = std::move(released).error();
    }
    const auto code = failure ? failure->code() : Errc{};
    if (failure && code != Errc::lease_lost && since_boot() < back->until) {
      core.later(back->pauses.next(), [&core, back] { attempt(core, back); });
    }
    if (const auto tried = std::exchange(back->tried, {})) tried();
    return !failure || code != Errc::protocol;
  };
  const auto& [name, owner, token] = back->grants.front();
  const auto bytes =
      single ? encode(Release{name, owner, token}) : encode(ReleaseMany{back->grants});
  const bool sent = core.send({.bytes = *bytes,
                               .changes = true,
                               .call = {.timeout = kReleaseTimeout},
                               .done = std::move(done)});
  if (sent) return;
  // The client was closed: the leases end by their time.
  if (const auto tried = std::exchange(back->tried, {})) tried();
}

}  // namespace

Debt::Debt(std::shared_ptr<Ledger> ledger) : ledger_(std::move(ledger)) {
  const std::lock_guard lock(ledger_->mutex);
  ++ledger_->open;
}

Debt::~Debt() {
  {
    const std::lock_guard lock(ledger_->mutex);
    --ledger_->open;
  }
  ledger_->settled.notify_all();
}

std::chrono::milliseconds Pauses::next() {
  return std::exchange(pause_, std::min(pause_ * 2, kLongestPause));
}

ClientCore::ClientCore(ClientOptions options)
    : options_(std::move(options)),
      shared_(Connection::create(loop_, options_)),
      own_(loop_, options_),
      keeper_(loop_, *shared_, callbacks_) {}

ClientCore::~ClientCore() {
  // First, as all else is used by it.
  loop_.stop();
}

void ClientCore::give_back(std::vector<Holding> grants, std::chrono::milliseconds ttl,
                           std::function<void()> tried) {
  attempt(*this, std::make_shared<Return>(Return{std::move(grants), since_boot() + ttl, owe(),
                                                 Pauses{}, std::move(tried)}));
}

void ClientCore::later(std::chrono::milliseconds pause, std::function<void()> task) {
  if (closed_) return;
  const auto timer = std::make_shared<boost::asio::steady_timer>(loop_.io(), pause);
  timer->async_wait([this, timer, task = std::move(task)](boost::system::error_code) {
    if (!closed_) task();
  });
}

void ClientCore::close() {
  if (!loop_.is_running()) return;
  loop_.run([this] {
    const auto all = activities_;
    for (const auto& activity : all) activity->abort();
    own_.give_up_all();
  });
  {
    std::unique_lock lock(ledger_->mutex);
    ledger_->settled.wait_for(lock, kLongestEnd, [this] { return ledger_->open == 0; });
  }
  loop_.run([this] {
    closed_ = true;
    const auto all = std::exchange(activities_, {});
    own_.shut();
    shared_->shut();
    keeper_.disconnect_all();
  });
}

}  // namespace fencekv
