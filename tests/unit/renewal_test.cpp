// SPDX-License-Identifier: Apache-2.0
// The rules of a lease's time, by hand: time is a number, and nothing is sent.
#include "client/renewal.h"

#include "client/renewal_plan.h"
#include "tests/support/seed_from_environment.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

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

// ---- Many -------------------------------------------------------------------------------------

RenewalPlan plan_of(std::size_t leases, RenewalPlan::Time apart = 0ns) {
  RenewalPlan plan;
  for (std::size_t i = 0; i < leases; ++i) {
    plan.add(i + 1, {kSent + static_cast<std::int64_t>(i) * apart, kTtl, kTtl});
  }
  return plan;
}

std::size_t leases_in(const RenewalPlan::Steps& steps) {
  std::size_t count = 0;
  for (const auto& batch : steps.batches) count += batch.ids.size();
  return count;
}

TEST(RenewalPlan, SleepsUntilTheFirstIsDue) {
  auto plan = plan_of(3, 100ms);

  const auto steps = plan.next(kSent);

  EXPECT_TRUE(steps.batches.empty());
  EXPECT_TRUE(steps.lost.empty());
  EXPECT_EQ(steps.next, kSent + 300ms);
  EXPECT_EQ(RenewalPlan().next(kSent).next, std::nullopt) << "nothing to do, ever";
}

TEST(RenewalPlan, TakesThoseAlongThatAreDueSoon) {
  auto plan = plan_of(5, 50ms);  // due at 300, 350, 400, 450, 500 ms; a sixth of the ttl is 150 ms

  const auto steps = plan.next(kSent + 300ms);

  ASSERT_EQ(steps.batches.size(), 1U);
  EXPECT_EQ(steps.batches[0].ids, (std::vector<RenewalPlan::Id>{1, 2, 3, 4}));
  EXPECT_EQ(steps.batches[0].ttl, kTtl);
  EXPECT_EQ(steps.batches[0].until, kSent + 600ms);
  EXPECT_EQ(steps.next, kSent + 500ms);
}

TEST(RenewalPlan, FillsRequestsUpToTheirLimit) {
  auto plan = plan_of(2 * RenewalPlan::kBatch + 5);

  const auto steps = plan.next(kSent + 300ms);

  ASSERT_EQ(steps.batches.size(), 3U);
  EXPECT_EQ(steps.batches[0].ids.size(), RenewalPlan::kBatch);
  EXPECT_EQ(steps.batches[2].ids.size(), 5U);
  EXPECT_EQ(leases_in(plan.next(kSent + 301ms)), 0U) << "one renewal at a time for each";
}

TEST(RenewalPlan, AsksForOneTtlInOneRequest) {
  RenewalPlan plan;
  plan.add(1, {kSent, 900ms, 900ms});
  plan.add(2, {kSent, 1200ms, 1200ms});
  plan.add(3, {kSent, 900ms, 900ms});

  const auto steps = plan.next(kSent + 400ms);

  ASSERT_EQ(steps.batches.size(), 2U);
  EXPECT_EQ(steps.batches[0].ids, (std::vector<RenewalPlan::Id>{1, 3}));
  EXPECT_EQ(steps.batches[1].ids, (std::vector<RenewalPlan::Id>{2}));
}

TEST(RenewalPlan, GivesUpARequestWhenTheFirstOfItIsOver) {
  RenewalPlan plan;
  plan.add(1, {kSent, kTtl, kTtl});
  plan.add(2, {kSent, kTtl, 400ms});  // the server said that less is left

  const auto steps = plan.next(kSent + 300ms);

  ASSERT_EQ(steps.batches.size(), 1U);
  EXPECT_EQ(steps.batches[0].until, kSent + 400ms);
}

TEST(RenewalPlan, LosesOnlyTheLeaseThatTheServerNames) {
  auto plan = plan_of(3);
  const auto asked = kSent + 300ms;
  ASSERT_EQ(leases_in(plan.next(asked)), 3U);

  EXPECT_EQ(plan.acknowledged(1, asked + 1ms, kTtl), asked + kTtl);
  plan.failed(2, asked + 1ms, lost("revoked"));
  plan.failed(3, asked + 1ms, Error(Errc::overloaded, "later"));
  const auto steps = plan.next(asked + 1ms);

  EXPECT_EQ(steps.lost,
            (std::vector<std::pair<RenewalPlan::Id, LossReason>>{{2, LossReason::revoked}}));
  EXPECT_EQ(plan.size(), 2U);
  EXPECT_EQ(steps.next, asked + 1ms + 75ms) << "the third is tried again";
  EXPECT_EQ(plan.acknowledged(2, asked + 2ms, kTtl), std::nullopt) << "lost is lost";
}

TEST(RenewalPlan, LosesAllThatAreNotAcknowledgedInTime) {
  auto plan = plan_of(2000);
  ASSERT_EQ(leases_in(plan.next(kSent + 300ms)), 2000U);

  const auto before = plan.next(kSent + kTtl - 1ns);
  const auto after = plan.next(kSent + kTtl);

  EXPECT_TRUE(before.lost.empty());
  ASSERT_EQ(after.lost.size(), 2000U);
  EXPECT_EQ(after.lost[0].second, LossReason::deadline);
  EXPECT_EQ(after.next, std::nullopt);
  EXPECT_TRUE(plan.empty());
}

TEST(RenewalPlan, ForgetsWhatIsRemoved) {
  auto plan = plan_of(3);
  plan.remove(1);
  ASSERT_EQ(leases_in(plan.next(kSent + 300ms)), 2U);

  plan.remove(2);
  plan.remove(2);
  plan.failed(2, kSent + 310ms, Error(Errc::overloaded, "later"));

  EXPECT_EQ(leases_in(plan.next(kSent + 899ms)), 0U);
  EXPECT_EQ(plan.next(kSent + kTtl).lost.size(), 1U);
}

TEST(RenewalPlan, NeedsFewRequestsForLeasesOfAllAges) {
  // 3,000 leases acquired one after the other over a whole ttl, and kept for twenty.
  auto plan = plan_of(3000, kTtl / 3000);
  std::size_t requests = 0;
  std::size_t renewals = 0;
  auto now = kSent;
  while (now < kSent + 20 * kTtl) {
    const auto steps = plan.next(now);
    ASSERT_TRUE(steps.lost.empty());
    for (const auto& batch : steps.batches) {
      ++requests;
      renewals += batch.ids.size();
      for (const auto id : batch.ids) ASSERT_TRUE(plan.acknowledged(id, now, kTtl));
    }
    now = plan.next(now).next.value_or(now);
  }

  // At least one request per third and 1,024 leases is needed.
  EXPECT_LT(requests, 60U * 8U);
  EXPECT_LT(renewals, 60U * 3000U * 3U) << "going along is not free either";
}

TEST(RenewalPlan, TreatsEachLeaseAsIfItWereAlone) {
  const auto seed = static_cast<unsigned>(testing::seed_from_environment("FENCEKV_SEED"));
  SCOPED_TRACE("FENCEKV_SEED=" + std::to_string(seed));
  std::minstd_rand random(seed);
  RenewalPlan plan;
  std::map<RenewalPlan::Id, RenewalPlan::Time> deadlines;
  std::set<RenewalPlan::Id> asked;
  std::map<RenewalPlan::Id, RenewalPlan::Time> asked_at;
  RenewalPlan::Id last = 0;
  auto now = kSent;

  for (int step = 0; step < 20'000; ++step) {
    now += std::chrono::microseconds(random() % 20'000);
    const auto steps = plan.next(now);
    for (const auto& [id, reason] : steps.lost) {
      ASSERT_EQ(reason, LossReason::deadline);
      ASSERT_LE(deadlines.at(id), now);
      deadlines.erase(id);
      asked.erase(id);
    }
    for (const auto& [id, deadline] : deadlines) ASSERT_GT(deadline, now) << "not told";
    for (const auto& batch : steps.batches) {
      ASSERT_LE(batch.ids.size(), RenewalPlan::kBatch);
      for (const auto id : batch.ids) {
        ASSERT_TRUE(asked.insert(id).second) << "asked twice at a time";
        asked_at[id] = now;
      }
    }
    ASSERT_GT(steps.next.value_or(now + 1ns), now);

    // Answers, failures, new leases, releases.
    for (auto it = asked.begin(); it != asked.end();) {
      const auto id = *it;
      const auto what = random() % 4;
      if (what == 0) {
        ASSERT_EQ(plan.acknowledged(id, now, kTtl), asked_at[id] + kTtl);
        deadlines[id] = asked_at[id] + kTtl;
      } else if (what == 1) {
        plan.failed(id, now, Error(Errc::unreachable, "x"));
      }
      it = what < 2 ? asked.erase(it) : std::next(it);
    }
    if (random() % 4 == 0) {
      plan.add(++last, {now, kTtl, kTtl});
      deadlines[last] = now + kTtl;
    }
    if (random() % 8 == 0 && !deadlines.empty()) {
      const auto id = deadlines.begin()->first;
      plan.remove(id);
      deadlines.erase(id);
      asked.erase(id);
    }
    ASSERT_EQ(plan.size(), deadlines.size());
  }
}

}  // namespace
}  // namespace fencekv
