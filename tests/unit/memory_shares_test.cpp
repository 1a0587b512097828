// SPDX-License-Identifier: Apache-2.0
#include "engine/core/memory_shares.h"

#include "engine/rocksdb/rocksdb_backend.h"
#include "fencekv/store.h"
#include "tests/support/database_memory.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace fencekv {
namespace {

using core::shares_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kGiB = 1024 * kMiB;

Options with_budget(std::size_t bytes) {
  Options options;
  options.memory_budget = bytes;
  return options;
}

TEST(MemoryShares, OfTheDefaultBudget) {
  const auto shares = shares_of({});
  EXPECT_EQ(shares.database.memtables, 64 * kMiB);
  EXPECT_EQ(shares.database.block_cache, 64 * kMiB);
  EXPECT_EQ(shares.fences, 48 * kMiB);
  EXPECT_EQ(shares.places, 16 * kMiB);
  EXPECT_EQ(shares.records, 64 * kMiB);
  EXPECT_EQ(shares.sum(), 256 * kMiB);
}

TEST(MemoryShares, OfTheSmallestBudget) {
  const auto shares = shares_of(with_budget(16 * kMiB));
  EXPECT_EQ(shares.database.memtables, 4 * kMiB);
  EXPECT_EQ(shares.database.block_cache, 4 * kMiB);
  EXPECT_EQ(shares.fences, 3 * kMiB);
  EXPECT_EQ(shares.places, 1 * kMiB);
  EXPECT_EQ(shares.records, 4 * kMiB);
}

// Of a large one, neither what must be replayed nor what is touched at random grows along.
TEST(MemoryShares, OfALargeBudget) {
  const auto shares = shares_of(with_budget(6 * kGiB));
  EXPECT_EQ(shares.database.memtables, 64 * kMiB);
  EXPECT_EQ(shares.places, 16 * kMiB);
  const auto third = (6 * kGiB - 64 * kMiB) / 3;
  EXPECT_EQ(shares.database.block_cache, third);
  EXPECT_EQ(shares.fences, third - 16 * kMiB);
  EXPECT_EQ(shares.records, third);
}

TEST(MemoryShares, TogetherAreNoMoreThanTheBudgetAndNearlyAllOfIt) {
  for (std::size_t budget = 16 * kMiB; budget < 64 * kGiB; budget += budget / 3 + 7) {
    const auto sum = shares_of(with_budget(budget)).sum();
    EXPECT_LE(sum, budget);
    EXPECT_GT(sum + 3, budget);
  }
}

TEST(MemoryShares, AnOptionOfItsOwnChangesNobodyElsesShare) {
  auto options = with_budget(256 * kMiB);
  options.fence_cache_bytes = 1000;
  auto shares = shares_of(options);
  EXPECT_EQ(shares.fences, 750U);
  EXPECT_EQ(shares.places, 250U);
  EXPECT_EQ(shares.database.block_cache, 64 * kMiB);
  EXPECT_EQ(shares.records, 64 * kMiB);

  options.fence_cache_bytes = 0;
  options.read_cache_bytes = 7 * kGiB;
  shares = shares_of(options);
  EXPECT_EQ(shares.fences, 0U);
  EXPECT_EQ(shares.places, 0U);
  EXPECT_EQ(shares.database.memtables, 64 * kMiB);
  EXPECT_EQ(shares.database.block_cache, 64 * kMiB);
  EXPECT_EQ(shares.records, 7 * kGiB);

  options.fence_cache_bytes = kGiB;
  EXPECT_EQ(shares_of(options).places, 16 * kMiB);
  EXPECT_EQ(shares_of(options).fences, kGiB - 16 * kMiB);
}

TEST(MemoryBudget, AStoreSaysWhatItsCachesMayTake) {
  const auto store = open_memory(with_budget(16 * kMiB));
  EXPECT_EQ(store->options().memory_budget, 16 * kMiB);
  EXPECT_EQ(store->options().fence_cache_bytes, 4 * kMiB);
  EXPECT_EQ(store->options().read_cache_bytes, 4 * kMiB);

  Options options;
  options.fence_cache_bytes = 0;
  options.read_cache_bytes = 5;
  const auto other = open_memory(options);
  EXPECT_EQ(other->options().fence_cache_bytes, 0U);
  EXPECT_EQ(other->options().read_cache_bytes, 5U);
}

TEST(MemoryBudget, OneThatIsTooSmallIsRefusedBeforeAnythingIsTouched) {
  const TemporaryDirectory root;
  const auto path = root.path() / "store";
  const auto opened = open_rocksdb(path, with_budget(16 * kMiB - 1));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Errc::invalid);
  EXPECT_THAT(opened.error().detail(), AllOf(HasSubstr("16777215"), HasSubstr("16777216")));
  EXPECT_FALSE(std::filesystem::exists(path));
}

/// What RocksDB wrote down of how it was opened. Empty: nothing of that name.
std::string noted_option(const std::filesystem::path& database, const std::string& name) {
  for (const auto& entry : std::filesystem::directory_iterator(database)) {
    if (!entry.path().filename().string().starts_with("OPTIONS-")) continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("  " + name + "=")) return line.substr(name.size() + 3);
    }
  }
  return {};
}

TEST(MemoryBudget, AStoreWithTheSmallestWorks) {
  constexpr int kKeys = 1000;
  const TemporaryDirectory root;
  auto options = with_budget(Options::kLeastMemoryBudget);
  options.unguarded_tokens = UnguardedTokens::any;
  options.durability = Durability::process;
  const auto key = [](int number) { return "key-" + std::to_string(number); };
  const auto value = [](int number) {
    return std::string(20 * kKiB, static_cast<char>('a' + number % 26));
  };
  for (int life = 0; life < 2; ++life) {
    auto store = open_rocksdb(root.path() / "store", options);
    ASSERT_TRUE(store) << store.error().line();
    // More than all caches and memtables hold together.
    for (int number = 0; life == 0 && number < kKeys; ++number) {
      const auto set = (*store)->set(key(number), value(number), Token{2});
      ASSERT_TRUE(set) << set.error().line();
    }
    for (int number = 0; number < kKeys; ++number) {
      const auto got = (*store)->get(key(number));
      ASSERT_TRUE(got) << got.error().line();
      ASSERT_EQ(*got, value(number));
      const auto late = (*store)->set(key(number), "late", Token{1});
      ASSERT_FALSE(late);
      ASSERT_EQ(late.error().code(), Errc::fenced);
    }
    const auto database = root.path() / "store" / "db";
    EXPECT_EQ(noted_option(database, "write_buffer_size"), "262144");
    EXPECT_EQ(noted_option(database, "max_write_buffer_number"), "16");
  }
}

TEST(MemoryBudget, TheDatabaseHasItsShares) {
  struct Case {
    std::size_t budget;
    std::size_t memtable;
    std::size_t block_cache;
  };
  for (const auto& [budget, memtable, block_cache] :
       {Case{16 * kMiB, 256 * kKiB, 4 * kMiB}, Case{256 * kMiB, 4 * kMiB, 64 * kMiB},
        Case{64 * kMiB + 3 * kGiB, 4 * kMiB, kGiB}}) {
    const TemporaryDirectory root;
    auto directory = rocks::Directory::take(rocks::posix_files(), root.path() / "store");
    ASSERT_TRUE(directory) << directory.error().line();
    testing::DatabaseMemory seen;
    const auto backend = rocks::RocksBackend::open(
        *std::move(directory), true, Durability::process, system_clock()->boot_id(), {},
        [&](rocksdb::Options& given) { seen = testing::memory_of(given); }, {},
        shares_of(with_budget(budget)).database);
    ASSERT_TRUE(backend) << backend.error().line();
    EXPECT_EQ(seen.memtable, memtable) << budget;
    EXPECT_EQ(seen.memtables, 16) << budget;
    EXPECT_EQ(seen.block_cache, block_cache) << budget;
  }
}

// The tools, and what else opens the database without a store.
TEST(MemoryBudget, WithoutAStoreTheDatabaseIsOpenedAsByDefault) {
  const auto memory = testing::memory_of(rocks::database_options(nullptr, {}));
  EXPECT_EQ(memory.memtable, 4 * kMiB);
  EXPECT_EQ(memory.memtables, 16);
  EXPECT_EQ(memory.block_cache, 64 * kMiB);
}

}  // namespace
}  // namespace fencekv
