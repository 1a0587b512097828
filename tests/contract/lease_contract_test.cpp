// SPDX-License-Identifier: Apache-2.0
/// engine/SEMANTICS.md sections 3.1 to 3.5, on every kind of world.

#include "tests/contract/store_contract.h"

namespace fencekv::testing {
namespace {

using ::testing::StartsWith;

class LeaseContract : public StoreContract {};

TEST_P(LeaseContract, GrantsEverGrowingTokens) {
  Token last;
  for (const auto* name : {"a", "b", "a", "c", "a"}) {
    const auto token = hold(name, "owner of " + std::to_string(last.number()));
    EXPECT_GT(token, last);
    last = token;
    ASSERT_OK(world().ask(Revoke{.name = name}));
  }
}

TEST_P(LeaseContract, RefusesASecondOwnerUntilTheTimeIsOver) {
  const auto first = hold("lease", "first", 1s);
  EXPECT_FALSE(can_take("lease", "second"));
  world().clock().advance(999'999'999ns);
  EXPECT_FALSE(can_take("lease", "second"));

  world().clock().advance(1ns);
  EXPECT_GT(hold("lease", "second"), first);
}

TEST_P(LeaseContract, JudgesExpiryByTheTimeOfTheHolderNotOfTheChallenger) {
  hold("lease", "first", 60s);
  world().clock().advance(5s);
  EXPECT_FALSE(can_take("lease", "second", 5s));
}

TEST_P(LeaseContract, AnswersARetriedAcquireWithTheSameTokenAndFreshTime) {
  const auto token = hold("lease", "me", 10s);
  world().clock().advance(9s);

  const auto again = world().ask(Acquire{"lease", "me", 10s});

  ASSERT_OK(again);
  ASSERT_TRUE(*again);
  EXPECT_EQ((*again)->token, token);
  EXPECT_EQ((*again)->remaining, 10s);
  world().clock().advance(9s);
  EXPECT_FALSE(can_take("lease", "second"));
}

TEST_P(LeaseContract, GivesAnOwnerANewTokenAfterItsOwnExpiry) {
  const auto token = hold("lease", "me", 1s);
  world().clock().advance(1s);
  EXPECT_GT(hold("lease", "me"), token);
}

TEST_P(LeaseContract, RenewsOnlyTheTimeOfACurrentGrant) {
  const auto token = hold("lease", "me", 2s);
  world().clock().advance(1s);

  const auto remaining = renew("lease", "me", token, 5s);

  ASSERT_OK(remaining);
  EXPECT_EQ(*remaining, 5s);
  world().clock().advance(4999ms);
  EXPECT_FALSE(can_take("lease", "second"));
  world().clock().advance(1ms);
  EXPECT_TRUE(can_take("lease", "second"));
}

TEST_P(LeaseContract, ARenewCanShortenTheTime) {
  const auto token = hold("lease", "me", 1h);
  ASSERT_OK(renew("lease", "me", token, 1s));
  world().clock().advance(1s);
  EXPECT_TRUE(can_take("lease", "second"));
}

TEST_P(LeaseContract, NeverRevivesAnExpiredLease) {
  const auto token = hold("lease", "me", 1s);
  world().clock().advance(1s);

  EXPECT_EQ(outcome(renew("lease", "me", token)), "LEASELOST expired");
  EXPECT_EQ(outcome(renew("lease", "me", token)), "LEASELOST expired");
  EXPECT_TRUE(can_take("lease", "second"));
}

TEST_P(LeaseContract, SaysHowALeaseWasLost) {
  EXPECT_EQ(outcome(renew("never", "me", Token{1})), "LEASELOST unknown");

  const auto first = hold("lease", "first", 1s);
  EXPECT_EQ(outcome(renew("lease", "stranger", first)), "LEASELOST unknown");
  EXPECT_EQ(outcome(renew("lease", "first", Token{first.number() + 1})), "LEASELOST unknown");

  ASSERT_OK(release("lease", "first", first));
  EXPECT_EQ(outcome(renew("lease", "first", first)), "LEASELOST released");

  const auto second = hold("lease", "second");
  EXPECT_EQ(outcome(renew("lease", "first", first)), "LEASELOST superseded");
  ASSERT_OK(world().ask(Revoke{.name = "lease"}));
  EXPECT_EQ(outcome(renew("lease", "second", second)), "LEASELOST revoked");
}

TEST_P(LeaseContract, ALateRenewLeavesTheSuccessorAlone) {
  const auto sleeper = hold("lease", "sleeper", 1s);
  world().clock().advance(1s);
  const auto successor = hold("lease", "successor", 10s);
  world().clock().advance(4s);

  EXPECT_EQ(outcome(renew("lease", "sleeper", sleeper, 1h)), "LEASELOST superseded");

  const auto state = lease("lease");
  ASSERT_EQ(state.holders.size(), 1);
  EXPECT_EQ(state.holders[0].token, successor);
  EXPECT_EQ(state.holders[0].remaining, 6s);
}

TEST_P(LeaseContract, FreesANameAtTheRelease) {
  const auto token = hold("lease", "me");
  ASSERT_OK(release("lease", "me", token));
  EXPECT_GT(hold("lease", "second"), token);
}

TEST_P(LeaseContract, ARepeatedReleaseIsHarmlessWhileItsGrantIsTheNewest) {
  const auto token = hold("lease", "me");
  ASSERT_OK(release("lease", "me", token));
  EXPECT_OK(release("lease", "me", token));

  const auto second = hold("lease", "second");
  EXPECT_EQ(outcome(release("lease", "me", token)), "LEASELOST superseded");
  EXPECT_EQ(lease("lease").holders.front().token, second);
}

TEST_P(LeaseContract, ReleasesOnlyWhatIsStillTheCallers) {
  EXPECT_EQ(outcome(release("never", "me", Token{1})), "LEASELOST unknown");

  const auto token = hold("lease", "me", 1s);
  EXPECT_EQ(outcome(release("lease", "stranger", token)), "LEASELOST unknown");
  EXPECT_EQ(lease("lease").holders.size(), 1);

  world().clock().advance(1s);
  EXPECT_EQ(outcome(release("lease", "me", token)), "LEASELOST expired");
  // It touched nobody: nobody else came, so the token still writes.
  EXPECT_OK(set("job", "v", token, {.lease = "lease"}));
}

TEST_P(LeaseContract, RevokesWhoeverHolds) {
  EXPECT_EQ(outcome(world().ask(Revoke{.name = "never"})), "LEASELOST unknown");

  const auto token = hold("lease", "me");
  EXPECT_EQ(*world().ask(Revoke{.name = "lease"}), token);
  EXPECT_EQ(*world().ask(Revoke{.name = "lease"}), token);
  EXPECT_TRUE(lease("lease").holders.empty());
  EXPECT_EQ(outcome(release("lease", "me", token)), "LEASELOST revoked");
  EXPECT_TRUE(can_take("lease", "second"));
}

TEST_P(LeaseContract, RevokesAnExpiredGrantToo) {
  const auto token = hold("lease", "me", 1s);
  world().clock().advance(1s);
  ASSERT_OK(world().ask(Revoke{.name = "lease"}));
  EXPECT_THAT(outcome(set("job", "v", token, {.lease = "lease"})), StartsWith("FENCED"));
}

TEST_P(LeaseContract, ARevocationAfterTheReleaseChangesNothing) {
  const auto token = hold("lease", "me");
  ASSERT_OK(release("lease", "me", token));
  ASSERT_OK(world().ask(Revoke{.name = "lease"}));
  EXPECT_OK(release("lease", "me", token));
}

TEST_P(LeaseContract, ShowsWhoHoldsButNotTheSecret) {
  EXPECT_EQ(lease("never"), (LeaseState{.name = "never"}));

  const auto token = hold("lease", "secret owner", 10s);
  world().clock().advance(1ms);

  const auto state = lease("lease");
  EXPECT_EQ(state.name, "lease");
  EXPECT_EQ(state.fence, token);
  ASSERT_EQ(state.holders.size(), 1);
  EXPECT_EQ(state.holders[0].owner, owner_fingerprint("secret owner"));
  EXPECT_EQ(state.holders[0].token, token);
  EXPECT_EQ(state.holders[0].mode, LeaseMode::exclusive);
  EXPECT_EQ(state.holders[0].remaining, 9999ms);
  EXPECT_FALSE(state.holders[0].client.empty());
}

TEST_P(LeaseContract, FingerprintsAreTheFrontOfSha256) {
  EXPECT_EQ(owner_fingerprint("abc"), "ba7816bf");
}

TEST_P(LeaseContract, ShowsRemainingTimeRoundedUp) {
  hold("lease", "me", 10ms);
  world().clock().advance(9'999'999ns);
  ASSERT_EQ(lease("lease").holders.size(), 1);
  EXPECT_EQ(lease("lease").holders[0].remaining, 1ms);
  world().clock().advance(1ns);
  EXPECT_TRUE(lease("lease").holders.empty());
  EXPECT_FALSE(lease("lease").fence.is_none());
}

TEST_P(LeaseContract, ListsOnlyWhatIsHeld) {
  hold("held", "me", 10s);
  hold("expired", "me", 1s);
  const auto token = hold("released", "me");
  ASSERT_OK(release("released", "me", token));
  hold("also held", "me", 10s);
  world().clock().advance(1s);

  const auto leases = world().leases();

  ASSERT_OK(leases);
  std::vector<std::string> names;
  for (const auto& state : *leases) names.push_back(state.name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("held", "also held"));
  EXPECT_EQ(world().store().stats().lease_names, 4);
}

TEST_P(LeaseContract, TakesTimesFromAMillisecondToSevenDays) {
  for (const auto wrong : {0ms, -1ms, Limits::kMaxTtl + 1ms}) {
    EXPECT_THAT(outcome(world().ask(Acquire{"lease", "me", wrong})),
                StartsWith("ERR invalid ttl '"));
  }
  const auto token = hold("lease", "me", Limits::kMaxTtl);
  EXPECT_THAT(outcome(renew("lease", "me", token, 0ms)), StartsWith("ERR invalid ttl '"));
  EXPECT_OK(renew("lease", "me", token, 1ms));
}

TEST_P(LeaseContract, RefusesNamesAndOwnersOutOfTheirLimits) {
  EXPECT_THAT(outcome(world().ask(Acquire{"", "me", 1s})), StartsWith("ERR lease name must not"));
  EXPECT_THAT(outcome(world().ask(Acquire{"lease", "", 1s})), StartsWith("ERR owner must not"));
  EXPECT_THAT(outcome(world().ask(Acquire{"lease", std::string(257, 'o'), 1s})),
              StartsWith("ERR owner of 257"));
  EXPECT_THAT(outcome(renew("", "me", Token{1})), StartsWith("ERR lease name"));
  EXPECT_THAT(outcome(release("lease", "", Token{1})), StartsWith("ERR owner"));
  EXPECT_THAT(outcome(world().ask(Revoke{.name = ""})), StartsWith("ERR lease name"));
  EXPECT_THAT(outcome(world().ask(Inspect{.name = ""})), StartsWith("ERR lease name"));
  EXPECT_OK(world().ask(Acquire{std::string(1024, 'n'), std::string(256, 'o'), 1s}));
}

TEST_P(LeaseContract, AFailedAcquireDrawsNoToken) {
  const auto before = hold("lease", "me");
  EXPECT_FALSE(can_take("lease", "second"));
  EXPECT_EQ(world().store().stats().newest, before);
}

TEST_P(LeaseContract, WallClockJumpsChangeNothing) {
  const auto token = hold("lease", "me", 10s);
  world().clock().set_wall(milliseconds(0));
  EXPECT_FALSE(can_take("lease", "second"));
  world().clock().set_wall(milliseconds(4'000'000'000'000));
  EXPECT_FALSE(can_take("lease", "second"));
  EXPECT_OK(renew("lease", "me", token));
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, LeaseContract, ::testing::ValuesIn(every_world()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
