// SPDX-License-Identifier: Apache-2.0
#include "tools/run/kept_lease.h"

#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

namespace fencekv::run {

Bell::Bell() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Bell::ring() const {
  const std::uint64_t once = 1;
  // It fails only if it was rung 2^64 - 2 times.
  [[maybe_unused]] const auto rung = ::write(descriptor_.number(), &once, sizeof once);
}

BootTime KeptLease::deadline() const {
  // The clock first: read after the remaining time, it would put the deadline too late.
  const auto now = boot_time();
  return now + guard_.remaining();
}

void KeptLease::listen(Client& client, std::chrono::milliseconds patience) {
  auto watcher =
      LeaseWatcher::start(client, {guard_.name()}, [this](const LeaseEvent& event) { hear(event); },
                          {.timeout = patience});
  if (watcher) watcher_.emplace(*std::move(watcher));
}

void KeptLease::hear(const LeaseEvent& event) {
  // Others may share the lease: only what is said of our own token counts.
  if (event.token != guard_.token()) return;
  if (event.change == LeaseChange::granted || event.change == LeaseChange::missed) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = event.change;
  }
  lost_.ring();
}

std::optional<std::string> KeptLease::loss() const {
  const auto reason = guard_.loss();
  if (!reason) {
    const std::lock_guard lock(mutex_);
    if (!ended_) return std::nullopt;
    return "the server says: " + std::string(to_string(*ended_));
  }
  if (*reason == LossReason::deadline) return "no renewal was acknowledged in time";
  return "the server says: " + std::string(to_string(*reason));
}

}  // namespace fencekv::run
