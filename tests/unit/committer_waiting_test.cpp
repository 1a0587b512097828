// SPDX-License-Identifier: Apache-2.0
/// Commands that wait for a lease, in the one serialised step: who answers them and when, and what
/// becomes of them when the storage fails.

#include "tests/support/freezing_clock.h"
#include "tests/unit/committer_fixture.h"

#include <gmock/gmock.h>

#include <atomic>
#include <stop_token>
#include <thread>

namespace fencekv::testing {
namespace {

using core::Outcome;
using ::testing::ElementsAre;
using ::testing::StartsWith;

Acquire waiting(std::string name, std::string owner, std::chrono::milliseconds wait = 1h) {
  Acquire acquire{.name = std::move(name), .owner = std::move(owner), .ttl = 10s};
  acquire.wait = wait;
  return acquire;
}

class CommitterWaiting : public CommitterTest {
 protected:
  Token take(const std::string& name, const std::string& owner) {
    const auto grant = store().acquire(name, owner, 10s);
    EXPECT_TRUE(grant && *grant) << line_of(grant);
    return grant && *grant ? (*grant)->token : Token();
  }
  std::uint64_t waiters_of(const std::string& name) {
    const auto lease = store().execute(Inspect{.name = name});
    EXPECT_TRUE(lease) << line_of(lease);
    return lease ? lease->waiters : 0;
  }
  void submit_as(std::string what, Command command, const Session& session) {
    store().enqueue(std::move(command), answers_.expect(std::move(what)),
                    {.name = nullptr, .session = session.id()});
  }
};

TEST_F(CommitterWaiting, AWaitHoldsUpNobodyBehindIt) {
  take("lease", "holder");
  submit("wait", waiting("lease", "next"));
  submit("write", write_of("key", "value", Token{1}));
  ASSERT_TRUE(answers_.wait_for(1));
  EXPECT_THAT(answers_.order(), ElementsAre("write"));
  EXPECT_EQ(store().stats().waiting, 1U);
}

TEST_F(CommitterWaiting, AGrantIsAnsweredWhenItIsDurableAndNotBefore) {
  const auto token = take("lease", "holder");
  submit("wait", waiting("lease", "next"));
  ASSERT_EQ(waiters_of("lease"), 1U);
  script_->hold();
  submit("release", Release{"lease", "holder", token});
  ASSERT_TRUE(script_->wait_for_commit());
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(answers_.line("wait"), "no answer");

  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(2));
  EXPECT_EQ(answers_.line("wait"), "OK");
  EXPECT_GT(answers_.reply<Acquire>("wait")->token, token);
}

TEST_F(CommitterWaiting, TimeThatPassesWakesItWithoutACommand) {
  take("lease", "holder");
  submit("first", waiting("lease", "first", 5s));
  submit("second", waiting("lease", "second"));
  ASSERT_EQ(waiters_of("lease"), 2U);

  clock_->advance(5s);
  ASSERT_TRUE(answers_.wait_for(1));
  EXPECT_EQ(answers_.reply<Acquire>("first"), std::nullopt);
  clock_->advance(5s);
  ASSERT_TRUE(answers_.wait_for(2));
  EXPECT_TRUE(answers_.reply<Acquire>("second").has_value());
}

TEST_F(CommitterWaiting, ABlockingCallerThatWaitsLeadsNoFurther) {
  const auto token = take("lease", "holder");
  std::atomic<bool> is_granted = false;
  std::thread waiter([&] {
    const auto grant = store().acquire("lease", "next", 10s, {.wait = 1h});
    is_granted = grant && *grant;
  });
  while (waiters_of("lease") == 0) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(store().set("key", "value", Token{1}).has_value());
  EXPECT_FALSE(is_granted);
  EXPECT_TRUE(store().release("lease", "holder", token).has_value());
  waiter.join();
  EXPECT_TRUE(is_granted);
}

TEST_F(CommitterWaiting, ABlockingCallerCanGiveUp) {
  take("lease", "holder");
  std::stop_source stop;
  std::thread waiter([&] {
    const auto grant = store().acquire("lease", "next", 10s, {.wait = 1h}, {}, stop.get_token());
    EXPECT_TRUE(grant && !*grant) << line_of(grant);
  });
  while (waiters_of("lease") == 0) std::this_thread::sleep_for(1ms);
  stop.request_stop();
  waiter.join();
  EXPECT_EQ(waiters_of("lease"), 0U);

  // And one that gives up before it has begun.
  const auto late = store().acquire("lease", "next", 10s, {.wait = 1h}, {}, stop.get_token());
  EXPECT_TRUE(late && !*late) << line_of(late);
}

TEST_F(CommitterWaiting, CancellingWhatHasAnAnswerDoesNothing) {
  const auto answered = store().enqueue(acquire_of("lease"), answers_.expect("acquire"));
  ASSERT_TRUE(answers_.wait_for(1));
  store().cancel(answered);
  store().cancel(0);
  store().cancel(1'000'000);
  EXPECT_EQ(store().execute(Inspect{"lease"})->holders.size(), 1U);
}

TEST_F(CommitterWaiting, WhoWaitsWhenTheStoreClosesIsAnswered) {
  take("lease", "holder");
  submit("wait", waiting("lease", "next"));
  submit("look out", Await{"lease", Token{1'000}, 1h});
  ASSERT_EQ(waiters_of("lease"), 1U);
  store_.reset();
  EXPECT_THAT(answers_.line("wait"), StartsWith("UNREACHABLE"));
  EXPECT_THAT(answers_.line("look out"), StartsWith("UNREACHABLE"));
}

TEST_F(CommitterWaiting, TheEndOfASessionEndsWhatItWaitsForAndHoldsBound) {
  auto session = std::make_optional<Session>(store());
  auto bound = acquire_of("bound");
  bound.bind = true;
  submit_as("bound", bound, *session);
  take("lease", "holder");
  submit_as("wait", waiting("lease", "next"), *session);
  submit_as("look out", Await{"lease", Token{1'000}, 1h}, *session);
  submit("after it", waiting("bound", "heir"));
  ASSERT_EQ(waiters_of("lease"), 1U);
  EXPECT_EQ(store().stats().sessions, 1U);

  session.reset();
  ASSERT_TRUE(answers_.wait_for(4));
  EXPECT_EQ(answers_.line("wait"), "LEASELOST disconnected");
  EXPECT_EQ(answers_.line("look out"), "LEASELOST disconnected");
  EXPECT_TRUE(answers_.reply<Acquire>("after it").has_value());
  EXPECT_EQ(store().stats().sessions, 0U);
}

TEST_F(CommitterWaiting, ABoundLeaseThatCameBackToASessionInOneGroupEndsWithIt) {
  auto first = std::make_optional<Session>(store());
  const Session second(store());
  auto bound = waiting("lease", "me");
  bound.bind = true;
  const auto token = take("lease", "holder");
  submit_as("bound", bound, *first);
  submit_as("elsewhere", waiting("lease", "me"), second);
  submit_as("again", waiting("lease", "me"), *first);
  submit("heir", waiting("lease", "heir"));
  ASSERT_EQ(waiters_of("lease"), 4U);
  ASSERT_TRUE(store().release("lease", "holder", token));
  ASSERT_TRUE(answers_.wait_for(3));
  EXPECT_EQ(answers_.line("again"), "OK");

  first.reset();
  ASSERT_TRUE(answers_.wait_for(4));
  EXPECT_TRUE(answers_.reply<Acquire>("heir").has_value());
}

TEST_F(CommitterWaiting, NothingWaitsForASessionThatIsGone) {
  take("lease", "holder");
  const auto gone = [this] { return Session(store()).id(); }();
  const Caller caller{.name = nullptr, .session = gone};
  EXPECT_EQ(line_of(store().execute(waiting("lease", "ghost"), caller)), "LEASELOST disconnected");
  EXPECT_EQ(line_of(store().execute(Watch{{"lease"}}, caller)), "LEASELOST disconnected");
  EXPECT_EQ(line_of(store().execute(Await{"lease", Token(), 1s}, caller)),
            "LEASELOST disconnected");
}

TEST_F(CommitterWaiting, ASessionThatHasJustGoneIsSkippedAndNoTokenIsLostOnIt) {
  auto session = std::make_optional<Session>(store());
  const auto token = take("lease", "holder");
  submit_as("gone", waiting("lease", "gone"), *session);
  submit("next", waiting("lease", "next"));
  ASSERT_EQ(waiters_of("lease"), 2U);
  // In one group: the release is decided before the end of the session is.
  collect_a_group();
  submit("release", Release{"lease", "holder", token});
  session.reset();
  script_->let_go();

  ASSERT_TRUE(answers_.wait_for(4));
  EXPECT_EQ(answers_.line("gone"), "LEASELOST disconnected");
  EXPECT_EQ(answers_.reply<Acquire>("next")->token, Token{token.number() + 1});
}

TEST_F(CommitterWaiting, IsBoundedOverAllNames) {
  options_.max_waiting = 2;
  take("a", "holder");
  take("b", "holder");
  submit("first", waiting("a", "x"));
  submit("second", Await{"b", Token{1'000}, 1h});
  submit("third", waiting("b", "x"));
  submit("fourth", Await{"a", Token{1'000}, 1h});
  ASSERT_TRUE(answers_.wait_for(2));
  EXPECT_THAT(answers_.line("third"), StartsWith("OVERLOADED"));
  EXPECT_THAT(answers_.line("fourth"), StartsWith("OVERLOADED"));
}

// --- when the storage fails -------------------------------------------------------------------

struct InDoubt {
  std::string name;
  bool lands;
};

class WaitingInDoubt : public CommitterWaiting, public ::testing::WithParamInterface<InDoubt> {};

TEST_P(WaitingInDoubt, WhoWasGrantedIsToldSoAndTheOthersStayInTheirPlaces) {
  std::mutex mutex;
  std::vector<LeaseEvent> events;
  const Session session(store(), [&](const LeaseEvent& event) {
    const std::lock_guard lock(mutex);
    events.push_back(event);
  });
  const auto token = take("lease", "holder");
  ASSERT_TRUE(store().execute(Watch{{"lease"}}, {.name = nullptr, .session = session.id()}));
  submit("first", waiting("lease", "first"));
  submit("second", waiting("lease", "second"));
  submit("look out", Await{"lease", token, 1h});
  ASSERT_EQ(waiters_of("lease"), 2U);

  script_->fail_settle(Error(Errc::misconf, "still full"));
  script_->fail_next({.outcome = Outcome::unknown, .lands = GetParam().lands});
  EXPECT_THAT(line_of(store().release("lease", "holder", token)), StartsWith("INDOUBT"));
  ASSERT_TRUE(answers_.wait_for(2));
  EXPECT_THAT(answers_.line("first"), StartsWith("INDOUBT"));
  EXPECT_THAT(answers_.line("look out"), StartsWith("INDOUBT"));
  EXPECT_EQ(answers_.line("second"), "no answer");

  // While nothing can be changed nothing is granted, but waits end, and lookers look.
  submit("short", Await{"lease", Token{1'000}, 5s});
  EXPECT_THAT(line_of(store().execute(waiting("lease", "third"))), StartsWith("MISCONF"));
  EXPECT_EQ(waiters_of("lease"), 1U);
  EXPECT_EQ(store().execute(ListWaiters{"lease"})->size(), 1U);
  clock_->advance(6s);
  ASSERT_TRUE(answers_.wait_for(3));
  EXPECT_EQ(answers_.reply<Await>("short"), std::nullopt);

  script_->fail_settle(std::nullopt);
  ASSERT_TRUE(recovers());
  // Of the group that is in doubt either all is there, or nothing: then the holder's time is over
  // at 10 s, otherwise the first one's at 10 s as well.
  EXPECT_EQ(answers_.line("second"), "no answer");
  clock_->advance(5s);
  ASSERT_TRUE(answers_.wait_for(4));
  EXPECT_EQ(answers_.line("second"), "OK");
  EXPECT_GT(answers_.reply<Acquire>("second")->token, Token{token.number() + 1});

  // Those who watch are told after those who waited.
  const auto told = [&] {
    const std::lock_guard lock(mutex);
    return events;
  };
  const auto token_of_second = answers_.reply<Acquire>("second")->token;
  for (int i = 0; i < 2000 && (told().empty() || told().back().token != token_of_second); ++i) {
    std::this_thread::sleep_for(10ms);
  }
  ASSERT_FALSE(told().empty());
  EXPECT_EQ(told().front().change, LeaseChange::missed);
  EXPECT_EQ(told().back().change, LeaseChange::granted);
  EXPECT_EQ(told().back().token, token_of_second);
}

INSTANTIATE_TEST_SUITE_P(Both, WaitingInDoubt,
                         ::testing::Values(InDoubt{"it_landed", true},
                                           InDoubt{"it_did_not_land", false}),
                         [](const auto& entry) { return entry.param.name; });

TEST_F(CommitterWaiting, ARefusedGroupGrantsNothing) {
  const auto token = take("lease", "holder");
  submit("wait", waiting("lease", "next"));
  submit("behind", waiting("lease", "behind"));
  ASSERT_EQ(waiters_of("lease"), 2U);
  script_->fail_next({.outcome = Outcome::refused});
  EXPECT_THAT(line_of(store().release("lease", "holder", token)), StartsWith("MISCONF"));
  ASSERT_TRUE(answers_.wait_for(1));
  EXPECT_THAT(answers_.line("wait"), StartsWith("MISCONF"));
  EXPECT_EQ(store().execute(Inspect{"lease"})->holders.size(), 1U);
  EXPECT_TRUE(store().release("lease", "holder", token).has_value());
  ASSERT_TRUE(answers_.wait_for(2));
  EXPECT_EQ(answers_.line("behind"), "OK");
}

TEST_F(CommitterWaiting, ASessionThatEndsWhileNothingCanBeWrittenHoldsNothingAfterwards) {
  auto session = std::make_optional<Session>(store());
  auto bound = acquire_of("bound");
  bound.bind = true;
  submit_as("bound", bound, *session);
  submit("heir", waiting("bound", "heir"));
  ASSERT_EQ(waiters_of("bound"), 1U);
  script_->fail_settle(Error(Errc::misconf, "still full"));
  script_->fail_next({.outcome = Outcome::unknown, .lands = false});
  EXPECT_THAT(line_of(store().set("key", "v", Token{1})), StartsWith("INDOUBT"));

  session.reset();
  EXPECT_TRUE(store().execute(Inspect{"bound"})->holders.empty());
  EXPECT_EQ(answers_.line("heir"), "no answer");
  script_->fail_settle(std::nullopt);
  ASSERT_TRUE(recovers());
  ASSERT_TRUE(answers_.wait_for(2));
  EXPECT_EQ(answers_.line("heir"), "OK");
}

// --- a clock that stands still ----------------------------------------------------------------

// Reported of a service whose monotonic source froze (B3): nothing ever expired, and nobody was
// told.
TEST(ClockThatStandsStill, GrantsNothingUntilItRunsAgain) {
  const auto clock = std::make_shared<FreezingClock>();
  std::vector<std::string> lines;
  std::mutex mutex;
  Options options;
  options.clock = clock;
  options.log = [&](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line);
  };
  const auto store = open_memory(options);
  const auto first = store->acquire("lease", "holder", 10s);
  ASSERT_TRUE(first && *first);

  clock->freeze(true);
  clock->advance(1s);
  EXPECT_FALSE(store->clock_stands_still());
  EXPECT_TRUE(store->acquire("another", "me", 10s)) << "a second is no reason";
  clock->advance(5s);
  EXPECT_THAT(line_of(store->acquire("third", "me", 10s)),
              StartsWith("MISCONF the machine's clock"));
  EXPECT_TRUE(store->clock_stands_still());
  EXPECT_TRUE(store->stats().clock_stands_still);
  // What is held can be ended, but is not given to the next.
  EXPECT_TRUE(store->release("lease", "holder", (*first)->token));
  EXPECT_TRUE(store->execute(Inspect{"lease"})->holders.empty());

  clock->freeze(false);
  clock->advance(1s);
  const auto again = store->acquire("third", "me", 10s);
  EXPECT_TRUE(again && *again) << line_of(again);
  EXPECT_FALSE(store->clock_stands_still());
  EXPECT_FALSE(store->stats().clock_stands_still);
  const std::lock_guard lock(mutex);
  EXPECT_THAT(lines, ElementsAre(StartsWith("the machine's clock stands still"),
                                 StartsWith("the machine's clock runs again")));
}

// Nobody uses the store, and whoever looks after it asks now and then.
TEST(ClockThatStandsStill, IsToldToWhoAsksOfAStoreThatNobodyUses) {
  const auto clock = std::make_shared<FreezingClock>();
  Options options;
  options.clock = clock;
  const auto store = open_memory(options);
  clock->advance(1h);
  EXPECT_FALSE(store->clock_stands_still()) << "an hour without a look is no standstill";

  clock->freeze(true);
  clock->advance(10s);
  static_cast<void>(store->clock_stands_still());
  clock->advance(10s);
  EXPECT_TRUE(store->clock_stands_still());

  clock->freeze(false);
  EXPECT_FALSE(store->clock_stands_still());
}

}  // namespace
}  // namespace fencekv::testing
