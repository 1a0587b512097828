// SPDX-License-Identifier: Apache-2.0
/// What the simulation found, each by the shortest way to it.

#include "engine/core/make_store.h"
#include "engine/memory/memory_backend.h"
#include "engine/rocksdb/directory.h"
#include "engine/rocksdb/rocksdb_backend.h"
#include "tests/simulation/small_database.h"
#include "tests/support/manual_clock.h"
#include "tests/support/simulated_disk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using std::chrono::milliseconds;

constexpr const char* kPath = "/machine/store";

class FoundFaults : public ::testing::Test {
 protected:
  FoundFaults() {
    EXPECT_TRUE(disk_->make_directory("/machine"));
    EXPECT_TRUE(disk_->sync_directory("/"));
  }

  /// The store on the disk. A memtable is full after `entries`.
  Result<core::DrivenStore> open(Durability durability, std::uint64_t entries = 1000) {
    Options options;
    options.durability = durability;
    options.clock = clock_;
    auto taken = rocks::Directory::take(*disk_, kPath);
    if (!taken) return taken.error();
    const auto is_new = taken->is_new();
    if (!is_new) return is_new.error();
    auto backend = rocks::RocksBackend::open(
        *std::move(taken), *is_new, durability, clock_->boot_id(), {},
        [entries](rocksdb::Options& database) { make_small(database, entries); });
    if (!backend) return backend.error();
    return core::make_driven_store(*std::move(backend), options);
  }

  /// The logs of the database, the oldest first.
  std::vector<std::string> logs() const {
    std::vector<std::string> logs;
    for (const auto& path : disk_->inodes().files()) {
      if (path.ends_with(".log")) logs.push_back(path);
    }
    return logs;
  }

  /// Zeros instead of the last bytes of a file: the sector was never written.
  void blank_end(const std::string& path, std::size_t bytes) {
    auto content = *disk_->inodes().content(path);
    ASSERT_GT(content.size(), bytes);
    std::fill(content.end() - static_cast<std::ptrdiff_t>(bytes), content.end(), '\0');
    ASSERT_TRUE(disk_->inodes().replace(path, content));
  }

  /// A token to write with.
  static Token acquire(Store& store) {
    const auto grant = store.acquire("lease", "owner", milliseconds(100'000));
    EXPECT_TRUE(grant && *grant);
    return (*grant)->token;
  }

  const std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  std::shared_ptr<SimulatedDisk> disk_ = std::make_shared<SimulatedDisk>(BackgroundWork::queued);
};

TEST_F(FoundFaults, ARecordTornBeforeItWasAcknowledgedIsNoDamage) {
  std::shared_ptr<SimulatedDisk> image;
  {
    const auto store = open(Durability::sync);
    ASSERT_TRUE(store) << store.error().line();
    const auto token = acquire(*store->store);
    ASSERT_TRUE(store->store->set("first", "acknowledged", token));
    disk_->inodes().set_hook([&](const DiskCall& call) -> std::optional<DiskFailure> {
      if (call.operation == DiskOperation::sync && !image) image = disk_->after_process_crash();
      return std::nullopt;
    });
    ASSERT_TRUE(store->store->set("second", std::string(3000, 'v'), token));
    disk_->inodes().set_hook({});
  }
  ASSERT_NE(image, nullptr);
  disk_ = image;
  clock_->reboot();
  blank_end(logs().back(), 1000);

  const auto store = open(Durability::sync);

  ASSERT_TRUE(store) << store.error().line();
  EXPECT_EQ(*store->store->get("first"), "acknowledged");
  EXPECT_EQ(*store->store->get("second"), std::nullopt);
  EXPECT_EQ(store->store->stats().live_keys, 1U);
  EXPECT_TRUE(store->store->stats().floor.is_none());
}

TEST_F(FoundFaults, ARecordDamagedAfterItWasAcknowledgedIsRefused) {
  std::shared_ptr<SimulatedDisk> image;
  {
    const auto store = open(Durability::sync);
    ASSERT_TRUE(store) << store.error().line();
    const auto token = acquire(*store->store);
    ASSERT_TRUE(store->store->set("first", std::string(3000, 'v'), token));
    image = disk_->after_process_crash();
  }
  disk_ = image;
  clock_->reboot();
  blank_end(logs().back(), 1000);

  const auto store = open(Durability::sync);

  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), Errc::corrupt);
}

TEST_F(FoundFaults, AHoleBetweenTwoLogsEndsTheHistory) {
  constexpr int kKeys = 20;
  std::shared_ptr<SimulatedDisk> image;
  Token token;
  {
    const auto store = open(Durability::process, 20);
    ASSERT_TRUE(store) << store.error().line();
    token = acquire(*store->store);
    for (int i = 0; i < kKeys; ++i) {
      ASSERT_TRUE(store->store->set("key" + std::to_string(100 + i), "value", token));
    }
    image = disk_->after_process_crash();
  }
  disk_ = image;
  clock_->reboot();
  const auto found = logs();
  ASSERT_GE(found.size(), 2U) << "nothing was sealed";
  // The last group of the first log never reached the disk.
  auto content = *disk_->inodes().content(found.front());
  content.resize(content.size() - 300);
  ASSERT_TRUE(disk_->inodes().replace(found.front(), content));

  const auto store = open(Durability::process);

  ASSERT_TRUE(store) << store.error().line();
  EXPECT_GT(store->store->stats().floor, token) << "acknowledged writes are lost";
  const auto keys = store->store->list_keys(std::nullopt, 1000);
  ASSERT_TRUE(keys);
  ASSERT_LT(keys->items.size(), std::size_t{kKeys});
  EXPECT_EQ(store->store->stats().live_keys, keys->items.size());
  for (std::size_t i = 0; i < keys->items.size(); ++i) {
    EXPECT_EQ(keys->items[i], "key" + std::to_string(100 + i)) << "what was written before is gone";
  }
}

TEST_F(FoundFaults, ADirectoryWhoseCreatorDiedIsMadeDurableByTheNextOne) {
  std::shared_ptr<SimulatedDisk> image;
  disk_->inodes().set_hook([&](const DiskCall& call) -> std::optional<DiskFailure> {
    const bool is_parent =
        call.operation == DiskOperation::sync_directory && call.path == "/machine";
    if (is_parent && !image) image = disk_->after_process_crash();
    return std::nullopt;
  });
  ASSERT_TRUE(open(Durability::sync));
  disk_->inodes().set_hook({});
  ASSERT_NE(image, nullptr);
  disk_ = image;
  {
    const auto store = open(Durability::sync);
    ASSERT_TRUE(store) << store.error().line();
    ASSERT_TRUE(store->store->set("key", "acknowledged", acquire(*store->store)));
  }

  std::mt19937_64 random(1);  // NOLINT: the same each time.
  for (int i = 0; i < 50; ++i) {
    const auto left = disk_->after_power_loss(random);
    EXPECT_TRUE(left->inodes().content(std::string(kPath) + "/FORMAT")) << "the store is gone";
  }
}

TEST(FoundFaultsOfRules, WaitsOfOneOwnerAreAnsweredInTheirOrder) {
  Options options;
  options.clock = std::make_shared<ManualClock>();
  auto backend = std::make_unique<memory::MemoryBackend>(
      std::make_shared<memory::MemoryDisk>(), options.durability, options.clock->boot_id());
  auto driven = core::make_driven_store(std::move(backend), options);
  ASSERT_TRUE(driven);
  auto& store = *driven->store;
  const auto first = store.acquire("x", "other", milliseconds(1000));
  ASSERT_TRUE(first && *first);
  const auto wait = [&](Command command) { store.enqueue(std::move(command), [](auto) {}); };
  const milliseconds patience(500);
  wait(AcquireMany{{"x", "y"}, "owner", milliseconds(7), patience});
  wait(make_acquire("y", "owner", milliseconds(13), {.wait = patience}));
  wait(AcquireMany{{"x", "y"}, "owner", milliseconds(22), patience});

  ASSERT_TRUE(store.release("x", "other", (*first)->token));

  for (const auto* name : {"x", "y"}) {
    const auto state = store.execute(Inspect{name});
    ASSERT_TRUE(state);
    ASSERT_EQ(state->holders.size(), 1U) << name;
    EXPECT_EQ(state->holders.front().remaining, milliseconds(22)) << name << ": asked last";
  }
}

}  // namespace
}  // namespace fencekv::testing
