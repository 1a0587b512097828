// SPDX-License-Identifier: Apache-2.0
/// The checkers of histories, on histories that are known to be right and known to be wrong.

#include "tests/history/generated_history.h"
#include "tests/history/invariants.h"
#include "tests/history/linearizability.h"
#include "tests/history/written_history.h"
#include "tests/support/seed_from_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct Written {
  std::string name;
  std::string text;
  /// Of a wrong one: the invariants that must notice it; none: linearizability alone.
  std::vector<std::string> broken{};
};

void PrintTo(const Written& written, std::ostream* out) {
  *out << written.name;
}

std::string name_of(const ::testing::TestParamInfo<Written>& written) {
  return written.param.name;
}

class RightHistory : public ::testing::TestWithParam<Written> {};

TEST_P(RightHistory, IsAccepted) {
  const auto history = written_history(GetParam().text);

  const auto verdict = check_linearizability(history);

  EXPECT_TRUE(verdict.is_linearizable) << verdict.why;
  EXPECT_THAT(broken_invariants(history), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Written, RightHistory,
    ::testing::Values(Written{"OneHolderWritesReadsAndReleases", R"(
      1 0  LEASE.ACQUIRE l o1 1000 2 [5 1000]
      1 3  FENCE.SET k 5 a LEASE l 4 :1
      1 5  FENCE.GET k 6 {a 1 5 l}
      1 7  FENCE.DEL k 5 LEASE l 8 :2
      1 9  FENCE.GET k 10 {_ 2 5 l}
      1 11 LEASE.RELEASE l o1 5 12 OK
      1 13 FENCE.SET k 5 b LEASE l 14 -FENCED 5 5 released
      1 15 LEASE.RELEASE l o1 5 16 OK)"},
                      Written{"OverlappingWritesMayComeInEitherOrder", R"(
      0 0  LEASE.ACQUIRE l o 1000 1 [5 1000]
      1 2  FENCE.SET k 5 a LEASE l 20 :2
      2 2  FENCE.SET k 5 b LEASE l 20 :1
      3 3  GET k 19 $b
      4 21 GET k 22 $a)"},
                      Written{"AnUnknownWriteMayHaveHappened", R"(
      0 0  LEASE.ACQUIRE l o 1000 1 [5 1000]
      1 2  FENCE.SET k 5 a LEASE l 3 ?
      2 4  FENCE.GET k 5 {a 1 5 l}
      2 6  FENCE.SET k 5 b LEASE l 7 :2)"},
                      Written{"OrHappenLater", R"(
      0 0  LEASE.ACQUIRE l o 1000 1 [5 1000]
      1 2  FENCE.SET k 5 a LEASE l 3 ?
      2 4  FENCE.GET k 5 {_ 0 0 _}
      2 6  FENCE.SET k 5 b LEASE l 7 :1
      2 8  FENCE.GET k 9 {a 2 5 l})"},
                      Written{"OrNever", R"(
      0 0  LEASE.ACQUIRE l o 1000 1 [5 1000]
      1 2  FENCE.SET k 5 a LEASE l 3 ?
      2 4  FENCE.SET k 5 b LEASE l 5 :1
      0 6  LEASE.RELEASE l o 5 7 OK
      2 8  FENCE.GET k 9 {b 1 5 l})"},
                      Written{"ALateCopyOfAnAcquireHoldsTheNameForItsTime", R"(
      1 0   LEASE.ACQUIRE l o1 100 1 [5 100]
      1 2   LEASE.RELEASE l o1 5 3 OK
      9 4   LEASE.ACQUIRE l o1 100 5 ?
      2 10  LEASE.ACQUIRE l o2 100 11 _
      2 90  LEASE.ACQUIRE l o2 100 120 [7 100])"},
                      Written{"ALateCopyOfTheHoldersAcquireGivesItItsTimeAgain", R"(
      3 0   LEASE.ACQUIRE l o3 100 1 ?
      1 2   LEASE.ACQUIRE l o1 100 3 ?
      1 4   LEASE.ACQUIRE l o1 100 5 [5 100]
      2 140 LEASE.INFO l 141 <5 5 20>)"},
                      Written{"TheTokenOfALostGrantIsToldToWhoAsksAgain", R"(
      1 0   LEASE.ACQUIRE l o1 100 1 ?
      2 10  LEASE.ACQUIRE l o2 100 11 _
      1 12  LEASE.ACQUIRE l o1 100 13 [6 100]
      1 14  FENCE.SET k 6 a LEASE l 15 :1)"},
                      Written{"AGrantToAWaiterWhoIsGoneIsGivenBack", R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      2 2   LEASE.ACQUIRE l o2 1000 WAIT 500 3 ?
      1 4   LEASE.RELEASE l o1 5 5 OK
      3 6   LEASE.ACQUIRE l o3 1000 7 [7 1000])"},
                      Written{"WhoExpiredMayWriteUntilAnotherComes", R"(
      1 0   LEASE.ACQUIRE l o1 10 1 [5 10]
      1 20  FENCE.SET k 5 a LEASE l 21 :1
      1 22  FENCE.SET k 5 b LEASE l LIVE 23 -EXPIRED 12
      1 24  LEASE.RENEW l o1 5 10 25 -LEASELOST expired
      2 26  LEASE.ACQUIRE l o2 10 27 [6 10]
      1 28  FENCE.SET k 5 c LEASE l 29 -FENCED 6 5 superseded
      1 30  LEASE.RENEW l o1 5 10 31 -LEASELOST superseded)"},
                      Written{"ARenewalMovesTheDeadline", R"(
      1 0   LEASE.ACQUIRE l o1 100 1 [5 100]
      1 50  LEASE.RENEW l o1 5 100 51 :100
      2 120 LEASE.ACQUIRE l o2 100 121 _
      2 122 LEASE.ACQUIRE l o2 100 WAIT 500 160 [6 100])"},
                      Written{"ARepeatedRequestIsAnsweredAgain", R"(
      0 0  LEASE.ACQUIRE l o 1000 1 [5 1000]
      1 2  FENCE.SET k 5 a LEASE l REQ r1 3 ?
      1 4  FENCE.SET k 5 a LEASE l REQ r1 5 :1
      1 6  FENCE.SET k 5 a LEASE l REQ r1 7 :1
      0 8  LEASE.RELEASE l o 5 9 OK
      1 10 FENCE.SET k 5 a LEASE l REQ r1 11 :1)"},
                      Written{"AFencedReadAndARaiseKeepOlderOnesOut", R"(
      1 0  LEASE.ACQUIRE a o1 1000 1 [5 1000]
      2 2  LEASE.ACQUIRE b o2 1000 3 [6 1000]
      1 4  FENCE.SET k 5 x 5 :1
      2 6  FENCE.GET k TOKEN 6 7 {x 1 6 _}
      1 8  FENCE.SET k 5 y 9 -FENCED 6 5 stale
      1 10 FENCE.RAISE j 5 11 $5
      2 12 FENCE.SET j 6 z IFVER 0 13 :1
      2 14 FENCE.SET j 6 z ONCE 15 -FENCED 6 6 once
      2 16 FENCE.SET j 6 z IFVER 3 17 -VERSION 1 3)"},
                      Written{"AWriteOfManyKeysIsOneStep", R"(
      0 0  LEASE.ACQUIRE l o 1000 1 [5 1000]
      1 2  FENCE.MSET 5 2 a 1 b 2 LEASE l 9 [:1 :1]
      2 3  MGET a b 4 [$_ $_]
      2 5  MGET a b 6 [$1 $2]
      2 10 FENCE.GET b 11 {2 1 5 l})"},
                      Written{"RevokedAndInspected", R"(
      1 0  LEASE.INFO l 1 <0 0 0>
      1 2  LEASE.REVOKE l 3 -LEASELOST unknown
      1 4  LEASE.ACQUIRE l o 1000 5 [5 1000]
      2 6  LEASE.INFO l 7 <5 5 998>
      3 8  LEASE.REVOKE l 9 $5
      2 10 LEASE.INFO l 11 <5 0 0>
      1 12 LEASE.RENEW l o 5 1000 13 -LEASELOST revoked
      1 14 FENCE.SET k 5 a LEASE l 15 -FENCED 5 5 revoked
      4 16 FENCE.SET k 5 a LEASE other 17 -NOLEASE other)"},
                      Written{"AnUnknownRevocationMayEndAHoldEarly", R"(
      1 0  LEASE.ACQUIRE l o1 1000 1 [5 1000]
      3 2  LEASE.REVOKE l 3 ?
      2 10 LEASE.ACQUIRE l o2 1000 11 [6 1000])"}),
    name_of);

class WrongHistory : public ::testing::TestWithParam<Written> {};

TEST_P(WrongHistory, IsRefused) {
  const auto history = written_history(GetParam().text);

  const auto verdict = check_linearizability(history);
  const auto broken = broken_invariants(history);

  // What only concerns different components is no business of the search.
  const bool is_of_whole_store = GetParam().name.ends_with("Storewide");
  EXPECT_EQ(verdict.is_linearizable, is_of_whole_store);
  EXPECT_THAT(verdict.why, ::testing::Not(StartsWith("given up")));
  for (const auto& invariant : GetParam().broken) {
    EXPECT_THAT(broken, Contains(StartsWith(invariant + ":")));
  }
}

INSTANTIATE_TEST_SUITE_P(Written, WrongHistory,
                         ::testing::Values(Written{"TokenTwice",
                                                   R"(
      1 0  LEASE.ACQUIRE l o1 10 1 [5 10]
      1 2  LEASE.RELEASE l o1 5 3 OK
      2 4  LEASE.ACQUIRE l o2 10 5 [5 10])",
                                                   {"I1"}},
                                           Written{"TokenOfAnotherLeaseAgainStorewide",
                                                   R"(
      1 0  LEASE.ACQUIRE a o1 10 1 [5 10]
      2 2  LEASE.ACQUIRE b o2 10 3 [5 10])",
                                                   {"I1"}},
                                           Written{"SmallerTokenLaterStorewide",
                                                   R"(
      1 0  LEASE.ACQUIRE a o1 10 1 [5 10]
      2 2  LEASE.ACQUIRE b o2 10 3 [4 10])",
                                                   {"I1"}},
                                           Written{"SmallerTokenLater",
                                                   R"(
      1 0  LEASE.ACQUIRE l o1 10 1 [5 10]
      1 2  LEASE.RELEASE l o1 5 3 OK
      2 4  LEASE.ACQUIRE l o2 10 5 [4 10])",
                                                   {"I1", "I5"}},
                                           Written{"TwoHolders",
                                                   R"(
      1 0  LEASE.ACQUIRE l o1 1000 1 [5 1000]
      2 2  LEASE.ACQUIRE l o2 1000 3 [6 1000])",
                                                   {"I2"}},
                                           Written{"TwoHoldersAfterARenewal",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 100 1 [5 100]
      1 90  LEASE.RENEW l o1 5 100 95 :100
      2 110 LEASE.ACQUIRE l o2 100 120 [6 100])",
                                                   {"I2"}},
                                           Written{"TwoHoldersBeforeARelease",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      2 5   LEASE.ACQUIRE l o2 1000 6 [6 1000]
      1 10  LEASE.RELEASE l o1 5 11 ?)",
                                                   {"I2"}},
                                           Written{"ZombieAfterAGrant",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 10 1 [5 10]
      2 20  LEASE.ACQUIRE l o2 10 21 [6 10]
      1 22  FENCE.SET k 5 late LEASE l 23 :1)",
                                                   {"I3"}},
                                           Written{"ZombieAfterAGrantWhoNamesNoLease", R"(
      1 0   LEASE.ACQUIRE l o1 10 1 [5 10]
      1 2   FENCE.SET k 5 a LEASE l 3 :1
      2 20  LEASE.ACQUIRE l o2 10 21 [6 10]
      1 22  FENCE.SET k 5 late 23 :2)"},
                                           Written{"ZombieAfterARaise",
                                                   R"(
      1 0   LEASE.ACQUIRE a o1 1000 1 [5 1000]
      2 2   LEASE.ACQUIRE b o2 1000 3 [6 1000]
      2 4   FENCE.RAISE k 6 5 $6
      1 6   FENCE.SET k 5 late 7 :1)",
                                                   {"I3"}},
                                           Written{"ZombieAfterAFencedRead",
                                                   R"(
      1 0   LEASE.ACQUIRE a o1 1000 1 [5 1000]
      2 2   LEASE.ACQUIRE b o2 1000 3 [6 1000]
      2 4   FENCE.GET k TOKEN 6 5 {_ 0 6 _}
      1 6   FENCE.DEL k 5 7 :1)",
                                                   {"I3"}},
                                           Written{"ZombieAfterARelease",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   LEASE.RELEASE l o1 5 3 OK
      1 4   FENCE.SET k 5 late LEASE l 5 :1)",
                                                   {"I3"}},
                                           Written{"ZombieAfterARevocation",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      2 2   LEASE.REVOKE l 3 $5
      1 4   FENCE.SET k 5 late LEASE l 5 :1)",
                                                   {"I3"}},
                                           Written{"ZombieSentBeforeAndAppliedAfter",
                                                   R"(
      1 0   LEASE.ACQUIRE a o1 1000 1 [5 1000]
      2 2   LEASE.ACQUIRE b o2 1000 3 [6 1000]
      1 4   FENCE.SET k 5 late 99 :2
      2 10  FENCE.SET k 6 new 11 :1
      2 20  FENCE.GET k 21 {new 1 6 _})",
                                                   {"I3"}},
                                           Written{"UnknownZombieAppliedAfter", R"(
      1 0   LEASE.ACQUIRE a o1 1000 1 [5 1000]
      2 2   LEASE.ACQUIRE b o2 1000 3 [6 1000]
      1 4   FENCE.SET k 5 late 5 ?
      2 10  FENCE.SET k 6 new 11 :1
      2 20  FENCE.GET k 21 {late 2 6 _})"},
                                           Written{"LostWrite",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.SET k 5 a LEASE l 3 :1
      2 10  FENCE.GET k 11 {_ 0 0 _})",
                                                   {"I4", "I5"}},
                                           Written{"LostWriteThatOnlyAPlainReadMisses", R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.SET k 5 a LEASE l 3 :1
      2 10  GET k 11 $_)"},
                                           Written{"LostAndWrittenOver",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.SET k 5 a LEASE l 3 :1
      1 4   FENCE.SET k 5 b LEASE l 5 :1)",
                                                   {"I4", "I5"}},
                                           Written{"AnotherValue",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.SET k 5 a LEASE l 3 :1
      1 4   FENCE.SET k 5 b LEASE l 5 :2
      2 10  FENCE.GET k 11 {a 2 5 l})",
                                                   {"I4"}},
                                           Written{"StaleRead",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.SET k 5 a LEASE l 3 :1
      1 4   FENCE.SET k 5 b LEASE l 5 :2
      2 10  FENCE.GET k 11 {a 1 5 l})",
                                                   {"I4"}},
                                           Written{"VersionBack",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.SET k 5 a LEASE l 3 ?
      1 4   FENCE.SET k 5 b LEASE l 5 ?
      2 10  FENCE.GET k 11 {a 2 5 l}
      2 12  FENCE.GET k 13 {b 1 5 l})",
                                                   {"I5"}},
                                           Written{"FenceBack",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.RAISE k 5 LEASE l 3 $5
      2 10  FENCE.GET k 11 {_ 0 0 _})",
                                                   {"I5"}},
                                           Written{"LeaseFenceBack",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 10 1 [5 10]
      2 20  LEASE.ACQUIRE l o2 10 21 [6 10]
      2 30  LEASE.INFO l 31 <5 0 0>)",
                                                   {"I5"}},
                                           Written{"RefusedAndYetSeen",
                                                   R"(
      1 0   LEASE.ACQUIRE a o1 1000 1 [5 1000]
      2 2   LEASE.ACQUIRE b o2 1000 3 [6 1000]
      2 4   FENCE.SET k 6 new 5 :1
      1 6   FENCE.SET k 5 late 7 -FENCED 6 5 stale
      2 8   FENCE.GET k 9 {late 2 6 _})",
                                                   {"I6"}},
                                           Written{"RefusedForNoReason", R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.SET k 5 a LEASE l 3 -FENCED 6 5 superseded)"},
                                           Written{"RenewedAfterItsTime", R"(
      1 0   LEASE.ACQUIRE l o1 10 1 [5 10]
      1 50  LEASE.RENEW l o1 5 10 51 :10)"},
                                           Written{"ExpiredBeforeItsTime", R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 50  LEASE.RENEW l o1 5 1000 51 -LEASELOST expired)"},
                                           Written{"LiveAfterItsTime", R"(
      1 0   LEASE.ACQUIRE l o1 10 1 [5 10]
      1 50  FENCE.SET k 5 a LEASE l LIVE 51 :1)"},
                                           Written{"HeldByNobodyAndYetRefused", R"(
      1 0   LEASE.ACQUIRE l o1 10 1 [5 10]
      2 50  LEASE.ACQUIRE l o2 10 51 _)"},
                                           Written{"AWaitThatEndedTooEarly",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 9000 1 [5 9000]
      1 1   LEASE.RELEASE l o1 5 2 OK
      2 50  LEASE.ACQUIRE l o2 10 WAIT 100 60 _)",
                                                   {"I8"}},
                                           Written{"AWaitThatEndedTwice",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 20 1 [5 20]
      2 2   LEASE.ACQUIRE l o2 1000 WAIT 10 15 _
      2 50  LEASE.RENEW l o2 6 1000 51 :1000)",
                                                   {"I8"}},
                                           Written{"AppliedTwice", R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.SET k 5 a LEASE l 3 ?
      1 4   FENCE.SET k 5 b LEASE l 5 :3)"},
                                           Written{"ARepeatedRequestThatWroteAgain",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.SET k 5 a LEASE l REQ r 3 :1
      1 4   FENCE.SET k 5 a LEASE l REQ r 5 :2)",
                                                   {"I10"}},
                                           Written{"ATokenOfNobody",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.SET k 9 a LEASE l 3 :1)",
                                                   {"I11"}},
                                           Written{"ATokenOfNobodyWithoutLeaseStorewide",
                                                   R"(
      1 2   FENCE.SET k 9 a 3 :1)",
                                                   {"I11"}},
                                           Written{"ATokenBeforeItsGrantStorewide",
                                                   R"(
      1 2   FENCE.SET k 9 a 3 :1
      2 10  LEASE.ACQUIRE l o 1000 11 [9 1000])",
                                                   {"I11"}},
                                           Written{"HalfAWriteOfManyKeys",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.MSET 5 2 a 1 b 2 LEASE l 3 ?
      2 4   FENCE.GET a 5 {1 1 5 l}
      2 6   FENCE.GET b 7 {_ 0 0 _})",
                                                   {"I12"}},
                                           Written{"HalfAWriteOfManyKeysInOneRead", R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.MSET 5 2 a 1 b 2 LEASE l 9 [:1 :1]
      2 4   MGET a b 5 [$1 $_])"},
                                           Written{"AcceptedForOneKeyAlone",
                                                   R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      2 2   LEASE.ACQUIRE m o2 1000 3 [6 1000]
      2 4   FENCE.SET b 6 x 5 :1
      1 6   FENCE.MSET 5 2 a 1 b 2 9 [:1 :2])",
                                                   {"I3"}},
                                           Written{"AnEffectBeforeItWasAsked", R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      2 2   FENCE.GET k 3 {a 1 5 l}
      1 10  FENCE.SET k 5 a LEASE l 11 ?)"},
                                           Written{"AnEffectAfterEveryCopyWasGone", R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.SET k 5 a LEASE l 3 ? until 20
      2 30  FENCE.GET k 31 {_ 0 0 _}
      2 40  FENCE.GET k 41 {a 1 5 l})"},
                                           Written{"AGuardForgotten", R"(
      1 0   LEASE.ACQUIRE l o1 1000 1 [5 1000]
      1 2   FENCE.SET k 5 a LEASE l 3 :1
      1 4   FENCE.GET k 5 {a 1 5 _})"}),
                         name_of);

TEST(WrittenHistory, IsTheSameAfterItWasKeptInAFile) {
  const auto history = written_history(R"(
      1 0   LEASE.ACQUIRE l o1 1000 WAIT 5 1 [5 1000]
      1 2   FENCE.MSET 5 2 a 1 b 2 LEASE l LIVE REQ r%1 3 [:1 :1]
      1 4   FENCE.SET a 5 x IFVER 7 ONCE 5 -VERSION 1 7
      2 4   FENCE.DEL a 5 5 ? until 20
      2 6   FENCE.GET b 7 {_ 0 0 _}
      2 6   MGET a b 7 [$1 $_]
      2 8   LEASE.INFO l 9 <5 5 998>)");

  EXPECT_EQ(history_of("# why it was kept\n" + text_of(history)), history);
}

// Correct by construction: what the embedded store in memory answered, one command after another.
TEST(GeneratedHistory, IsAcceptedHoweverItsCommandsOverlap) {
  const auto seeds = seeds_from_environment("FENCEKV_SEED", 60);
  for (const auto seed : seeds) {
    SCOPED_TRACE("FENCEKV_SEED=" + std::to_string(seed));
    const auto history = generated_history(seed, {.operations = 400});

    const auto verdict = check_linearizability(history);

    ASSERT_TRUE(verdict.is_linearizable) << verdict.why;
    ASSERT_THAT(broken_invariants(history), IsEmpty());
  }
}

TEST(GeneratedHistory, IsRefusedWithOneAnswerChanged) {
  const auto seeds = seeds_from_environment("FENCEKV_SEED", 25);
  std::size_t changed_so_far = 0;
  for (const auto seed : seeds) {
    const auto history = generated_history(seed, {.operations = 250});
    for (const auto& [what, wrong] : histories_with_one_lie(history, seed)) {
      SCOPED_TRACE(what + ", FENCEKV_SEED=" + std::to_string(seed));
      ++changed_so_far;
      const auto verdict = check_linearizability(wrong);
      // Tokens of different components are compared by the invariants.
      ASSERT_FALSE(verdict.is_linearizable && broken_invariants(wrong).empty());
      ASSERT_THAT(verdict.why, ::testing::Not(StartsWith("given up")));
    }
  }
  EXPECT_GT(changed_so_far, seeds.size());
}

TEST(GeneratedHistory, OfManyOperationsIsCheckedInSeconds) {
  const auto history =
      generated_history(1, {.operations = 40'000, .groups = 20, .clients = 16, .lost_percent = 5});
  const auto began = std::chrono::steady_clock::now();

  const auto verdict = check_linearizability(history);
  const auto broken = broken_invariants(history);

  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_TRUE(verdict.is_linearizable) << verdict.why;
  EXPECT_THAT(broken, IsEmpty());
  std::cout << history.size() << " operations, " << verdict.components
            << " components, the largest " << verdict.largest_component << ", "
            << verdict.most_configurations << " configurations at most: " << took.count() << " s"
            << std::endl;
}

}  // namespace
}  // namespace fencekv::testing
