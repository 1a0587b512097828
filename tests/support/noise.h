// SPDX-License-Identifier: Apache-2.0
/// Bytes that take the room on a disk that they seem to.

#pragma once

#include <cstddef>
#include <random>
#include <string>

namespace fencekv::testing {

/// Bytes that no compression makes smaller, the same for the same seed.
inline std::string noise(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

}  // namespace fencekv::testing
