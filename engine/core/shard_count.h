// SPDX-License-Identifier: Apache-2.0
/// Into how many shards a cache is divided that forgets one of two generations at once.

#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace fencekv::core {

inline constexpr std::size_t kFewestShards = 64;
inline constexpr std::size_t kMostShards = 8192;

/// A power of two. The more memory, the more shards: what is moved when the table of one grows, and
/// what is freed when it forgets, holds up whoever is there then, and must not grow along. (With 64
/// shards of 512 MiB, that took 15 ms.)
constexpr std::size_t shard_count(std::size_t bytes) {
  constexpr std::size_t kShardBytes = std::size_t{1024} * 1024;
  return std::clamp(std::bit_ceil(bytes / kShardBytes), kFewestShards, kMostShards);
}

}  // namespace fencekv::core
