// SPDX-License-Identifier: Apache-2.0
// The rules of a lease's time, by hand: time is a number, and nothing is sent.
#include "client/renewal.h"

#include <gtest/gtest.h>

#include <string>

namespace fencekv {
namespace {

using namespace std::chrono_literals;
using Kind = Renewal::Step::Kind;

// The ttl is 900 ms, so a third is 300 ms; the grant was asked for at 1000 ms.
constexpr auto kTtl = 900ms;
constexpr Renewal::Time kSent = 1000ms;

Renewal granted(std::chrono::milliseconds remaining = kTtl) {
  return {kSent, kTtl, remaining};
}

Error lost(std::string_view reason) {
  return Error::lease_lost(reason);
}

TEST(Renewal, CountsFromBeforeTheRequestWasSent) {
  const auto renewal = granted();

  EXPECT_EQ(renewal.deadline(), kSent + kTtl);
  EXPECT_TRUE(renewal.held(kSent + kTtl - 1ns));
  EXPECT_FALSE(renewal.held(kSent + kTtl)) << "over means now >= deadline, as on the server";
}

TEST(Renewal, BelievesTheServerWhenLessTimeIsLeftThanWasAskedFor) {
  EXPECT_EQ(granted(100ms).deadline(), kSent + 100ms);
}

TEST(Renewal, NeverBelievesThatMoreTimeIsLeftThanWasAskedFor) {
  EXPECT_EQ(granted(5000ms).deadline(), kSent + kTtl);
}

TEST(Renewal, IsNotHeldIfTheGrantArrivesTooLate) {
  EXPECT_FALSE(granted().held(kSent + kTtl + 1ms));
  EXPECT_FALSE(granted(0ms).held(kSent));
}

TEST(Renewal, RenewsAfterAThirdOfTheTime) {
  auto renewal = granted();

  const auto early = renewal.next(kSent + 299ms);
  const auto due = renewal.next(kSent + 300ms);
  const auto meanwhile = renewal.next(kSent + 301ms);

  EXPECT_EQ(early.kind, Kind::wait);
  EXPECT_EQ(early.until, kSent + 300ms);
  EXPECT_EQ(due.kind, Kind::renew);
  EXPECT_EQ(due.until, kSent + 600ms) << "a hanging request leaves time for another";
  EXPECT_EQ(meanwhile.kind, Kind::wait) << "one at a time";
  EXPECT_EQ(meanwhile.until, renewal.deadline());
}

TEST(Renewal, MovesTheDeadlineToCountFromWhenTheRenewalWasSent) {
  auto renewal = granted();
  ASSERT_EQ(renewal.next(kSent + 300ms).kind, Kind::renew);

  renewal.acknowledged(kSent + 500ms, kTtl);

  EXPECT_EQ(renewal.deadline(), kSent + 300ms + kTtl);
  EXPECT_EQ(renewal.next(kSent + 599ms).kind, Kind::wait);
  EXPECT_EQ(renewal.next(kSent + 600ms).kind, Kind::renew);
}

TEST(Renewal, MovesTheDeadlineOnlyWhenARenewalIsAcknowledged) {
  auto renewal = granted();
  const auto before = renewal.deadline();
  ASSERT_EQ(renewal.next(kSent + 300ms).kind, Kind::renew);
  EXPECT_EQ(renewal.deadline(), before);

  renewal.failed(kSent + 310ms, Error(Errc::in_doubt, "no answer"));

  EXPECT_EQ(renewal.deadline(), before);
}

TEST(Renewal, TriesAgainAfterEveryErrorThatIsNotTheServersWord) {
  for (const auto code :
       {Errc::invalid, Errc::too_big, Errc::overloaded, Errc::in_doubt, Errc::misconf,
        Errc::corrupt, Errc::unreachable, Errc::denied, Errc::protocol, Errc::fenced}) {
    auto renewal = granted();
    ASSERT_EQ(renewal.next(kSent + 300ms).kind, Kind::renew);

    renewal.failed(kSent + 310ms, Error(code, "x"));

    const auto pause = renewal.next(kSent + 310ms);
    EXPECT_EQ(pause.kind, Kind::wait) << to_string(code);
    EXPECT_EQ(pause.until, kSent + 310ms + 75ms) << to_string(code);
    EXPECT_EQ(renewal.next(pause.until).kind, Kind::renew) << to_string(code);
  }
}

TEST(Renewal, SurvivesAnOutageOfMostOfTheTime) {
  auto renewal = granted();
  auto now = kSent + 300ms;
  int attempts = 0;
  for (; now < kSent + 800ms; ++attempts) {
    ASSERT_EQ(renewal.next(now).kind, Kind::renew);
    renewal.failed(now, Error(Errc::unreachable, "x"));
    now = renewal.next(now).until;
  }
  ASSERT_GT(attempts, 5);
  ASSERT_EQ(renewal.next(now).kind, Kind::renew);

  renewal.acknowledged(now + 1ms, kTtl);

  EXPECT_EQ(renewal.deadline(), now + kTtl);
  EXPECT_EQ(renewal.loss(), std::nullopt);
}

TEST(Renewal, IsLostAtTheDeadlineWhateverIsUnderWay) {
  auto renewal = granted();
  ASSERT_EQ(renewal.next(kSent + 300ms).kind, Kind::renew);

  const auto last = renewal.next(kSent + kTtl - 1ns);
  const auto over = renewal.next(kSent + kTtl);

  EXPECT_EQ(last.kind, Kind::wait);
  EXPECT_EQ(last.until, kSent + kTtl);
  EXPECT_EQ(over.kind, Kind::lost);
  EXPECT_EQ(renewal.loss(), LossReason::deadline);
}

TEST(Renewal, WaitsForNothingBeyondTheDeadline) {
  auto renewal = granted(310ms);
  ASSERT_EQ(renewal.next(kSent + 300ms).until, kSent + 310ms);

  renewal.failed(kSent + 305ms, Error(Errc::unreachable, "x"));

  EXPECT_EQ(renewal.next(kSent + 305ms).until, kSent + 310ms);
}

TEST(Renewal, IsLostAtOnceByTheServersWord) {
  const std::vector<std::pair<std::string, LossReason>> words = {
      {"expired", LossReason::expired},           {"superseded", LossReason::superseded},
      {"released", LossReason::released},         {"revoked", LossReason::revoked},
      {"disconnected", LossReason::disconnected}, {"unknown", LossReason::unknown},
      {"deadline", LossReason::unknown},          {"something newer", LossReason::unknown}};
  for (const auto& [word, reason] : words) {
    auto renewal = granted();
    ASSERT_EQ(renewal.next(kSent + 300ms).kind, Kind::renew);

    renewal.failed(kSent + 301ms, lost(word));

    EXPECT_EQ(renewal.next(kSent + 301ms).kind, Kind::lost) << word;
    EXPECT_EQ(renewal.loss(), reason) << word;
    EXPECT_FALSE(renewal.held(kSent + 301ms)) << word;
  }
}

TEST(Renewal, StaysLostWhenAnAcknowledgementComesLate) {
  auto renewal = granted();
  ASSERT_EQ(renewal.next(kSent + 899ms).kind, Kind::renew);

  renewal.acknowledged(kSent + 900ms, kTtl);

  EXPECT_EQ(renewal.loss(), LossReason::deadline);
  EXPECT_FALSE(renewal.held(kSent + 901ms)) << "the server holds it, the program was told to stop";
  EXPECT_EQ(renewal.next(kSent + 902ms).kind, Kind::lost);
}

TEST(Renewal, KeepsTheFirstReason) {
  auto renewal = granted();
  ASSERT_EQ(renewal.next(kSent + 300ms).kind, Kind::renew);
  renewal.failed(kSent + 301ms, lost("revoked"));

  renewal.failed(kSent + 302ms, lost("superseded"));
  static_cast<void>(renewal.next(kSent + kTtl));

  EXPECT_EQ(renewal.loss(), LossReason::revoked);
}

TEST(Renewal, TakesNoAnswerForARenewalThatWasNotSent) {
  auto renewal = granted();

  renewal.acknowledged(kSent + 10ms, kTtl);
  renewal.failed(kSent + 10ms, lost("revoked"));

  EXPECT_EQ(renewal.deadline(), kSent + kTtl);
  EXPECT_EQ(renewal.loss(), std::nullopt);
}

TEST(LossReason, HasAWordForEach) {
  EXPECT_EQ(to_string(LossReason::deadline), "deadline");
  EXPECT_EQ(to_string(LossReason::superseded), "superseded");
}

}  // namespace
}  // namespace fencekv
