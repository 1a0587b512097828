// SPDX-License-Identifier: Apache-2.0
/// Who takes how much of Options::memory_budget.
///
/// - memtables: a quarter, at most 64 MiB. More would only make the opening after a crash longer.
/// - block cache: a third of the rest.
/// - fences: a third of the rest, or Options::fence_cache_bytes. Of that the filter of places has a
///   quarter, at most 16 MiB, and the fences themselves what is left.
/// - records: a third of the rest, or Options::read_cache_bytes.
///
/// What an option gives or takes changes nobody else's share.

#pragma once

#include "fencekv/options.h"
#include "fencekv/result.h"

#include <algorithm>
#include <cstddef>
#include <string>

namespace fencekv::core {

/// Of the database below the store, in bytes.
struct DatabaseShares {
  std::size_t memtables = 0;  ///< All together.
  std::size_t block_cache = 0;
};

/// In bytes.
struct MemoryShares {
  static constexpr std::size_t kMostMemtables = std::size_t{64} * 1024 * 1024;
  /// The filter is touched at random, all of it, by each write. This much is enough for 13 million
  /// records; 64 MiB, which no processor's cache holds, made writes of a small store 14 % slower.
  /// Where there are more records, the storage has filters as well.
  static constexpr std::size_t kMostPlaces = std::size_t{16} * 1024 * 1024;

  DatabaseShares database;
  std::size_t fences = 0;   ///< FenceCache.
  std::size_t places = 0;   ///< PlaceFilter.
  std::size_t records = 0;  ///< ReadCache.

  std::size_t sum() const {
    return database.memtables + database.block_cache + fences + places + records;
  }
};

/// Of any budget, even one that would be refused.
inline MemoryShares shares_of(const Options& options) {
  MemoryShares shares;
  shares.database.memtables = std::min(options.memory_budget / 4, MemoryShares::kMostMemtables);
  const auto third = (options.memory_budget - shares.database.memtables) / 3;
  shares.database.block_cache = third;
  const auto known = options.fence_cache_bytes.value_or(third);
  shares.places = std::min(known / 4, MemoryShares::kMostPlaces);
  shares.fences = known - shares.places;
  shares.records = options.read_cache_bytes.value_or(third);
  return shares;
}

/// Errors: invalid, a disk store cannot do with so little.
inline Result<void> check_budget(const Options& options) {
  if (options.memory_budget >= Options::kLeastMemoryBudget) return {};
  return Error(Errc::invalid, "a memory budget of " + std::to_string(options.memory_budget) +
                                  " bytes, expected at least " +
                                  std::to_string(Options::kLeastMemoryBudget));
}

}  // namespace fencekv::core
