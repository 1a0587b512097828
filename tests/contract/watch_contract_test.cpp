// SPDX-License-Identifier: Apache-2.0
/// Waiting for a change, and being told of all: engine/SEMANTICS.md section 3, on every kind of
/// world.

#include "tests/contract/store_contract.h"

namespace fencekv::testing {
namespace {

using ::testing::StartsWith;

class WatchContract : public StoreContract {
 protected:
  static std::string text(Token token) { return std::to_string(token.number()); }

  std::string await(std::string_view name, Token token, milliseconds timeout = 0ms) {
    return end_of(queue(awaited(name, token, timeout)));
  }
  static Await awaited(std::string_view name, Token token, milliseconds timeout = 1h) {
    return {.name = std::string(name), .token = token, .timeout = timeout};
  }
  User& watcher(std::vector<std::string> names) {
    auto& user = new_user();
    EXPECT_OK(user.ask(Watch{std::move(names)}));
    return user;
  }
};

TEST_P(WatchContract, AwaitTellsWhenTheGrantIsReleased) {
  const auto token = hold("lease", "me");
  const auto waiting = queue(awaited("lease", token));
  EXPECT_TRUE(waits(waiting));
  ASSERT_OK(release("lease", "me", token));
  EXPECT_EQ(end_of(waiting), "released lease " + text(token));
}

TEST_P(WatchContract, AwaitTellsWhenTheGrantExpiresWithoutAnybodyAsking) {
  const auto token = hold("lease", "me", 10s);
  const auto waiting = queue(awaited("lease", token));
  world().clock().advance(9999ms);
  EXPECT_TRUE(waits(waiting));
  world().clock().advance(1ms);
  EXPECT_EQ(end_of(waiting), "expired lease " + text(token));
}

TEST_P(WatchContract, AwaitTellsWhenTheGrantIsRevokedOrItsConnectionEnds) {
  const auto token = hold("revoked", "me");
  const auto first = queue(awaited("revoked", token));
  revoke("revoked");
  EXPECT_EQ(end_of(first), "revoked revoked " + text(token));

  auto& user = new_user();
  const auto bound = take(user, "bound", "me", {.bind = true});
  const auto second = queue(awaited("bound", bound));
  leave(user);
  EXPECT_EQ(end_of(second), "disconnected bound " + text(bound));
}

TEST_P(WatchContract, AwaitTellsTheNewestGrantWhenThereIsANewerOne) {
  const auto first = take("lease", "first", {.mode = LeaseMode::shared});
  const auto waiting = queue(awaited("lease", first));
  const auto second = take("lease", "second", {.mode = LeaseMode::shared});
  EXPECT_EQ(end_of(waiting), "granted lease " + text(second));
}

// G4: the change came before the wait began.
TEST_P(WatchContract, AnAwaitThatStartsAfterTheChangeAnswersAtOnce) {
  const auto first = hold("lease", "first");
  ASSERT_OK(release("lease", "first", first));
  EXPECT_EQ(await("lease", first), "released lease " + text(first));
  const auto second = hold("lease", "second", 1s);
  EXPECT_EQ(await("lease", first), "granted lease " + text(second));
  world().clock().advance(1s);
  EXPECT_EQ(await("lease", first), "expired lease " + text(second));
  EXPECT_EQ(await("lease", second), "expired lease " + text(second));
}

TEST_P(WatchContract, WithoutATokenAwaitWaitsUntilAnyoneHolds) {
  const auto waiting = queue(awaited("lease", Token{}));
  EXPECT_TRUE(waits(waiting));
  const auto token = hold("lease", "me");
  EXPECT_EQ(end_of(waiting), "granted lease " + text(token));
  EXPECT_EQ(await("lease", Token{}), "granted lease " + text(token));
  ASSERT_OK(release("lease", "me", token));
  EXPECT_EQ(await("lease", Token{}), "(none)");
}

TEST_P(WatchContract, WithATokenTheNameNeverHadAwaitWaitsUntilANewerOne) {
  const auto token = hold("lease", "me");
  const auto waiting = queue(awaited("lease", Token{token.number() + 1}));
  const auto never = queue(awaited("never", Token{1}));
  ASSERT_OK(release("lease", "me", token));
  EXPECT_TRUE(waits(waiting));
  const auto same = hold("other", "me");
  ASSERT_EQ(same.number(), token.number() + 1);
  const auto newer = hold("lease", "me");
  EXPECT_EQ(end_of(waiting), "granted lease " + text(newer));
  EXPECT_TRUE(waits(never));
  const auto last = hold("never", "me");
  EXPECT_EQ(end_of(never), "granted never " + text(last));
}

TEST_P(WatchContract, AwaitAnswersNothingAtItsTimeout) {
  const auto token = hold("lease", "me", 1h);
  const auto waiting = queue(awaited("lease", token, 5s));
  world().clock().advance(4999ms);
  EXPECT_TRUE(waits(waiting));
  world().clock().advance(1ms);
  EXPECT_EQ(end_of(waiting), "(none)");
  EXPECT_EQ(await("lease", token, 0ms), "(none)");
}

TEST_P(WatchContract, AGrantThatEndsByTheClockAtTheMomentOfTheTimeoutHasEnded) {
  const auto token = hold("lease", "me", 5s);
  const auto waiting = queue(awaited("lease", token, 5s));
  world().clock().advance(5s);
  EXPECT_EQ(end_of(waiting), "expired lease " + text(token));
}

TEST_P(WatchContract, ManyAwaitsAreAnsweredByOneChange) {
  const auto token = hold("lease", "me");
  std::vector<Waiting> waiting;
  for (int i = 0; i < 20; ++i) waiting.push_back(queue(awaited("lease", token)));
  EXPECT_TRUE(waiters("lease").empty());
  ASSERT_OK(release("lease", "me", token));
  for (const auto& one : waiting) EXPECT_EQ(end_of(one), "released lease " + text(token));
}

TEST_P(WatchContract, AnAwaitIsNoWaiterAndHoldsUpNobody) {
  const auto token = hold("lease", "me");
  const auto waiting = queue(awaited("lease", token));
  EXPECT_EQ(lease("lease").waiters, 0);
  EXPECT_TRUE(waiters("lease").empty());
  ASSERT_OK(release("lease", "me", token));
  EXPECT_TRUE(can_take("lease", "next"));
  EXPECT_THAT(end_of(waiting), StartsWith("released"));
}

TEST_P(WatchContract, AnAwaitEndsWithItsConnection) {
  const auto token = hold("lease", "me");
  const auto waiting = queue(awaited("lease", token));
  leave(*waiting.user);
  EXPECT_EQ(end_of(waiting), "LEASELOST disconnected");
  EXPECT_EQ(world().store().stats().waiting, 0);
}

TEST_P(WatchContract, AwaitTakesTimeoutsOfUpToADay) {
  for (const auto wrong : {-1ms, Limits::kMaxWait + 1ms}) {
    const auto reply = new_user().ask(awaited("lease", Token{}, wrong));
    EXPECT_THAT(outcome(reply), StartsWith("ERR"));
  }
  EXPECT_THAT(outcome(world().ask(awaited("", Token{}, 0ms))), StartsWith("ERR"));
  const auto waiting = queue(awaited("lease", Token{}, Limits::kMaxWait));
  EXPECT_TRUE(waits(waiting));
}

TEST_P(WatchContract, TellsEveryChangeInOrderWithItsToken) {
  auto& user = watcher({"lease"});
  auto& bound = new_user();

  const auto first = hold("lease", "first");
  ASSERT_OK(release("lease", "first", first));
  const auto second = hold("lease", "second", 1s);
  EXPECT_EQ(told(user, 3),
            "granted " + text(first) + ", released " + text(first) + ", granted " + text(second));
  world().clock().advance(1s);
  EXPECT_EQ(told(user, 1), "expired " + text(second));
  const auto third = hold("lease", "third");
  revoke("lease");
  const auto fourth = take(bound, "lease", "fourth", {.bind = true});
  leave(bound);
  EXPECT_EQ(told(user, 4), "granted " + text(third) + ", revoked " + text(third) + ", granted " +
                               text(fourth) + ", disconnected " + text(fourth));
}

TEST_P(WatchContract, TellsOfAGrantToAWaiterAfterTheEndThatMadeRoom) {
  auto& user = watcher({"lease"});
  const auto first = hold("lease", "first");
  const auto waiting = queue("lease", "second");
  ASSERT_OK(release("lease", "first", first));
  const auto second = token_of(waiting);
  EXPECT_EQ(told(user, 3),
            "granted " + text(first) + ", released " + text(first) + ", granted " + text(second));
}

TEST_P(WatchContract, TellsOfEveryReaderAndEveryPermit) {
  auto& user = watcher({"lease"});
  const auto first = take("lease", "first", {.mode = LeaseMode::shared}, 5s);
  const auto second = take("lease", "second", {.mode = LeaseMode::shared}, 1s);
  EXPECT_EQ(told(user, 2), "granted " + text(first) + ", granted " + text(second));
  world().clock().advance(1s);
  EXPECT_EQ(told(user, 1), "expired " + text(second));
  ASSERT_OK(release("lease", "first", first));
  EXPECT_EQ(told(user, 1), "released " + text(first));
}

TEST_P(WatchContract, RenewalsReAcquisitionsAndDowngradesTellNothingAnUpgradeAGrant) {
  const auto token = hold("lease", "me");
  auto& user = watcher({"lease"});
  ASSERT_OK(renew("lease", "me", token));
  hold("lease", "me");
  take("lease", "me", {.mode = LeaseMode::shared});
  const auto upgraded = take("lease", "me");
  ASSERT_OK(release("lease", "me", upgraded));
  ASSERT_OK(release("lease", "me", upgraded));
  EXPECT_EQ(told(user, 2), "granted " + text(upgraded) + ", released " + text(upgraded));
}

TEST_P(WatchContract, NamesAddUpAndUnwatchEndsAll) {
  auto& user = watcher({"a"});
  EXPECT_OK(user.ask(Watch{{"b", "a"}}));
  const auto a = hold("a", "me");
  const auto b = hold("b", "me");
  hold("c", "me");
  EXPECT_EQ(told(user, 2), "granted " + text(a) + ", granted " + text(b));

  EXPECT_OK(user.ask(Unwatch{}));
  ASSERT_OK(release("a", "me", a));
  ASSERT_OK(release("b", "me", b));
  EXPECT_OK(user.ask(Unwatch{}));
  EXPECT_OK(user.ask(Watch{{"a"}}));
  const auto again = hold("a", "me");
  EXPECT_EQ(told(user, 1), "granted " + text(again));
}

TEST_P(WatchContract, WhatWasOverBeforeTheWatchIsNotTold) {
  const auto token = hold("lease", "me");
  ASSERT_OK(release("lease", "me", token));
  auto& user = watcher({"lease"});
  const auto next = hold("lease", "next");
  EXPECT_EQ(told(user, 1), "granted " + text(next));
}

// I6: the end of a session did not wake those who watch; it is one event a lease.
TEST_P(WatchContract, TheEndOfASessionIsOneEventALease) {
  auto& user = watcher({"a", "b", "c"});
  auto& bound = new_user();
  const auto a = take(bound, "a", "me", {.bind = true});
  const auto b = take(bound, "b", "me", {.bind = true});
  take(bound, "c", "me");
  EXPECT_OK(bound.ask(Inspect{"a"}));
  told(user, 3);
  leave(bound);
  const auto line = told(user, 2);
  EXPECT_TRUE(line == "disconnected " + text(a) + ", disconnected " + text(b) ||
              line == "disconnected " + text(b) + ", disconnected " + text(a))
      << line;
}

TEST_P(WatchContract, EveryWatcherIsTold) {
  auto& first = watcher({"lease"});
  auto& second = watcher({"lease"});
  const auto token = hold("lease", "me");
  EXPECT_EQ(told(first, 1), "granted " + text(token));
  leave(first);
  ASSERT_OK(release("lease", "me", token));
  EXPECT_EQ(told(second, 2), "granted " + text(token) + ", released " + text(token));
}

TEST_P(WatchContract, OneWhoWatchesIsToldOfWhatItDoesItself) {
  auto& user = watcher({"lease"});
  const auto token = take(user, "lease", "me");
  EXPECT_EQ(told(user, 1), "granted " + text(token));
}

TEST_P(WatchContract, RevokingAnExpiredGrantIsAChange) {
  auto& user = watcher({"lease"});
  const auto token = hold("lease", "me", 1s);
  world().clock().advance(1s);
  EXPECT_EQ(told(user, 2), "granted " + text(token) + ", expired " + text(token));
  revoke("lease");
  revoke("lease");
  const auto next = hold("lease", "next");
  EXPECT_EQ(told(user, 2), "revoked " + text(token) + ", granted " + text(next));
}

TEST_P(WatchContract, RefusesNamesOutOfTheirLimits) {
  auto& user = new_user();
  EXPECT_THAT(outcome(user.ask(Watch{{""}})), StartsWith("ERR"));
  EXPECT_THAT(outcome(user.ask(Watch{})), StartsWith("ERR"));
  EXPECT_THAT(outcome(user.ask(Watch{{std::string(Limits::kNameBytes + 1, 'n')}})),
              StartsWith("ERR"));
  EXPECT_OK(user.ask(Watch{{std::string(Limits::kNameBytes, 'n')}}));
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, WatchContract, ::testing::ValuesIn(every_world()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
