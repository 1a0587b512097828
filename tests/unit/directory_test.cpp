// SPDX-License-Identifier: Apache-2.0
/// Who may use a directory, and whether it is a store: engine/FORMAT.md, "The directory".

#include "engine/rocksdb/directory.h"

#include "engine/core/record.h"
#include "engine/rocksdb/store_reader.h"
#include "fencekv/store.h"
#include "tests/support/child_process.h"
#include "tests/support/file_tree.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using rocks::Directory;
using rocks::posix_files;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class DirectoryTest : public ::testing::Test {
 protected:
  std::filesystem::path path() const { return root_.path() / "store"; }

  Directory take() {
    auto taken = Directory::take(posix_files(), path());
    if (!taken) throw std::runtime_error(taken.error().line());
    return *std::move(taken);
  }
  /// `new`, `store`, or the refusal.
  std::string found() {
    const auto is_new = take().is_new();
    if (!is_new) return is_new.error().line();
    return *is_new ? "new" : "store";
  }
  void make_parts(const std::vector<std::string>& files) {
    for (const auto& file : files) {
      std::filesystem::create_directories((path() / file).parent_path());
      set_content(path() / file, file == "FORMAT" ? "fencekv store\nformat 1\n" : "x");
    }
  }
  unsigned mode() const {
    struct stat state {};
    EXPECT_EQ(stat(path().c_str(), &state), 0);
    return state.st_mode & 0777;
  }

  TemporaryDirectory root_;
};

TEST_F(DirectoryTest, IsMadeForItsOwnerOnly) {
  EXPECT_EQ(found(), "new");
  EXPECT_EQ(mode(), 0700U);
  EXPECT_FALSE(take().is_open_to_others());
  chmod(path().c_str(), 0750);
  EXPECT_TRUE(take().is_open_to_others());
}

TEST_F(DirectoryTest, MissingParentsAreMade) {
  EXPECT_TRUE(Directory::take(posix_files(), root_.path() / "a/b/c").has_value());
  EXPECT_TRUE(std::filesystem::is_directory(root_.path() / "a/b/c"));
  EXPECT_TRUE(Directory::take(posix_files(), root_.path() / "d/e/").has_value());
}

TEST_F(DirectoryTest, AnEmptyDirectoryOrAMountPointIsNew) {
  std::filesystem::create_directories(path() / "lost+found");
  EXPECT_EQ(found(), "new");
}

TEST_F(DirectoryTest, IsAStoreWhenAllItsPartsAreThere) {
  make_parts({"FORMAT", "position", "db/CURRENT"});
  EXPECT_EQ(found(), "store");
}

TEST_F(DirectoryTest, AMissingPartIsDamageAndNamed) {
  make_parts({"FORMAT", "position"});
  EXPECT_EQ(found(), "CORRUPT " + (path() / "db/CURRENT").string() + " is missing");
  std::filesystem::remove_all(path());
  make_parts({"FORMAT", "db/CURRENT"});
  EXPECT_EQ(found(), "CORRUPT " + (path() / "position").string() + " is missing");
  std::filesystem::remove_all(path());
  make_parts({"FORMAT"});
  EXPECT_THAT(found(), StartsWith("CORRUPT"));
}

TEST_F(DirectoryTest, PartsWithoutAStampAreDamageAndNeverAnEmptyStore) {
  make_parts({"position", "db/CURRENT"});
  EXPECT_THAT(found(), AllOf(StartsWith("CORRUPT"), HasSubstr("FORMAT is missing")));
  std::filesystem::remove(path() / "position");
  EXPECT_THAT(found(), AllOf(StartsWith("CORRUPT"), HasSubstr("FORMAT is missing")));
  std::filesystem::remove_all(path());
  make_parts({"position"});
  EXPECT_THAT(found(), AllOf(StartsWith("CORRUPT"), HasSubstr("FORMAT is missing")));
}

TEST_F(DirectoryTest, AStampThatCannotBeReadIsDamage) {
  for (const std::string text :
       {"", "x", "fencekv store", "fencekv store\n", "fencekv store\nformat 1",
        "fencekv store\nformat \n", "fencekv store\nformat 01\n", "fencekv store\nformat one\n",
        "fencekv store\nformat -1\n", "FENCEKV STORE\nformat 1\n", " fencekv store\nformat 1\n"}) {
    make_parts({"position", "db/CURRENT"});
    set_content(path() / "FORMAT", text);
    EXPECT_THAT(found(), AllOf(StartsWith("CORRUPT"), HasSubstr("FORMAT"))) << text;
    EXPECT_EQ(content_of(path() / "FORMAT"), text);
  }
  std::filesystem::remove(path() / "FORMAT");
  std::filesystem::create_directory(path() / "FORMAT");
  EXPECT_NE(found(), "new");
  EXPECT_NE(found(), "store");
}

TEST_F(DirectoryTest, AFormatThatNeverWasIsDamage) {
  make_parts({"position", "db/CURRENT"});
  set_content(path() / "FORMAT", "fencekv store\nformat 0\n");
  EXPECT_THAT(found(), StartsWith("CORRUPT"));
}

TEST_F(DirectoryTest, ANewerFormatIsToldApartFromDamage) {
  make_parts({"position", "db/CURRENT"});
  for (const auto& number : {std::to_string(core::kFormat + 1), std::to_string(UINT64_MAX)}) {
    set_content(path() / "FORMAT",
                "fencekv store\nformat " + number + "\nand what we do not know\n");
    EXPECT_THAT(found(), AllOf(StartsWith("NEWER"), HasSubstr(number))) << number;
  }
}

TEST_F(DirectoryTest, ADirectoryOfSomethingElseIsRefusedAndLeftAlone) {
  make_parts({"thesis.tex"});
  const auto before = tree_of(path());
  EXPECT_THAT(found(), AllOf(StartsWith("ERR"), HasSubstr("thesis.tex")));
  auto after = tree_of(path());
  after.erase("lock");
  EXPECT_EQ(difference(before, after), "");
}

TEST_F(DirectoryTest, WhatIsNoDirectoryIsRefused) {
  set_content(path(), "a file");
  const auto taken = Directory::take(posix_files(), path());
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code(), Errc::invalid);
  EXPECT_THAT(taken.error().detail(), HasSubstr("not a directory"));
  EXPECT_EQ(content_of(path()), "a file");

  const auto below = Directory::take(posix_files(), path() / "below");
  ASSERT_FALSE(below.has_value());
  EXPECT_EQ(below.error().code(), Errc::invalid);
}

// --- creation, cut short --------------------------------------------------------------------

/// What is on the disk when the creation ends at some step, and whether a store is made anew.
struct CutShort {
  std::string step;
  std::vector<std::string> files;
};

class CreationCutShort : public DirectoryTest, public ::testing::WithParamInterface<CutShort> {};

TEST_P(CreationCutShort, IsBegunAnew) {
  std::filesystem::create_directories(path());
  make_parts(GetParam().files);
  EXPECT_EQ(found(), "new");

  // And the store that is made then is whole: nothing of the left-overs is in it.
  {
    auto store = open_rocksdb(path(), {.unguarded_tokens = UnguardedTokens::any});
    ASSERT_TRUE(store.has_value()) << store.error().line();
    EXPECT_EQ((*store)->stats().live_keys, 0U);
    ASSERT_TRUE((*store)->set("key", "value", Token{1}).has_value());
  }
  EXPECT_EQ(found(), "store");
  const auto files = tree_of(path());
  EXPECT_FALSE(files.contains("CREATING"));
  EXPECT_FALSE(files.contains("db/left-over"));
  EXPECT_EQ(files.at("FORMAT"), "fencekv store\nformat 2\n");
}

INSTANTIATE_TEST_SUITE_P(
    EveryStep, CreationCutShort,
    ::testing::Values(
        CutShort{"the_mark_was_half_written", {"CREATING.new"}}, CutShort{"marked", {"CREATING"}},
        CutShort{"with_the_database_begun", {"CREATING", "db/left-over"}},
        CutShort{"with_a_position", {"CREATING", "position", "db/left-over"}},
        CutShort{"with_a_whole_database", {"CREATING", "position", "db/CURRENT", "db/left-over"}},
        CutShort{"the_stamp_was_half_written",
                 {"CREATING", "FORMAT.new", "position", "db/CURRENT", "db/left-over"}},
        CutShort{"stamped", {"CREATING", "FORMAT", "position", "db/CURRENT", "db/left-over"}}),
    [](const auto& entry) { return entry.param.step; });

TEST_F(DirectoryTest, LinksAtTheNamesOfTemporaryFilesAreNotFollowed) {
  std::filesystem::create_directories(path());
  const auto victim = root_.path() / "victim";
  set_content(victim, "precious");
  for (const auto* name : {"CREATING", "CREATING.new", "FORMAT.new"}) {
    std::filesystem::create_symlink(victim, path() / name);
  }
  {
    auto store = open_rocksdb(path(), {});
    ASSERT_TRUE(store.has_value()) << store.error().line();
  }
  EXPECT_EQ(content_of(victim), "precious");
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path() / "FORMAT")));
}

TEST_F(DirectoryTest, ALinkInPlaceOfTheLockOrThePositionIsRefused) {
  const auto victim = root_.path() / "victim";
  set_content(victim, "precious");
  std::filesystem::create_directories(path());
  std::filesystem::create_symlink(victim, path() / "lock");
  EXPECT_FALSE(Directory::take(posix_files(), path()).has_value());
  EXPECT_EQ(content_of(victim), "precious");

  std::filesystem::remove(path() / "lock");
  ASSERT_TRUE(open_rocksdb(path(), {}).has_value());
  std::filesystem::rename(path() / "position", root_.path() / "moved");
  std::filesystem::create_symlink(root_.path() / "moved", path() / "position");
  const auto before = content_of(root_.path() / "moved");
  EXPECT_FALSE(open_rocksdb(path(), {}).has_value());
  EXPECT_EQ(content_of(root_.path() / "moved"), before);
}

// --- an older format ------------------------------------------------------------------------

constexpr std::string_view kStampOfFormat1 = "fencekv store\nformat 1\n";
constexpr std::string_view kStampOfFormat2 = "fencekv store\nformat 2\n";

/// A stopped store of format 1.
class OlderFormat : public DirectoryTest {
 protected:
  void SetUp() override {
    copy_tree(FENCEKV_SOURCE_DIR "/tests/golden/format-1", path());
    ASSERT_EQ(stamp(), kStampOfFormat1);
  }

  std::string stamp() const { return content_of(path() / "FORMAT"); }
  Result<std::unique_ptr<Store>> open() const {
    return open_rocksdb(path(), {.unguarded_tokens = UnguardedTokens::any});
  }
  void expect_whole() const {
    auto store = open();
    ASSERT_TRUE(store.has_value()) << store.error().line();
    EXPECT_FALSE((*store)->refuses_writes().has_value());
    EXPECT_EQ((*store)->get("plain")->value_or("nothing"), "value of the second life");
    EXPECT_EQ((*store)->stats().lease_names, 5U);
  }
};

TEST_F(OlderFormat, IsStampedAnewByAWriterBeforeItsFirstAnswer) {
  {
    const auto store = open();
    ASSERT_TRUE(store.has_value()) << store.error().line();
    EXPECT_EQ(stamp(), kStampOfFormat2);
  }
  EXPECT_EQ(stamp(), kStampOfFormat2);
  EXPECT_FALSE(std::filesystem::exists(path() / "FORMAT.new"));
  expect_whole();
}

TEST_F(OlderFormat, IsLeftAloneByWhoOnlyReads) {
  const auto before = tree_of(path());
  {
    const auto reader = rocks::StoreReader::open(path(), {});
    ASSERT_TRUE(reader.has_value()) << reader.error().line();
    EXPECT_EQ((*reader)->format(), 1U);
    EXPECT_TRUE((*reader)->meta().has_value());
  }
  EXPECT_EQ(difference(before, tree_of(path())), "");
}

TEST_F(OlderFormat, OpensAtEveryStepOfTheStamping) {
  struct Step {
    std::string_view stamp;
    std::optional<std::string_view> unfinished;  ///< FORMAT.new
  };
  for (const auto& [stamp_then, unfinished] :
       {Step{kStampOfFormat1, ""}, Step{kStampOfFormat1, kStampOfFormat2.substr(0, 17)},
        Step{kStampOfFormat1, kStampOfFormat2}, Step{kStampOfFormat2, std::nullopt}}) {
    std::filesystem::remove_all(path());
    copy_tree(FENCEKV_SOURCE_DIR "/tests/golden/format-1", path());
    set_content(path() / "FORMAT", std::string(stamp_then));
    if (unfinished) set_content(path() / "FORMAT.new", std::string(*unfinished));

    expect_whole();
    EXPECT_EQ(stamp(), kStampOfFormat2);
    EXPECT_FALSE(std::filesystem::exists(path() / "FORMAT.new"));
  }
}

TEST_F(OlderFormat, NothingIsWrittenWhileItCannotBeStamped) {
  // A full directory at the name of the temporary file: it can be neither removed nor created.
  std::filesystem::create_directories(path() / "FORMAT.new/x");
  {
    auto store = open();
    ASSERT_TRUE(store.has_value()) << store.error().line();
    EXPECT_EQ((*store)->get("plain")->value_or("nothing"), "value of the second life");
    EXPECT_TRUE((*store)->refuses_writes().has_value());
    const auto granted = (*store)->acquire("new", "owner", std::chrono::seconds(1));
    ASSERT_FALSE(granted.has_value());
    EXPECT_EQ(granted.error().code(), Errc::misconf);
    EXPECT_EQ(stamp(), kStampOfFormat1);
  }
  const auto reader = rocks::StoreReader::open(path(), {});
  ASSERT_TRUE(reader.has_value()) << reader.error().line();
  EXPECT_EQ((*reader)->meta()->position.epoch, 2U) << "a group was written";
}

TEST_F(OlderFormat, WritesComeBackOnceItCanBeStamped) {
  std::filesystem::create_directories(path() / "FORMAT.new/x");
  auto store = open();
  ASSERT_TRUE(store.has_value()) << store.error().line();
  ASSERT_TRUE((*store)->refuses_writes().has_value());
  std::filesystem::remove_all(path() / "FORMAT.new");

  for (int i = 0; i < 500 && (*store)->refuses_writes(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  EXPECT_FALSE((*store)->refuses_writes().has_value());
  EXPECT_EQ(stamp(), kStampOfFormat2);
  EXPECT_TRUE((*store)->acquire("new", "owner", std::chrono::seconds(1)).has_value());
}

// --- one process at a time ------------------------------------------------------------------

TEST_F(DirectoryTest, TheSecondOneIsToldWhoHasIt) {
  const auto first = take();
  const auto second = Directory::take(posix_files(), path());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Errc::in_use);
  EXPECT_THAT(second.error().detail(), HasSubstr("process " + std::to_string(getpid())));
  EXPECT_EQ(Directory::share(posix_files(), path()).error().code(), Errc::in_use);
}

TEST_F(DirectoryTest, AnotherProcessIsToldWhoHasItAndGetsItAfterwards) {
  {
    const auto first = take();
    ChildProcess child([&](int out) {
      const auto second = Directory::take(posix_files(), path());
      say(out, second ? "taken" : second.error().line());
      return 0;
    });
    EXPECT_THAT(child.read_all(), AllOf(StartsWith("INUSE"), HasSubstr(std::to_string(getpid()))));
    EXPECT_EQ(child.wait(), "exit 0");
  }
  ChildProcess child([&](int out) {
    const auto second = Directory::take(posix_files(), path());
    say(out, second ? "taken" : second.error().line());
    return 0;
  });
  EXPECT_EQ(child.read_all(), "taken");
}

TEST_F(DirectoryTest, AHolderThatWasMovedIsStillTheHolder) {
  auto first = std::make_unique<Directory>(take());
  const auto moved = std::make_unique<Directory>(std::move(*first));
  first.reset();
  EXPECT_FALSE(Directory::take(posix_files(), path()).has_value());
}

TEST_F(DirectoryTest, ReadersShareItAndKeepWritersOut) {
  take();
  {
    const auto first = Directory::share(posix_files(), path());
    const auto second = Directory::share(posix_files(), path());
    ASSERT_TRUE(first.has_value() && second.has_value());
    EXPECT_EQ(Directory::take(posix_files(), path()).error().code(), Errc::in_use);
  }
  EXPECT_TRUE(Directory::take(posix_files(), path()).has_value());
}

TEST_F(DirectoryTest, AReaderMakesNothing) {
  EXPECT_FALSE(Directory::share(posix_files(), path()).has_value());
  EXPECT_FALSE(std::filesystem::exists(path()));
  std::filesystem::create_directory(path());
  EXPECT_FALSE(Directory::share(posix_files(), path()).has_value());
  EXPECT_TRUE(std::filesystem::is_empty(path()));
}

TEST_F(DirectoryTest, ACreationBegunAnewRemovesNothingBehindALink) {
  const auto elsewhere = root_.path() / "elsewhere";
  std::filesystem::create_directories(elsewhere);
  set_content(elsewhere / "precious", "x");
  auto directory = take();
  ASSERT_TRUE(directory.begin_creation());
  std::filesystem::remove_all(directory.database());
  std::filesystem::create_directory_symlink(elsewhere, directory.database());

  ASSERT_TRUE(directory.begin_creation());
  EXPECT_TRUE(std::filesystem::exists(elsewhere / "precious"));
  EXPECT_FALSE(std::filesystem::is_symlink(directory.database()));
}

}  // namespace
}  // namespace fencekv::testing
