// SPDX-License-Identifier: Apache-2.0
/// Notices that the clock by which leases expire stands still: with it no lease would ever end.

#pragma once

#include <chrono>
#include <mutex>

namespace fencekv::core {

/// Thread safety: all members may be called concurrently.
class ClockWatch {
 public:
  /// How long the other clock may run on alone.
  static constexpr std::chrono::seconds kPatience{2};

  /// One reading of both clocks. Returns whether the first one stands still.
  bool stands_still(std::chrono::nanoseconds clock, std::chrono::nanoseconds other) {
    const std::lock_guard lock(mutex_);
    if (clock != clock_) {
      clock_ = clock;
      other_ = other;
    }
    return other - other_ > kPatience;
  }

 private:
  std::mutex mutex_;
  std::chrono::nanoseconds clock_{-1};  // guarded by mutex_
  std::chrono::nanoseconds other_{0};   // guarded by mutex_; when clock_ was seen first
};

}  // namespace fencekv::core
