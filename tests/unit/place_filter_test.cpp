// SPDX-License-Identifier: Apache-2.0
#include "engine/core/place_filter.h"

#include "tests/unit/committer_fixture.h"

#include <atomic>
#include <thread>

namespace fencekv::core {
namespace {

using testing::line_of;

std::string place(std::size_t number) {
  return "kplace " + std::to_string(number);
}

TEST(PlaceFilter, SaysNothingUntilItIsComplete) {
  PlaceFilter filter(4096);
  EXPECT_TRUE(filter.may_hold("knever"));
  filter.add("ka");
  filter.set_complete();
  EXPECT_TRUE(filter.is_complete());
  EXPECT_TRUE(filter.may_hold("ka"));
  EXPECT_FALSE(filter.may_hold("knever"));
}

TEST(PlaceFilter, WithoutMemoryIsNeverComplete) {
  for (const std::size_t bytes : {0, 63}) {
    PlaceFilter filter(bytes);
    filter.add("ka");
    filter.set_complete();
    EXPECT_FALSE(filter.is_complete());
    EXPECT_TRUE(filter.may_hold("knever"));
  }
}

TEST(PlaceFilter, KnowsEachThatWasAddedAndFewOthers) {
  constexpr std::size_t kRecords = 100'000;
  PlaceFilter filter(kRecords * 10 / 8);
  for (std::size_t i = 0; i < kRecords; ++i) filter.add(place(i));
  filter.set_complete();
  std::size_t mistaken = 0;
  for (std::size_t i = 0; i < kRecords; ++i) {
    ASSERT_TRUE(filter.may_hold(place(i))) << i;
    if (filter.may_hold(place(kRecords + i))) ++mistaken;
  }
  EXPECT_LT(mistaken, kRecords * 3 / 100);
  EXPECT_GT(mistaken, 0U);
}

TEST(PlaceFilter, LosesNothingThatTwoThreadsAdd) {
  constexpr std::size_t kRecords = 20'000;
  // Few blocks, so that they write to the same words.
  PlaceFilter filter(std::size_t{8} * 1024);
  std::thread other([&filter] {
    for (std::size_t i = 0; i < kRecords; i += 2) filter.add(place(i));
  });
  for (std::size_t i = 1; i < kRecords; i += 2) filter.add(place(i));
  other.join();
  filter.set_complete();
  for (std::size_t i = 0; i < kRecords; ++i) ASSERT_TRUE(filter.may_hold(place(i))) << i;
}

class PlaceScanTest : public testing::CommitterTest {
 protected:
  /// The same storage, opened once more.
  void reopen() {
    store_.reset();
    store();
  }
  int reads_during(const std::function<void()>& work) {
    const auto before = script_->reads();
    work();
    return script_->reads() - before;
  }
};

TEST_F(PlaceScanTest, ANewStoreAsksForNoKeyOrLeaseThatWasNeverThere) {
  store();
  EXPECT_EQ(reads_during([&] {
              for (int i = 0; i < 100; ++i) {
                const auto name = std::to_string(i);
                ASSERT_TRUE(store().set(name, "v", Token{1}).has_value());
                ASSERT_TRUE(store().acquire(name, "me", std::chrono::seconds(9)).has_value());
              }
            }),
            0);
  EXPECT_EQ(value_of("7"), "v");
}

TEST_F(PlaceScanTest, AStoreThatIsOpenedAgainKnowsOnceItHasSeenAll) {
  // More than one page.
  Write write{.token = Token{7}};
  for (int page = 0; page < 9; ++page) {
    write.entries.clear();
    for (int i = 0; i < 1000; ++i) {
      write.entries.push_back({std::to_string(page * 1000 + i), "v"});
    }
    ASSERT_TRUE(store().execute(write).has_value());
  }
  reopen();
  // What is written before the scan is through is known after it, too.
  ASSERT_TRUE(store().set("early", "v", Token{7}).has_value());
  int reads = 1;
  for (int i = 0; i < 1000 && reads > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto key = "new " + std::to_string(i);
    reads = reads_during([&] { ASSERT_TRUE(store().set(key, "v", Token{7}).has_value()); });
  }
  EXPECT_EQ(reads, 0);
  for (int i = 0; i < 9000; i += 99) {
    EXPECT_EQ(line_of(store().set(std::to_string(i), "late", Token{6})), "FENCED 7 6 stale") << i;
  }
  EXPECT_EQ(line_of(store().set("early", "late", Token{6})), "FENCED 7 6 stale");
}

TEST_F(PlaceScanTest, WhatWasInDoubtAndLandedIsKnown) {
  store();
  script_->fail_next({.outcome = Outcome::unknown, .lands = true});
  EXPECT_EQ(line_of(store().set("key", "v", Token{9})).substr(0, 7), "INDOUBT");
  ASSERT_TRUE(recovers());
  EXPECT_EQ(line_of(store().set("key", "late", Token{8})), "FENCED 9 8 stale");
}

}  // namespace
}  // namespace fencekv::core
