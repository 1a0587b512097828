// SPDX-License-Identifier: Apache-2.0
/// What a deadline means after a reboot: engine/SEMANTICS.md, 3.6.

#include "engine/core/boots.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace fencekv::testing {
namespace {

using core::Boots;
using core::Deadline;
using namespace std::chrono_literals;
using std::chrono::nanoseconds;

/// Boot 0 was opened at 100 s and last read 150 s; boot 1: 10 s, 40 s; boot 2 runs since 20 s.
Boots three_boots() {
  Boots boots;
  EXPECT_TRUE(boots.enter("zero", 100s, 0s));
  EXPECT_TRUE(boots.enter("one", 10s, 150s));
  EXPECT_TRUE(boots.enter("two", 20s, 40s));
  return boots;
}

TEST(Boots, EnteringTheSameBootAgainChangesNothing) {
  auto boots = three_boots();
  const auto before = boots;
  EXPECT_FALSE(boots.enter("two", 99s, 77s));
  EXPECT_EQ(boots, before);
  EXPECT_EQ(boots.current(), 2U);
  EXPECT_EQ(boots.opened(), nanoseconds(20s));
}

TEST(Boots, ANewBootWritesDownHowFarTheOldOneCame) {
  const auto boots = three_boots();
  ASSERT_EQ(boots.all().size(), 3U);
  EXPECT_EQ(boots.all()[0].last, nanoseconds(150s));
  EXPECT_EQ(boots.all()[1].last, nanoseconds(40s));
  EXPECT_EQ(boots.all()[2].last, nanoseconds(0s));
}

TEST(Boots, ABootThatComesBackIsANewOne) {
  auto boots = three_boots();
  EXPECT_TRUE(boots.enter("zero", 5s, 50s));
  EXPECT_EQ(boots.current(), 3U);
}

struct Resolved {
  std::string what;
  Deadline deadline;
  nanoseconds ttl;
  std::optional<nanoseconds> end;
};

class BootsResolve : public ::testing::TestWithParam<Resolved> {};

TEST_P(BootsResolve, FindsTheEndOfALeaseOnTheRunningClock) {
  const auto& [what, deadline, ttl, end] = GetParam();
  EXPECT_EQ(three_boots().resolve(deadline, ttl), end) << what;
}

INSTANTIATE_TEST_SUITE_P(
    Table, BootsResolve,
    ::testing::Values(
        Resolved{"same_boot_running", {.boot = 2, .at = 30s}, 10s, 30s},
        Resolved{"same_boot_over", {.boot = 2, .at = 1s}, 10s, 1s},
        Resolved{"last_boot_running", {.boot = 1, .at = 41s}, 10s, 30s},
        Resolved{"last_boot_one_tick_left", {.boot = 1, .at = 40s + 1ns}, 10s, 30s},
        Resolved{"last_boot_just_over", {.boot = 1, .at = 40s}, 10s, std::nullopt},
        Resolved{"last_boot_long_over", {.boot = 1, .at = 1s}, 10s, std::nullopt},
        // Given its time again at 10 s in boot 1, where it then ran to 40 s.
        Resolved{"two_boots_over_in_the_first", {.boot = 0, .at = 150s}, 60s, std::nullopt},
        Resolved{"two_boots_over_in_the_second", {.boot = 0, .at = 151s}, 30s, std::nullopt},
        Resolved{"two_boots_running_through", {.boot = 0, .at = 151s}, 31s, 51s}),
    [](const auto& entry) { return entry.param.what; });

TEST(Boots, ADelayGoesOnOverAStartAndBeginsAnewIfItWasRunning) {
  const auto boots = three_boots();
  EXPECT_EQ(boots.resolve_delay({.boot = 2, .at = 30s}, 10s, 5s), nanoseconds(35s));
  // Expired at 30 s in boot 1, which was seen to last until 40 s.
  EXPECT_EQ(boots.resolve_delay({.boot = 1, .at = 30s}, 10s, 10s), std::nullopt);
  EXPECT_EQ(boots.resolve_delay({.boot = 1, .at = 30s}, 10s, 11s), nanoseconds(31s));
  // Running when boot 1 ended: it had its time once more, until 30 s in boot 2.
  EXPECT_EQ(boots.resolve_delay({.boot = 1, .at = 41s}, 10s, 5s), nanoseconds(35s));
}

TEST(Boots, RemembersOnly256AndALeaseOfAForgottenOneIsOver) {
  Boots boots;
  for (int i = 0; i < 300; ++i) EXPECT_TRUE(boots.enter("boot " + std::to_string(i), 1s, 10s));
  EXPECT_EQ(boots.all().size(), Boots::kRemembered);
  EXPECT_EQ(boots.first(), 44U);
  EXPECT_EQ(boots.current(), 299U);
  EXPECT_EQ(boots.all().back().id, "boot 299");

  EXPECT_EQ(boots.resolve({.boot = 43, .at = 11s}, 60s), std::nullopt);
  EXPECT_EQ(boots.resolve_delay({.boot = 43, .at = 11s}, 60s, 1s), std::nullopt);
  EXPECT_EQ(boots.resolve({.boot = 44, .at = 11s}, 60s), nanoseconds(61s));
  EXPECT_EQ(boots.resolve({.boot = 299, .at = 11s}, 60s), nanoseconds(11s));
}

}  // namespace
}  // namespace fencekv::testing
