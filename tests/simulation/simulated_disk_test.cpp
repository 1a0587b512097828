// SPDX-License-Identifier: Apache-2.0
/// The simulated disk keeps what a disk keeps, and forgets what one may forget.

#include "tests/support/simulated_disk.h"

#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>

namespace fencekv::testing {
namespace {

constexpr const char* kFile = "/d/file";

/// A disk with an empty durable file in a durable directory.
std::unique_ptr<SimulatedDisk> disk_with_file() {
  auto disk = std::make_unique<SimulatedDisk>(BackgroundWork::queued);
  EXPECT_TRUE(disk->make_directory("/d"));
  EXPECT_TRUE(disk->create(kFile));
  EXPECT_TRUE(disk->sync_directory("/d"));
  EXPECT_TRUE(disk->sync_directory("/"));
  return disk;
}

/// All that a file can be after many power cuts; nullopt: it is gone.
std::set<std::optional<std::string>> outcomes(const SimulatedDisk& disk, const char* path) {
  std::mt19937_64 random(1);  // NOLINT: the same each time.
  std::set<std::optional<std::string>> outcomes;
  for (int i = 0; i < 300; ++i) {
    outcomes.insert(disk.after_power_loss(random)->inodes().content(path));
  }
  return outcomes;
}

using Outcomes = std::set<std::optional<std::string>>;

TEST(SimulatedDisk, KeepsWhatWasWrittenWhenTheProcessDies) {
  const auto disk = disk_with_file();
  ASSERT_TRUE((*disk->open(kFile))->write_at(0, "written"));

  const auto image = disk->after_process_crash();

  EXPECT_EQ(image->inodes().content(kFile), "written");
  EXPECT_EQ(outcomes(*image, kFile), outcomes(*disk, kFile)) << "it was never synced";
}

TEST(SimulatedDisk, KeepsWhatWasSyncedWhenThePowerIsCut) {
  const auto disk = disk_with_file();
  const auto file = *disk->open(kFile);
  ASSERT_TRUE(file->write_at(0, "synced"));
  ASSERT_TRUE(file->sync());

  EXPECT_EQ(outcomes(*disk, kFile), Outcomes{"synced"});
}

TEST(SimulatedDisk, MayKeepEverySectorOfWhatWasNotSyncedOrNot) {
  const auto disk = disk_with_file();
  const auto file = *disk->open(kFile);
  const std::string first(512, 'a');
  const std::string second(512, 'b');
  ASSERT_TRUE(file->write_at(0, first + second));

  const auto found = outcomes(*disk, kFile);

  const std::string hole(512, '\0');
  for (const auto& expected :
       {std::string(), first, first + second, hole + second, first + hole, hole + hole}) {
    EXPECT_TRUE(found.contains(expected)) << expected.size();
  }
  EXPECT_EQ(found.size(), 6U);
}

TEST(SimulatedDisk, NeverMixesTheBytesOfOneSector) {
  const auto disk = disk_with_file();
  const auto file = *disk->open(kFile);
  ASSERT_TRUE(file->write_at(0, "old"));
  ASSERT_TRUE(file->sync());
  ASSERT_TRUE(file->write_at(0, "new"));
  ASSERT_TRUE(file->write_at(1, "3"));

  EXPECT_EQ(outcomes(*disk, kFile), (Outcomes{"old", "new", "n3w"}));
}

TEST(SimulatedDisk, MayLoseANameThatItsDirectoryWasNotSyncedFor) {
  const auto disk = disk_with_file();
  const auto file = *disk->create("/d/new");
  ASSERT_TRUE(file->write_at(0, "synced"));
  ASSERT_TRUE(file->sync());

  EXPECT_EQ(outcomes(*disk, "/d/new"), (Outcomes{std::nullopt, "synced"}));
  ASSERT_TRUE(disk->sync_directory("/d"));
  EXPECT_EQ(outcomes(*disk, "/d/new"), Outcomes{"synced"});
}

TEST(SimulatedDisk, DoesARenameInOneStepOrNot) {
  const auto disk = disk_with_file();
  for (const auto* name : {"/d/old", "/d/new"}) {
    const auto file = *disk->create(name);
    ASSERT_TRUE(file->write_at(0, name));
    ASSERT_TRUE(file->sync());
  }
  ASSERT_TRUE(disk->sync_directory("/d"));
  ASSERT_TRUE(disk->rename("/d/new", "/d/old"));

  EXPECT_EQ(outcomes(*disk, "/d/old"), (Outcomes{"/d/old", "/d/new"}));
  EXPECT_EQ(outcomes(*disk, "/d/new"), (Outcomes{std::nullopt, "/d/new"}));
  ASSERT_TRUE(disk->sync_directory("/d"));
  EXPECT_EQ(outcomes(*disk, "/d/old"), Outcomes{"/d/new"});
}

TEST(SimulatedDisk, MayBringBackWhatWasRemovedAndNotSynced) {
  const auto disk = disk_with_file();
  ASSERT_TRUE(disk->remove(kFile));

  EXPECT_EQ(*disk->exists(kFile), false);
  EXPECT_EQ(outcomes(*disk, kFile), (Outcomes{std::nullopt, ""}));
}

TEST(SimulatedDisk, AnswersAChosenCallWithAnError) {
  const auto disk = disk_with_file();
  const auto file = *disk->open(kFile);
  disk->inodes().set_hook([](const DiskCall& call) -> std::optional<DiskFailure> {
    if (call.operation != DiskOperation::write) return std::nullopt;
    return DiskFailure{.number = EDQUOT, .written = 2};
  });

  const auto written = file->write_at(0, "bytes");

  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), Errc::no_space);
  EXPECT_EQ(disk->inodes().content(kFile), "by");
}

TEST(SimulatedDisk, IsFullAtItsCapacity) {
  const auto disk = disk_with_file();
  const auto file = *disk->open(kFile);
  disk->inodes().set_capacity(3, ENOSPC);

  const auto written = file->write_at(0, "bytes");

  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), Errc::no_space);
  EXPECT_EQ(disk->inodes().content(kFile), "byt");
  EXPECT_TRUE(file->write_at(0, "new")) << "no more space is needed";
}

TEST(SimulatedDisk, KeepsLocksFromTheLivingOnly) {
  const auto disk = disk_with_file();
  const auto held = disk->lock("/d/lock", rocks::LockMode::exclusive);
  ASSERT_TRUE(held && *held);

  const auto second = disk->lock("/d/lock", rocks::LockMode::shared);
  const auto image = disk->after_process_crash();
  const auto after = image->lock("/d/lock", rocks::LockMode::exclusive);

  ASSERT_TRUE(second);
  EXPECT_EQ(*second, nullptr);
  ASSERT_TRUE(after);
  EXPECT_NE(*after, nullptr);
}

rocksdb::Options small(SimulatedDisk& disk) {
  rocksdb::Options options;
  options.env = disk.env();
  options.create_if_missing = true;
  options.write_buffer_size = std::size_t{64} * 1024;
  options.max_write_buffer_number = 20;
  options.level0_file_num_compaction_trigger = 2;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  return options;
}

/// Both ways of background work: a database writes, flushes, compacts, and after a power cut has
/// all that was synced.
class DatabaseOnSimulatedDisk : public ::testing::TestWithParam<BackgroundWork> {};

TEST_P(DatabaseOnSimulatedDisk, KeepsSyncedWrites) {
  auto disk = std::make_shared<SimulatedDisk>(GetParam());
  std::mt19937_64 random(7);  // NOLINT: the same each time.
  rocksdb::WriteOptions synced;
  synced.sync = true;
  int written = 0;
  for (int life = 0; life < 8; ++life) {
    std::shared_ptr<SimulatedDisk> image;
    {
      rocksdb::DB* opened = nullptr;
      ASSERT_TRUE(rocksdb::DB::Open(small(*disk), "/db", &opened).ok());
      const std::unique_ptr<rocksdb::DB> database(opened);
      for (int key = 0; key < written; ++key) {
        std::string value;
        ASSERT_TRUE(database->Get({}, std::to_string(key), &value).ok()) << key << " of " << life;
      }
      for (int i = 0; i < 200; ++i) {
        const auto put = database->Put(synced, std::to_string(written), std::string(500, 'v'));
        ASSERT_TRUE(put.ok()) << put.ToString();
        ++written;
        if (i % 50 == 0) disk->run_background();
      }
      image = disk->after_power_loss(random);
    }
    disk = image;
  }
}

INSTANTIATE_TEST_SUITE_P(Either, DatabaseOnSimulatedDisk,
                         ::testing::Values(BackgroundWork::threads, BackgroundWork::queued),
                         [](const auto& work) {
                           return work.param == BackgroundWork::threads ? "Threads" : "Queued";
                         });

}  // namespace
}  // namespace fencekv::testing
