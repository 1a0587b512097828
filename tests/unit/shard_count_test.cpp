// SPDX-License-Identifier: Apache-2.0
#include "engine/core/shard_count.h"

#include "engine/core/fence_cache.h"
#include "engine/core/read_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>

namespace fencekv::core {
namespace {

constexpr std::size_t kMiB = std::size_t{1024} * 1024;

TEST(ShardCount, GrowsWithTheMemoryWithinBounds) {
  EXPECT_EQ(shard_count(0), 64U);
  EXPECT_EQ(shard_count(64 * kMiB), 64U);
  EXPECT_EQ(shard_count(65 * kMiB), 128U);
  EXPECT_EQ(shard_count(5000 * kMiB), 8192U);
  EXPECT_EQ(shard_count(std::size_t{1} << 50U), 8192U);
  for (std::size_t bytes = 1; bytes <= 8192 * kMiB; bytes += bytes / 7 + 1) {
    EXPECT_TRUE(std::has_single_bit(shard_count(bytes))) << bytes;
    EXPECT_LT(bytes / shard_count(bytes), kMiB + kMiB / 32) << bytes;
  }
}

constexpr std::size_t kCacheBytes = 192 * kMiB;
constexpr std::size_t kEntryBytes = 8192;
constexpr std::size_t kEntries = kCacheBytes / kEntryBytes * 2;
// Half of a shard is forgotten at once; of 64 shards, that would be 192.
constexpr std::size_t kMostAtOnce = 100;

std::string numbered(std::size_t number, std::size_t length) {
  auto text = std::to_string(number);
  text.resize(length, '.');
  return text;
}

/// What is forgotten at once, at most, while more is put in than there is room for.
template <class Cache, class Put>
std::size_t most_at_once(const Cache& cache, Put put) {
  std::size_t most = 0;
  for (std::size_t number = 0; number < kEntries; ++number) {
    const auto before = cache.size();
    put(number);
    most = std::max(most, before + 1 - cache.size());
  }
  return most;
}

TEST(ShardCount, ALargeCacheOfFencesForgetsLittleAtOnce) {
  FenceCache cache(kCacheBytes);
  const auto most = most_at_once(cache, [&](std::size_t number) {
    cache.put(numbered(number, kEntryBytes - FenceCache::kKeyBytes), KeyRecord());
  });
  EXPECT_GT(most, 10U);
  EXPECT_LE(most, kMostAtOnce);
}

TEST(ShardCount, ALargeCacheOfRecordsForgetsLittleAtOnce) {
  ReadCache cache(kCacheBytes);
  const auto most = most_at_once(cache, [&](std::size_t number) {
    const auto key = numbered(number, kEntryBytes - ReadCache::kRecordBytes);
    cache.keep(key, cache.find(key), KeyState());
  });
  EXPECT_GT(most, 10U);
  EXPECT_LE(most, kMostAtOnce);
}

}  // namespace
}  // namespace fencekv::core
