// SPDX-License-Identifier: Apache-2.0
/// A clock that stands still until the test moves it.

#pragma once

#include "fencekv/options.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

namespace fencekv::testing {

/// Thread safety: all members may be called concurrently.
class ManualClock final : public Clock {
 public:
  std::chrono::nanoseconds since_boot() const override { return since_boot_.load(); }
  std::chrono::milliseconds wall() const override { return wall_.load(); }
  std::string boot_id() const override {
    const std::lock_guard lock(mutex_);
    return "boot-" + std::to_string(boot_);
  }

  void advance(std::chrono::nanoseconds step) { since_boot_ = since_boot_.load() + step; }
  void set_wall(std::chrono::milliseconds wall) { wall_ = wall; }

  /// The machine starts anew: another boot, whose clock begins at `since_boot`.
  void reboot(std::chrono::nanoseconds since_boot = std::chrono::seconds(5)) {
    const std::lock_guard lock(mutex_);
    ++boot_;
    since_boot_ = since_boot;
  }

 private:
  std::atomic<std::chrono::nanoseconds> since_boot_{
      std::chrono::nanoseconds(std::chrono::hours(1))};
  std::atomic<std::chrono::milliseconds> wall_{std::chrono::milliseconds(1'700'000'000'000)};
  mutable std::mutex mutex_;
  int boot_ = 1;  // guarded by mutex_
};

}  // namespace fencekv::testing
