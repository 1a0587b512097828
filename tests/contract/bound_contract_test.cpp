// SPDX-License-Identifier: Apache-2.0
/// Bound leases: engine/SEMANTICS.md section 3, on every kind of world.

#include "tests/contract/store_contract.h"

namespace fencekv::testing {
namespace {

using ::testing::EndsWith;

class BoundContract : public StoreContract {};

TEST_P(BoundContract, ABoundLeaseEndsWithItsConnectionClosed) {
  auto& user = new_user();
  const auto token = take(user, "lease", "me", {.bind = true}, 1h);
  ASSERT_OK(set("job", "v", token, {.lease = "lease"}));
  EXPECT_TRUE(lease("lease").holders.at(0).bound);

  leave(user);

  EXPECT_TRUE(lease("lease").holders.empty());
  EXPECT_EQ(lease("lease").fence, token);
  EXPECT_THAT(outcome(set("job", "late", token)), EndsWith("disconnected"));
  EXPECT_EQ(outcome(renew("lease", "me", token)), "LEASELOST disconnected");
  EXPECT_EQ(outcome(release("lease", "me", token)), "LEASELOST disconnected");
  EXPECT_GT(hold("lease", "next"), token);
}

// I1: leases are not bound to a connection unless that was asked for.
TEST_P(BoundContract, ALeaseThatIsNotBoundOutlivesItsConnection) {
  auto& user = new_user();
  const auto token = take(user, "lease", "me");
  EXPECT_FALSE(lease("lease").holders.at(0).bound);
  leave(user);
  EXPECT_OK(renew("lease", "me", token));
}

// I1: a peer that is silently gone keeps it for its ttl at most.
TEST_P(BoundContract, ABoundLeaseEndsAtItsTtlWhateverHappensToTheConnection) {
  auto& user = new_user();
  const auto token = take(user, "lease", "me", {.bind = true}, 10s);
  world().clock().advance(10s);
  EXPECT_EQ(outcome(renew("lease", "me", token)), "LEASELOST expired");
  // It expired, it was not closed: nobody else came, so it may still write.
  EXPECT_OK(set("job", "v", token, {.lease = "lease"}));
  leave(user);
  EXPECT_OK(set("job", "w", token, {.lease = "lease"}));
}

TEST_P(BoundContract, BoundLeasesDoNotSurviveARestart) {
  for (const bool crashes : {false, true}) {
    auto& user = new_user();
    const auto token = take(user, "lease", "me", {.bind = true}, 1h);
    const auto other = take(user, "unbound", "me", {}, 1h);
    crashes ? world().crash() : world().restart();
    EXPECT_TRUE(lease("lease").holders.empty());
    EXPECT_EQ(outcome(renew("lease", "me", token)), "LEASELOST disconnected");
    EXPECT_THAT(outcome(set("job", "v", token, {.lease = "lease"})), EndsWith("disconnected"));
    EXPECT_OK(renew("unbound", "me", other, 1h));
    EXPECT_GT(hold("lease", "next"), token);
    revoke("lease");
  }
}

TEST_P(BoundContract, BoundLeasesDoNotSurviveARebootEither) {
  const auto token = take(new_user(), "lease", "me", {.bind = true}, 1h);
  world().clock().reboot();
  world().crash();
  EXPECT_TRUE(lease("lease").holders.empty());
  EXPECT_EQ(outcome(renew("lease", "me", token)), "LEASELOST disconnected");
}

TEST_P(BoundContract, AnExpiredOneStaysExpiredOverARestart) {
  const auto token = take(new_user(), "lease", "me", {.bind = true}, 1s);
  world().clock().advance(1s);
  EXPECT_TRUE(lease("lease").holders.empty());
  world().crash();
  EXPECT_EQ(outcome(renew("lease", "me", token)), "LEASELOST expired");
  EXPECT_OK(set("job", "v", token, {.lease = "lease"}));
}

TEST_P(BoundContract, AnAcquireFromAnotherConnectionMovesIt) {
  auto& old_user = new_user();
  auto& new_one = new_user();
  const auto token = take(old_user, "lease", "me", {.bind = true});
  EXPECT_EQ(take(new_one, "lease", "me"), token);

  leave(old_user);
  ASSERT_EQ(lease("lease").holders.size(), 1);
  EXPECT_TRUE(lease("lease").holders[0].bound);

  leave(new_one);
  EXPECT_TRUE(lease("lease").holders.empty());
}

TEST_P(BoundContract, ARenewFromAnotherConnectionDoesNotMoveIt) {
  auto& user = new_user();
  const auto token = take(user, "lease", "me", {.bind = true});
  ASSERT_OK(renew("lease", "me", token));
  leave(user);
  EXPECT_TRUE(lease("lease").holders.empty());
}

TEST_P(BoundContract, BindOnAReAcquireBindsIt) {
  auto& user = new_user();
  const auto token = take("lease", "me");
  EXPECT_EQ(take(user, "lease", "me", {.bind = true}), token);
  EXPECT_TRUE(lease("lease").holders.at(0).bound);
  leave(user);
  EXPECT_TRUE(lease("lease").holders.empty());
}

TEST_P(BoundContract, OnceBoundALeaseStaysBound) {
  auto& user = new_user();
  const auto token = take(user, "lease", "me", {.bind = true});
  EXPECT_EQ(take(user, "lease", "me"), token);
  EXPECT_TRUE(lease("lease").holders.at(0).bound);
  EXPECT_EQ(take(user, "lease", "me", {.mode = LeaseMode::shared}), token);
  EXPECT_TRUE(lease("lease").holders.at(0).bound);
  EXPECT_GT(take(user, "lease", "me"), token);
  EXPECT_TRUE(lease("lease").holders.at(0).bound);
  leave(user);
  EXPECT_TRUE(lease("lease").holders.empty());
}

TEST_P(BoundContract, AGrantToABoundWaiterEndsWithTheConnectionThatWaited) {
  const auto token = hold("lease", "holder");
  const auto waiting = queue("lease", "bound", {.bind = true});
  ASSERT_OK(release("lease", "holder", token));
  const auto bound = token_of(waiting);
  EXPECT_TRUE(lease("lease").holders.at(0).bound);
  leave(*waiting.user);
  EXPECT_EQ(outcome(renew("lease", "bound", bound)), "LEASELOST disconnected");
}

TEST_P(BoundContract, ADisconnectionEndsAllThatTheConnectionHoldsAndNothingElse) {
  auto& user = new_user();
  auto& other = new_user();
  take(user, "a", "me", {.bind = true});
  take(user, "b", "me", {.mode = LeaseMode::shared, .bind = true});
  take(other, "b", "other", {.mode = LeaseMode::shared, .bind = true});
  take(user, "c", "me", {.mode = LeaseMode::permit, .permits = 2, .bind = true});
  take(user, "d", "me");
  take(other, "e", "other", {.bind = true});

  leave(user);

  EXPECT_TRUE(lease("a").holders.empty());
  ASSERT_EQ(lease("b").holders.size(), 1);
  EXPECT_EQ(lease("b").holders[0].owner, owner_fingerprint("other"));
  EXPECT_TRUE(lease("c").holders.empty());
  EXPECT_EQ(lease("d").holders.size(), 1);
  EXPECT_EQ(lease("e").holders.size(), 1);
}

TEST_P(BoundContract, AConnectionThatHeldAndWaitsIsNotServedByItsOwnEnd) {
  if (!world().can_cancel()) GTEST_SKIP() << "a connection cannot ask behind its own wait";
  auto& user = new_user();
  take(user, "lease", "me", {.bind = true});
  const auto again = queue(user, make_acquire("lease", "my other", 10s, {.wait = 1h}));
  const auto next = queue("lease", "next");
  leave(user);
  EXPECT_EQ(end_of(again), "LEASELOST disconnected");
  token_of(next);
}

// I5: overwriting a key silently dropped its binding to a lease.
TEST_P(BoundContract, AWriteThatNamesNoLeaseKeepsTheGuard) {
  auto& user = new_user();
  const auto token = take(user, "lease", "me", {.bind = true});
  ASSERT_OK(set("job", "v", token, {.lease = "lease"}));
  ASSERT_OK(set("job", "w", token));
  EXPECT_EQ(state_of("job").guard, "lease");
  leave(user);
  EXPECT_THAT(outcome(set("job", "x", token)), EndsWith("disconnected"));
}

TEST_P(BoundContract, WhatTheProcessAsksForEndsWithTheProcess) {
  const auto grant = world().store().acquire("lease", "me", 1h, {.bind = true});
  ASSERT_TRUE(grant && *grant) << outcome(grant);
  leave(new_user());
  EXPECT_EQ(lease("lease").holders.size(), 1);
  world().restart();
  EXPECT_TRUE(lease("lease").holders.empty());
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, BoundContract, ::testing::ValuesIn(every_world()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
