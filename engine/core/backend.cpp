// SPDX-License-Identifier: Apache-2.0
#include "engine/core/backend.h"

#include <array>
#include <cstdio>

namespace fencekv::core {
namespace {

/// `51.2 MiB`.
std::string in_mebibytes(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f MiB", static_cast<double>(bytes) / (1024 * 1024));
  return text.data();
}

}  // namespace

std::string describe(const Space& space) {
  const auto left = in_mebibytes(space.room) + " of room are left on the disk (" +
                    in_mebibytes(space.free) + " free, less what the log still needs)";
  switch (space.level) {
    case SpaceLevel::enough:
      break;
    case SpaceLevel::low:
      return left + ", below the soft floor of " + in_mebibytes(space.soft_floor);
    case SpaceLevel::out:
      return left + ", below the hard floor of " + in_mebibytes(space.hard_floor);
  }
  return left;
}

}  // namespace fencekv::core
