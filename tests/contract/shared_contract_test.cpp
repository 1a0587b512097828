// SPDX-License-Identifier: Apache-2.0
/// Shared leases: engine/SEMANTICS.md section 3, on every kind of world.

#include "tests/contract/store_contract.h"

namespace fencekv::testing {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

class SharedContract : public StoreContract {
 protected:
  static AcquireOptions shared(AcquireOptions options = {}) {
    options.mode = LeaseMode::shared;
    return options;
  }
};

// J1: per-holder deadlines; a shorter hold must not shorten another.
TEST_P(SharedContract, SeveralReadersHoldAtOnceEachWithItsOwnOwnerTtlAndToken) {
  const auto first = take("lease", "first", shared(), 10s);
  const auto second = take("lease", "second", shared(), 2s);
  EXPECT_GT(second, first);

  const auto state = lease("lease");
  EXPECT_EQ(state.mode(), LeaseMode::shared);
  EXPECT_EQ(state.fence, second);
  ASSERT_EQ(state.holders.size(), 2);
  EXPECT_EQ(state.holders[0].token, first);
  EXPECT_EQ(state.holders[0].owner, owner_fingerprint("first"));
  EXPECT_EQ(state.holders[0].remaining, 10s);
  EXPECT_EQ(state.holders[1].token, second);
  EXPECT_EQ(state.holders[1].mode, LeaseMode::shared);
  EXPECT_EQ(state.holders[1].remaining, 2s);

  world().clock().advance(2s);
  ASSERT_EQ(lease("lease").holders.size(), 1);
  EXPECT_EQ(lease("lease").holders[0].token, first);
  EXPECT_EQ(lease("lease").holders[0].remaining, 8s);
  EXPECT_EQ(lease("lease").fence, second);
}

TEST_P(SharedContract, EachReaderRenewsAndReleasesOnlyItsOwnGrant) {
  const auto first = take("lease", "first", shared(), 10s);
  const auto second = take("lease", "second", shared(), 10s);
  const auto third = take("lease", "third", shared(), 10s);
  world().clock().advance(5s);

  EXPECT_OK(renew("lease", "first", first, 10s));
  EXPECT_OK(release("lease", "second", second));
  EXPECT_EQ(outcome(renew("lease", "second", first)), "LEASELOST unknown");
  EXPECT_EQ(outcome(release("lease", "first", third)), "LEASELOST unknown");

  const auto state = lease("lease");
  ASSERT_EQ(state.holders.size(), 2);
  EXPECT_EQ(state.holders[0].token, first);
  EXPECT_EQ(state.holders[0].remaining, 10s);
  EXPECT_EQ(state.holders[1].token, third);
  EXPECT_EQ(state.holders[1].remaining, 5s);
}

TEST_P(SharedContract, AReaderThatAsksAgainGetsTheSameToken) {
  const auto first = take("lease", "first", shared());
  take("lease", "second", shared());
  world().clock().advance(9s);
  EXPECT_EQ(take("lease", "first", shared()), first);
  world().clock().advance(1s);
  ASSERT_EQ(lease("lease").holders.size(), 1);
  EXPECT_EQ(lease("lease").holders[0].remaining, 9s);
}

TEST_P(SharedContract, OfEndedReadersOnlyTheNewestIsRemembered) {
  const auto first = take("lease", "first", shared(), 1s);
  const auto second = take("lease", "second", shared(), 10s);
  world().clock().advance(1s);
  EXPECT_EQ(outcome(renew("lease", "first", first)), "LEASELOST superseded");
  EXPECT_EQ(outcome(release("lease", "first", first)), "LEASELOST superseded");
  world().clock().advance(9s);
  EXPECT_EQ(outcome(renew("lease", "second", second)), "LEASELOST expired");
  EXPECT_EQ(outcome(release("lease", "second", second)), "LEASELOST expired");
}

TEST_P(SharedContract, GrantingAReaderLiftsTheLeaseFenceAgainstAnExpiredWriter) {
  const auto writer = hold("lease", "writer", 1s);
  ASSERT_OK(set("job", "read me", writer, {.lease = "lease"}));
  world().clock().advance(1s);
  const auto reader = take("lease", "reader", shared());

  EXPECT_THAT(outcome(set("job", "late", writer)), EndsWith("superseded"));
  EXPECT_THAT(outcome(set("new", "late", writer, {.lease = "lease"})), EndsWith("superseded"));
  EXPECT_EQ(value_of("job"), "read me");
  EXPECT_EQ(lease("lease").fence, reader);
}

TEST_P(SharedContract, ReadersAndWritersExcludeEachOther) {
  hold("written", "writer");
  EXPECT_TRUE(is_not_acquired(acquire("written", "reader", shared())));
  take("read", "reader", shared());
  EXPECT_TRUE(is_not_acquired(acquire("read", "writer")));
}

TEST_P(SharedContract, AWriterGetsTheNameWhenTheLastReaderIsGone) {
  const auto first = take("lease", "first", shared());
  take("lease", "second", shared(), 20s);
  const auto writer = queue("lease", "writer");
  ASSERT_OK(release("lease", "first", first));
  EXPECT_TRUE(waits(writer));
  world().clock().advance(20s);
  token_of(writer);
  EXPECT_EQ(lease("lease").mode(), LeaseMode::exclusive);
}

// G9: a compatible waiter behind an incompatible one; no writer starves.
TEST_P(SharedContract, AWaitingWriterIsNotStarved) {
  const auto reader = take("lease", "reader", shared());
  const auto writer = queue("lease", "writer");
  const auto late = queue("lease", "late reader", shared());
  EXPECT_TRUE(is_not_acquired(acquire("lease", "hasty reader", shared())));
  EXPECT_TRUE(waits(late));

  ASSERT_OK(release("lease", "reader", reader));

  const auto token = token_of(writer);
  EXPECT_TRUE(waits(late));
  ASSERT_OK(release("lease", "writer", token));
  EXPECT_GT(token_of(late), token);
}

// G9: readers S, S, X, S.
TEST_P(SharedContract, AdjacentReadersAreWokenTogether) {
  const auto writer = hold("lease", "writer");
  const auto first = queue("lease", "first", shared());
  const auto second = queue("lease", "second", shared());
  const auto next_writer = queue("lease", "next writer");
  const auto third = queue("lease", "third", shared());

  ASSERT_OK(release("lease", "writer", writer));

  EXPECT_LT(token_of(first), token_of(second));
  EXPECT_TRUE(waits(next_writer));
  EXPECT_TRUE(waits(third));
  EXPECT_EQ(lease("lease").holders.size(), 2);
}

TEST_P(SharedContract, AWriterThatGivesUpLetsTheReadersBehindItIn) {
  take("lease", "reader", shared(), 1h);
  const auto writer = queue("lease", "writer", {.wait = 1s});
  const auto behind = queue("lease", "behind", shared());
  const auto gone = queue("lease", "second writer");
  const auto last = queue("lease", "last", shared());
  world().clock().advance(1s);
  EXPECT_EQ(end_of(writer), "(none)");
  token_of(behind);
  EXPECT_TRUE(waits(last));
  leave(*gone.user);
  token_of(last);
  EXPECT_EQ(lease("lease").holders.size(), 3);
}

TEST_P(SharedContract, AHolderWhoAcquiresSharedIsDowngraded) {
  const auto token = hold("lease", "me", 10s);
  ASSERT_OK(set("job", "v", token, {.lease = "lease"}));
  const auto waiting = queue("lease", "reader", shared());
  world().clock().advance(9s);

  EXPECT_EQ(take("lease", "me", shared()), token);

  EXPECT_GT(token_of(waiting), token);
  const auto state = lease("lease");
  ASSERT_EQ(state.holders.size(), 2);
  EXPECT_EQ(state.holders[0].mode, LeaseMode::shared);
  EXPECT_EQ(state.holders[0].remaining, 10s);
}

TEST_P(SharedContract, ADowngradedHolderMayNotWriteAnyMore) {
  const auto token = hold("lease", "me");
  ASSERT_OK(set("job", "v", token, {.lease = "lease"}));
  take("lease", "me", shared());
  EXPECT_THAT(outcome(set("job", "w", token, {.lease = "lease"})), StartsWith("ERR"));
  EXPECT_THAT(outcome(set("job", "w", token)), StartsWith("ERR"));
  EXPECT_EQ(value_of("job"), "v");
}

// J4: an upgrade deadlocked itself.
TEST_P(SharedContract, ASoleReaderIsUpgradedWithANewToken) {
  const auto reader = take("lease", "me", shared());

  const auto writer = take("lease", "me", {}, 20s);

  EXPECT_GT(writer, reader);
  const auto state = lease("lease");
  EXPECT_EQ(state.mode(), LeaseMode::exclusive);
  ASSERT_EQ(state.holders.size(), 1);
  EXPECT_EQ(state.holders[0].token, writer);
  EXPECT_EQ(state.holders[0].remaining, 20s);
  EXPECT_OK(set("job", "v", writer, {.lease = "lease"}));
  EXPECT_EQ(outcome(renew("lease", "me", reader)), "LEASELOST superseded");
  EXPECT_EQ(outcome(release("lease", "me", reader)), "LEASELOST superseded");
  EXPECT_EQ(lease("lease").holders.size(), 1);
}

// J4: it answers at once where waiting could never end.
TEST_P(SharedContract, AReaderAmongOthersIsNotUpgradedButToldAtOnce) {
  const auto me = take("lease", "me", shared());
  take("lease", "other", shared());
  EXPECT_THAT(outcome(acquire("lease", "me", {.wait = 1h})), StartsWith("ERR"));
  EXPECT_EQ(take("lease", "me", shared()), me);
  EXPECT_EQ(lease("lease").holders.size(), 2);
}

TEST_P(SharedContract, ASoleReaderBehindWhomSomebodyQueuesIsNotUpgraded) {
  take("lease", "me", shared());
  const auto writer = queue("lease", "writer");
  EXPECT_THAT(outcome(acquire("lease", "me", {.wait = 1h})), StartsWith("ERR"));
  EXPECT_TRUE(waits(writer));
}

TEST_P(SharedContract, TwoReadersWhoBothWantToWriteDoNotDeadlock) {
  take("lease", "first", shared());
  const auto second = take("lease", "second", shared());
  EXPECT_THAT(outcome(acquire("lease", "first", {.wait = 1h})), StartsWith("ERR"));
  EXPECT_THAT(outcome(acquire("lease", "second", {.wait = 1h})), StartsWith("ERR"));
  ASSERT_OK(release("lease", "second", second));
  EXPECT_GT(take("lease", "first", {.wait = 1h}), second);
}

TEST_P(SharedContract, SharedTokensMayNotWriteRaiseOrReadUnderTheLease) {
  const auto writer = hold("lease", "writer");
  ASSERT_OK(set("job", "v", writer, {.lease = "lease"}));
  ASSERT_OK(release("lease", "writer", writer));
  const auto older = take("lease", "older", shared());
  const auto newest = take("lease", "newest", shared());
  const auto before = state_of("job");

  for (const auto token : {older, newest}) {
    EXPECT_THAT(outcome(set("job", "w", token, {.lease = "lease"})), StartsWith("ERR"));
    EXPECT_THAT(outcome(set("job", "w", token)), StartsWith("ERR"));
    EXPECT_THAT(outcome(remove("job", token)), StartsWith("ERR"));
    EXPECT_THAT(outcome(set_all({"a", "job"}, "w", token)), StartsWith("ERR"));
    EXPECT_THAT(outcome(world().ask(Raise{.key = "job", .token = token, .lease = "lease"})),
                StartsWith("ERR"));
    EXPECT_THAT(outcome(world().ask(FencedRead{.key = "job", .token = token, .lease = "lease"})),
                StartsWith("ERR"));
  }
  EXPECT_EQ(state_of("job"), before);
  EXPECT_EQ(state_of("a"), KeyState{});
}

TEST_P(SharedContract, TheTokenOfTheNewestReaderMayNotWriteAfterItsEndEither) {
  const auto older = take("lease", "older", shared());
  const auto newest = take("lease", "newest", shared());
  ASSERT_OK(release("lease", "older", older));
  ASSERT_OK(release("lease", "newest", newest));
  EXPECT_THAT(outcome(set("job", "w", newest, {.lease = "lease"})), StartsWith("ERR"));
  EXPECT_THAT(outcome(set("job", "w", older, {.lease = "lease"})), EndsWith("superseded"));
}

TEST_P(SharedContract, ARevocationClosesAllReaders) {
  const auto first = take("lease", "first", shared());
  const auto second = take("lease", "second", shared());
  EXPECT_EQ(revoke("lease"), second);
  EXPECT_TRUE(lease("lease").holders.empty());
  EXPECT_EQ(outcome(renew("lease", "first", first)), "LEASELOST superseded");
  EXPECT_EQ(outcome(renew("lease", "second", second)), "LEASELOST revoked");
  EXPECT_TRUE(can_take("lease", "writer"));
}

TEST_P(SharedContract, ReadersLiveThroughARestartAndAReboot) {
  const auto first = take("lease", "first", shared(), 10s);
  const auto second = take("lease", "second", shared(), 20s);
  world().clock().advance(4s);
  for (const bool crashes : {false, true}) {
    crashes ? world().crash() : world().restart();
    const auto state = lease("lease");
    ASSERT_EQ(state.holders.size(), 2);
    EXPECT_EQ(state.holders[0].token, first);
    EXPECT_EQ(state.holders[0].remaining, 6s);
    EXPECT_EQ(state.holders[1].token, second);
    EXPECT_EQ(state.holders[1].remaining, 16s);
  }
  world().clock().reboot();
  world().crash();
  ASSERT_EQ(lease("lease").holders.size(), 2);
  EXPECT_EQ(lease("lease").holders[0].remaining, 10s);
  EXPECT_EQ(lease("lease").holders[1].remaining, 20s);
  EXPECT_OK(renew("lease", "first", first));
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, SharedContract, ::testing::ValuesIn(every_world()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
