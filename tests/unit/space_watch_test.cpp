// SPDX-License-Identifier: Apache-2.0
/// How near to its end a disk is, and what a store makes of it (engine/SEMANTICS.md, 4.8).

#include "engine/rocksdb/space_watch.h"

#include "tests/support/file_tree.h"
#include "tests/support/manual_clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/committer_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr std::uint64_t kMiB = std::uint64_t{1024} * 1024;
constexpr std::uint64_t kGiB = 1024 * kMiB;

/// The files of this machine, on a disk of which the test says how full it is.
class FullishFiles final : public rocks::FileSystem {
 public:
  std::optional<rocks::FreeSpace> free_space(const std::filesystem::path&) override {
    ++asked;
    return space;
  }
  Result<std::vector<std::string>> list(const std::filesystem::path& path) override {
    return real_.list(path);
  }
  Result<std::uint64_t> size(const std::filesystem::path& path) override {
    return path.extension() == ".log" ? log_bytes : real_.size(path);
  }

  Result<std::unique_ptr<rocks::File>> create(const std::filesystem::path& path) override {
    return real_.create(path);
  }
  Result<std::unique_ptr<rocks::File>> open(const std::filesystem::path& path) override {
    return real_.open(path);
  }
  Result<std::optional<std::string>> read(const std::filesystem::path& path) override {
    return real_.read(path);
  }
  Result<std::string> read_at(const std::filesystem::path& path, std::uint64_t offset,
                              std::size_t bytes) override {
    return real_.read_at(path, offset, bytes);
  }
  Result<bool> exists(const std::filesystem::path& path) override { return real_.exists(path); }
  Result<bool> is_directory(const std::filesystem::path& path) override {
    return real_.is_directory(path);
  }
  Result<void> make_directory(const std::filesystem::path& path) override {
    return real_.make_directory(path);
  }
  Result<void> rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return real_.rename(from, to);
  }
  Result<void> link(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return real_.link(from, to);
  }
  Result<void> remove(const std::filesystem::path& path) override { return real_.remove(path); }
  Result<void> sync_directory(const std::filesystem::path& path) override {
    return real_.sync_directory(path);
  }
  bool is_open_to_others(const std::filesystem::path& path) override {
    return real_.is_open_to_others(path);
  }
  Result<std::unique_ptr<rocks::FileLock>> lock(const std::filesystem::path& path,
                                                rocks::LockMode mode) override {
    return real_.lock(path, mode);
  }
  rocksdb::Env* env() override { return real_.env(); }

  std::optional<rocks::FreeSpace> space{{.free = 100 * kGiB, .total = 100 * kGiB}};
  std::uint64_t log_bytes = 0;
  int asked = 0;

 private:
  rocks::FileSystem& real_ = rocks::posix_files();
};

class SpaceWatching : public ::testing::Test {
 protected:
  SpaceWatching() { set_content(directory_.path() / "000001.log", "x"); }

  rocks::SpaceWatch watch(rocks::FloorChoice floors) {
    return rocks::SpaceWatch(files_, directory_.path(), floors,
                             [this](LogLevel, std::string_view line) { log_.emplace_back(line); });
  }
  /// What is found a while later, with so much free.
  SpaceLevel level_with(rocks::SpaceWatch& watch, std::uint64_t free) {
    files_.space->free = free;
    return watch.look(now_ += 1s).level;
  }

  const TemporaryDirectory directory_;
  FullishFiles files_;
  std::chrono::nanoseconds now_{0};
  std::vector<std::string> log_;
};

TEST_F(SpaceWatching, HasTwoFloorsAndLeavesEachWithAQuarterToSpare) {
  auto space = watch({.soft = 100 * kMiB, .hard = 40 * kMiB});

  EXPECT_EQ(level_with(space, 100 * kMiB), SpaceLevel::enough);
  EXPECT_EQ(level_with(space, 100 * kMiB - 1), SpaceLevel::low);
  EXPECT_EQ(level_with(space, 125 * kMiB - 1), SpaceLevel::low);
  EXPECT_EQ(level_with(space, 125 * kMiB), SpaceLevel::enough);
  EXPECT_EQ(level_with(space, 40 * kMiB), SpaceLevel::low);
  EXPECT_EQ(level_with(space, 40 * kMiB - 1), SpaceLevel::out);
  EXPECT_EQ(level_with(space, 50 * kMiB - 1), SpaceLevel::out);
  EXPECT_EQ(level_with(space, 50 * kMiB), SpaceLevel::low);
  EXPECT_EQ(level_with(space, 0), SpaceLevel::out);
  EXPECT_EQ(level_with(space, kGiB), SpaceLevel::enough);
}

TEST_F(SpaceWatching, SaysEachChangeOnceWithTheFigures) {
  auto space = watch({.soft = 100 * kMiB, .hard = 40 * kMiB});

  for (const auto free : {200, 90, 80, 30, 20, 90, 300, 300}) {
    level_with(space, static_cast<std::uint64_t>(free) * kMiB);
  }

  EXPECT_THAT(log_,
              ElementsAre(HasSubstr("90.0 MiB of room are left on the disk (90.0 MiB free, less "
                                    "what the log still needs), below the soft floor of 100.0 MiB"),
                          HasSubstr("below the hard floor of 40.0 MiB: no writes"),
                          HasSubstr("below the soft floor"), HasSubstr("all writes are taken")));
}

TEST_F(SpaceWatching, CountsTheLogTwiceSinceItBecomesATable) {
  auto space = watch({.soft = 100 * kMiB, .hard = 40 * kMiB});
  files_.log_bytes = 64 * kMiB;

  EXPECT_EQ(level_with(space, 164 * kMiB), SpaceLevel::enough);
  EXPECT_FALSE(space.should_flush());
  EXPECT_EQ(level_with(space, 164 * kMiB - 1), SpaceLevel::low);
  // Making a table of it wins room; it is asked for once a look.
  EXPECT_TRUE(space.should_flush());
  EXPECT_FALSE(space.should_flush());
  // Not where it would not fit, nor for little.
  EXPECT_EQ(level_with(space, 64 * kMiB), SpaceLevel::out);
  EXPECT_FALSE(space.should_flush());
  files_.log_bytes = kMiB;
  EXPECT_EQ(level_with(space, 64 * kMiB), SpaceLevel::low);
  EXPECT_FALSE(space.should_flush());
}

TEST_F(SpaceWatching, ChoosesFloorsThatFitTheDisk) {
  auto space = watch({});
  const auto floors_of = [&](std::uint64_t total) {
    files_.space = rocks::FreeSpace{.free = total, .total = total};
    const auto found = space.look(now_ += 1s);
    return std::pair(found.soft_floor, found.hard_floor);
  };

  EXPECT_EQ(floors_of(6 * kMiB), std::pair(6 * kMiB / 20, 6 * kMiB / 80));
  EXPECT_EQ(floors_of(8 * kGiB), std::pair(8 * kGiB / 20, 8 * kGiB / 80));
  EXPECT_EQ(floors_of(1000 * kGiB), std::pair(kGiB, 256 * kMiB));
  EXPECT_EQ(space.last().level, SpaceLevel::enough);
}

TEST_F(SpaceWatching, ZeroSwitchesAFloorOffAndAnUnknownDiskHasNone) {
  auto space = watch({.soft = 0, .hard = 0});
  EXPECT_EQ(level_with(space, 0), SpaceLevel::enough);

  auto other = watch({});
  files_.space.reset();
  EXPECT_EQ(other.look(now_ += 1s).level, SpaceLevel::enough);
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(SpaceWatching, AsksTheDiskNowAndThenOnly) {
  auto space = watch({});
  for (int i = 0; i < 1000; ++i) space.look(100ms);
  EXPECT_EQ(files_.asked, 1);

  space.look(100ms + rocks::SpaceWatch::kInterval);
  EXPECT_EQ(files_.asked, 2);
  space.wrote(rocks::SpaceWatch::kMostBytes);
  space.look(100ms + rocks::SpaceWatch::kInterval);
  EXPECT_EQ(files_.asked, 3);
  // A clock that was set back does not put it off.
  space.look(1ms);
  EXPECT_EQ(files_.asked, 4);
}

TEST_F(SpaceWatching, AsksSoonerTheNearerAFloorIs) {
  auto space = watch({.soft = 100 * kMiB, .hard = 40 * kMiB});
  level_with(space, 101 * kMiB);
  const auto asked = files_.asked;
  space.wrote(kMiB / 4 - 1);
  space.look(now_);
  EXPECT_EQ(files_.asked, asked);
  space.wrote(1);
  space.look(now_);
  EXPECT_EQ(files_.asked, asked + 1);
}

// --- what a store makes of it ---------------------------------------------------------------

class LittleSpace : public CommitterTest {
 protected:
  LittleSpace() { options_.unguarded_tokens = UnguardedTokens::any; }

  void set_space(SpaceLevel level) {
    script_->set_space({.level = level,
                        .free = 60 * kMiB,
                        .room = 50 * kMiB,
                        .soft_floor = 100 * kMiB,
                        .hard_floor = 60 * kMiB});
  }
  template <class C>
  std::string done(C command) {
    return line_of(store().execute(std::move(command)));
  }
};

TEST_F(LittleSpace, BelowTheSoftFloorKeysDoNotGrowAndLeasesGoOn) {
  ASSERT_EQ(done(write_of("old", "v", Token{1})), "OK");
  set_space(SpaceLevel::low);

  const auto commits = script_->commits();
  EXPECT_THAT(done(write_of("new", "v", Token{1})),
              StartsWith("MISCONF 50.0 MiB of room are left"));
  EXPECT_THAT(done(write_of("old", "w", Token{2})), StartsWith("MISCONF"));
  EXPECT_THAT(done(Raise{.key = "new", .token = Token{1}, .lease = {}}), StartsWith("MISCONF"));
  EXPECT_THAT(done(FencedRead{.key = "new", .token = Token{1}, .lease = {}}),
              StartsWith("MISCONF"));
  EXPECT_EQ(script_->commits(), commits);
  EXPECT_EQ(store().stats().space, SpaceLevel::low);
  EXPECT_FALSE(store().refuses_writes());

  const auto grant = store().acquire("job", "me", 10s);
  ASSERT_TRUE(grant && *grant) << line_of(grant);
  EXPECT_EQ(line_of(store().renew("job", "me", (*grant)->token, 10s)), "OK");
  EXPECT_EQ(line_of(store().release("job", "me", (*grant)->token)), "OK");
  EXPECT_EQ(line_of(store().remove("old", Token{2})), "OK");
  EXPECT_EQ(queued_read("old"), "(none)");
  EXPECT_THAT(done(Revoke{.name = "never"}), StartsWith("LEASELOST"));

  set_space(SpaceLevel::enough);
  EXPECT_EQ(done(write_of("new", "v", Token{1})), "OK");
}

TEST_F(LittleSpace, AGroupTakesWhatItMayAndRefusesTheRest) {
  collect_a_group();
  set_space(SpaceLevel::low);
  submit("set", write_of("a", "v", Token{1}));
  submit("acquire", acquire_of("job"));
  Write both;
  both.entries = {{.key = "before", .value = std::nullopt}, {.key = "b", .value = "v"}};
  both.token = Token{2};
  submit("both", both);
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(4));

  EXPECT_EQ(answers_.line("before"), "OK");
  EXPECT_THAT(answers_.line("set"), StartsWith("MISCONF"));
  EXPECT_EQ(answers_.line("acquire"), "OK");
  EXPECT_THAT(answers_.line("both"), StartsWith("MISCONF"));
  EXPECT_EQ(value_of("before"), "v");
}

TEST_F(LittleSpace, BelowTheHardFloorNothingIsWrittenUntilThereIsSpace) {
  ASSERT_EQ(done(write_of("old", "v", Token{1})), "OK");
  const auto grant = store().acquire("job", "me", 10s);
  ASSERT_TRUE(grant && *grant);
  set_space(SpaceLevel::out);

  const auto commits = script_->commits();
  EXPECT_THAT(line_of(store().renew("job", "me", (*grant)->token, 10s)),
              StartsWith("MISCONF 50.0 MiB of room are left"));
  EXPECT_THAT(done(write_of("new", "v", Token{1})), StartsWith("MISCONF"));
  EXPECT_THAT(line_of(store().remove("old", Token{2})), StartsWith("MISCONF"));
  EXPECT_EQ(queued_read("old"), "v");
  ASSERT_TRUE(store().refuses_writes());
  EXPECT_THAT(*store().refuses_writes(), HasSubstr("below the hard floor of 60.0 MiB"));
  EXPECT_EQ(script_->commits(), commits);

  set_space(SpaceLevel::enough);
  ASSERT_TRUE(recovers());
  EXPECT_EQ(done(write_of("new", "v", Token{1})), "OK");
  EXPECT_EQ(line_of(store().renew("job", "me", (*grant)->token, 10s)), "OK");
  // Nothing had failed, so nothing was reopened.
  EXPECT_EQ(script_->settles(), 0);
}

TEST_F(LittleSpace, AStoreOpensBelowTheFloorAndSaysSo) {
  store();
  store_.reset();
  set_space(SpaceLevel::out);
  EXPECT_TRUE(store().refuses_writes());
  EXPECT_THAT(done(write_of("k", "v", Token{1})), StartsWith("MISCONF"));
  // It ends as cleanly as ever.
  store_.reset();
  EXPECT_TRUE(script_->closed());
}

TEST_F(LittleSpace, WhatFailedWithoutAGroupIsSettledBeforeTheNext) {
  ASSERT_EQ(done(write_of("k", "v", Token{1})), "OK");
  script_->fail_behind("a table could not be made");

  // Certainly not done: nothing is in doubt.
  EXPECT_THAT(done(write_of("k", "w", Token{2})),
              StartsWith("MISCONF the storage failed: a table could not be made"));
  ASSERT_TRUE(recovers());
  EXPECT_EQ(script_->settles(), 1);
  EXPECT_EQ(value_of("k"), "v");
  EXPECT_EQ(done(write_of("k", "w", Token{2})), "OK");
}

}  // namespace
}  // namespace fencekv::testing
