// SPDX-License-Identifier: Apache-2.0
/// The lease that fencekv-run holds.

#pragma once

#include "fencekv/lease_guard.h"
#include "fencekv/lease_watcher.h"
#include "tools/run/descriptor.h"
#include "tools/run/supervisor.h"

#include <chrono>
#include <mutex>
#include <optional>
#include <string>

namespace fencekv::run {

/// Somebody to tell through a descriptor, from any thread.
class Bell {
 public:
  Bell();
  void ring() const;
  /// Readable from the first ring on.
  int descriptor() const { return descriptor_.number(); }

 private:
  Descriptor descriptor_;
};

/// A LeaseGuard as the supervisor sees it, and what the server tells of the lease meanwhile: that
/// it was revoked is known at once, and not with the next renewal.
class KeptLease : public HeldLease {
 public:
  /// `lost` is rung by the guard's on_lost. Both outlive the object.
  KeptLease(const LeaseGuard& guard, const Bell& lost) : guard_(guard), lost_(lost) {}

  /// Listens to the server from here on, if it lets us; asks it for no longer than `patience`. A
  /// renewal tells the same, only later, so nothing depends on it.
  void listen(Client& client, std::chrono::milliseconds patience);

  BootTime deadline() const override;
  std::optional<std::string> loss() const override;
  int loss_descriptor() const override { return lost_.descriptor(); }

 private:
  void hear(const LeaseEvent& event);

  const LeaseGuard& guard_;
  const Bell& lost_;
  mutable std::mutex mutex_;
  std::optional<LeaseChange> ended_;     // guarded by mutex_
  std::optional<LeaseWatcher> watcher_;  // the last member: it calls hear() until it is gone
};

}  // namespace fencekv::run
