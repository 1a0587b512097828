// SPDX-License-Identifier: Apache-2.0
/// Permits: engine/SEMANTICS.md section 3, on every kind of world.

#include "tests/contract/store_contract.h"

namespace fencekv::testing {
namespace {

using ::testing::StartsWith;

class PermitContract : public StoreContract {
 protected:
  static AcquireOptions permit(std::uint64_t permits, AcquireOptions options = {}) {
    options.mode = LeaseMode::permit;
    options.permits = permits;
    return options;
  }
};

TEST_P(PermitContract, UpToNHoldAtOnceEachWithItsOwnTokenAndTtl) {
  const auto first = take("lease", "first", permit(3), 10s);
  const auto second = take("lease", "second", permit(3), 20s);
  const auto third = take("lease", "third", permit(3), 30s);
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_TRUE(is_not_acquired(acquire("lease", "fourth", permit(3))));

  const auto state = lease("lease");
  EXPECT_EQ(state.mode(), LeaseMode::permit);
  ASSERT_EQ(state.holders.size(), 3);
  EXPECT_EQ(state.holders[0].remaining, 10s);
  EXPECT_EQ(state.holders[2].remaining, 30s);
  world().clock().advance(10s);
  EXPECT_GT(take("lease", "fourth", permit(3)), third);
}

TEST_P(PermitContract, APermitThatIsReleasedGoesToTheNextWaiter) {
  const auto first = take("lease", "first", permit(2));
  const auto second = take("lease", "second", permit(2));
  const auto third = queue("lease", "third", permit(2));
  const auto fourth = queue("lease", "fourth", permit(2));

  ASSERT_OK(release("lease", "first", first));

  EXPECT_GT(token_of(third), second);
  EXPECT_TRUE(waits(fourth));
  EXPECT_EQ(outcome(release("lease", "first", first)), "LEASELOST superseded");
  EXPECT_EQ(lease("lease").holders.size(), 2);
}

TEST_P(PermitContract, AHolderThatAsksAgainGetsTheSameToken) {
  const auto first = take("lease", "first", permit(2));
  take("lease", "second", permit(2));
  EXPECT_EQ(take("lease", "first", permit(2)), first);
  EXPECT_EQ(lease("lease").holders.size(), 2);
}

TEST_P(PermitContract, WhileAnyoneHoldsAnotherNumberIsAnError) {
  const auto token = take("lease", "first", permit(2));
  EXPECT_THAT(outcome(acquire("lease", "second", permit(3))), StartsWith("ERR"));
  EXPECT_THAT(outcome(acquire("lease", "second", permit(3, {.wait = 1h}))), StartsWith("ERR"));
  EXPECT_THAT(outcome(acquire("lease", "first", permit(3))), StartsWith("ERR"));
  ASSERT_OK(release("lease", "first", token));
  EXPECT_GT(take("lease", "second", permit(3)), token);
}

TEST_P(PermitContract, WhileAnyoneWaitsAnotherNumberIsAnError) {
  const auto token = hold("lease", "writer");
  const auto waiting = queue("lease", "first", permit(2));
  EXPECT_THAT(outcome(acquire("lease", "second", permit(3))), StartsWith("ERR"));
  ASSERT_OK(release("lease", "writer", token));
  token_of(waiting);
}

TEST_P(PermitContract, AnExpiredPermitSetsNoNumberAnyMore) {
  take("lease", "first", permit(2), 1s);
  world().clock().advance(1s);
  take("lease", "second", permit(5));
}

TEST_P(PermitContract, ExclusiveSharedAndPermitGrantsExcludeEachOther) {
  take("permits", "first", permit(2));
  EXPECT_TRUE(is_not_acquired(acquire("permits", "writer")));
  EXPECT_TRUE(is_not_acquired(acquire("permits", "reader", {.mode = LeaseMode::shared})));
  take("shared", "reader", {.mode = LeaseMode::shared});
  EXPECT_TRUE(is_not_acquired(acquire("shared", "second", permit(2))));
  hold("exclusive", "writer");
  EXPECT_TRUE(is_not_acquired(acquire("exclusive", "second", permit(2))));
}

TEST_P(PermitContract, AllModesQueueInOneOrder) {
  const auto first = take("lease", "first", permit(2));
  const auto writer = queue("lease", "writer");
  const auto second = queue("lease", "second", permit(2));
  const auto reader = queue("lease", "reader", {.mode = LeaseMode::shared});
  EXPECT_TRUE(is_not_acquired(acquire("lease", "third", permit(2))));

  ASSERT_OK(release("lease", "first", first));
  const auto written = token_of(writer);
  EXPECT_TRUE(waits(second));
  ASSERT_OK(release("lease", "writer", written));
  const auto permitted = token_of(second);
  EXPECT_TRUE(waits(reader));
  ASSERT_OK(release("lease", "second", permitted));
  token_of(reader);
}

TEST_P(PermitContract, AnOwnerThatAsksInAnotherWayThanItHoldsGetsAnErrorAtOnce) {
  const auto written = hold("exclusive", "me");
  EXPECT_THAT(outcome(acquire("exclusive", "me", permit(2, {.wait = 1h}))), StartsWith("ERR"));
  EXPECT_EQ(lease("exclusive").holders.at(0).token, written);

  take("shared", "me", {.mode = LeaseMode::shared});
  EXPECT_THAT(outcome(acquire("shared", "me", permit(2, {.wait = 1h}))), StartsWith("ERR"));

  take("permits", "me", permit(2));
  EXPECT_THAT(outcome(acquire("permits", "me", {.wait = 1h})), StartsWith("ERR"));
  EXPECT_THAT(outcome(acquire("permits", "me", {.wait = 1h, .mode = LeaseMode::shared})),
              StartsWith("ERR"));
}

TEST_P(PermitContract, PermitTokensMayNotWriteRaiseOrReadUnderTheLease) {
  const auto older = take("lease", "older", permit(2));
  const auto newest = take("lease", "newest", permit(2));
  for (const auto token : {older, newest}) {
    EXPECT_THAT(outcome(set("job", "w", token, {.lease = "lease"})), StartsWith("ERR"));
    EXPECT_THAT(outcome(world().ask(Raise{.key = "job", .token = token, .lease = "lease"})),
                StartsWith("ERR"));
    EXPECT_THAT(outcome(world().ask(FencedRead{.key = "job", .token = token, .lease = "lease"})),
                StartsWith("ERR"));
  }
  EXPECT_EQ(state_of("job"), KeyState{});
}

// J5: permits need their own ids and leases; a release of some live and some that are over.
TEST_P(PermitContract, AReleaseOfLiveAndExpiredPermitsTellsOfEach) {
  const auto live = take("lease", "live", permit(3), 10s);
  const auto expired = take("lease", "expired", permit(3), 1s);
  const auto newest = take("lease", "newest", permit(3), 10s);
  world().clock().advance(1s);

  const auto reply = world().ask(ReleaseMany{
      {{"lease", "live", live}, {"lease", "expired", expired}, {"lease", "stranger", newest}}});

  ASSERT_OK(reply);
  ASSERT_EQ(reply->size(), 3);
  EXPECT_EQ(outcome((*reply)[0]), "OK");
  EXPECT_EQ(outcome((*reply)[1]), "LEASELOST superseded");
  EXPECT_EQ(outcome((*reply)[2]), "LEASELOST unknown");
  ASSERT_EQ(lease("lease").holders.size(), 1);
  EXPECT_EQ(lease("lease").holders[0].token, newest);
}

TEST_P(PermitContract, TakesFromOnePermitToAMillion) {
  take("one", "me", permit(1));
  EXPECT_TRUE(is_not_acquired(acquire("one", "other", permit(1))));
  take("million", "me", permit(Limits::kMaxPermits));
  for (const auto wrong : {std::uint64_t{0}, Limits::kMaxPermits + 1}) {
    EXPECT_THAT(outcome(acquire("wrong", "me", permit(wrong))), StartsWith("ERR"));
  }
  EXPECT_TRUE(lease("wrong").fence.is_none());
}

TEST_P(PermitContract, PermitsLiveThroughARestart) {
  const auto first = take("lease", "first", permit(2), 10s);
  take("lease", "second", permit(2), 20s);
  world().crash();
  EXPECT_EQ(lease("lease").holders.size(), 2);
  EXPECT_TRUE(is_not_acquired(acquire("lease", "third", permit(2))));
  EXPECT_THAT(outcome(acquire("lease", "third", permit(3))), StartsWith("ERR"));
  ASSERT_OK(release("lease", "first", first));
  take("lease", "third", permit(2));
}

TEST_P(PermitContract, AThousandPermitsAreHeldRenewedAndReleased) {
  std::vector<Holding> grants;
  for (int i = 0; i < 1000; ++i) {
    const auto owner = "owner " + std::to_string(i);
    grants.push_back({"lease", owner, take("lease", owner, permit(1000), 10s)});
  }
  EXPECT_TRUE(is_not_acquired(acquire("lease", "one too many", permit(1000))));
  world().clock().advance(5s);
  const auto renewed = world().ask(RenewMany{grants, 10s});
  ASSERT_OK(renewed);
  for (const auto& remaining : *renewed) EXPECT_TRUE(remaining && *remaining == 10s);
  EXPECT_EQ(lease("lease").holders.size(), 1000);
  const auto released = world().ask(ReleaseMany{grants});
  ASSERT_OK(released);
  for (const auto& done : *released) EXPECT_OK(done);
  EXPECT_TRUE(lease("lease").holders.empty());
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, PermitContract, ::testing::ValuesIn(every_world()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
