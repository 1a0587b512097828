// SPDX-License-Identifier: Apache-2.0
/// What follows from what at a lease name, on a state that can fail: the branches that no store
/// easily gets into. What is promised is tested in tests/contract.

#include "engine/core/rules.h"
#include "tests/unit/plain_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::core {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class SuccessionTest : public ::testing::Test {
 protected:
  /// The decision's line: `OK`, an error, or `waits`.
  std::string ask(Command command, std::uint64_t session = 0) {
    const Policy policy{.max_value_bytes = 100, .max_waiting = 100};
    const auto decision = decide(state_, policy, command, moment_,
                                 {.client = "test", .session = session, .ticket = ++ticket_});
    if (!decision) return "waits";
    return *decision ? "OK" : decision->error().line();
  }
  static Acquire acquire(std::string name, std::string owner, AcquireOptions options = {}) {
    return make_acquire(name, owner, 10s, std::move(options));
  }
  static Acquire waiting(std::string name, std::string owner, AcquireOptions options = {}) {
    options.wait = 1h;
    return make_acquire(name, owner, 10s, std::move(options));
  }
  static AcquireMany many(std::vector<std::string> names, std::string owner) {
    return {.names = std::move(names), .owner = std::move(owner), .ttl = 10s, .wait = 1h};
  }
  Token newest(const std::string& name) const { return state_.leases.at(name).fence(); }
  std::string release(const std::string& name, const std::string& owner) {
    return ask(Release{name, owner, newest(name)});
  }
  /// The lines of what was answered to those who waited, in order.
  std::vector<std::string> answers() {
    std::vector<std::string> lines;
    for (const auto& [ticket, reply] : state_.answers) {
      auto line = "#" + std::to_string(ticket) + " ";
      if (!reply) {
        line += reply.error().line();
      } else if (const auto* grant = std::get_if<Acquire::Reply>(&*reply)) {
        line += *grant ? "token " + std::to_string((*grant)->token.number()) : "nothing";
      } else {
        const auto& event = std::get<Await::Reply>(*reply);
        line += event ? std::string(to_string(event->change)) : "nothing";
      }
      lines.push_back(std::move(line));
    }
    state_.answers.clear();
    return lines;
  }
  void pass(std::chrono::nanoseconds step) { moment_.since_boot += step; }

  PlainState state_;
  Moment moment_{.since_boot = 1h, .wall = 1'000'000ms};
  Ticket ticket_ = 0;
};

TEST_F(SuccessionTest, AWaiterOfSeveralNamesIsToldOfARecordThatCannotBeRead) {
  ASSERT_EQ(ask(acquire("a", "holder")), "OK");
  ASSERT_EQ(ask(many({"a", "b"}, "both")), "waits");
  ASSERT_EQ(ask(waiting("a", "behind")), "waits");
  state_.damage("lb");
  ASSERT_EQ(release("a", "holder"), "OK");
  EXPECT_THAT(answers(), ElementsAre("#2 CORRUPT a record is damaged", "#3 token 12"));
  EXPECT_EQ(state_.waiting.queue_length("b"), 0U);
}

TEST_F(SuccessionTest, WhoQueuesForANameThatCannotBeReadAnyMoreIsToldSo) {
  ASSERT_EQ(ask(acquire("a", "holder")), "OK");
  ASSERT_EQ(ask(waiting("a", "first")), "waits");
  ASSERT_EQ(ask(waiting("a", "second")), "waits");
  state_.damage("la");
  pass(11s);
  EXPECT_TRUE(pass_time(state_, moment_));
  EXPECT_THAT(answers(), ElementsAre(StartsWith("#2 CORRUPT"), StartsWith("#3 CORRUPT")));
}

TEST_F(SuccessionTest, AWaiterWhoseTokenCannotBeDrawnIsToldSoAndTheNextOneTries) {
  ASSERT_EQ(ask(acquire("a", "holder")), "OK");
  ASSERT_EQ(ask(waiting("a", "first")), "waits");
  ASSERT_EQ(ask(waiting("a", "first")), "waits") << "of the same owner";
  state_.may_draw = false;
  ASSERT_EQ(release("a", "holder"), "OK");
  EXPECT_THAT(answers(), ElementsAre(StartsWith("#2 MISCONF"), StartsWith("#3 MISCONF")));
}

TEST_F(SuccessionTest, AReaderWhoseTokenCannotBeDrawnStaysAReader) {
  ASSERT_EQ(ask(acquire("a", "me", {.mode = LeaseMode::shared})), "OK");
  const auto puts = state_.puts;
  state_.may_draw = false;
  EXPECT_THAT(ask(acquire("a", "me")), StartsWith("MISCONF"));
  EXPECT_EQ(state_.puts, puts);
  EXPECT_EQ(state_.leases.at("a").newest().mode, LeaseMode::shared);
}

TEST_F(SuccessionTest, NoTokenIsLostOnOneWhoIsGone) {
  const auto session = state_.open_sessions.enter({});
  ASSERT_EQ(ask(acquire("a", "holder")), "OK");
  ASSERT_EQ(ask(waiting("a", "gone"), session), "waits");
  ASSERT_EQ(ask(waiting("a", "next")), "waits");
  const auto before = state_.newest_token;
  // It is known to be gone before its end is decided.
  state_.open_sessions.leave(session);
  ASSERT_EQ(release("a", "holder"), "OK");
  EXPECT_THAT(answers(), ElementsAre("#2 LEASELOST disconnected",
                                     "#3 token " + std::to_string(before.number() + 1)));
}

TEST_F(SuccessionTest, AnotherWaitOfTheOwnerThatIsGoneDoesNotGetTheGrant) {
  const auto session = state_.open_sessions.enter({});
  ASSERT_EQ(ask(acquire("a", "holder")), "OK");
  ASSERT_EQ(ask(waiting("a", "me")), "waits");
  ASSERT_EQ(ask(waiting("a", "me", {.bind = true}), session), "waits");
  state_.open_sessions.leave(session);
  ASSERT_EQ(release("a", "holder"), "OK");
  EXPECT_THAT(answers(), ElementsAre("#2 token 12", "#3 LEASELOST disconnected"));
  EXPECT_FALSE(state_.leases.at("a").newest().bound);
}

TEST_F(SuccessionTest, AnotherWaitOfTheOwnerIsToldOfARecordThatCannotBeRead) {
  ASSERT_EQ(ask(acquire("a", "holder")), "OK");
  ASSERT_EQ(ask(waiting("a", "me")), "waits");
  ASSERT_EQ(ask(many({"a", "b"}, "me")), "waits");
  state_.damage("lb");
  ASSERT_EQ(release("a", "holder"), "OK");
  EXPECT_THAT(answers(), ElementsAre("#2 token 12", StartsWith("#3 CORRUPT")));
}

TEST_F(SuccessionTest, OtherWaitsOfAnOwnerAreDecidedAsIfAskedWhenItIsGranted) {
  ASSERT_EQ(ask(acquire("a", "holder")), "OK");
  ASSERT_EQ(ask(waiting("a", "me")), "waits");
  ASSERT_EQ(ask(waiting("a", "me", {.mode = LeaseMode::permit, .permits = 2})), "waits");
  ASSERT_EQ(ask(many({"a", "b"}, "me")), "waits");
  ASSERT_EQ(ask(waiting("a", "me", {.mode = LeaseMode::shared})), "waits");
  ASSERT_EQ(release("a", "holder"), "OK");
  EXPECT_THAT(answers(), ElementsAre("#2 token 12", StartsWith("#3 ERR this owner holds"),
                                     StartsWith("#4 ERR this owner holds some"), "#5 token 12"));
  EXPECT_EQ(state_.leases.at("a").newest().mode, LeaseMode::shared) << "downgraded";
}

// --- while nothing can be changed -------------------------------------------------------------

TEST_F(SuccessionTest, NothingIsChangedWhileNothingCanBe) {
  ASSERT_EQ(ask(acquire("a", "holder")), "OK");
  ASSERT_EQ(ask(waiting("a", "next")), "waits");
  ASSERT_EQ(ask(Await{"a", newest("a"), 5s}), "waits");
  ASSERT_EQ(ask(Await{"a", Token{1'000}, 5s}), "waits");
  ASSERT_EQ(ask(make_acquire("readers", "r1", 1h, {.mode = LeaseMode::shared})), "OK");
  ASSERT_EQ(ask(acquire("readers", "r2", {.mode = LeaseMode::shared})), "OK");
  const auto puts = state_.puts;
  state_.frozen = true;
  pass(11s);
  EXPECT_TRUE(pass_time(state_, moment_));
  // The end of the grant is seen though it cannot be written down.
  EXPECT_THAT(answers(), ElementsAre("#3 expired", "#4 nothing"));
  EXPECT_EQ(ask(Await{"readers", Token(), 1h}), "OK") << "one of two still holds it";
  EXPECT_EQ(ask(Await{"a", Token(), 1h}), "waits") << "nobody holds it";
  EXPECT_EQ(ask(Inspect{"a"}), "OK");
  EXPECT_EQ(state_.puts, puts);

  state_.frozen = false;
  look_everywhere(state_, moment_);
  EXPECT_THAT(answers(), ElementsAre("#2 token 14", "#8 granted"));
}

TEST_F(SuccessionTest, WhatIsDueIsDoneInPortionsSoThatOthersComeBetween) {
  for (int i = 0; i < 1'100; ++i) {
    const auto name = "lease-" + std::to_string(i);
    ASSERT_EQ(ask(acquire(name, "holder")), "OK");
    ASSERT_EQ(ask(Watch{{name}}), "OK");
  }
  state_.events.clear();
  pass(11s);
  EXPECT_FALSE(pass_time(state_, moment_));
  EXPECT_LT(state_.events.size(), 1'100U);
  EXPECT_TRUE(pass_time(state_, moment_));
  EXPECT_EQ(state_.events.size(), 1'100U);
}

TEST_F(SuccessionTest, TheEndOfAWaitThatHasEndedDoesNothing) {
  ASSERT_EQ(ask(acquire("a", "holder")), "OK");
  ASSERT_EQ(ask(waiting("a", "next")), "waits");
  cancel_wait(state_, 2, moment_);
  cancel_wait(state_, 2, moment_);
  EXPECT_THAT(answers(), ElementsAre("#2 nothing"));
}

TEST_F(SuccessionTest, TheLastWatcherTakesTheTimerAlong) {
  const auto one = state_.open_sessions.enter({});
  const auto two = state_.open_sessions.enter({});
  ASSERT_EQ(ask(acquire("a", "holder")), "OK");
  ASSERT_EQ(ask(Watch{{"a"}}, one), "OK");
  ASSERT_EQ(ask(Watch{{"a"}}, two), "OK");
  ASSERT_TRUE(state_.waiting.next_timer().has_value());
  ASSERT_EQ(ask(Unwatch{}, one), "OK");
  EXPECT_TRUE(state_.waiting.next_timer().has_value());
  state_.open_sessions.leave(two);
  end_session(state_, two, moment_);
  EXPECT_FALSE(state_.waiting.next_timer().has_value());
  end_session(state_, 77, moment_);
  EXPECT_EQ(ask(Unwatch{}, one), "OK") << "there is none";
}

// --- several at once --------------------------------------------------------------------------

TEST_F(SuccessionTest, ASyntaxErrorAnywhereIsOneErrorAndNothingIsDone) {
  ASSERT_EQ(ask(acquire("a", "me")), "OK");
  const auto token = newest("a");
  const auto puts = state_.puts;
  EXPECT_THAT(ask(RenewMany{{{"a", "me", token}, {"", "me", token}}, 1s}), StartsWith("ERR"));
  EXPECT_THAT(ask(RenewMany{{{"a", "me", token}, {"b", "", token}}, 1s}), StartsWith("ERR"));
  EXPECT_THAT(ask(RenewMany{{{"a", "me", token}, {"b", "me", Token()}}, 1s}), StartsWith("ERR"));
  EXPECT_THAT(ask(RenewMany{{{"a", "me", token}}, 0s}), StartsWith("ERR"));
  EXPECT_THAT(ask(RenewMany{{}, 1s}), StartsWith("ERR 0 grants"));
  EXPECT_THAT(ask(ReleaseMany{{{"a", "me", token}, {"", "me", token}}}), StartsWith("ERR"));
  EXPECT_THAT(ask(ReleaseMany{std::vector<Holding>(1025, {"a", "me", token})}),
              StartsWith("ERR 1025 grants"));
  EXPECT_EQ(state_.puts, puts);
}

TEST_F(SuccessionTest, GivesBackOnlyWhatItsSessionWasGrantedLast) {
  const auto session = state_.open_sessions.enter({});
  const auto other = state_.open_sessions.enter({});
  ASSERT_EQ(ask(acquire("a", "me"), session), "OK");
  ASSERT_EQ(ask(acquire("b", "me"), session), "OK");
  ASSERT_EQ(ask(acquire("b", "me"), other), "OK") << "acquired again by another session";
  EXPECT_EQ(ask(GiveBack{{"a", "never"}, "me", newest("a")}, session), "OK");
  EXPECT_EQ(ask(GiveBack{{"b"}, "me", newest("b")}, session), "OK");
  EXPECT_EQ(ask(GiveBack{{"a"}, "me", newest("a")}, session), "OK") << "it is over";
  EXPECT_EQ(ask(GiveBack{{"b"}, "me", newest("b")}, other), "OK") << "both were told of it";
  EXPECT_EQ(state_.leases.at("a").newest().end, GrantEnd::released);
  EXPECT_EQ(state_.leases.at("b").newest().end, GrantEnd::open);
}

TEST_F(SuccessionTest, AFullListOfWatchesTakesNamesThatAreInIt) {
  const auto session = state_.open_sessions.enter({});
  for (std::size_t i = 0; i < Limits::kWatchesPerSession; ++i) {
    state_.waiting.watch(session, "name-" + std::to_string(i));
  }
  EXPECT_EQ(ask(Watch{{"name-1", "name-2", "name-2"}}, session), "OK");
  EXPECT_THAT(ask(Watch{{"name-1", "one more"}}, session), StartsWith("ERR a session watches"));
  EXPECT_THAT(ask(Watch{{"name-1", ""}}, session), StartsWith("ERR"));
  EXPECT_THAT(ask(Watch{{}}, session), StartsWith("ERR"));
}

TEST_F(SuccessionTest, AFloorThatWasLiftedEndsReadersAndBlocksWithoutAWord) {
  ASSERT_EQ(ask(acquire("a", "r1", {.mode = LeaseMode::shared, .delay = 1h})), "OK");
  ASSERT_EQ(ask(acquire("a", "r2", {.mode = LeaseMode::shared, .delay = 1h})), "OK");
  ASSERT_EQ(ask(acquire("blocked", "me", {.delay = 1h})), "OK");
  ASSERT_EQ(ask(Revoke{"blocked"}), "OK");
  ASSERT_EQ(ask(Watch{{"a"}}), "OK");
  ASSERT_EQ(ask(Await{"a", newest("a"), 1h}), "waits");
  state_.events.clear();
  state_.newest_token = Token{100};
  state_.floor_token = Token{100};
  EXPECT_EQ(ask(acquire("blocked", "another")), "OK");
  EXPECT_EQ(ask(acquire("a", "writer")), "OK");
  EXPECT_THAT(answers(), ElementsAre("#6 revoked"));
  ASSERT_EQ(state_.events.size(), 1U);
  EXPECT_EQ(state_.events.front().change, LeaseChange::granted);
  EXPECT_THAT(state_.leases.at("a").others(), IsEmpty());
}

// --- modes ------------------------------------------------------------------------------------

TEST_F(SuccessionTest, ReadersWhoseNewestHasGoneStillKeepWritersOut) {
  const AcquireOptions shared{.mode = LeaseMode::shared};
  ASSERT_EQ(ask(acquire("a", "r1", shared)), "OK");
  ASSERT_EQ(ask(acquire("a", "r2", shared)), "OK");
  ASSERT_EQ(release("a", "r2"), "OK");
  EXPECT_EQ(ask(waiting("a", "writer")), "waits");
  cancel_wait(state_, ticket_, moment_);
  EXPECT_EQ(ask(acquire("a", "r3", shared)), "OK");
  EXPECT_EQ(state_.leases.at("a").others().size(), 1U);
}

TEST_F(SuccessionTest, AnUpgradeTakesOverWhatItDoesNotReplace) {
  const auto session = state_.open_sessions.enter({});
  const AcquireOptions shared{
      .mode = LeaseMode::shared, .bind = true, .delay = 7s, .payload = "label"};
  ASSERT_EQ(ask(acquire("kept", "me", shared), session), "OK");
  ASSERT_EQ(ask(acquire("kept", "me"), session), "OK");
  const auto& kept = state_.leases.at("kept").newest();
  EXPECT_EQ(kept.mode, LeaseMode::exclusive);
  EXPECT_TRUE(kept.bound);
  EXPECT_EQ(kept.delay, 7s);
  EXPECT_EQ(kept.payload, "label");

  ASSERT_EQ(ask(acquire("new", "me", {.mode = LeaseMode::shared})), "OK");
  ASSERT_EQ(ask(acquire("new", "me", {.bind = true, .delay = 9s, .payload = "other"}), session),
            "OK");
  const auto& replaced = state_.leases.at("new").newest();
  EXPECT_TRUE(replaced.bound);
  EXPECT_EQ(replaced.delay, 9s);
  EXPECT_EQ(replaced.payload, "other");
}

TEST_F(SuccessionTest, AnUpgradeIsRefusedWhileSomebodyQueuesOrTheNameIsBlocked) {
  const AcquireOptions shared{.mode = LeaseMode::shared};
  ASSERT_EQ(ask(acquire("a", "me", shared)), "OK");
  ASSERT_EQ(ask(waiting("a", "writer")), "waits");
  EXPECT_THAT(ask(acquire("a", "me")), StartsWith("ERR a reader becomes"));

  ASSERT_EQ(ask(make_acquire("b", "me", 1h, shared)), "OK");
  ASSERT_EQ(ask(acquire("b", "slow", {.mode = LeaseMode::shared, .delay = 1h})), "OK");
  pass(11s);
  EXPECT_THAT(ask(acquire("b", "me")), StartsWith("ERR a reader becomes"));
  pass(1h - 12s);
  ASSERT_EQ(ask(Renew{"b", "me", Token{newest("b").number() - 1}, 2h}), "OK");
  pass(13s);
  EXPECT_EQ(ask(acquire("b", "me")), "OK") << "the delay is over";
}

TEST_F(SuccessionTest, SeveralNamesAreNotAcquiredTogetherByWhoHoldsThemApart) {
  ASSERT_EQ(ask(acquire("a", "me")), "OK");
  ASSERT_EQ(ask(acquire("b", "me")), "OK");
  EXPECT_THAT(ask(many({"a", "b"}, "me")), StartsWith("ERR this owner did not acquire"));
  ASSERT_EQ(ask(acquire("c", "me", {.mode = LeaseMode::shared})), "OK");
  EXPECT_THAT(ask(many({"c"}, "me")), StartsWith("ERR this owner did not acquire"));
}

TEST_F(SuccessionTest, NobodyIsLetInWhileTheClockStandsStill) {
  ASSERT_EQ(ask(acquire("a", "holder")), "OK");
  ASSERT_EQ(ask(waiting("a", "next")), "waits");
  moment_.stands_still = true;
  ASSERT_EQ(release("a", "holder"), "OK");
  EXPECT_THAT(answers(), IsEmpty());
  moment_.stands_still = false;
  ASSERT_EQ(ask(Inspect{"a"}), "OK");
  EXPECT_THAT(answers(), ElementsAre("#2 token 12"));
}

// --- limits -----------------------------------------------------------------------------------

TEST_F(SuccessionTest, RefusesWhatIsOutOfItsLimits) {
  EXPECT_THAT(ask(acquire("a", "me", {.permits = 2})), StartsWith("ERR a number of permits"));
  EXPECT_THAT(ask(acquire("a", "me", {.mode = LeaseMode::permit})),
              StartsWith("ERR invalid permits"));
  EXPECT_THAT(ask(ListWaiters{""}), StartsWith("ERR lease name"));
  EXPECT_THAT(ask(Revoke{""}), StartsWith("ERR lease name"));
  EXPECT_THAT(ask(Await{"a", Token{Token::kMax + 1}, 1s}), StartsWith("ERR invalid token"));
  EXPECT_THAT(ask(Await{"a", Token(), 25h}), StartsWith("ERR invalid timeout"));
  EXPECT_THAT(ask(Renew{"a", "", Token{1}, 1s}), StartsWith("ERR owner"));
  EXPECT_THAT(ask(Release{"a", "me", Token()}), StartsWith("ERR invalid token"));
}

TEST_F(SuccessionTest, NoMoreThan10000LookOutForOneName) {
  for (std::size_t i = 0; i < Limits::kWaitersPerName; ++i) {
    state_.waiting.add(Waiters::Lookout{
        .ticket = 1'000 + i, .until = 2h, .session = 0, .name = "a", .token = Token{1'000}});
  }
  const Policy policy{.max_value_bytes = 100, .max_waiting = 1'000'000};
  Command command = Await{"a", Token{1'000}, 1s};
  const auto decision = decide(state_, policy, command, moment_, {.client = "test"});
  ASSERT_TRUE(decision.has_value());
  EXPECT_EQ(decision->error().code(), Errc::overloaded);
}

// --- what time leaves behind ------------------------------------------------------------------

TEST_F(SuccessionTest, WhoLooksOutForANameThatCannotBeReadIsToldNothing) {
  ASSERT_EQ(ask(acquire("a", "holder")), "OK");
  ASSERT_EQ(ask(Await{"a", newest("a"), 5s}), "waits");
  state_.damage("la");
  pass(11s);
  pass_time(state_, moment_);
  EXPECT_THAT(answers(), ElementsAre("#2 nothing"));
}

TEST_F(SuccessionTest, TakesAwayOnlyWhatIsBelowTheFloor) {
  ASSERT_EQ(ask(acquire("old", "me")), "OK");
  ASSERT_EQ(release("old", "me"), "OK");
  ASSERT_EQ(ask(acquire("new", "me")), "OK");
  state_.keys["tombstone"] = {.fence = Token{3}, .version = 2};
  state_.keys["live"] = {.fence = Token{3}, .version = 2, .value = "v"};
  state_.keys["young"] = {.fence = Token{12}, .version = 2};
  state_.floor_token = newest("new");
  const auto taken =
      reclaim(state_, {"tombstone", "live", "young", "none"}, {"old", "new", "none"}, moment_);
  ASSERT_TRUE(taken);
  EXPECT_EQ(*taken, (Reclaimed{.tombstones = 1, .lease_names = 1, .floor = newest("new")}));
  EXPECT_FALSE(state_.keys.contains("tombstone"));
  EXPECT_FALSE(state_.leases.contains("old"));

  state_.damage("kdamaged");
  state_.damage("ldamaged");
  EXPECT_FALSE(reclaim(state_, {"damaged"}, {}, moment_));
  EXPECT_FALSE(reclaim(state_, {}, {"damaged"}, moment_));
}

TEST_F(SuccessionTest, ALeaseRemembersWhatEndedLatelyAndForgetsTheRest) {
  const auto& boots = state_.boots();
  Lease lease(grant_of("me", Token{50}), 0);
  EXPECT_EQ(lease.lowest_ended(boots, 1h, 1h), Token());
  lease.remember(Token{5}, boots, 1h, 1h);
  lease.remember(Token{7}, boots, 1h + 1min, 1h);
  EXPECT_EQ(lease.lowest_ended(boots, 1h + 1min, 1h), Token{5});
  lease.remember(Token{20}, boots, 2h + 30min, 1h);
  EXPECT_EQ(lease.lowest_ended(boots, 2h + 40min, 1h), Token{5}) << "up to twice as old";
  EXPECT_EQ(lease.lowest_ended(boots, 3h + 40min, 1h), Token{20});
  EXPECT_EQ(lease.lowest_ended(boots, 5h, 1h), Token());
  lease.remember(Token{30}, boots, 5h, 1h);
  EXPECT_EQ(lease.lowest_ended(boots, 5h, 1h), Token{30});
}

}  // namespace
}  // namespace fencekv::core
