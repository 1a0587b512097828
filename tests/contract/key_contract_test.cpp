// SPDX-License-Identifier: Apache-2.0
/// engine/SEMANTICS.md section 2, on every kind of world.

#include "tests/contract/store_contract.h"

namespace fencekv::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class KeyContract : public StoreContract {};

// --- 2.1 limits and syntax --------------------------------------------------------------------

TEST_P(KeyContract, RefusesTokensOutOfRange) {
  const auto token = issue();
  ASSERT_OK(set("job", "kept", token));

  for (const auto wrong : {Token{0}, Token{Token::kMax + 1}}) {
    EXPECT_THAT(outcome(set("job", "x", wrong)), StartsWith("ERR invalid token '"));
    EXPECT_THAT(outcome(remove("job", wrong)), StartsWith("ERR invalid token '"));
    EXPECT_THAT(outcome(world().ask(Raise{"job", wrong, {}})), StartsWith("ERR invalid token '"));
    EXPECT_THAT(outcome(world().ask(FencedRead{"job", wrong, {}})),
                StartsWith("ERR invalid token '"));
    EXPECT_THAT(outcome(world().ask(Reset{.key = "job", .token = wrong})),
                StartsWith("ERR invalid token '"));
    EXPECT_THAT(outcome(release("issuer", "issuer-1", wrong)), StartsWith("ERR invalid token '"));
    EXPECT_THAT(outcome(renew("issuer", "issuer-1", wrong)), StartsWith("ERR invalid token '"));
  }

  EXPECT_EQ(value_of("job"), "kept");
  EXPECT_EQ(state_of("job").version, 1);
}

TEST_P(KeyContract, TakesNamesUpToTheirLimitAndNoLonger) {
  const auto token = issue();
  const std::string longest(Limits::kNameBytes, 'k');

  EXPECT_OK(set(longest, "v", token));
  EXPECT_EQ(value_of(longest), "v");
  EXPECT_THAT(outcome(set(longest + "k", "v", token)), StartsWith("ERR key of 1025 bytes"));
  EXPECT_THAT(outcome(set("", "v", token)), StartsWith("ERR key must not be empty"));
  EXPECT_THAT(outcome(set("job", "v", token, {.lease = longest + "l"})),
              StartsWith("ERR lease name of 1025 bytes"));
  EXPECT_THAT(outcome(set("job", "v", token, {.request = std::string(257, 'r')})),
              StartsWith("ERR request id of 257 bytes"));
  EXPECT_THAT(outcome(set("job", "v", token, {.request = ""})),
              StartsWith("ERR request id must not be empty"));
  EXPECT_OK(set("job", "v", token, {.request = std::string(256, 'r')}));
}

TEST_P(KeyContract, KeepsAnyBytes) {
  const std::string bytes("a\0b\r\n\xff \\", 8);
  const auto token = hold(bytes, bytes);

  ASSERT_OK(set(bytes, bytes, token, {.lease = bytes, .request = bytes}));

  const auto state = state_of(bytes);
  EXPECT_EQ(state.value, bytes);
  EXPECT_EQ(state.guard, bytes);
  EXPECT_EQ(state.request, bytes);
}

TEST_P(KeyContract, RefusesAValueOverTheConfiguredLimit) {
  options().max_value_bytes = 10;
  const auto token = issue();

  EXPECT_OK(set("job", std::string(10, 'v'), token));
  EXPECT_THAT(outcome(set("job", std::string(11, 'v'), token)), StartsWith("TOOBIG value of 11"));
  EXPECT_THAT(outcome(set_all({"a", "b"}, std::string(11, 'v'), token)), StartsWith("TOOBIG"));
  EXPECT_EQ(value_of("job"), std::string(10, 'v'));
}

TEST_P(KeyContract, RefusesLiveWithoutALeaseThatCouldExpire) {
  const auto token = hold("lease", "me");
  ASSERT_OK(set("guarded", "v", token, {.lease = "lease"}));

  EXPECT_THAT(outcome(set("job", "v", token, {.live = true})),
              StartsWith("ERR LIVE needs a lease"));
  EXPECT_THAT(outcome(set_all({"guarded", "job"}, "v", token, {.live = true})),
              StartsWith("ERR LIVE needs a lease"));
  EXPECT_OK(set("guarded", "v", token, {.live = true}));
  EXPECT_OK(set("job", "v", token, {.lease = "lease", .live = true}));
}

TEST_P(KeyContract, RefusesLiveOnAnUnguardedKeyThatExists) {
  const auto token = issue();
  ASSERT_OK(set("job", "v", token));

  EXPECT_THAT(outcome(set("job", "w", token, {.live = true})),
              StartsWith("ERR LIVE needs a lease"));
}

TEST_P(KeyContract, RefusesAKeyNamedTwice) {
  EXPECT_THAT(outcome(set_all({"b", "a", "b"}, "v", issue())),
              StartsWith("ERR key b is named twice"));
  EXPECT_EQ(value_of("a"), "(none)");
}

TEST_P(KeyContract, TakesUpTo1024KeysInOneWrite) {
  const auto token = issue();
  std::vector<std::string> keys;
  for (int i = 0; i < 1024; ++i) keys.push_back("k" + std::to_string(i));

  ASSERT_OK(set_all(keys, "v", token));
  EXPECT_EQ(value_of("k1023"), "v");
  keys.emplace_back("one more");
  EXPECT_THAT(outcome(set_all(keys, "w", token)), StartsWith("ERR"));
  EXPECT_EQ(value_of("k0"), "v");
}

// --- 2.2 replay -------------------------------------------------------------------------------

TEST_P(KeyContract, AnswersARetryAsItAnsweredTheFirst) {
  const auto token = issue();
  ASSERT_THAT(*set("job", "first", token, {.request = "r1"}), ElementsAre(1));

  const auto retry =
      set("job", "whatever", token, {.once = true, .if_version = 7, .request = "r1"});

  ASSERT_OK(retry);
  EXPECT_THAT(*retry, ElementsAre(1));
  EXPECT_EQ(value_of("job"), "first");
  EXPECT_EQ(state_of("job").version, 1);
}

TEST_P(KeyContract, AnswersARetryEvenAfterASuccessorWasGranted) {
  const auto token = hold("lease", "me", 1s);
  ASSERT_OK(set("job", "mine", token, {.lease = "lease", .request = "r1"}));
  world().clock().advance(1s);
  hold("lease", "successor");

  EXPECT_OK(set("job", "mine", token, {.lease = "lease", .request = "r1"}));
  EXPECT_THAT(outcome(set("job", "mine", token, {.lease = "lease", .request = "r2"})),
              StartsWith("FENCED"));
}

TEST_P(KeyContract, AnswersARetriedDelete) {
  const auto token = issue();
  ASSERT_OK(set("job", "v", token));
  ASSERT_THAT(*remove("job", token, {.request = "r1"}), ElementsAre(2));

  EXPECT_THAT(*remove("job", token, {.request = "r1"}), ElementsAre(2));
  EXPECT_EQ(state_of("job").version, 2);
}

TEST_P(KeyContract, TakesAnotherTokenOrIdForANewRequest) {
  const auto older = issue();
  const auto newer = issue();
  ASSERT_OK(set("job", "a", older, {.request = "r1"}));

  EXPECT_THAT(*set("job", "b", older, {.request = "r2"}), ElementsAre(2));
  EXPECT_THAT(*set("job", "c", newer, {.request = "r2"}), ElementsAre(3));
  EXPECT_THAT(*set("job", "d", newer), ElementsAre(4));
  // The last write had no id, so nothing is remembered.
  EXPECT_THAT(*set("job", "e", newer, {.request = "r2"}), ElementsAre(5));
}

TEST_P(KeyContract, RemembersTheRequestOverARaiseAndAReset) {
  const auto token = issue();
  const auto newer = issue();
  ASSERT_OK(set("job", "v", token, {.request = "r1"}));

  ASSERT_OK(world().ask(Raise{"job", newer, {}}));
  EXPECT_THAT(*set("job", "v", token, {.request = "r1"}), ElementsAre(1));
  ASSERT_OK(world().ask(Reset{.key = "job", .token = token}));
  EXPECT_THAT(*set("job", "v", token, {.request = "r1"}), ElementsAre(1));
}

TEST_P(KeyContract, AnswersARetriedWriteOfManyKeysOnlyIfAllRememberIt) {
  const auto token = issue();
  ASSERT_THAT(*set_all({"a", "b"}, "v", token, {.request = "r1"}), ElementsAre(1, 1));
  EXPECT_THAT(*set_all({"a", "b"}, "w", token, {.request = "r1"}), ElementsAre(1, 1));

  ASSERT_OK(set("b", "other", token));
  EXPECT_THAT(outcome(set_all({"a", "b"}, "v", token, {.request = "r1"})),
              StartsWith("ERR request r1 ran"));
  EXPECT_EQ(value_of("b"), "other");
}

// --- 2.4 lease --------------------------------------------------------------------------------

TEST_P(KeyContract, RefusesALeaseThatWasNeverGranted) {
  EXPECT_EQ(outcome(set("job", "v", issue(), {.lease = "nobody"})), "NOLEASE nobody");
  EXPECT_EQ(state_of("job"), KeyState{});
}

TEST_P(KeyContract, RefusesATokenThatTheLeaseNeverHad) {
  const auto token = hold("lease", "me");
  const auto foreign = hold("other", "me");

  EXPECT_EQ(outcome(set("job", "v", foreign, {.lease = "lease"})),
            "UNISSUED " + std::to_string(token.number()) + " " + std::to_string(foreign.number()));
}

TEST_P(KeyContract, ShutsTheFormerHolderOutAtTheGrant) {
  const auto sleeper = hold("lease", "sleeper", 1s);
  world().clock().advance(1s);
  const auto successor = hold("lease", "successor");

  // The successor has written nothing, and never will touch this key.
  const auto late = set("brand new", "by the sleeper", sleeper, {.lease = "lease"});

  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Errc::fenced);
  EXPECT_EQ(late.error().highest(), successor);
  EXPECT_EQ(late.error().offered(), sleeper);
  EXPECT_EQ(late.error().reason(), "superseded");
  EXPECT_EQ(state_of("brand new"), KeyState{});
}

TEST_P(KeyContract, LetsAHolderWriteWhoseTimeRanOutWhileNobodyCame) {
  const auto token = hold("lease", "me", 1s);
  world().clock().advance(1h);

  EXPECT_OK(set("job", "late but alone", token, {.lease = "lease"}));
}

TEST_P(KeyContract, RefusesALiveWriteAfterItsTime) {
  const auto token = hold("lease", "me", 1s);
  EXPECT_OK(set("job", "in time", token, {.lease = "lease", .live = true}));
  world().clock().advance(999ms);
  EXPECT_OK(set("job", "just in time", token, {.lease = "lease", .live = true}));

  world().clock().advance(1ms);
  EXPECT_EQ(outcome(set("job", "late", token, {.lease = "lease", .live = true})), "EXPIRED 0");
  world().clock().advance(1500ms);
  EXPECT_EQ(outcome(set("job", "late", token, {.lease = "lease", .live = true})), "EXPIRED 1500");
  EXPECT_EQ(value_of("job"), "just in time");
}

TEST_P(KeyContract, ClosesTheTokenAtTheRelease) {
  const auto token = hold("lease", "me");
  ASSERT_OK(set("job", "v", token, {.lease = "lease"}));
  ASSERT_OK(release("lease", "me", token));

  const auto late = set("job", "w", token, {.lease = "lease"});

  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().reason(), "released");
  EXPECT_EQ(value_of("job"), "v");
}

TEST_P(KeyContract, ClosesTheTokenAtTheRevocation) {
  const auto token = hold("lease", "me");
  ASSERT_OK(world().ask(Revoke{.name = "lease"}));

  const auto late = set("job", "w", token, {.lease = "lease"});

  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().reason(), "revoked");
}

TEST_P(KeyContract, ChecksAGuardedKeyAgainstItsGuardThoughTheWriteForgetsIt) {
  const auto sleeper = hold("lease", "sleeper", 1s);
  ASSERT_OK(set("job", "v", sleeper, {.lease = "lease"}));
  world().clock().advance(1s);
  hold("lease", "successor");

  EXPECT_THAT(outcome(set("job", "w", sleeper)), StartsWith("FENCED"));
  EXPECT_THAT(outcome(remove("job", sleeper)), StartsWith("FENCED"));
  // A newer token of another lease is no way in either.
  EXPECT_THAT(outcome(set("job", "w", issue("elsewhere"))), StartsWith("UNISSUED"));
  EXPECT_EQ(value_of("job"), "v");
}

TEST_P(KeyContract, RefusesAnotherLeaseThanTheGuard) {
  const auto token = hold("lease", "me");
  ASSERT_OK(set("job", "v", token, {.lease = "lease"}));
  const auto other = hold("other", "me");

  const auto wrong = set("job", "w", other, {.lease = "other"});

  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code(), Errc::wrong_lease);
  EXPECT_EQ(wrong.error().subject(), "lease");
  EXPECT_EQ(state_of("job").guard, "lease");
}

TEST_P(KeyContract, BindsAKeyByTheFirstWriteThatNamesALease) {
  const auto before = issue();
  ASSERT_OK(set("job", "v", before));
  EXPECT_EQ(state_of("job").guard, std::nullopt);

  const auto token = hold("lease", "me");
  ASSERT_OK(set("job", "w", token, {.lease = "lease"}));
  EXPECT_EQ(state_of("job").guard, "lease");
  ASSERT_OK(remove("job", token));
  EXPECT_EQ(state_of("job").guard, "lease");
}

// --- 2.5 neither lease nor guard --------------------------------------------------------------

TEST_P(KeyContract, RefusesATokenThatNobodyIssued) {
  const auto newest = issue();
  const Token invented{newest.number() + 1};

  EXPECT_EQ(outcome(set("job", "v", invented)), "UNISSUED " + std::to_string(newest.number()) +
                                                    " " + std::to_string(invented.number()));
  EXPECT_THAT(outcome(world().ask(Raise{"job", invented, {}})), StartsWith("UNISSUED"));
  EXPECT_THAT(outcome(world().ask(FencedRead{"job", invented, {}})), StartsWith("UNISSUED"));
  EXPECT_THAT(outcome(set("job", "v", Token{Token::kMax})), StartsWith("UNISSUED"));
  EXPECT_EQ(state_of("job"), KeyState{});
}

TEST_P(KeyContract, TakesTokensOfAnExternalAllocatorIfToldSo) {
  options().unguarded_tokens = UnguardedTokens::any;

  EXPECT_OK(set("job", "v", Token{Token::kMax}));
  EXPECT_THAT(outcome(set("job", "v", Token{Token::kMax - 1})), StartsWith("FENCED"));
  EXPECT_OK(world().ask(Reset{.key = "job", .token = Token{5}}));
  EXPECT_OK(set("job", "v", Token{6}));
  // Under a lease only its own tokens count.
  hold("lease", "me");
  EXPECT_THAT(outcome(set("other", "v", Token{Token::kMax}, {.lease = "lease"})),
              StartsWith("UNISSUED"));
}

TEST_P(KeyContract, TakesNoUnguardedWritesIfToldSo) {
  options().unguarded_tokens = UnguardedTokens::refuse;
  const auto token = hold("lease", "me");

  EXPECT_THAT(outcome(set("job", "v", token)), StartsWith("ERR this store takes no write without"));
  EXPECT_THAT(outcome(world().ask(Raise{"job", token, {}})), StartsWith("ERR"));
  EXPECT_OK(set("job", "v", token, {.lease = "lease"}));
  EXPECT_OK(set("job", "v", token));
}

// --- 2.6 fence --------------------------------------------------------------------------------

TEST_P(KeyContract, RefusesAHolderThatWakesUpLate) {
  const auto sleeper = issue();
  const auto successor = issue();
  ASSERT_OK(set("job", "by the successor", successor));

  const auto late = set("job", "by the sleeper", sleeper);

  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Errc::fenced);
  EXPECT_EQ(late.error().highest(), successor);
  EXPECT_EQ(late.error().reason(), "stale");
  EXPECT_EQ(value_of("job"), "by the successor");
  EXPECT_EQ(state_of("job").version, 1);
}

TEST_P(KeyContract, TakesRepeatedWritesOfOneHolder) {
  const auto token = issue();
  EXPECT_THAT(*set("job", "first", token), ElementsAre(1));
  EXPECT_THAT(*set("job", "second", token), ElementsAre(2));
  EXPECT_EQ(value_of("job"), "second");
}

TEST_P(KeyContract, TakesATokenOnceIfAsked) {
  const auto token = issue();
  ASSERT_OK(set("job", "first", token, {.once = true}));

  const auto again = set("job", "second", token, {.once = true});

  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().reason(), "once");
  EXPECT_EQ(value_of("job"), "first");
  EXPECT_OK(set("job", "third", issue(), {.once = true}));
}

TEST_P(KeyContract, ComparesTokensAsNumbers) {
  auto tokens = issue_many(11);
  ASSERT_OK(set("job", "nine", tokens[8]));
  EXPECT_OK(set("job", "ten", tokens[9]));
  EXPECT_THAT(outcome(set("job", "nine", tokens[8])), StartsWith("FENCED 10 9 stale"));
}

TEST_P(KeyContract, RefusesTheDeleteOfAnAbsentKeyByAStaleHolder) {
  const auto sleeper = issue();
  ASSERT_OK(remove("job", issue()));

  EXPECT_THAT(outcome(remove("job", sleeper)), StartsWith("FENCED"));
}

// --- 2.7 version ------------------------------------------------------------------------------

TEST_P(KeyContract, WritesOnlyTheExpectedVersion) {
  const auto token = issue();
  EXPECT_OK(set("job", "v1", token, {.if_version = 0}));
  EXPECT_OK(set("job", "v2", token, {.if_version = 1}));

  EXPECT_EQ(outcome(set("job", "v3", token, {.if_version = 1})), "VERSION 2 1");
  EXPECT_EQ(outcome(set("job", "v3", token, {.if_version = 0})), "VERSION 2 0");
  EXPECT_EQ(outcome(set("none", "v", token, {.if_version = 3})), "VERSION 0 3");
  EXPECT_EQ(value_of("job"), "v2");
}

TEST_P(KeyContract, TakesVersionZeroForNoValueNow) {
  const auto token = issue();
  ASSERT_OK(set("job", "v", token));
  ASSERT_OK(remove("job", token));

  EXPECT_THAT(*set("job", "again", token, {.if_version = 0}), ElementsAre(3));
}

TEST_P(KeyContract, TellsAStaleHolderToStopBeforeItTellsTheVersion) {
  const auto sleeper = issue();
  ASSERT_OK(set("job", "v", issue()));

  EXPECT_THAT(outcome(set("job", "w", sleeper, {.if_version = 9})), StartsWith("FENCED"));
}

// --- 2.8 accepted, 2.10 deletes ---------------------------------------------------------------

TEST_P(KeyContract, KeepsEverythingOfAWriteTogether) {
  world().clock().set_wall(milliseconds(1'234'567));
  const auto token = hold("lease", "me");

  ASSERT_OK(set("job", "v", token, {.lease = "lease", .request = "r1"}));

  EXPECT_EQ(state_of("job"), (KeyState{.value = "v",
                                       .version = 1,
                                       .fence = token,
                                       .guard = "lease",
                                       .request = "r1",
                                       .written = milliseconds(1'234'567)}));
}

TEST_P(KeyContract, KeepsTheFenceOfADeletedKey) {
  const auto sleeper = issue();
  const auto deleter = issue();
  ASSERT_OK(set("job", "v", sleeper));
  ASSERT_THAT(*remove("job", deleter), ElementsAre(2));

  EXPECT_EQ(value_of("job"), "(none)");
  EXPECT_EQ(state_of("job").fence, deleter);
  EXPECT_THAT(outcome(set("job", "revived", sleeper)), StartsWith("FENCED"));
  EXPECT_THAT(*set("job", "anew", deleter), ElementsAre(3));
}

TEST_P(KeyContract, KeepsAnEmptyValueApartFromNone) {
  ASSERT_OK(set("job", "", issue()));
  EXPECT_EQ(state_of("job").value, "");
}

// --- 2.9 many keys ----------------------------------------------------------------------------

TEST_P(KeyContract, WritesAllKeysOrNone) {
  const auto older = issue();
  const auto newer = issue();
  ASSERT_OK(set("b", "taken", newer));

  const auto refused = set_all({"a", "b", "c"}, "mine", older);

  EXPECT_EQ(outcome(refused), "FENCED " + std::to_string(newer.number()) + " " +
                                  std::to_string(older.number()) +
                                  " stale b=" + std::to_string(newer.number()));
  EXPECT_EQ(state_of("a"), KeyState{});
  EXPECT_EQ(value_of("b"), "taken");
  EXPECT_EQ(state_of("c"), KeyState{});
  EXPECT_THAT(*set_all({"a", "b", "c"}, "ours", newer), ElementsAre(1, 2, 1));
}

TEST_P(KeyContract, NamesSixteenOffendingKeysAndCountsTheRest) {
  const auto older = issue();
  const auto newer = issue();
  std::vector<std::string> keys;
  for (int i = 0; i < 20; ++i) keys.push_back("k" + std::to_string(i));
  ASSERT_OK(set_all(keys, "v", newer));

  const auto line = outcome(set_all(keys, "w", older));

  EXPECT_THAT(line, HasSubstr(" k0=" + std::to_string(newer.number()) + " "));
  EXPECT_THAT(line, HasSubstr(" k15="));
  EXPECT_EQ(line.find("k16="), std::string::npos);
  EXPECT_THAT(line, ::testing::EndsWith(" and 4 more"));
}

TEST_P(KeyContract, NamesAnOffendingKeyWithoutARecord) {
  EXPECT_THAT(outcome(set_all({"a", "b"}, "v", issue(), {.lease = "nobody"})),
              "NOLEASE nobody a=0 b=0");
}

// --- 2.11 raise and fenced read ---------------------------------------------------------------

TEST_P(KeyContract, LiftsAFenceWithoutWriting) {
  const auto sleeper = issue();
  const auto reader = issue();
  ASSERT_OK(set("job", "v", sleeper, {.request = "r1"}));

  const auto raised = world().ask(Raise{"job", reader, {}});

  ASSERT_OK(raised);
  EXPECT_EQ(*raised, reader);
  const auto state = state_of("job");
  EXPECT_EQ(state.value, "v");
  EXPECT_EQ(state.version, 1);
  EXPECT_EQ(state.fence, reader);
  EXPECT_EQ(state.request, "r1");
  EXPECT_THAT(outcome(set("job", "late", sleeper)), StartsWith("FENCED"));
}

TEST_P(KeyContract, RaisesAnAbsentKey) {
  const auto sleeper = issue();
  const auto token = hold("lease", "me");

  ASSERT_OK(world().ask(Raise{"job", token, "lease"}));

  EXPECT_EQ(state_of("job"), (KeyState{.fence = token}));
  EXPECT_THAT(outcome(set("job", "late", sleeper)), StartsWith("FENCED"));
}

TEST_P(KeyContract, RaisingToTheSameFenceIsFine) {
  const auto token = issue();
  ASSERT_OK(set("job", "v", token));
  EXPECT_EQ(*world().ask(Raise{"job", token, {}}), token);
}

TEST_P(KeyContract, ReadsAndShutsOlderHoldersOut) {
  const auto sleeper = issue();
  const auto reader = issue();
  ASSERT_OK(set("job", "v", sleeper));

  const auto read = world().ask(FencedRead{"job", reader, {}});

  ASSERT_OK(read);
  EXPECT_EQ(read->value, "v");
  EXPECT_EQ(read->fence, reader);
  EXPECT_THAT(outcome(set("job", "late", sleeper)), StartsWith("FENCED"));
  EXPECT_THAT(outcome(world().ask(FencedRead{"job", sleeper, {}})), StartsWith("FENCED"));
}

TEST_P(KeyContract, ChecksTheLeaseOfAFencedRead) {
  const auto sleeper = hold("lease", "sleeper", 1s);
  ASSERT_OK(set("job", "v", sleeper, {.lease = "lease"}));
  world().clock().advance(1s);
  hold("lease", "successor");

  EXPECT_THAT(outcome(world().ask(FencedRead{"job", sleeper, "lease"})), StartsWith("FENCED"));
  EXPECT_THAT(outcome(world().ask(FencedRead{"job", sleeper, {}})), StartsWith("FENCED"));
  EXPECT_THAT(outcome(world().ask(Raise{"new", sleeper, "lease"})), StartsWith("FENCED"));
  EXPECT_THAT(outcome(world().ask(Raise{"new", sleeper, "nobody"})), StartsWith("NOLEASE"));
}

TEST_P(KeyContract, RefusesBadNamesInARaise) {
  EXPECT_THAT(outcome(world().ask(Raise{"", issue(), {}})),
              StartsWith("ERR key must not be empty"));
  EXPECT_THAT(outcome(world().ask(Raise{"job", issue(), ""})),
              StartsWith("ERR lease name must not be empty"));
}

// --- 2.12 reset -------------------------------------------------------------------------------

TEST_P(KeyContract, RepairsAPoisonedFence) {
  const auto older = issue();
  const auto newer = issue();
  ASSERT_OK(set("job", "v", newer, {.request = "r1"}));

  const auto reset = world().ask(Reset{.key = "job", .token = older});

  ASSERT_OK(reset);
  EXPECT_EQ(reset->after, older);
  const auto state = state_of("job");
  EXPECT_EQ(state.fence, older);
  EXPECT_EQ(state.value, "v");
  EXPECT_EQ(state.version, 1);
  EXPECT_EQ(state.request, "r1");
  EXPECT_OK(set("job", "w", older));
}

TEST_P(KeyContract, ResetsTheGuardIfAsked) {
  const auto token = hold("lease", "me");
  ASSERT_OK(set("job", "v", token, {.lease = "lease"}));

  ASSERT_OK(world().ask(Reset{.key = "job", .token = token}));
  EXPECT_EQ(state_of("job").guard, "lease");
  ASSERT_OK(world().ask(
      Reset{.key = "job", .token = token, .guard = Reset::Guard::set, .guard_name = "other"}));
  EXPECT_EQ(state_of("job").guard, "other");
  ASSERT_OK(world().ask(Reset{.key = "job", .token = token, .guard = Reset::Guard::clear}));
  EXPECT_EQ(state_of("job").guard, std::nullopt);
}

TEST_P(KeyContract, RefusesToResetAboveWhatWasIssued) {
  const auto newest = issue();
  EXPECT_THAT(outcome(world().ask(Reset{.key = "job", .token = Token{newest.number() + 1}})),
              StartsWith("UNISSUED"));
  EXPECT_THAT(outcome(world().ask(Reset{
                  .key = "job", .token = newest, .guard = Reset::Guard::set, .guard_name = ""})),
              StartsWith("ERR guard must not be empty"));
}

TEST_P(KeyContract, ResetsAnAbsentKey) {
  const auto token = issue();
  ASSERT_OK(world().ask(Reset{.key = "job", .token = token}));
  EXPECT_EQ(state_of("job"), (KeyState{.fence = token}));
}

// --- Listings and the log of refusals ---------------------------------------------------------

TEST_P(KeyContract, ListsLiveKeysInOrder) {
  const auto token = issue();
  ASSERT_OK(set_all({"c", "a", "b", std::string("a\0", 2), "d"}, "v", token));
  ASSERT_OK(remove("b", token));
  ASSERT_OK(world().ask(Raise{"e", token, {}}));

  const auto keys = world().keys();

  ASSERT_OK(keys);
  EXPECT_THAT(*keys, ::testing::UnorderedElementsAre("a", std::string("a\0", 2), "c", "d"));
  EXPECT_EQ(world().store().stats().live_keys, 4);
  EXPECT_EQ(world().store().stats().tombstones, 2);
}

TEST_P(KeyContract, ReadsManyKeysAtOnce) {
  const auto token = issue();
  ASSERT_OK(set_all({"a", "b"}, "v", token));

  const auto keys = world().ask(Read{.keys = {"b", "none", "a", "b"}});

  ASSERT_OK(keys);
  ASSERT_EQ(keys->size(), 4);
  EXPECT_EQ((*keys)[0].value, "v");
  EXPECT_EQ((*keys)[1], KeyState{});
  EXPECT_EQ((*keys)[3], (*keys)[0]);
  EXPECT_THAT(outcome(world().ask(Read{.keys = {"a", ""}})), StartsWith("ERR key"));
}

TEST_P(KeyContract, ReadsNoMoreTogetherThanOneReplyMayHold) {
  const auto token = issue();
  ASSERT_OK(set("big", std::string(Limits::kReadBytes / 5, 'v'), token));

  const std::string key = "big";
  EXPECT_THAT(outcome(world().ask(Read{.keys = {key, key, key, key, key, key}})),
              StartsWith("TOOBIG the values of these keys"));
  EXPECT_OK(world().ask(Read{.keys = {key, key, key, key, key}}));
  EXPECT_OK(world().ask(Read{.keys = {key}}));
}

TEST_P(KeyContract, RemembersWhatItRefusedAndWhy) {
  const auto sleeper = hold("lease", "sleeper", 1s);
  world().clock().advance(1s);
  const auto successor = hold("lease", "successor");
  world().clock().set_wall(milliseconds(77));
  ASSERT_OK(set("job", "v", successor, {.lease = "lease"}));

  ASSERT_FALSE(set("job", "w", sleeper));
  ASSERT_FALSE(set("other", "w", sleeper, {.lease = "nobody"}));
  ASSERT_FALSE(set("", "not a refusal by the rules", sleeper));

  const auto refused = world().rejections();
  ASSERT_GE(refused.size(), 2);
  EXPECT_EQ(refused[0].key, "other");
  EXPECT_EQ(refused[0].reason, "nolease");
  EXPECT_EQ(refused[0].lease, "nobody");
  EXPECT_EQ(refused[1].key, "job");
  EXPECT_EQ(refused[1].reason, "superseded");
  EXPECT_EQ(refused[1].lease, "lease");
  EXPECT_EQ(refused[1].offered, sleeper);
  EXPECT_EQ(refused[1].highest, successor);
  EXPECT_EQ(refused[1].when, milliseconds(77));
  EXPECT_FALSE(refused[1].client.empty());
}

TEST_P(KeyContract, RemembersTheNewestThousandRefusals) {
  const auto sleeper = issue();
  const auto newer = issue();
  ASSERT_OK(set("job", "v", newer));
  for (int i = 0; i < 1100; ++i) ASSERT_FALSE(set("job", "w", sleeper));

  EXPECT_LE(world().store().rejections(5000).size(), 1024);
  EXPECT_EQ(world().store().rejections(7).size(), 7);
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, KeyContract, ::testing::ValuesIn(every_world()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
