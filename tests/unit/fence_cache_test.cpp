// SPDX-License-Identifier: Apache-2.0
#include "engine/core/fence_cache.h"

#include "tests/unit/committer_fixture.h"

#include <gmock/gmock.h>

namespace fencekv::core {
namespace {

using testing::line_of;

KeyRecord record_with(std::uint64_t number, bool has_value) {
  KeyRecord record;
  record.fence = Token{number};
  record.version = number + 1;
  record.written_by = Token{number + 2};
  record.written = std::chrono::milliseconds(number + 3);
  if (has_value) record.value = "a value";
  return record;
}

/// As the cache gives it back.
KeyRecord without_value(KeyRecord record) {
  if (record.value) record.value = "";
  return record;
}

TEST(FenceCache, GivesBackAllButTheValue) {
  FenceCache cache(100'000);
  auto full = record_with(5, true);
  full.guard = "guard";
  full.request = "request";
  cache.put("full", full);
  cache.put("tombstone", record_with(7, false));

  EXPECT_EQ(cache.find("full"), without_value(full));
  EXPECT_EQ(cache.find("tombstone"), record_with(7, false));
  EXPECT_EQ(cache.find("other"), std::nullopt);
  cache.put("full", record_with(9, true));
  EXPECT_EQ(cache.find("full"), without_value(record_with(9, true)));
  EXPECT_EQ(cache.size(), 2U);
}

TEST(FenceCache, ForgetsWhatItIsTold) {
  FenceCache cache(100'000);
  cache.put("a", record_with(1, true));
  cache.put("b", record_with(1, true));
  cache.forget("a");
  cache.forget("never there");
  EXPECT_EQ(cache.find("a"), std::nullopt);
  EXPECT_NE(cache.find("b"), std::nullopt);
  cache.clear();
  EXPECT_EQ(cache.find("b"), std::nullopt);
  EXPECT_EQ(cache.size(), 0U);
}

TEST(FenceCache, WithoutMemoryKnowsNothing) {
  FenceCache cache(0);
  cache.put("a", record_with(1, true));
  EXPECT_EQ(cache.find("a"), std::nullopt);
}

TEST(FenceCache, IsBoundedAndKeepsWhatIsUsed) {
  constexpr std::size_t kBytes = std::size_t{1024} * 1024;
  FenceCache cache(kBytes);
  std::size_t most = 0;
  cache.put("used", record_with(1, true));
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const auto key = "key " + std::to_string(i);
    cache.put(key, record_with(i, true));
    ASSERT_EQ(cache.find(key), without_value(record_with(i, true)));
    // Whichever generation it is in by now.
    if (i % 100 == 0) {
      ASSERT_NE(cache.find("used"), std::nullopt) << i;
    }
    most = std::max(most, cache.size());
  }
  EXPECT_LE(most, kBytes / FenceCache::kKeyBytes + 128);
  EXPECT_GE(most, kBytes / FenceCache::kKeyBytes / 4);
  EXPECT_EQ(cache.find("key 0"), std::nullopt);
}

TEST(FenceCache, NamesCountToo) {
  constexpr std::size_t kBytes = std::size_t{1024} * 1024;
  FenceCache cache(kBytes);
  auto record = record_with(1, true);
  record.request = std::string(1000, 'r');
  for (int i = 0; i < 10'000; ++i) cache.put("key " + std::to_string(i), record);
  EXPECT_LE(cache.size(), kBytes / 1000 + 128);
}

/// 0: refused.
std::uint64_t version_of(const Result<std::uint64_t>& written) {
  return written ? *written : 0;
}

/// What a store remembers of its keys, told by what its storage is asked.
class RememberedFencesTest : public testing::CommitterTest {
 protected:
  int reads_during(const std::function<void()>& work) {
    const auto before = script_->reads();
    work();
    return script_->reads() - before;
  }
};

TEST_F(RememberedFencesTest, AWriteOfAKnownKeyReadsNothing) {
  ASSERT_TRUE(store().set("key", "one", Token{5}).has_value());
  EXPECT_EQ(reads_during([&] {
              EXPECT_EQ(version_of(store().set("key", "two", Token{5})), 2U);
              EXPECT_EQ(line_of(store().set("key", "three", Token{4})), "FENCED 5 4 stale");
              EXPECT_EQ(version_of(store().remove("key", Token{6})), 3U);
              EXPECT_EQ(version_of(store().set("key", "four", Token{6})), 4U);
            }),
            0);
  EXPECT_EQ(store().stats().live_keys, 1U);
  EXPECT_EQ(value_of("key"), "four");
}

TEST_F(RememberedFencesTest, TheValueIsReadWhenItIsWanted) {
  ASSERT_TRUE(store().set("key", "value", Token{5}).has_value());
  // Refused, so that the group knows the key without its value.
  collect_a_group();
  submit("stale", testing::write_of("key", "late", Token{4}));
  submit("read", Read{.keys = {"key"}});
  submit("raise", Raise{.key = "key", .token = Token{8}});
  submit("again", Read{.keys = {"key"}});
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(5));
  EXPECT_EQ(answers_.line("stale"), "FENCED 5 4 stale");
  EXPECT_EQ(answers_.reply<Read>("read").front().value, "value");
  EXPECT_EQ(answers_.line("raise"), "OK");
  EXPECT_EQ(answers_.reply<Read>("again").front().value, "value");
  EXPECT_EQ(value_of("key"), "value");
}

TEST_F(RememberedFencesTest, WithoutMemoryEveryWriteReads) {
  options_.fence_cache_bytes = 0;
  ASSERT_TRUE(store().set("key", "one", Token{5}).has_value());
  EXPECT_EQ(reads_during([&] { EXPECT_EQ(version_of(store().set("key", "two", Token{5})), 2U); }),
            1);
}

TEST_F(RememberedFencesTest, AGroupThatFailedLeavesNothingBehind) {
  ASSERT_TRUE(store().set("key", "one", Token{5}).has_value());
  script_->fail_next({.outcome = Outcome::refused});
  EXPECT_FALSE(store().set("key", "two", Token{9}).has_value());
  EXPECT_EQ(version_of(store().set("key", "three", Token{6})), 2U);
}

TEST_F(RememberedFencesTest, NothingIsKnownAfterADoubt) {
  ASSERT_TRUE(store().set("key", "one", Token{5}).has_value());
  script_->fail_next({.outcome = Outcome::unknown});
  EXPECT_FALSE(store().set("key", "two", Token{9}).has_value());
  ASSERT_TRUE(recovers());
  EXPECT_GT(reads_during([&] { (void)store().set("key", "three", Token{9}); }), 0);
}

}  // namespace
}  // namespace fencekv::core
