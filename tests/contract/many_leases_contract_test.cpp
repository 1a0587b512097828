// SPDX-License-Identifier: Apache-2.0
/// Several leases in one step: engine/SEMANTICS.md section 3, on every kind of world.

#include "tests/contract/store_contract.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace fencekv::testing {
namespace {

using ::testing::StartsWith;

class ManyLeasesContract : public StoreContract {
 protected:
  Result<Acquire::Reply> acquire_all(std::vector<std::string> names, std::string_view owner,
                                     milliseconds ttl = 10s) {
    return world().ask(
        AcquireMany{.names = std::move(names), .owner = std::string(owner), .ttl = ttl});
  }
  Token take_all(std::vector<std::string> names, std::string_view owner, milliseconds ttl = 10s) {
    return granted("a set", acquire_all(std::move(names), owner, ttl));
  }
  Waiting queue_for_all(std::vector<std::string> names, std::string_view owner,
                        milliseconds wait = 1h) {
    return queue(AcquireMany{
        .names = std::move(names), .owner = std::string(owner), .ttl = 10s, .wait = wait});
  }
  static std::vector<std::string> numbered(std::size_t count) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i) names.push_back("name " + std::to_string(i));
    return names;
  }
};

TEST_P(ManyLeasesContract, AllAreGrantedInOneStepWithOneToken) {
  const auto before = hold("other", "me");
  const auto token = take_all({"a", "b", "c"}, "me");
  EXPECT_EQ(token.number(), before.number() + 1);
  for (const auto* name : {"a", "b", "c"}) {
    const auto state = lease(name);
    EXPECT_EQ(state.fence, token);
    ASSERT_EQ(state.holders.size(), 1);
    EXPECT_EQ(state.holders[0].token, token);
    EXPECT_EQ(state.holders[0].mode, LeaseMode::exclusive);
    EXPECT_EQ(state.holders[0].remaining, 10s);
    EXPECT_OK(set(name, "v", token, {.lease = name}));
  }
  EXPECT_EQ(hold("d", "me").number(), token.number() + 1);
}

// J8: a partial acquisition was not rolled back.
TEST_P(ManyLeasesContract, IfOneIsNotFreeNoneIsTaken) {
  const auto held = hold("c", "other");
  EXPECT_TRUE(is_not_acquired(acquire_all({"a", "b", "c"}, "me")));
  for (const auto* name : {"a", "b"}) {
    EXPECT_TRUE(lease(name).holders.empty());
    EXPECT_TRUE(lease(name).fence.is_none());
  }
  EXPECT_EQ(world().store().stats().newest, held);
}

TEST_P(ManyLeasesContract, EachNameIsALeaseOfItsOwnOnceGranted) {
  const auto token = take_all({"a", "b", "c"}, "me");
  ASSERT_OK(renew("a", "me", token, 20s));
  ASSERT_OK(release("b", "me", token));
  world().clock().advance(10s);

  EXPECT_EQ(lease("a").holders.at(0).remaining, 10s);
  EXPECT_EQ(outcome(renew("b", "me", token)), "LEASELOST released");
  EXPECT_EQ(outcome(renew("c", "me", token)), "LEASELOST expired");
  EXPECT_TRUE(can_take("b", "other"));
  EXPECT_EQ(hold("a", "me"), token);
}

TEST_P(ManyLeasesContract, ASetThatTheOwnerHoldsIsAcquiredAgainWithTheSameToken) {
  const auto token = take_all({"a", "b"}, "me", 10s);
  world().clock().advance(9s);
  EXPECT_EQ(take_all({"b", "a"}, "me", 10s), token);
  EXPECT_EQ(take_all({"a"}, "me", 10s), token);
  world().clock().advance(9s);
  EXPECT_EQ(lease("a").holders.size(), 1);
  EXPECT_EQ(lease("b").holders.size(), 1);
}

TEST_P(ManyLeasesContract, ASetOfWhichTheOwnerHoldsSomeAndNotAllIsAnError) {
  const auto token = take_all({"a", "b"}, "me");
  EXPECT_THAT(outcome(acquire_all({"b", "c"}, "me")), StartsWith("ERR"));
  EXPECT_TRUE(lease("c").fence.is_none());
  EXPECT_THAT(
      outcome(world().ask(AcquireMany{.names = {"b", "c"}, .owner = "me", .ttl = 10s, .wait = 1h})),
      StartsWith("ERR"));
  EXPECT_EQ(world().store().stats().newest, token);
}

TEST_P(ManyLeasesContract, ASetThatTheOwnerHoldsWithDifferentTokensIsAnError) {
  hold("a", "me");
  hold("b", "me");
  EXPECT_THAT(outcome(acquire_all({"a", "b"}, "me")), StartsWith("ERR"));
}

TEST_P(ManyLeasesContract, AWaitingOneStandsInTheQueuesOfAllItsNames) {
  const auto a = hold("a", "holder of a");
  const auto b = hold("b", "holder of b");
  const auto all = queue_for_all({"a", "b", "c"}, "of all");
  for (const auto* name : {"a", "b", "c"}) {
    ASSERT_EQ(waiters(name).size(), 1);
    EXPECT_EQ(waiters(name)[0].owner, owner_fingerprint("of all"));
    EXPECT_EQ(lease(name).waiters, 1);
  }
  // Free, but somebody queues for it.
  EXPECT_TRUE(is_not_acquired(acquire("c", "hasty")));

  ASSERT_OK(release("a", "holder of a", a));
  EXPECT_TRUE(waits(all));
  EXPECT_TRUE(is_not_acquired(acquire("a", "hasty")));
  ASSERT_OK(release("b", "holder of b", b));

  const auto token = token_of(all);
  for (const auto* name : {"a", "b", "c"}) {
    EXPECT_EQ(lease(name).fence, token);
    EXPECT_TRUE(waiters(name).empty());
  }
}

TEST_P(ManyLeasesContract, WhenItGivesUpItLeavesAllItsQueues) {
  hold("a", "holder", 1h);
  const auto all = queue_for_all({"a", "b"}, "of all", 5s);
  const auto behind = queue("b", "behind");
  const auto gone = queue_for_all({"a", "c"}, "gone");
  const auto behind_gone = queue("c", "behind");
  EXPECT_TRUE(waits(behind));

  world().clock().advance(5s);
  EXPECT_EQ(end_of(all), "(none)");
  token_of(behind);

  leave(*gone.user);
  token_of(behind_gone);
  EXPECT_TRUE(waiters("a").empty());
}

// J7: A, B against B, A.
TEST_P(ManyLeasesContract, OppositeOrdersDoNotDeadlock) {
  const auto first = take_all({"a", "b"}, "first");
  const auto second = queue_for_all({"b", "a"}, "second");
  const auto third = queue_for_all({"a", "b"}, "third");
  ASSERT_OK(world().ask(ReleaseMany{{{"a", "first", first}, {"b", "first", first}}}));
  const auto token = token_of(second);
  EXPECT_TRUE(waits(third));
  ASSERT_OK(world().ask(ReleaseMany{{{"b", "second", token}, {"a", "second", token}}}));
  token_of(third);
}

// J7, with threads and the clock of this machine: all end, and none ever holds half a set.
TEST_P(ManyLeasesContract, OppositeOrdersOfManyThreadsNeverDeadlock) {
  options().clock = system_clock();
  options().durability = Durability::process;
  constexpr int kThreads = 8;
  constexpr int kRounds = 25;
  std::vector<User*> users;
  for (int i = 0; i < kThreads; ++i) users.push_back(&new_user());
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::atomic<int> done{0};

  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      std::vector<std::string> names{"a", "b", "c"};
      const auto owner = "owner " + std::to_string(i);
      for (int round = 0; round < kRounds; ++round) {
        std::rotate(names.begin(), names.begin() + 1, names.end());
        if (i % 2 == 0) std::reverse(names.begin(), names.end());
        const auto grant = users[static_cast<std::size_t>(i)]->ask(
            AcquireMany{.names = names, .owner = owner, .ttl = 60s, .wait = 60s});
        if (!grant || !*grant) continue;
        most = std::max(most.load(), ++inside);
        --inside;
        std::vector<Holding> grants;
        for (const auto& name : names) grants.push_back({name, owner, (*grant)->token});
        const auto released = users[static_cast<std::size_t>(i)]->ask(ReleaseMany{grants});
        if (!released) continue;
        if (std::all_of(released->begin(), released->end(), [](const auto& r) { return !!r; })) {
          ++done;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(done, kThreads * kRounds);
  EXPECT_EQ(most, 1);
  EXPECT_EQ(world().store().stats().waiting, 0);
}

TEST_P(ManyLeasesContract, AnOwnersOtherWaitIsAnsweredWithTheSetsToken) {
  const auto holder = hold("a", "holder");
  const auto all = queue_for_all({"a", "b"}, "me");
  const auto one = queue("a", "me");
  const auto some = queue_for_all({"b", "c"}, "me");
  ASSERT_OK(release("a", "holder", holder));
  EXPECT_EQ(token_of(all), token_of(one));
  EXPECT_THAT(end_of(some), StartsWith("ERR"));
}

TEST_P(ManyLeasesContract, RenewsManyAndTellsOfEach) {
  const auto a = hold("a", "me", 10s);
  const auto b = hold("b", "me", 1s);
  const auto c = hold("c", "other", 10s);
  world().clock().advance(1s);

  const auto reply = world().ask(
      RenewMany{{{"a", "me", a}, {"b", "me", b}, {"c", "me", c}, {"never", "me", c}}, 20s});

  ASSERT_OK(reply);
  ASSERT_EQ(reply->size(), 4);
  ASSERT_OK((*reply)[0]);
  EXPECT_EQ(*(*reply)[0], 20s);
  EXPECT_EQ(outcome((*reply)[1]), "LEASELOST expired");
  EXPECT_EQ(outcome((*reply)[2]), "LEASELOST unknown");
  EXPECT_EQ(outcome((*reply)[3]), "LEASELOST unknown");
  EXPECT_EQ(lease("a").holders.at(0).remaining, 20s);
  EXPECT_EQ(lease("c").holders.at(0).remaining, 9s);
}

TEST_P(ManyLeasesContract, ReleasesManyAndWakesWhoWaits) {
  const auto a = hold("a", "me");
  const auto b = hold("b", "me");
  const auto waiting = queue_for_all({"a", "b"}, "next");
  const auto reply =
      world().ask(ReleaseMany{{{"a", "me", a}, {"a", "me", a}, {"b", "me", b}, {"b", "me", a}}});
  ASSERT_OK(reply);
  ASSERT_EQ(reply->size(), 4);
  EXPECT_EQ(outcome((*reply)[0]), "OK");
  EXPECT_EQ(outcome((*reply)[1]), "OK");
  EXPECT_EQ(outcome((*reply)[2]), "OK");
  EXPECT_THAT(outcome((*reply)[3]), StartsWith("LEASELOST"));
  token_of(waiting);
}

TEST_P(ManyLeasesContract, AnErrorAnywhereInManyDoesNothing) {
  const auto a = hold("a", "me", 10s);
  world().clock().advance(1s);
  EXPECT_THAT(outcome(world().ask(RenewMany{{{"a", "me", a}, {"", "me", a}}, 20s})),
              StartsWith("ERR"));
  EXPECT_THAT(outcome(world().ask(RenewMany{{{"a", "me", a}}, 0ms})), StartsWith("ERR"));
  EXPECT_THAT(outcome(world().ask(ReleaseMany{{{"a", "me", a}, {"b", "", a}}})), StartsWith("ERR"));
  EXPECT_THAT(outcome(world().ask(ReleaseMany{{{"a", "me", a}, {"b", "me", Token{}}}})),
              StartsWith("ERR"));
  EXPECT_EQ(lease("a").holders.at(0).remaining, 9s);
}

TEST_P(ManyLeasesContract, TakesUpTo1024NamesAndNoneTwice) {
  const auto names = numbered(Limits::kKeysPerCommand);
  const auto token = take_all(names, "me", 10s);
  std::vector<Holding> grants;
  for (const auto& name : names) grants.push_back({name, "me", token});
  const auto renewed = world().ask(RenewMany{grants, 20s});
  ASSERT_OK(renewed);
  EXPECT_TRUE(std::all_of(renewed->begin(), renewed->end(), [](const auto& r) { return !!r; }));
  EXPECT_EQ(world().store().stats().lease_names, Limits::kKeysPerCommand);

  EXPECT_THAT(outcome(acquire_all(numbered(Limits::kKeysPerCommand + 1), "other")),
              StartsWith("ERR"));
  EXPECT_THAT(outcome(acquire_all({}, "other")), StartsWith("ERR"));
  EXPECT_THAT(outcome(acquire_all({"x", "y", "x"}, "other")), StartsWith("ERR"));
  EXPECT_TRUE(lease("x").fence.is_none());
  grants.push_back({"one more", "me", token});
  EXPECT_THAT(outcome(world().ask(RenewMany{grants, 20s})), StartsWith("ERR"));
  EXPECT_THAT(outcome(world().ask(ReleaseMany{grants})), StartsWith("ERR"));
  EXPECT_THAT(outcome(world().ask(ReleaseMany{})), StartsWith("ERR"));
  EXPECT_EQ(lease("name 0").holders.size(), 1);
}

TEST_P(ManyLeasesContract, ASetIsThereInFullAfterACrash) {
  const auto token = take_all({"a", "b", "c"}, "me", 1h);
  world().crash();
  for (const auto* name : {"a", "b", "c"}) {
    EXPECT_EQ(lease(name).fence, token);
    EXPECT_OK(renew(name, "me", token, 1h));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, ManyLeasesContract, ::testing::ValuesIn(every_world()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
