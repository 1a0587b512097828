// SPDX-License-Identifier: Apache-2.0
#include "tools/run/acquisition.h"

#include "tools/run/label.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace fencekv::run {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

// Between two attempts while the server is away, or its queue is full.
constexpr milliseconds kPause = 500ms;

/// Whether asking again may help.
bool may_pass(Errc code) {
  switch (code) {
    case Errc::unreachable:
    case Errc::in_doubt:  // If it was granted, that grant ends by its time: nobody has its owner.
    case Errc::overloaded:
    case Errc::misconf:
    case Errc::expired:     // Granted, but its time was over on arrival.
    case Errc::lease_lost:  // The server ended the wait.
      return true;
    default:
      return false;
  }
}

void pause(milliseconds time, const std::stop_token& cancelled) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, cancelled, time, [] { return false; });
}

}  // namespace

Acquisition::Acquisition(Client& client, const RunOptions& options, const Bell& lost)
    : client_(client),
      options_(options),
      lost_(lost),
      thread_([this](const std::stop_token& cancelled) {
        outcome_ = acquire(cancelled);
        ended_.ring();
      }) {}

Acquisition::Outcome Acquisition::take() {
  thread_.join();
  return std::move(*outcome_);
}

Acquisition::Outcome Acquisition::acquire(const std::stop_token& cancelled) {
  // A wrong address or password shows at once, and not after a wait.
  if (auto answer = client_.ping({.cancel = cancelled}); !answer) return std::move(answer).error();

  const auto until = options_.wait ? std::optional(boot_time() + *options_.wait) : std::nullopt;
  for (;;) {
    auto wait = Limits::kMaxWait;
    if (until) {
      wait = std::clamp(std::chrono::ceil<milliseconds>(*until - boot_time()), milliseconds::zero(),
                        wait);
    }
    auto outcome = ask(wait, cancelled);
    const bool again = outcome ? !*outcome : may_pass(outcome.error().code());
    if (!again || cancelled.stop_requested()) return outcome;
    if (until && boot_time() >= *until) return outcome;
    if (!outcome) pause(kPause, cancelled);
  }
}

Acquisition::Outcome Acquisition::ask(milliseconds wait, const std::stop_token& cancelled) {
  LeaseOptions lease{
      .ttl = options_.ttl,
      .on_lost = [bell = &lost_](const LeaseLoss&) { bell->ring(); },
      .mode = options_.mode,
      .permits = options_.permits,
      .delay = options_.delay,
      .payload = options_.payload ? *options_.payload : default_label(options_.command.front()),
  };
  return LeaseGuard::acquire(client_, options_.lease, wait, std::move(lease),
                             {.cancel = cancelled});
}

}  // namespace fencekv::run
