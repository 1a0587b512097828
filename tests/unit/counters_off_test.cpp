// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/counters_off.h"

#include "engine/rocksdb/rocksdb_backend.h"
#include "fencekv/store.h"
#include "tests/support/perf_counters.h"
#include "tests/support/raw_database.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace fencekv::testing {
namespace {

/// What the store's thread does, on this one.
class CountersOffTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto taken = rocks::Directory::take(rocks::posix_files(), root_.path() / "store");
    ASSERT_TRUE(taken) << taken.error().line();
    auto opened = rocks::RocksBackend::open(*std::move(taken), true, Durability::process,
                                            system_clock()->boot_id(), {});
    ASSERT_TRUE(opened) << opened.error().line();
    backend_ = *std::move(opened);
    ASSERT_TRUE(backend_->claim());
    commit();
    commit();
  }

  void commit() {
    core::Batch batch;
    batch.position = {.epoch = 1, .n = ++groups_};
    for (const auto* name : {"a", "b", "c"}) {
      core::KeyRecord record;
      record.fence = Token{groups_};
      batch.puts.add({&core::kKeyPrefix, 1}, name, record);
    }
    batch.puts.add(core::kIdentityKey, {}, core::IdentityRecord());
    batch.puts.add(core::kPositionKey, {}, batch.position);
    ASSERT_EQ(backend_->commit(batch), core::Outcome::committed);
  }

  const TemporaryDirectory root_;
  std::unique_ptr<rocks::RocksBackend> backend_;
  std::uint64_t groups_ = 0;
};

TEST_F(CountersOffTest, AGroupCountsNothing) {
  const PerfCounters counters(rocksdb::PerfLevel::kEnableCount);
  commit();
  EXPECT_EQ(counters.comparisons(), 0U);
}

TEST_F(CountersOffTest, ReadsCountNothing) {
  const PerfCounters counters(rocksdb::PerfLevel::kEnableCount);
  ASSERT_TRUE(backend_->read("kb")->has_value());
  const auto snapshot = backend_->snapshot();
  ASSERT_TRUE(snapshot->read("kc")->has_value());
  int seen = 0;
  ASSERT_TRUE(snapshot->scan("k", [&](std::string_view, std::string_view) { return ++seen < 3; }));
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(counters.comparisons(), 0U);
}

// Or the tests above would see nothing whatever the store did.
TEST_F(CountersOffTest, AnApplicationsReadsAreCounted) {
  const PerfCounters counters(rocksdb::PerfLevel::kEnableCount);
  ASSERT_TRUE(backend_->read("kb")->has_value());
  { const rocks::CountersOff off; }
  backend_.reset();
  RawDatabase database(root_.path() / "store" / "db");
  database.get("kb");
  EXPECT_GT(counters.comparisons(), 0U);
}

TEST_F(CountersOffTest, TheApplicationsLevelIsLeftAsItIs) {
  const PerfCounters counters(rocksdb::PerfLevel::kEnableTime);
  commit();
  EXPECT_EQ(counters.level(), rocksdb::PerfLevel::kEnableTime);
  ASSERT_TRUE(backend_->read("ka")->has_value());
  EXPECT_EQ(counters.level(), rocksdb::PerfLevel::kEnableTime);
}

}  // namespace
}  // namespace fencekv::testing
