// SPDX-License-Identifier: Apache-2.0
/// The clock by which the server counts leases.

#pragma once

#include <chrono>
#include <ctime>

namespace fencekv::testing {

/// CLOCK_BOOTTIME: the same for all processes of a machine, and it runs on while it is suspended.
inline std::chrono::nanoseconds since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace fencekv::testing
