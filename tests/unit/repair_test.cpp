// SPDX-License-Identifier: Apache-2.0
/// Repair, and what is left when it or a restore is cut short: engine/SEMANTICS.md, 5.

#include "engine/rocksdb/repair.h"

#include "engine/core/new_history.h"
#include "engine/core/record.h"
#include "engine/rocksdb/backup.h"
#include "engine/rocksdb/restore.h"
#include "engine/rocksdb/store_reader.h"
#include "fencekv/store.h"
#include "tests/support/copy_directory.h"
#include "tests/support/fast_directory.h"
#include "tests/support/file_tree.h"
#include "tests/support/raw_database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv::rocks {
namespace {

using namespace std::chrono_literals;
using std::filesystem::path;
using ::testing::AllOf;
using ::testing::Contains;
using testing::content_of;
using testing::copy_tree;
using testing::FastDirectory;
using testing::flip_bit;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::set_content;
using ::testing::StartsWith;
using testing::tree_of;

template <class T>
std::string line_of(const Result<T>& result) {
  return result ? "OK" : result.error().line();
}

/// The real files, of a process that is killed before its n-th change.
class KilledFiles final : public FileSystem {
 public:
  explicit KilledFiles(int changes) : left_(changes) {}
  bool is_killed() const { return left_ < 0; }

  Result<std::unique_ptr<File>> create(const path& file) override {
    if (is_last()) return dead();
    return real_.create(file);
  }
  Result<std::unique_ptr<File>> open(const path& file) override { return real_.open(file); }
  Result<std::optional<std::string>> read(const path& file) override { return real_.read(file); }
  Result<std::string> read_at(const path& file, std::uint64_t offset, std::size_t bytes) override {
    return real_.read_at(file, offset, bytes);
  }
  Result<std::uint64_t> size(const path& file) override { return real_.size(file); }
  Result<bool> exists(const path& file) override { return real_.exists(file); }
  Result<bool> is_directory(const path& file) override { return real_.is_directory(file); }
  Result<std::vector<std::string>> list(const path& file) override { return real_.list(file); }
  Result<void> make_directory(const path& file) override {
    if (is_last()) return dead();
    return real_.make_directory(file);
  }
  Result<void> rename(const path& from, const path& to) override {
    if (is_last()) return dead();
    return real_.rename(from, to);
  }
  Result<void> link(const path& from, const path& to) override { return real_.link(from, to); }
  Result<void> remove(const path& file) override {
    if (is_last()) return dead();
    return real_.remove(file);
  }
  Result<void> sync_directory(const path& file) override { return real_.sync_directory(file); }
  std::optional<FreeSpace> free_space(const path& file) override { return real_.free_space(file); }
  bool is_open_to_others(const path& file) override { return real_.is_open_to_others(file); }
  Result<std::unique_ptr<FileLock>> lock(const path& file, LockMode mode) override {
    return real_.lock(file, mode);
  }
  rocksdb::Env* env() override { return real_.env(); }

 private:
  bool is_last() {
    if (left_ >= 0) --left_;
    return left_ < 0;
  }
  static Error dead() { return {Errc::invalid, "killed"}; }

  FileSystem& real_ = posix_files();
  int left_;
};

class RepairTest : public ::testing::Test {
 protected:
  /// A store with a table and a log, as a killed process leaves it. `key-0` to `key-9` are in the
  /// table, the others in the log.
  void SetUp() override {
    for (int life = 0; life < 2; ++life) {
      auto store = open_rocksdb(at("live"), {});
      ASSERT_TRUE(store) << line_of(store);
      const auto grant = (*store)->acquire("lease", "owner", 1h);
      ASSERT_TRUE(grant && *grant);
      token_ = (*grant)->token;
      for (int i = life * 10; i < life * 10 + 10; ++i) {
        const auto n = std::to_string(i);
        ASSERT_TRUE((*store)->set("key-" + n, "value " + n, token_, {.lease = "lease"}));
      }
      ASSERT_TRUE((*store)->acquire("readers", "a", 1h, {.mode = LeaseMode::shared}));
      ASSERT_TRUE((*store)->acquire("readers", "b", 1h, {.mode = LeaseMode::shared}));
      incarnation_ = (*store)->stats().incarnation;
      if (life == 0) continue;
      // RocksDB takes away the files of before by itself, once nobody reads them any more.
      const auto is_settled = [this] {
        return large_files(at("live"), ".log").size() == 1 &&
               large_files(at("live"), ".sst").size() == 1;
      };
      for (int i = 0; i < 1000 && !is_settled(); ++i) std::this_thread::sleep_for(10ms);
      testing::copy_directory(at("live"), at("store"));
    }
  }

  path at(const std::string& name) const { return root_.path() / name; }

  /// Those with records in them.
  static std::vector<path> large_files(const path& store, const std::string& ending) {
    std::vector<path> found;
    for (const auto& entry : std::filesystem::directory_iterator(store / "db")) {
      std::error_code gone;
      const auto size = entry.file_size(gone);
      if (entry.path().extension() == ending && !gone && size >= 500) found.push_back(entry.path());
    }
    return found;
  }

  static path only(const path& store, const std::string& ending) {
    const auto found = large_files(store, ending);
    EXPECT_EQ(found.size(), 1U);
    return found.empty() ? path() : found.front();
  }

  Result<Examined> look(const path& store, LockMode mode = LockMode::shared) const {
    return examine(posix_files(), store, system_clock()->boot_id(), mode);
  }

  /// Stores a record that does not prove its own checksum, past all rules.
  void store_wrong(const std::string& key) const {
    testing::RawDatabase database(at("store") / "db");
    auto bytes = database.get(core::key_place(key));
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    database.put(core::key_place(key), bytes);
  }

  int count_keys(Store& store) const {
    int found = 0;
    for (int i = 0; i < 20; ++i) {
      const auto n = std::to_string(i);
      const auto value = store.get("key-" + n);
      EXPECT_TRUE(value) << line_of(value);
      if (!value || !*value) continue;
      EXPECT_EQ(**value, "value " + n);
      ++found;
    }
    return found;
  }

  const FastDirectory root_;
  Token token_;
  std::string incarnation_;
};

TEST_F(RepairTest, ASoundStoreHasNothingToRepair) {
  for (const auto* name : {"store", "live"}) {
    const auto found = look(at(name));

    ASSERT_TRUE(found) << line_of(found);
    EXPECT_THAT(found->damage(), IsEmpty());
    EXPECT_FALSE(found->may_have_lost());
    EXPECT_EQ(found->kept().live_keys(), 20U);
  }
}

TEST_F(RepairTest, WithoutALossTheHistoryGoesOn) {
  // None of these holds a fact.
  std::filesystem::remove(at("store") / "FORMAT");
  set_content(at("store") / "db" / "CURRENT", "nonsense");

  const auto found = look(at("store"));
  ASSERT_TRUE(found) << line_of(found);
  EXPECT_FALSE(found->may_have_lost()) << found->losses().front();
  EXPECT_THAT(found->damage(), Contains(HasSubstr("FORMAT is missing")));
  EXPECT_THAT(found->damage(), Contains(HasSubstr("CURRENT")));
  ASSERT_TRUE(found->write_copy(at("copy")));

  auto store = open_rocksdb(at("copy"), {});
  ASSERT_TRUE(store) << line_of(store);
  EXPECT_EQ((*store)->stats().incarnation, incarnation_);
  EXPECT_TRUE((*store)->stats().floor.is_none());
  EXPECT_EQ(count_keys(**store), 20);
  EXPECT_TRUE((*store)->renew("lease", "owner", token_, 1h)) << "leases go on";
}

TEST_F(RepairTest, ALostGroupIsNamedAndTheOthersStay) {
  const auto log = only(at("store"), ".log");
  flip_bit(log, std::filesystem::file_size(log) / 2);

  const auto found = look(at("store"));
  ASSERT_TRUE(found) << line_of(found);
  EXPECT_TRUE(found->may_have_lost());
  EXPECT_THAT(found->damage(), Contains(HasSubstr(log.string())));
  EXPECT_THAT(found->losses(), Contains(AllOf(StartsWith("group "), HasSubstr("acknowledged"))));
  ASSERT_TRUE(found->write_copy(at("copy")));

  auto store = open_rocksdb(at("copy"), {});
  ASSERT_TRUE(store) << line_of(store);
  EXPECT_EQ(count_keys(**store), 19);
  const auto stats = (*store)->stats();
  EXPECT_NE(stats.incarnation, incarnation_);
  EXPECT_GT(stats.floor.number(), token_.number() + core::kTokensBetweenHistories);
  EXPECT_EQ(line_of((*store)->renew("lease", "owner", token_, 1h)), "LEASELOST unknown");
  const auto writer = (*store)->acquire("readers", "c", 1h);
  EXPECT_TRUE(writer && *writer) << "the readers of before hold nothing";
}

TEST_F(RepairTest, TheFloorIsAboveEveryTokenThatAnyReadableByteKnows) {
  // The records that know the newest token are lost, and so is the reservation.
  const auto log = only(at("store"), ".log");
  const auto content = content_of(log);
  set_content(log, content.substr(0, content.size() / 2));
  std::filesystem::remove(at("store") / "position");

  const auto found = look(at("store"));

  ASSERT_TRUE(found) << line_of(found);
  EXPECT_THAT(found->losses(), Contains(HasSubstr("how far the acknowledged history went")));
  EXPECT_GT(found->small().allocator.floor.number(), core::kTokensBetweenHistories);
  EXPECT_GE(found->small().allocator.newest.number(), token_.number());
}

TEST_F(RepairTest, ADamagedTableLosesABlockAndTellsWhere) {
  const auto table = only(at("store"), ".sst");
  flip_bit(table, 100);

  const auto found = look(at("store"));

  ASSERT_TRUE(found) << line_of(found);
  EXPECT_TRUE(found->may_have_lost());
  EXPECT_THAT(found->losses(), Contains(HasSubstr(table.string())));
  ASSERT_TRUE(found->write_copy(at("copy")));
  auto store = open_rocksdb(at("copy"), {});
  ASSERT_TRUE(store) << line_of(store);
  EXPECT_GE(count_keys(**store), 10) << "what the log holds is all there";
}

TEST_F(RepairTest, InPlaceTheDamagedPartsAreKept) {
  const auto log = only(at("store"), ".log");
  flip_bit(log, std::filesystem::file_size(log) / 2);
  const auto damaged = tree_of(at("store") / "db");
  {
    const auto found = look(at("store"), LockMode::exclusive);
    ASSERT_TRUE(found) << line_of(found);
    const auto aside = found->write_in_place();
    ASSERT_TRUE(aside) << line_of(aside);
    EXPECT_EQ(*aside, at("store") / "damaged");
  }

  EXPECT_EQ(testing::difference(damaged, tree_of(at("store") / "damaged" / "db")), "");
  EXPECT_FALSE(std::filesystem::exists(at("store") / "repaired"));
  auto store = open_rocksdb(at("store"), {});
  ASSERT_TRUE(store) << line_of(store);
  EXPECT_EQ(count_keys(**store), 19);
}

TEST_F(RepairTest, InPlaceCutShortAnywhereItIsRefusedAndEndedByTheNext) {
  const auto log = only(at("store"), ".log");
  flip_bit(log, std::filesystem::file_size(log) / 2);
  bool is_complete = false;
  int ended = 0;
  for (int changes = 0; !is_complete; ++changes) {
    SCOPED_TRACE("killed before change " + std::to_string(changes));
    copy_tree(at("store"), at("copy"));
    KilledFiles files(changes);
    {
      const auto found = examine(files, at("copy"), system_clock()->boot_id(), LockMode::exclusive);
      ASSERT_TRUE(found) << line_of(found);
      is_complete = found->write_in_place().has_value();
    }
    if (!is_complete) {
      const auto is_half = is_half_repaired(posix_files(), at("copy"));
      ASSERT_TRUE(is_half);
      const auto refused = open_rocksdb(at("copy"), {});
      // The damaged store is refused for what it is; one on its way, because it is. At the very end
      // only the removal of an empty directory is missing.
      if (refused) {
        EXPECT_FALSE(*is_half);
        EXPECT_EQ(count_keys(**refused), 19);
        continue;
      }
      if (*is_half) {
        EXPECT_THAT(refused.error().line(), AllOf(StartsWith("CORRUPT"), HasSubstr("repair")));
        ++ended;
        const auto done = finish_repair(posix_files(), at("copy"));
        ASSERT_TRUE(done) << line_of(done);
      } else {
        const auto again = look(at("copy"), LockMode::exclusive);
        ASSERT_TRUE(again) << line_of(again);
        ASSERT_TRUE(again->write_in_place());
      }
    }
    auto store = open_rocksdb(at("copy"), {});
    ASSERT_TRUE(store) << line_of(store);
    EXPECT_EQ(count_keys(**store), 19);
  }
  EXPECT_GT(ended, 4) << "some of the kills came while the parts were moved";
}

TEST_F(RepairTest, ARestoreCutShortAnywhereLeavesNoStoreAndCanBeDoneAgain) {
  {
    auto store = open_rocksdb(at("live"), {});
    ASSERT_TRUE(store && (*store)->backup(at("backup")));
  }
  bool is_complete = false;
  for (int changes = 0; !is_complete; ++changes) {
    SCOPED_TRACE("killed before change " + std::to_string(changes));
    std::filesystem::remove_all(at("new"));
    KilledFiles files(changes);
    is_complete = restore(files, at("backup"), at("new"), {}).has_value();
    if (is_complete) break;

    EXPECT_FALSE(std::filesystem::exists(at("new")));
    if (std::filesystem::exists(at(".new.fencekv-unfinished"))) {
      // Whoever starts a server now must not get an empty store.
      EXPECT_THAT(line_of(open_rocksdb(at("new"), {})), HasSubstr("not complete"));
      std::filesystem::remove_all(at("new"));  // the refused opening has made the directory
    }
    if (changes % 5 == 0) {
      const auto again = restore(posix_files(), at("backup"), at("new"), {});
      ASSERT_TRUE(again) << line_of(again);
      EXPECT_FALSE(std::filesystem::exists(at(".new.fencekv-unfinished")));
      auto store = open_rocksdb(at("new"), {});
      ASSERT_TRUE(store) << line_of(store);
      EXPECT_EQ(count_keys(**store), 20);
    }
  }
  auto store = open_rocksdb(at("new"), {});
  ASSERT_TRUE(store) << line_of(store);
  EXPECT_EQ(count_keys(**store), 20);
}

TEST_F(RepairTest, IsNotForWhatIsNoStoreOrInUse) {
  auto store = open_rocksdb(at("live"), {});
  ASSERT_TRUE(store && (*store)->backup(at("backup")));
  std::filesystem::create_directory(at("empty"));

  EXPECT_THAT(line_of(look(at("live"))), HasSubstr("in use"));
  EXPECT_THAT(line_of(look(at("backup"))), HasSubstr("is a backup"));
  EXPECT_THAT(line_of(look(at("empty"))), HasSubstr("there is no store"));
  EXPECT_THAT(line_of(open_rocksdb(at("backup"), {})), HasSubstr("is a backup"));
}

TEST_F(RepairTest, ARecordThatIsWrongUnderARightSumIsNamed) {
  // As memory that failed before RocksDB saw the bytes would leave it.
  store_wrong("key-3");

  const auto found = look(at("store"));

  ASSERT_TRUE(found) << line_of(found);
  EXPECT_THAT(found->damage(), Contains(HasSubstr("key key-3: its record is damaged")));
  EXPECT_THAT(found->losses(), Contains(HasSubstr("key key-3")));
  EXPECT_EQ(found->kept().live_keys(), 20U) << "an older record of it is kept";
}

}  // namespace
}  // namespace fencekv::rocks
