// SPDX-License-Identifier: Apache-2.0
/// The clock by which a lease is counted on the holder's side.

#pragma once

#include <chrono>
#include <time.h>

namespace fencekv::run {

/// A point on CLOCK_BOOTTIME, which runs on while the machine is suspended: a leader that was
/// asleep must find its time over when it wakes up.
using BootTime = std::chrono::nanoseconds;

inline BootTime boot_time() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace fencekv::run
