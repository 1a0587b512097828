// SPDX-License-Identifier: Apache-2.0
/// Reading tables and logs that RocksDB would refuse.

#include "engine/rocksdb/salvage.h"

#include "engine/core/record.h"
#include "engine/rocksdb/file_system.h"
#include "tests/support/fast_directory.h"
#include "tests/support/file_tree.h"
#include "tests/support/raw_database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::rocks {
namespace {

using std::filesystem::path;
using testing::content_of;
using testing::FastDirectory;
using testing::flip_bit;
using testing::set_content;

/// What a file says of a place: sequence, and the bytes of a put.
using Said = std::map<std::pair<std::string, std::uint64_t>, std::string>;

class SalvageTest : public ::testing::Test {
 protected:
  /// A database with a table and a log, written by RocksDB itself.
  void SetUp() override {
    testing::RawDatabase db(database());
    for (int i = 0; i < 400; ++i) put(db, i, tabled_);
    db.remove("kgone");
    tabled_[{"kgone", sequence_++}] = "deleted";
    db.flush();
    for (int i = 0; i < 40; ++i) put(db, i, logged_);
    // One write of more than a block of the log.
    std::vector<std::pair<std::string, std::string>> many;
    for (int i = 40; i < 90; ++i) {
      many.push_back(record(i, 1500));
      logged_[{many.back().first, sequence_++}] = many.back().second;
    }
    db.put_all(many);
    for (int i = 90; i < 95; ++i) put(db, i, logged_);
  }

  path database() const { return root_.path() / "db"; }

  path only(const std::string& ending) const {
    path found;
    for (const auto& entry : std::filesystem::directory_iterator(database())) {
      if (entry.path().extension() != ending || entry.file_size() == 0) continue;
      EXPECT_TRUE(found.empty());
      found = entry.path();
    }
    return found;
  }

  static std::pair<std::string, std::string> record(int i, std::size_t size) {
    const auto place = core::key_place("key-" + std::to_string(1000 + i));
    core::KeyRecord key;
    key.fence = Token{static_cast<std::uint64_t>(i) + 1};
    key.version = 1;
    key.value = "value " + std::to_string(i);
    std::uint32_t noise = static_cast<std::uint32_t>(i) + 1;
    while (key.value->size() < size) {
      noise = noise * 1664525 + 1013904223;
      *key.value += static_cast<char>(noise >> 24U);
    }
    return {place, core::encode(place, key)};
  }

  void put(testing::RawDatabase& db, int i, Said& said) {
    const auto [place, bytes] = record(i, i % 7 == 0 ? 300 : 30);
    db.put(place, bytes);
    said[{place, sequence_++}] = bytes;
  }

  struct Read {
    Said said;
    std::vector<UnreadableBlock> unreadable;
    bool has_index = false;
  };
  static Read read_table(const path& file) {
    auto table = SalvagedTable::open(posix_files(), file);
    EXPECT_TRUE(table);
    Read read;
    std::string last;
    while (true) {
      auto entry = table->next();
      EXPECT_TRUE(entry);
      if (!*entry) break;
      EXPECT_LE(last, (*entry)->place);
      last = (*entry)->place;
      read.said[{(*entry)->place, (*entry)->sequence}] =
          (*entry)->is_put ? (*entry)->bytes : "deleted";
    }
    read.unreadable = table->unreadable();
    read.has_index = table->has_index();
    return read;
  }

  static Said said_of(const SalvagedLog& log) {
    Said said;
    for (const auto& group : log.groups) {
      for (const auto& entry : group.entries) said[{entry.place, entry.sequence}] = entry.bytes;
    }
    return said;
  }

  /// Everything in `part` is what `whole` says.
  static void expect_nothing_else(const Said& part, const Said& whole) {
    for (const auto& [place, bytes] : part) {
      const auto found = whole.find(place);
      ASSERT_NE(found, whole.end()) << place.first;
      EXPECT_EQ(found->second, bytes) << place.first;
    }
  }

  const FastDirectory root_;
  std::uint64_t sequence_ = 1;
  Said tabled_;
  Said logged_;
};

TEST_F(SalvageTest, ReadsAWholeTableAsRocksDbWroteIt) {
  const auto read = read_table(only(".sst"));

  EXPECT_TRUE(read.has_index);
  EXPECT_EQ(read.said, tabled_);
  EXPECT_TRUE(read.unreadable.empty());
}

TEST_F(SalvageTest, ATableWithADamagedByteLosesNoMoreThanOneBlock) {
  const auto file = only(".sst");
  const auto content = content_of(file);
  std::size_t complete = 0;
  std::size_t partial = 0;
  for (std::size_t i = 0; i < content.size(); i += 61) {
    flip_bit(file, i, static_cast<int>(i % 8));
    const auto read = read_table(file);
    set_content(file, content);
    SCOPED_TRACE("byte " + std::to_string(i));
    expect_nothing_else(read.said, tabled_);
    if (read.said.size() == tabled_.size()) {
      ++complete;
      continue;
    }
    ++partial;
    // A block has some 4 KiB.
    EXPECT_GT(read.said.size(), tabled_.size() - 140);
    ASSERT_EQ(read.unreadable.size(), 1U);
    EXPECT_TRUE(read.unreadable[0].offset <= i &&
                i < read.unreadable[0].offset + read.unreadable[0].bytes + 5);
  }
  EXPECT_GT(partial, 20U);
  EXPECT_GT(complete, 5U) << "damage to index and filters costs no record";
}

TEST_F(SalvageTest, ATableWithoutAnEndIsReadFromItsBeginning) {
  const auto file = only(".sst");
  const auto content = content_of(file);
  for (const std::size_t cut : {content.size() - 1, content.size() - 60, content.size() / 2,
                                std::size_t{100}, std::size_t{0}}) {
    set_content(file, content.substr(0, cut));
    const auto read = read_table(file);
    SCOPED_TRACE("cut to " + std::to_string(cut));
    EXPECT_FALSE(read.has_index);
    expect_nothing_else(read.said, tabled_);
    if (cut >= content.size() - 60) {
      EXPECT_EQ(read.said, tabled_);
    }
    if (cut == content.size() / 2) {
      EXPECT_GT(read.said.size(), tabled_.size() / 4);
    }
  }
}

TEST_F(SalvageTest, ReadsAWholeLogAsRocksDbWroteIt) {
  const auto log = salvage_log(posix_files(), only(".log"));

  ASSERT_TRUE(log);
  EXPECT_EQ(log->groups.size(), 46U);
  EXPECT_EQ(said_of(*log), logged_);
  EXPECT_TRUE(log->unreadable.empty());
}

TEST_F(SalvageTest, ALogWithADamagedByteLosesOneWrite) {
  const auto file = only(".log");
  const auto content = content_of(file);
  ASSERT_GT(content.size(), 2U * 32768);
  for (std::size_t i = 0; i < content.size(); i += 1999) {
    flip_bit(file, i, static_cast<int>(i % 8));
    const auto log = salvage_log(posix_files(), file);
    SCOPED_TRACE("byte " + std::to_string(i));
    ASSERT_TRUE(log);
    EXPECT_EQ(log->groups.size(), 45U);
    expect_nothing_else(said_of(*log), logged_);
    ASSERT_EQ(log->unreadable.size(), 1U);
    EXPECT_TRUE(log->unreadable[0].first <= i &&
                i < log->unreadable[0].first + log->unreadable[0].second);
    set_content(file, content);
  }
}

TEST_F(SalvageTest, ALogThatWasCutHasWhatIsBeforeTheCut) {
  const auto file = only(".log");
  const auto content = content_of(file);
  std::size_t before = 0;
  for (std::size_t cut = 0; cut < content.size(); cut += 701) {
    set_content(file, content.substr(0, cut));
    const auto log = salvage_log(posix_files(), file);
    SCOPED_TRACE("cut to " + std::to_string(cut));
    ASSERT_TRUE(log);
    expect_nothing_else(said_of(*log), logged_);
    EXPECT_GE(log->groups.size(), before);
    before = log->groups.size();
  }
  EXPECT_GT(before, 40U);
}

TEST_F(SalvageTest, NoBytesAreTooWild) {
  std::uint32_t noise = 7;
  for (int round = 0; round < 200; ++round) {
    std::string bytes;
    const auto size = static_cast<std::size_t>(round) * 40;
    while (bytes.size() < size) {
      noise = noise * 1664525 + 1013904223;
      bytes += static_cast<char>(noise >> 24U);
    }
    // With an end that looks like one.
    const auto table = content_of(only(".sst"));
    bytes += table.substr(table.size() - 53);
    set_content(root_.path() / "wild", bytes);
    EXPECT_TRUE(read_table(root_.path() / "wild").said.empty());
    const auto log = salvage_log(posix_files(), root_.path() / "wild");
    ASSERT_TRUE(log);
    EXPECT_TRUE(log->groups.empty());
  }
}

}  // namespace
}  // namespace fencekv::rocks
