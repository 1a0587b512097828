// SPDX-License-Identifier: Apache-2.0
/// The rules by themselves, on a state that can fail and that can stand as no store gets it to
/// stand yet. What they promise is tested in tests/contract; here are the branches that only a
/// failing storage, a lifted floor or a later feature takes.

#include "engine/core/rules.h"

#include "tests/unit/plain_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::core {
namespace {

using namespace std::chrono_literals;
using ::testing::StartsWith;

constexpr Moment kNow{.since_boot = 1h, .wall = 1'000'000ms};

Write write_of(std::vector<std::string> keys, Token token, std::optional<std::string> lease = {}) {
  Write write;
  for (auto& key : keys) write.entries.push_back({.key = std::move(key), .value = "v"});
  write.token = token;
  write.lease = std::move(lease);
  return write;
}

Result<Reply> ask(State& state, Command command,
                  UnguardedTokens unguarded = UnguardedTokens::issued) {
  const Policy policy{.unguarded_tokens = unguarded, .max_value_bytes = 100};
  return decide(state, policy, command, kNow, {.client = "test"}).value();
}

template <class T>
std::string outcome(const Result<T>& result) {
  return result ? "OK" : result.error().line();
}

/// A state in which every command below has something to look at, and something to change.
struct Furnished : PlainState {
  Furnished() {
    keys["guarded"] = {.fence = Token{3}, .version = 1, .guard = "held", .value = "v"};
    leases.emplace("held", Lease(grant_of("me", Token{5}), 0));
    leases.emplace("over", Lease(grant_of("me", Token{6}, GrantEnd::open, 1min), 0));
  }
};

TEST(Rules, AFailingReadIsTheAnswerAndChangesNothingThatWasAskedFor) {
  auto live = write_of({"guarded"}, Token{5});
  live.live = true;
  const std::vector<std::pair<std::string, Command>> commands{
      {"write", write_of({"guarded"}, Token{5})},
      {"write under a lease", write_of({"new"}, Token{5}, "held")},
      {"live write", live},
      {"write of many", write_of({"a", "b", "guarded"}, Token{5}, "held")},
      {"raise", Raise{"guarded", Token{5}, {}}},
      {"fenced read", FencedRead{"guarded", Token{5}, {}}},
      {"reset", Reset{.key = "guarded", .token = Token{1}}},
      {"read", Read{.keys = {"guarded", "none"}}},
      {"acquire", Acquire{"free", "me", 1s}},
      {"renew", Renew{"held", "me", Token{5}, 1s}},
      {"release", Release{"held", "me", Token{5}}},
      {"revoke", Revoke{"held"}},
      {"inspect", Inspect{"held"}},
      {"acquire of many", AcquireMany{{"free", "another", "fresh"}, "me", 1s, 0s}},
      {"waiters", ListWaiters{"held"}},
      {"wait for a change", Await{"over", Token{6}, 1s}},
      {"watch", Watch{{"held", "over"}}},
      {"give back", GiveBack{{"held"}, "me", Token{5}}},
  };

  for (const auto& [name, command] : commands) {
    SCOPED_TRACE(name);
    Furnished whole;
    ASSERT_EQ(outcome(ask(whole, command)), "OK");
    ASSERT_GT(whole.looks, 0);

    for (int look = 1; look <= whole.looks; ++look) {
      Furnished state;
      state.fail_at = look;
      EXPECT_EQ(outcome(ask(state, command)), "CORRUPT a record is damaged") << "look " << look;
      EXPECT_EQ(state.puts, 0);
    }
  }
}

TEST(Rules, AFailingReadOfAnExpiredLeaseIsTheAnswer) {
  auto live = write_of({"new"}, Token{6}, "over");
  live.live = true;
  Furnished whole;
  ASSERT_THAT(outcome(ask(whole, live)), StartsWith("EXPIRED"));

  for (int look = 1; look <= whole.looks; ++look) {
    Furnished state;
    state.fail_at = look;
    EXPECT_THAT(outcome(ask(state, live)), StartsWith("CORRUPT")) << "look " << look;
  }
}

TEST(Rules, ATokenThatCannotBeDrawnIsNotGranted) {
  Furnished state;
  state.may_draw = false;
  EXPECT_THAT(outcome(ask(state, Acquire{"free", "me", 1s})), StartsWith("MISCONF"));
  EXPECT_EQ(state.puts, 0);
}

TEST(Rules, ADisconnectedGrantIsClosed) {
  Furnished state;
  state.leases.emplace("bound", Lease(grant_of("me", Token{7}, GrantEnd::disconnected), 0));

  EXPECT_EQ(outcome(ask(state, write_of({"k"}, Token{7}, "bound"))), "FENCED 7 7 disconnected");
  EXPECT_EQ(outcome(ask(state, Renew{"bound", "me", Token{7}, 1s})), "LEASELOST disconnected");
  EXPECT_EQ(outcome(ask(state, Release{"bound", "me", Token{7}})), "LEASELOST disconnected");
  EXPECT_EQ(outcome(ask(state, Acquire{"bound", "another", 1s})), "OK");
}

TEST(Rules, ALiftedFloorEndsEveryLeaseBelowIt) {
  Furnished state;
  state.floor_token = Token{8};

  EXPECT_EQ(outcome(ask(state, write_of({"k"}, Token{5}, "held"))), "FENCED 8 5 floor");
  EXPECT_EQ(outcome(ask(state, write_of({"k"}, Token{5}))), "FENCED 8 5 floor");
  EXPECT_EQ(outcome(ask(state, Raise{"k", Token{5}, {}})), "FENCED 8 5 floor");
  EXPECT_EQ(outcome(ask(state, Renew{"held", "me", Token{5}, 1s})), "LEASELOST unknown");
  EXPECT_EQ(outcome(ask(state, Release{"held", "me", Token{5}})), "LEASELOST unknown");
  const auto shown = ask(state, Inspect{"held"});
  ASSERT_TRUE(shown);
  EXPECT_TRUE(std::get<LeaseState>(*shown).holders.empty());
  EXPECT_EQ(outcome(ask(state, Acquire{"held", "another", 1s})), "OK");
}

TEST(Rules, TokensOfAnExternalAllocatorHaveNoFloorUnlessALeaseDecides) {
  Furnished state;
  state.floor_token = Token{8};

  EXPECT_EQ(outcome(ask(state, write_of({"k"}, Token{2}), UnguardedTokens::any)), "OK");
  EXPECT_EQ(outcome(ask(state, write_of({"guarded"}, Token{5}), UnguardedTokens::any)),
            "FENCED 8 5 floor");
  EXPECT_EQ(outcome(ask(state, write_of({"l"}, Token{5}, "held"), UnguardedTokens::any)),
            "FENCED 8 5 floor");
}

TEST(Rules, AWriteHasAtLeastOneKeyAndAtMost1024) {
  Furnished state;
  EXPECT_THAT(outcome(ask(state, write_of({}, Token{1}))), StartsWith("ERR a write takes 1 to"));
  std::vector<std::string> keys;
  for (int i = 0; i < 1025; ++i) keys.push_back("k" + std::to_string(i));
  EXPECT_THAT(outcome(ask(state, write_of(std::move(keys), Token{1}))),
              StartsWith("ERR a write takes 1 to"));
}

TEST(Rules, OnceAndAVersionAreForOneKeyAndOnceIsNotForDeletions) {
  Furnished state;
  auto once = write_of({"a", "b"}, Token{1});
  once.once = true;
  EXPECT_THAT(outcome(ask(state, once)), StartsWith("ERR ONCE and IFVER"));
  auto version = write_of({"a", "b"}, Token{1});
  version.if_version = 1;
  EXPECT_THAT(outcome(ask(state, version)), StartsWith("ERR ONCE and IFVER"));
  auto removal = write_of({"a"}, Token{1});
  removal.once = true;
  removal.entries.front().value.reset();
  EXPECT_THAT(outcome(ask(state, removal)), StartsWith("ERR ONCE is not for deletions"));
  EXPECT_EQ(state.puts, 0);
}

TEST(Rules, EveryRefusalOfAWriteIsTold) {
  Furnished state;
  ASSERT_FALSE(ask(state, write_of({"a", "guarded"}, Token{2})));
  ASSERT_FALSE(ask(state, Raise{"b", Token{99}, {}}));
  ASSERT_FALSE(ask(state, Reset{.key = "c", .token = Token{99}}));
  EXPECT_THAT(state.refusals, ::testing::ElementsAre("guarded", "b", "c"));
}

TEST(Rules, KnowsWhichCommandsAreReads) {
  EXPECT_TRUE(is_read(Read{}));
  EXPECT_TRUE(is_read(Inspect{}));
  EXPECT_TRUE(is_read(ListWaiters{}));
  EXPECT_TRUE(is_read(Await{}));
  EXPECT_TRUE(is_read(Watch{}));
  EXPECT_TRUE(is_read(Unwatch{}));
  EXPECT_FALSE(is_read(GiveBack{}));
  EXPECT_FALSE(is_read(FencedRead{}));
  EXPECT_FALSE(is_read(Write{}));
  EXPECT_FALSE(is_read(Acquire{}));
}

}  // namespace
}  // namespace fencekv::core
