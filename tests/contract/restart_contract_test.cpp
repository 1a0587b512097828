// SPDX-License-Identifier: Apache-2.0
/// engine/SEMANTICS.md sections 3.6 and 4: what is still there after a stop, a crash and a reboot.

#include "tests/contract/store_contract.h"

namespace fencekv::testing {
namespace {

using ::testing::StartsWith;

class RestartContract : public StoreContract {};

TEST_P(RestartContract, KeepsKeysFencesAndLeases) {
  const auto sleeper = issue();
  const auto token = hold("lease", "me", 1h);
  ASSERT_OK(set("job", "v", token, {.lease = "lease", .request = "r1"}));
  ASSERT_OK(remove("gone", token));
  const auto state = state_of("job");
  const auto stats = world().store().stats();

  for (const bool crashes : {false, true}) {
    crashes ? world().crash() : world().restart();

    EXPECT_EQ(state_of("job"), state);
    EXPECT_THAT(outcome(set("gone", "revived", sleeper)), StartsWith("FENCED"));
    EXPECT_FALSE(can_take("lease", "second"));
    EXPECT_OK(renew("lease", "me", token, 1h));
    EXPECT_EQ(world().store().stats().incarnation, stats.incarnation);
    EXPECT_EQ(world().store().stats().live_keys, 1);
    EXPECT_EQ(world().store().stats().tombstones, 1);
    EXPECT_GT(world().store().stats().epoch, stats.epoch);
  }
}

TEST_P(RestartContract, NeverHandsATokenOutTwice) {
  Token last;
  for (int life = 0; life < 6; ++life) {
    for (int i = 0; i < 3; ++i) {
      const auto token = issue();
      EXPECT_GT(token, last);
      last = token;
    }
    life % 2 == 0 ? world().crash() : world().restart();
  }
}

TEST_P(RestartContract, LeavesNoGapAfterACleanStop) {
  const auto token = issue();
  world().restart();
  EXPECT_EQ(issue().number(), token.number() + 1);
}

TEST_P(RestartContract, ATokenThatACrashSkippedWasNeverIssued) {
  const auto token = issue();
  world().crash();
  EXPECT_THAT(outcome(set("job", "v", Token{token.number() + 1})), StartsWith("UNISSUED"));
}

TEST_P(RestartContract, ALeaseGoesOnWithExactlyTheTimeItHadInTheSameBoot) {
  hold("lease", "me", 10s);
  world().clock().advance(3s);
  world().restart();
  world().clock().advance(3s);
  world().crash();

  ASSERT_EQ(lease("lease").holders.size(), 1);
  EXPECT_EQ(lease("lease").holders[0].remaining, 4s);
  world().clock().advance(4s);
  EXPECT_TRUE(can_take("lease", "second"));
}

// B7: users asked for stored timestamps to be trusted, and skew speaks against it. After a reboot
// it is not known how long the machine was off: the whole time again, and no more than once.
TEST_P(RestartContract, ALeaseGetsItsTimeAgainOncePerReboot) {
  const auto token = hold("lease", "me", 10s);
  world().clock().advance(8s);
  world().clock().reboot();
  world().crash();

  EXPECT_EQ(lease("lease").holders.at(0).remaining, 10s);
  world().clock().advance(6s);
  world().restart();
  EXPECT_EQ(lease("lease").holders.at(0).remaining, 4s);
  EXPECT_OK(renew("lease", "me", token, 10s));
  world().clock().advance(10s);
  EXPECT_TRUE(can_take("lease", "second"));
}

// B7: a wall clock that was set far off before the stop, or is after it, is the same to all leases.
TEST_P(RestartContract, NoWallClockOfBeforeOrAfterARestartChangesWhatIsLeft) {
  constexpr milliseconds kNow{1'700'000'000'000};
  constexpr milliseconds kFar = std::chrono::hours(24 * 365 * 30);
  for (const auto before : {kNow - kFar, kNow, kNow + kFar}) {
    for (const auto after : {kNow - kFar, kNow, kNow + kFar}) {
      for (const bool reboots : {false, true}) {
        SCOPED_TRACE(std::to_string(before.count()) + " to " + std::to_string(after.count()) +
                     (reboots ? ", rebooted" : ""));
        world().clock().set_wall(before);
        const auto token = hold("lease", "me", 10s);
        ASSERT_OK(set("job", "v", token, {.lease = "lease"}));
        world().clock().advance(3s);
        issue();
        world().clock().set_wall(after);
        if (reboots) world().clock().reboot();
        reboots ? world().crash() : world().restart();

        const auto left = reboots ? 10s : 7s;
        ASSERT_EQ(lease("lease").holders.size(), 1);
        EXPECT_EQ(lease("lease").holders[0].remaining, left);
        world().clock().advance(left - 1s);
        EXPECT_FALSE(can_take("lease", "second"));
        world().clock().advance(1s);
        EXPECT_TRUE(can_take("lease", "second"));
        revoke("lease");
      }
    }
  }
}

TEST_P(RestartContract, ALeaseLivesThroughSeveralReboots) {
  hold("lease", "me", 10s);
  for (int i = 0; i < 3; ++i) {
    world().clock().advance(8s);
    // So that the store knows that time went by.
    issue();
    world().clock().reboot();
    world().crash();
    EXPECT_EQ(lease("lease").holders.at(0).remaining, 10s);
  }
}

TEST_P(RestartContract, AnExpiredLeaseStaysExpiredOverAReboot) {
  const auto noticed = hold("noticed", "me", 1s);
  hold("unnoticed", "me", 1s);
  const auto asked_live = hold("asked live", "me", 1s);
  hold("looked at", "me", 1s);
  world().clock().advance(1s);
  EXPECT_EQ(outcome(renew("noticed", "me", noticed)), "LEASELOST expired");
  EXPECT_THAT(outcome(set("k", "v", asked_live, {.lease = "asked live", .live = true})),
              StartsWith("EXPIRED"));
  EXPECT_TRUE(lease("looked at").holders.empty());

  world().clock().reboot();
  world().crash();

  EXPECT_EQ(outcome(renew("noticed", "me", noticed)), "LEASELOST expired");
  EXPECT_TRUE(can_take("asked live", "second"));
  EXPECT_TRUE(can_take("looked at", "second"));
  EXPECT_TRUE(can_take("noticed", "second"));
  EXPECT_TRUE(can_take("unnoticed", "second"));
}

TEST_P(RestartContract, ACleanStopRemembersThatTimeWentBy) {
  hold("lease", "me", 1s);
  world().clock().advance(1s);
  world().restart();
  world().clock().reboot();
  world().crash();
  EXPECT_TRUE(can_take("lease", "second"));
}

TEST_P(RestartContract, TellsSinceWhenALeaseIsOverAfterAReboot) {
  const auto token = hold("lease", "me", 1s);
  world().clock().advance(1s);
  issue();
  world().clock().reboot();
  world().crash();
  world().clock().advance(7s);
  EXPECT_EQ(outcome(set("k", "v", token, {.lease = "lease", .live = true})), "EXPIRED 7000");
}

TEST_P(RestartContract, AClockThatWasSetBackStandsStill) {
  hold("lease", "me", 10s);
  world().clock().advance(4s);
  issue();
  world().clock().advance(-1h);
  world().crash();
  EXPECT_EQ(lease("lease").holders.at(0).remaining, 6s);
}

TEST_P(RestartContract, PoliciesMayChangeFromOneOpeningToTheNext) {
  options().unguarded_tokens = UnguardedTokens::any;
  ASSERT_OK(set("job", "v", Token{1'000'000}));
  world().options().unguarded_tokens = UnguardedTokens::issued;
  world().restart();
  EXPECT_THAT(outcome(set("job", "w", Token{1'000'001})), StartsWith("UNISSUED"));
  EXPECT_EQ(value_of("job"), "v");
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, RestartContract, ::testing::ValuesIn(every_world()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
