// SPDX-License-Identifier: Apache-2.0
/// DELAY and PAYLOAD: engine/SEMANTICS.md section 3, on every kind of world.

#include "tests/contract/store_contract.h"

namespace fencekv::testing {
namespace {

using ::testing::StartsWith;

class DelayContract : public StoreContract {};

TEST_P(DelayContract, AfterAnExpiryTheNameStaysBlockedForThatLong) {
  take("lease", "me", {.delay = 5s}, 10s);
  EXPECT_EQ(lease("lease").blocked, 0ms);
  world().clock().advance(10s);
  EXPECT_EQ(lease("lease").blocked, 5s);
  EXPECT_TRUE(lease("lease").holders.empty());
  EXPECT_TRUE(is_not_acquired(acquire("lease", "next")));
  world().clock().advance(4999ms);
  EXPECT_EQ(lease("lease").blocked, 1ms);
  EXPECT_TRUE(is_not_acquired(acquire("lease", "next")));
  world().clock().advance(1ms);
  EXPECT_EQ(lease("lease").blocked, 0ms);
  take("lease", "next");
}

TEST_P(DelayContract, TheDelayRunsFromTheExpiryWheneverThatIsNoticed) {
  take("lease", "me", {.delay = 5s}, 10s);
  world().clock().advance(13s);
  EXPECT_EQ(lease("lease").blocked, 2s);
  world().clock().advance(2s);
  EXPECT_TRUE(can_take("lease", "next"));
}

TEST_P(DelayContract, AfterADisconnectionToo) {
  auto& user = new_user();
  take(user, "lease", "me", {.bind = true, .delay = 5s});
  leave(user);
  EXPECT_EQ(lease("lease").blocked, 5s);
  EXPECT_TRUE(is_not_acquired(acquire("lease", "next")));
  world().clock().advance(5s);
  EXPECT_TRUE(can_take("lease", "next"));
}

TEST_P(DelayContract, AfterARevocationToo) {
  take("lease", "me", {.delay = 5s});
  revoke("lease");
  EXPECT_TRUE(is_not_acquired(acquire("lease", "next")));
  world().clock().advance(5s);
  EXPECT_TRUE(can_take("lease", "next"));
}

TEST_P(DelayContract, NotAfterARelease) {
  const auto token = take("lease", "me", {.delay = 5s});
  ASSERT_OK(release("lease", "me", token));
  EXPECT_EQ(lease("lease").blocked, 0ms);
  EXPECT_TRUE(can_take("lease", "next"));
}

TEST_P(DelayContract, ItIsForTheLastOwnerToo) {
  take("lease", "me", {.delay = 5s}, 10s);
  world().clock().advance(10s);
  EXPECT_TRUE(is_not_acquired(acquire("lease", "me")));
  const auto waiting = queue("lease", "me");
  world().clock().advance(5s);
  token_of(waiting);
}

TEST_P(DelayContract, TheEndOfADelayWakesTheNextWaiterWithoutAnybodyAsking) {
  take("lease", "me", {.delay = 5s}, 10s);
  const auto waiting = queue("lease", "next");
  const auto impatient = queue("lease", "impatient", {.wait = 12s});
  world().clock().advance(12s);
  EXPECT_EQ(end_of(impatient), "(none)");
  EXPECT_TRUE(waits(waiting));
  world().clock().advance(3s);
  token_of(waiting);
}

TEST_P(DelayContract, ADelayHoldsUpASetOfNames) {
  take("a", "me", {.delay = 5s}, 1s);
  world().clock().advance(1s);
  EXPECT_TRUE(
      is_not_acquired(world().ask(AcquireMany{.names = {"a", "b"}, .owner = "other", .ttl = 1s})));
  const auto waiting =
      queue(AcquireMany{.names = {"a", "b"}, .owner = "other", .ttl = 1s, .wait = 1h});
  world().clock().advance(5s);
  token_of(waiting);
}

TEST_P(DelayContract, AReaderThatEndedBlocksThoseWhoWouldJoin) {
  take("lease", "first", {.mode = LeaseMode::shared, .delay = 5s}, 1s);
  const auto second = take("lease", "second", {.mode = LeaseMode::shared}, 1h);
  world().clock().advance(1s);
  EXPECT_EQ(lease("lease").holders.size(), 1);
  EXPECT_EQ(lease("lease").blocked, 5s);
  EXPECT_TRUE(is_not_acquired(acquire("lease", "third", {.mode = LeaseMode::shared})));
  // Who holds it goes on.
  EXPECT_OK(renew("lease", "second", second, 1h));
  EXPECT_EQ(take("lease", "second", {.mode = LeaseMode::shared}, 1h), second);
  world().clock().advance(5s);
  take("lease", "third", {.mode = LeaseMode::shared});
}

TEST_P(DelayContract, TheLongestOfSeveralDelaysCounts) {
  take("lease", "first", {.mode = LeaseMode::shared, .delay = 9s}, 1s);
  take("lease", "second", {.mode = LeaseMode::shared, .delay = 2s}, 2s);
  world().clock().advance(2s);
  EXPECT_EQ(lease("lease").blocked, 8s);
}

TEST_P(DelayContract, ItGoesOnOverARestart) {
  take("lease", "me", {.delay = 5s}, 10s);
  world().clock().advance(11s);
  EXPECT_EQ(lease("lease").blocked, 4s);
  for (const bool crashes : {false, true}) {
    crashes ? world().crash() : world().restart();
    EXPECT_EQ(lease("lease").blocked, 4s);
    EXPECT_TRUE(is_not_acquired(acquire("lease", "next")));
  }
  world().clock().advance(4s);
  EXPECT_TRUE(can_take("lease", "next"));
}

TEST_P(DelayContract, AfterARebootItIsThereInFullAgain) {
  take("lease", "me", {.delay = 5s}, 10s);
  world().clock().advance(11s);
  EXPECT_EQ(lease("lease").blocked, 4s);
  world().clock().reboot();
  world().crash();
  EXPECT_EQ(lease("lease").blocked, 5s);
  world().clock().advance(5s);
  EXPECT_TRUE(can_take("lease", "next"));
}

TEST_P(DelayContract, ABoundLeaseThatARestartEndedBlocksFromTheRestart) {
  take(new_user(), "lease", "me", {.bind = true, .delay = 5s}, 1h);
  world().crash();
  world().clock().advance(3s);
  EXPECT_EQ(lease("lease").blocked, 2s);
  EXPECT_TRUE(is_not_acquired(acquire("lease", "next")));
  world().clock().advance(2s);
  EXPECT_TRUE(can_take("lease", "next"));
}

TEST_P(DelayContract, GivenAgainByTheHolderDelayAndPayloadAreReplaced) {
  take("lease", "me", {.delay = 5s, .payload = "first"}, 10s);
  EXPECT_EQ(lease("lease").payload, "first");
  take("lease", "me", {.delay = 2s, .payload = "second"}, 10s);
  EXPECT_EQ(lease("lease").payload, "second");
  world().clock().advance(10s);
  EXPECT_EQ(lease("lease").blocked, 2s);
}

TEST_P(DelayContract, NotGivenAgainTheyStay) {
  const auto token = take("lease", "me", {.delay = 5s, .payload = "label"}, 10s);
  take("lease", "me", {}, 10s);
  ASSERT_OK(renew("lease", "me", token, 10s));
  EXPECT_EQ(lease("lease").payload, "label");
  world().clock().advance(10s);
  EXPECT_EQ(lease("lease").blocked, 5s);
}

TEST_P(DelayContract, ADelayOfNothingIsNone) {
  take("lease", "me", {.delay = 5s}, 10s);
  take("lease", "me", {.delay = 0ms}, 10s);
  world().clock().advance(10s);
  EXPECT_TRUE(can_take("lease", "next"));
}

TEST_P(DelayContract, AWaitersDelayAndPayloadCountFromItsGrant) {
  const auto token = take("lease", "me", {.payload = "mine"});
  const auto waiting = queue(
      make_acquire("lease", "next", 10s, {.wait = 1h, .delay = 3s, .payload = "of the next"}));
  EXPECT_EQ(lease("lease").payload, "mine");
  ASSERT_OK(release("lease", "me", token));
  token_of(waiting);
  EXPECT_EQ(lease("lease").payload, "of the next");
  revoke("lease");
  EXPECT_EQ(lease("lease").blocked, 3s);
}

TEST_P(DelayContract, ThePayloadIsTheNewestHolders) {
  take("lease", "first", {.mode = LeaseMode::shared, .payload = "first"}, 1h);
  const auto second = take("lease", "second", {.mode = LeaseMode::shared, .payload = "second"});
  EXPECT_EQ(lease("lease").payload, "second");
  ASSERT_OK(release("lease", "second", second));
  EXPECT_EQ(lease("lease").payload, "first");
  revoke("lease");
  EXPECT_EQ(lease("lease").payload, std::nullopt);
}

TEST_P(DelayContract, APayloadIsUpTo1024BytesOfAnything) {
  std::string any;
  for (int i = 0; i < 1024; ++i) any.push_back(static_cast<char>(i));
  take("lease", "me", {.payload = any}, 1h);
  EXPECT_EQ(lease("lease").payload, any);
  world().crash();
  EXPECT_EQ(lease("lease").payload, any);
  EXPECT_THAT(outcome(acquire("lease", "me", {.payload = any + "x"})), StartsWith("ERR"));
  EXPECT_EQ(lease("lease").payload, any);
  take("empty", "me", {.payload = ""});
  EXPECT_EQ(lease("empty").payload, "");
}

TEST_P(DelayContract, ADelayIsUpToSevenDays) {
  EXPECT_THAT(outcome(acquire("lease", "me", {.delay = Limits::kMaxDelay + 1ms})),
              StartsWith("ERR"));
  EXPECT_THAT(outcome(acquire("lease", "me", {.delay = -1ms})), StartsWith("ERR"));
  take("lease", "me", {.delay = Limits::kMaxDelay}, Limits::kMaxTtl);
  revoke("lease");
  EXPECT_EQ(lease("lease").blocked, Limits::kMaxDelay);
  world().clock().advance(Limits::kMaxDelay);
  EXPECT_TRUE(can_take("lease", "next"));
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, DelayContract, ::testing::ValuesIn(every_world()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
