// SPDX-License-Identifier: Apache-2.0
/// Checks that hold in every build, and how a fuzz input says where a stream is split.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace fencekv::fuzz {

/// Ends the process with `promise` if it is broken: libFuzzer keeps the input then.
inline void require(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

/// The input's first byte seeds how the rest of it is cut.
inline std::vector<std::string_view> pieces_of(const std::uint8_t* bytes, std::size_t size) {
  std::vector<std::string_view> pieces;
  if (size == 0) return pieces;
  std::uint32_t seed = bytes[0];
  std::string_view rest(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  while (!rest.empty()) {
    seed = seed * 1664525 + 1013904223;
    const std::size_t piece = std::min<std::size_t>(1 + (seed >> 16U) % 32, rest.size());
    pieces.push_back(rest.substr(0, piece));
    rest.remove_prefix(piece);
  }
  return pieces;
}

}  // namespace fencekv::fuzz
