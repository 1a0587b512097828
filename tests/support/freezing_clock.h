// SPDX-License-Identifier: Apache-2.0
/// A machine whose boot clock can freeze while another goes on.

#pragma once

#include "fencekv/options.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <string>

namespace fencekv::testing {

/// Thread safety: all members may be called concurrently.
class FreezingClock final : public Clock {
 public:
  std::chrono::nanoseconds since_boot() const override {
    return is_frozen_ ? frozen_at_.load() : now_.load();
  }
  std::optional<std::chrono::nanoseconds> second_opinion() const override { return now_.load(); }
  std::string boot_id() const override { return "boot"; }
  std::chrono::milliseconds wall() const override { return {}; }

  void freeze(bool frozen) {
    frozen_at_ = since_boot();
    is_frozen_ = frozen;
  }
  /// Time goes by, whether the boot clock knows or not.
  void advance(std::chrono::nanoseconds step) { now_ = now_.load() + step; }

 private:
  std::atomic<std::chrono::nanoseconds> now_{std::chrono::nanoseconds(std::chrono::hours(1))};
  std::atomic<std::chrono::nanoseconds> frozen_at_{};
  std::atomic<bool> is_frozen_ = false;
};

}  // namespace fencekv::testing
