// SPDX-License-Identifier: Apache-2.0
/// Keeps what strangers can cause from filling the log.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace fencekv::server {

/// Lets one event a second pass, and counts the others.
///
/// Thread safety: all members may be called concurrently.
class Throttle {
 public:
  /// How many events were held back since the last that passed; nullopt: hold this one back too.
  std::optional<std::uint64_t> pass() {
    const auto second = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::steady_clock::now().time_since_epoch())
                            .count();
    auto last = last_second_.load();
    if (last == second || !last_second_.compare_exchange_strong(last, second)) {
      ++held_back_;
      return std::nullopt;
    }
    return held_back_.exchange(0);
  }

 private:
  std::atomic<std::int64_t> last_second_ = -1;
  std::atomic<std::uint64_t> held_back_ = 0;
};

}  // namespace fencekv::server
