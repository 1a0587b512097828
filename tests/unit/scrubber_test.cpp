// SPDX-License-Identifier: Apache-2.0
/// Everything that is stored is read and verified, what is damaged is found and named, and the rest
/// of the store works (engine/SEMANTICS.md, 4.6 and 4.11).

#include "engine/core/make_store.h"
#include "engine/core/record.h"
#include "engine/memory/memory_backend.h"
#include "engine/rocksdb/rocksdb_backend.h"
#include "tests/support/fast_directory.h"
#include "tests/support/file_tree.h"
#include "tests/support/manual_clock.h"
#include "tests/support/noise.h"
#include "tests/support/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

template <class T>
std::string line_of(const Result<T>& result) {
  return result ? "OK" : result.error().line();
}

bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 4000 && !holds(); ++i) std::this_thread::sleep_for(5ms);
  return holds();
}

class Scrubbing : public ::testing::Test {
 protected:
  Scrubbing() {
    options_.clock = clock_;
    options_.reclaim_interval = {};
    options_.scrub_interval = {};
    options_.unguarded_tokens = UnguardedTokens::any;
    options_.log = [this](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex_);
      log_.emplace_back(line);
    };
    open();
  }
  void open() {
    auto opened = core::make_store(
        std::make_unique<memory::MemoryBackend>(disk_, options_.durability, clock_->boot_id()),
        options_);
    ASSERT_TRUE(opened) << line_of(opened);
    store_ = *std::move(opened);
  }
  Token take(const std::string& name, const std::string& owner, AcquireOptions options = {}) {
    const auto grant = store_->acquire(name, owner, 10s, std::move(options));
    EXPECT_TRUE(grant && *grant) << name << ": " << line_of(grant);
    return grant && *grant ? (*grant)->token : Token();
  }
  void fill() {
    for (const auto* key : {"a", "b", "c"}) EXPECT_TRUE(store_->set(key, "value", Token{5}));
    EXPECT_TRUE(store_->remove("c", Token{5}));
    take("x", "me");
    take("y", "me");
    for (const auto* owner : {"one", "two", "three"}) {
      take("readers", owner, {.mode = LeaseMode::shared});
      take("others", owner, {.mode = LeaseMode::shared});
    }
  }
  Scrubbed scrub() {
    const auto found = store_->scrub();
    EXPECT_TRUE(found) << line_of(found);
    return found ? *found : Scrubbed{};
  }
  std::string& stored(const std::string& place) { return disk_->records.at(place); }
  std::vector<std::string> log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  const std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  const std::shared_ptr<memory::MemoryDisk> disk_ = std::make_shared<memory::MemoryDisk>();
  Options options_;
  std::mutex mutex_;
  std::vector<std::string> log_;  // guarded by mutex_
  std::unique_ptr<Store> store_;
};

bool decodes(const std::string& place, const std::string& bytes) {
  switch (place.front()) {
    case core::kKeyPrefix:
      return core::decode_key(place, bytes).has_value();
    case core::kLeasePrefix:
      return core::decode_lease(place, bytes).has_value();
    case core::kGrantPrefix:
      return core::decode_grant(place, bytes).has_value();
    default:
      return place == core::kPositionKey    ? core::decode_position(place, bytes).has_value()
             : place == core::kAllocatorKey ? core::decode_allocator(place, bytes).has_value()
                                            : core::decode_identity(place, bytes).has_value();
  }
}

TEST_F(Scrubbing, ARecordOfAnyKindIsValidOnlyWhereItStandsAndAsItIs) {
  fill();
  std::map<char, int> kinds;
  for (const auto& [place, bytes] : disk_->records) {
    SCOPED_TRACE(escaped(place));
    ++kinds[place.front()];
    EXPECT_TRUE(decodes(place, bytes));
    for (const auto& [other, others_bytes] : disk_->records) {
      EXPECT_EQ(decodes(other, bytes), other == place) << "taken for " << escaped(other);
    }
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      auto changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      EXPECT_FALSE(decodes(place, changed)) << "byte " << at;
    }
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decodes(place, bytes.substr(0, size))) << size << " bytes";
    }
  }
  EXPECT_EQ(kinds, (std::map<char, int>{{'k', 3}, {'l', 4}, {'g', 4}, {'m', 3}}));
}

TEST_F(Scrubbing, ReadsEveryRecordAndFindsNothingInASoundStore) {
  fill();
  const auto found = scrub();

  EXPECT_EQ(found.records, disk_->records.size());
  std::uint64_t bytes = 0;
  for (const auto& [place, content] : disk_->records) bytes += place.size() + content.size();
  EXPECT_EQ(found.bytes, bytes);
  EXPECT_EQ(found.problems, 0U);
  EXPECT_THAT(found.findings, IsEmpty());
  const auto stats = store_->stats();
  EXPECT_EQ(stats.scrubbed, clock_->wall());
  EXPECT_EQ(stats.scrubbed_records, found.records);
  EXPECT_EQ(stats.scrub_problems, 0U);
}

TEST_F(Scrubbing, GoesThroughManyPages) {
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(store_->set("key-" + std::to_string(i), std::string(i % 3000, 'x'), Token{5}));
  }
  stored("kkey-2999")[20] ^= 1;
  const auto found = scrub();
  EXPECT_EQ(found.records, 3003U);
  EXPECT_THAT(found.findings, ElementsAre("record kkey-2999: checksum does not match"));
}

TEST_F(Scrubbing, NamesWhatIsWrongAndWhatToRun) {
  fill();
  std::swap(stored("ka"), stored("kb"));
  stored("lx")[9] ^= 1;
  disk_->records["?what"] = "?";
  // Grants without their lease, and a lease without its grants.
  disk_->records.erase("lreaders");
  const auto others = core::grants_prefix("others");
  disk_->records.erase(disk_->records.lower_bound(others));

  const auto found = scrub();

  EXPECT_EQ(found.problems, found.findings.size());
  EXPECT_THAT(found.findings, Contains(HasSubstr("record ka: checksum")));
  EXPECT_THAT(found.findings, Contains(HasSubstr("record kb: checksum")));
  EXPECT_THAT(found.findings, Contains(HasSubstr("record lx: checksum")));
  EXPECT_THAT(found.findings, Contains(HasSubstr("record ?what: unknown kind")));
  EXPECT_THAT(found.findings, Contains(HasSubstr("lease readers: it was never granted")));
  EXPECT_THAT(found.findings, Contains(HasSubstr("others")));
  EXPECT_EQ(store_->stats().scrub_problems, found.problems);
  EXPECT_THAT(log(), Contains(AllOf(HasSubstr("record ka: "), HasSubstr("fencekv-admin verify"))));
}

TEST_F(Scrubbing, FindsATokenThatNobodyHandedOut) {
  const auto token = take("x", "me");
  auto record = *core::decode_lease("lx", stored("lx"));
  record.newest.token = Token{token.number() + 7};
  stored("lx") = core::encode("lx", record);
  EXPECT_THAT(scrub().findings, ElementsAre(HasSubstr("lease x: its token 8 is above the newest")));
}

TEST_F(Scrubbing, KeepsTheFirstHundredFindingsAndCountsAll) {
  for (int i = 0; i < 150; ++i) ASSERT_TRUE(store_->set(std::to_string(i), "v", Token{1}));
  for (auto& [place, bytes] : disk_->records) {
    if (place.front() == core::kKeyPrefix) bytes[3] ^= 1;
  }
  const auto found = scrub();
  EXPECT_EQ(found.problems, 150U);
  EXPECT_EQ(found.findings.size(), 100U);
  EXPECT_THAT(log(), Contains("scrub: 50 more problems"));
}

TEST_F(Scrubbing, ADamagedRecordIsCorruptToEveryCommandAndTheRestWorks) {
  fill();
  store_.reset();
  open();  // nothing is remembered of them
  stored("ka")[5] ^= 1;
  stored("lx")[5] ^= 1;
  const auto said = [this](auto command) { return line_of(store_->execute(std::move(command))); };
  const auto write = [](std::vector<std::string> keys) {
    Write command;
    for (auto& key : keys) command.entries.push_back({.key = std::move(key), .value = "v"});
    command.token = Token{100};
    return command;
  };

  EXPECT_THAT(said(write({"a"})), StartsWith("CORRUPT"));
  EXPECT_THAT(said(write({"b", "a"})), StartsWith("CORRUPT"));
  EXPECT_THAT(line_of(store_->remove("a", Token{100})), StartsWith("CORRUPT"));
  EXPECT_THAT(line_of(store_->get("a")), StartsWith("CORRUPT"));
  EXPECT_THAT(said(Read{.keys = {"b", "a"}}), StartsWith("CORRUPT"));
  EXPECT_THAT(said(Raise{.key = "a", .token = Token{100}, .lease = {}}), StartsWith("CORRUPT"));
  EXPECT_THAT(said(FencedRead{.key = "a", .token = Token{100}, .lease = {}}),
              StartsWith("CORRUPT"));
  EXPECT_THAT(said(Reset{.key = "a", .token = Token{1}}), StartsWith("CORRUPT"));
  EXPECT_THAT(line_of(store_->list_keys(std::nullopt, 100)), StartsWith("CORRUPT"));
  EXPECT_THAT(line_of(store_->acquire("x", "you", 1s)), StartsWith("CORRUPT"));
  EXPECT_THAT(line_of(store_->renew("x", "me", Token{1}, 1s)), StartsWith("CORRUPT"));
  EXPECT_THAT(line_of(store_->release("x", "me", Token{1})), StartsWith("CORRUPT"));
  EXPECT_THAT(said(Revoke{.name = "x"}), StartsWith("CORRUPT"));
  EXPECT_THAT(said(Inspect{.name = "x"}), StartsWith("CORRUPT"));
  EXPECT_THAT(line_of(store_->set("new", "v", Token{1}, {.lease = "x"})), StartsWith("CORRUPT"));

  EXPECT_EQ(said(write({"b", "new"})), "OK");
  EXPECT_EQ(*store_->get("b"), "v");
  EXPECT_EQ(line_of(store_->acquire("z", "you", 1s)), "OK");
  EXPECT_FALSE(store_->refuses_writes());
}

TEST_F(Scrubbing, HappensByItself) {
  fill();
  stored("ka")[5] ^= 1;
  store_.reset();
  options_.scrub_interval = 24 * 20ms;
  open();

  EXPECT_TRUE(soon([this] { return store_->stats().scrub_problems == 1; }));
  EXPECT_GT(store_->stats().scrubbed_records, 10U);
}

TEST_F(Scrubbing, GoesNoFasterThanItMayAndStopsAtOnce) {
  fill();
  store_.reset();
  options_.scrub_interval = 24ms;
  options_.scrub_bytes_per_second = 1;  // a quarter of an hour for what is there
  open();
  std::this_thread::sleep_for(100ms);

  EXPECT_EQ(store_->stats().scrubbed, 0ms);
  const auto before = std::chrono::steady_clock::now();
  store_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 20s);
}

// --- files ----------------------------------------------------------------------------------

class ScrubbingFiles : public ::testing::Test {
 protected:
  static std::string key(int number) {
    auto digits = std::to_string(number);
    return "key-" + std::string(4 - digits.size(), '0') + digits;
  }
  void open(rocks::RocksBackend::Adjust adjust) {
    store_.reset();
    auto directory = rocks::Directory::take(rocks::posix_files(), path_);
    ASSERT_TRUE(directory) << line_of(directory);
    const auto is_new = directory->is_new();
    ASSERT_TRUE(is_new) << line_of(is_new);
    Options options;
    options.unguarded_tokens = UnguardedTokens::any;
    options.reclaim_interval = {};
    options.scrub_interval = {};
    options.log = [this](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex_);
      log_ += std::string(line) + "\n";
    };
    auto backend =
        rocks::RocksBackend::open(*std::move(directory), *is_new, Durability::sync,
                                  system_clock()->boot_id(), options.log, std::move(adjust));
    ASSERT_TRUE(backend) << line_of(backend);
    auto store = core::make_store(*std::move(backend), options);
    ASSERT_TRUE(store) << line_of(store);
    store_ = *std::move(store);
  }
  /// 400 keys in one table, and where that is.
  std::filesystem::path fill() {
    const auto one_table = [](rocksdb::Options& options) {
      options.disable_auto_compactions = true;
    };
    open(one_table);
    for (int i = 0; i < 400; ++i) {
      EXPECT_EQ(line_of(store_->set(key(i), noise(1000, i), Token{1})), "OK");
    }
    open(one_table);
    std::filesystem::path largest;
    std::uintmax_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_ / "db")) {
      if (entry.path().extension() != ".sst" || entry.file_size() <= bytes) continue;
      bytes = entry.file_size();
      largest = entry.path();
    }
    EXPECT_GT(bytes, 400'000U);
    return largest;
  }
  static void damage(const std::filesystem::path& file) {
    auto content = content_of(file);
    content[content.size() / 4] = static_cast<char>(content[content.size() / 4] ^ 0x10);
    set_content(file, content);
  }
  /// How many of the keys are damaged; all others are as they were.
  int count_damaged() {
    int damaged = 0;
    for (int i = 0; i < 400; ++i) {
      const auto value = store_->get(key(i));
      if (!value) {
        EXPECT_THAT(value.error().line(), StartsWith("CORRUPT"));
        ++damaged;
      } else {
        EXPECT_TRUE(*value == noise(1000, i) || *value == "new") << key(i);
      }
    }
    return damaged;
  }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  const FastDirectory directory_;
  const std::filesystem::path path_ = directory_.path() / "store";
  std::mutex mutex_;
  std::string log_;  // guarded by mutex_
  std::unique_ptr<Store> store_;
};

TEST_F(ScrubbingFiles, ADamagedBlockIsFoundWithItsFileAndTheRestWorks) {
  const auto table = fill();
  EXPECT_EQ(store_->scrub()->problems, 0U);
  damage(table);

  const auto found = store_->scrub();

  ASSERT_TRUE(found) << line_of(found);
  EXPECT_GE(found->problems, 1U);
  EXPECT_THAT(found->findings, Contains(HasSubstr(table.string())));
  EXPECT_THAT(log(), HasSubstr("fencekv-admin verify"));
  open([](rocksdb::Options& options) { options.disable_auto_compactions = true; });
  const auto damaged = count_damaged();
  EXPECT_GT(damaged, 0);
  EXPECT_LT(damaged, 20);
  EXPECT_EQ(line_of(store_->set("another", "v", Token{1})), "OK");
}

TEST_F(ScrubbingFiles, ADamagedSlotOfThePositionFileIsFoundUntilItIsWrittenAnew) {
  fill();
  const auto file = path_ / "position";
  auto content = content_of(file);
  for (const std::size_t slot : {0U, 4096U}) {
    auto changed = content;
    changed[slot + 40] = static_cast<char>(changed[slot + 40] ^ 1);
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.write(changed.data(), static_cast<std::streamsize>(changed.size()));
    stream.close();
    EXPECT_THAT(store_->scrub()->findings, ElementsAre(HasSubstr("one of its two slots")));
    stream.open(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.write(content.data(), static_cast<std::streamsize>(content.size()));
    stream.close();
  }
  EXPECT_EQ(store_->scrub()->problems, 0U);
}

// RocksDB stops all writes for it, and does so again after each reopening.
TEST_F(ScrubbingFiles, ADamagedBlockThatAMergeMeetsStopsNobody) {
  damage(fill());
  open([](rocksdb::Options& options) {
    options.write_buffer_size = 64 * 1024;
    options.level0_file_num_compaction_trigger = 2;
    options.level0_slowdown_writes_trigger = 4;
    options.level0_stop_writes_trigger = 6;
  });
  // Every fourth key anew, over and over: tables that have to be merged with the damaged one. A
  // damaged key cannot be written, and says so.
  for (int round = 0; round < 400 && !store_->stats().ailment; ++round) {
    for (int i = 0; i < 400; i += 4) {
      const auto set = store_->set(key(i), noise(1000, i), Token{1});
      ASSERT_THAT(line_of(set), AnyOf("OK", StartsWith("CORRUPT")));
    }
  }
  ASSERT_TRUE(store_->stats().ailment);
  EXPECT_THAT(*store_->stats().ailment,
              AllOf(HasSubstr(".sst"), HasSubstr("fencekv-admin repair")));

  // More tables than would stop the writes while they are not merged.
  for (int i = 0; i < 600; ++i) {
    ASSERT_EQ(line_of(store_->set("after-" + std::to_string(i), noise(2000, i), Token{1})), "OK");
  }
  EXPECT_FALSE(store_->refuses_writes());
  const auto damaged = count_damaged();
  EXPECT_GT(damaged, 0);
  EXPECT_LT(damaged, 20);
  EXPECT_THAT(log(), HasSubstr("a table is damaged, and tables are not merged any more"));
  EXPECT_THAT(log(), Not(HasSubstr("no writes are taken")));
}

}  // namespace
}  // namespace fencekv::testing
