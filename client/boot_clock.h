// SPDX-License-Identifier: Apache-2.0
/// The clock by which leases are counted.

#pragma once

#include <chrono>
#include <time.h>

namespace fencekv {

/// Time since boot, running on while the machine is suspended: a lease that ran out while a laptop
/// slept must be over when it wakes up.
inline std::chrono::nanoseconds since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace fencekv
