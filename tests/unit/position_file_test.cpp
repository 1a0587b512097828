// SPDX-License-Identifier: Apache-2.0
/// The position file: engine/FORMAT.md, "The position file".

#include "engine/rocksdb/position_file.h"

#include "tests/support/file_tree.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <vector>

namespace fencekv::testing {
namespace {

using rocks::PositionFile;
using rocks::PositionSlot;
using rocks::posix_files;
using ::testing::HasSubstr;

constexpr std::size_t kPage = PositionFile::kPageBytes;
constexpr std::size_t kSlot = PositionFile::kSlotBytes;

PositionSlot slot_at(std::uint64_t n, std::uint64_t reserved = 65536) {
  PositionSlot slot;
  slot.incarnation.fill(0xab);
  slot.epoch = 3;
  slot.n = n;
  slot.reserved = Token{reserved};
  slot.durability = Durability::process;
  slot.is_clean = n % 2 == 0;
  slot.boot_id = "8c1f1f1e-0000-4000-8000-000000000000";
  slot.process = 2;
  return slot;
}

class PositionFileTest : public ::testing::Test {
 protected:
  std::filesystem::path path() const { return directory_.path() / "position"; }

  PositionFile create() {
    auto file = PositionFile::create(posix_files(), path());
    if (!file) throw std::runtime_error(file.error().line());
    return *std::move(file);
  }
  /// Which of the two pages changed between two contents.
  static std::vector<int> changed_pages(const std::string& before, const std::string& after) {
    std::vector<int> pages;
    for (int i = 0; i < 2; ++i) {
      const auto at = static_cast<std::size_t>(i) * kPage;
      if (before.substr(at, kPage) != after.substr(at, kPage)) pages.push_back(i);
    }
    return pages;
  }
  std::string refusal() const {
    const auto opened = PositionFile::open(posix_files(), path());
    const auto read = PositionFile::read(posix_files(), path());
    if (opened || read) return "opened";
    EXPECT_EQ(opened.error(), read.error());
    EXPECT_EQ(opened.error().code(), Errc::corrupt);
    return opened.error().detail();
  }

  TemporaryDirectory directory_;
};

TEST_F(PositionFileTest, IsMadeInFullWithModeOfItsOwner) {
  create();
  EXPECT_EQ(std::filesystem::file_size(path()), 2 * kPage);
  struct stat state {};
  ASSERT_EQ(stat(path().c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0600U);
  const auto read = PositionFile::read(posix_files(), path());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, PositionSlot{});
}

TEST_F(PositionFileTest, IsNeverMadeOverAnother) {
  ASSERT_TRUE(create().write(slot_at(5)).has_value());
  EXPECT_FALSE(PositionFile::create(posix_files(), path()).has_value());
  EXPECT_EQ(*PositionFile::read(posix_files(), path()), slot_at(5));

  std::filesystem::remove(path());
  std::filesystem::create_symlink(directory_.path() / "elsewhere", path());
  EXPECT_FALSE(PositionFile::create(posix_files(), path()).has_value());
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "elsewhere"));
}

TEST_F(PositionFileTest, EveryFieldComesBack) {
  auto file = create();
  for (const std::uint64_t n : {1U, 2U, 3U}) {
    ASSERT_TRUE(file.write(slot_at(n)).has_value());
    EXPECT_EQ(file.current(), slot_at(n));
    auto opened = PositionFile::open(posix_files(), path());
    ASSERT_TRUE(opened.has_value());
    EXPECT_EQ(opened->current(), slot_at(n));
  }
}

TEST_F(PositionFileTest, ALongBootIdIsCutToWhatASlotHolds) {
  auto file = create();
  auto slot = slot_at(1);
  slot.boot_id = std::string(1000, 'b');
  ASSERT_TRUE(file.write(slot).has_value());
  EXPECT_EQ(PositionFile::read(posix_files(), path())->boot_id, std::string(64, 'b'));
}

TEST_F(PositionFileTest, SlotsAreWrittenInTurnAlsoOverAReopening) {
  auto file = create();
  auto before = content_of(path());
  int last = -1;
  for (std::uint64_t n = 1; n <= 6; ++n) {
    ASSERT_TRUE(file.write(slot_at(n)).has_value());
    const auto after = content_of(path());
    const auto pages = changed_pages(before, after);
    ASSERT_EQ(pages.size(), 1U);
    EXPECT_NE(pages.front(), last);
    last = pages.front();
    before = after;
    if (n == 3) file = *PositionFile::open(posix_files(), path());
  }
  EXPECT_EQ(std::filesystem::file_size(path()), 2 * kPage);
}

TEST_F(PositionFileTest, AWriteTornAtAnyByteLeavesTheOneBefore) {
  auto file = create();
  ASSERT_TRUE(file.write_durably(slot_at(1)).has_value());
  ASSERT_TRUE(file.write(slot_at(2)).has_value());
  const auto before = content_of(path());
  ASSERT_TRUE(file.write(slot_at(3)).has_value());
  const auto after = content_of(path());
  const auto page = static_cast<std::size_t>(changed_pages(before, after).at(0)) * kPage;

  for (std::size_t torn = 0; torn <= kSlot; ++torn) {
    // The new bytes up to here, the old ones behind: and the other way around.
    auto front = before;
    std::copy_n(after.begin() + static_cast<std::ptrdiff_t>(page), torn,
                front.begin() + static_cast<std::ptrdiff_t>(page));
    auto back = after;
    std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(page), torn,
                back.begin() + static_cast<std::ptrdiff_t>(page));
    for (const auto& content : {front, back}) {
      set_content(path(), content);
      const auto read = PositionFile::read(posix_files(), path());
      ASSERT_TRUE(read.has_value()) << torn << ": " << read.error().line();
      // Old and new may agree in the bytes that were torn off; half of each is never taken.
      EXPECT_TRUE(*read == slot_at(2) || *read == slot_at(3)) << torn;
    }
  }
}

TEST_F(PositionFileTest, AfterATornWriteTheTornSlotIsWrittenAgain) {
  auto file = create();
  ASSERT_TRUE(file.write_durably(slot_at(1)).has_value());
  const auto before = content_of(path());
  ASSERT_TRUE(file.write(slot_at(2)).has_value());
  const auto page =
      static_cast<std::size_t>(changed_pages(before, content_of(path())).at(0)) * kPage;
  flip_bit(path(), page + 100);

  auto opened = PositionFile::open(posix_files(), path());
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(opened->current(), slot_at(1));
  // The whole slot must not be the next to be written: torn again, nothing would be left.
  const auto torn = content_of(path());
  ASSERT_TRUE(opened->write(slot_at(3)).has_value());
  EXPECT_THAT(changed_pages(torn, content_of(path())),
              ::testing::ElementsAre(static_cast<int>(page / kPage)));
  EXPECT_EQ(*PositionFile::read(posix_files(), path()), slot_at(3));
}

TEST_F(PositionFileTest, AReservationSurvivesDamageOfEitherSlot) {
  auto file = create();
  ASSERT_TRUE(file.write_durably(slot_at(7, 65536)).has_value());
  ASSERT_TRUE(file.write_durably(slot_at(7, 131072)).has_value());
  const auto whole = content_of(path());
  for (const std::size_t page : {std::size_t{0}, kPage}) {
    for (std::size_t i = 0; i < kSlot; ++i) {
      set_content(path(), whole);
      flip_bit(path(), page + i, static_cast<int>(i % 8));
      const auto read = PositionFile::read(posix_files(), path());
      ASSERT_TRUE(read.has_value()) << page + i;
      EXPECT_EQ(read->reserved, Token{131072}) << page + i;
    }
  }
}

TEST_F(PositionFileTest, AnEmptySlotOrOneOfAnotherKindIsNotTaken) {
  auto file = create();
  ASSERT_TRUE(file.write_durably(slot_at(1)).has_value());
  auto content = content_of(path());
  std::fill_n(content.begin() + kPage, kSlot, '\0');
  set_content(path(), content);
  EXPECT_EQ(*PositionFile::read(posix_files(), path()), slot_at(1));
}

TEST_F(PositionFileTest, BothSlotsDamagedIsRefused) {
  ASSERT_TRUE(create().write_durably(slot_at(1)).has_value());
  flip_bit(path(), 20);
  flip_bit(path(), kPage + 20);
  EXPECT_THAT(refusal(), HasSubstr(path().string() + " is damaged"));

  set_content(path(), std::string(2 * kPage, '\0'));
  EXPECT_THAT(refusal(), HasSubstr("is damaged"));
  set_content(path(), std::string(2 * kPage, '\xff'));
  EXPECT_THAT(refusal(), HasSubstr("is damaged"));
}

TEST_F(PositionFileTest, AnotherSizeIsRefused) {
  ASSERT_TRUE(create().write_durably(slot_at(1)).has_value());
  const auto whole = content_of(path());
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kSlot, kPage, 2 * kPage - 1}) {
    set_content(path(), whole.substr(0, size));
    EXPECT_THAT(refusal(), HasSubstr("wrong size")) << size;
  }
  set_content(path(), whole + "x");
  EXPECT_THAT(refusal(), HasSubstr("wrong size"));
}

TEST_F(PositionFileTest, AMissingOneIsRefusedAndNotMade) {
  EXPECT_THAT(refusal(), HasSubstr(path().string() + " is missing"));
  EXPECT_FALSE(std::filesystem::exists(path()));
}

}  // namespace
}  // namespace fencekv::testing
