// SPDX-License-Identifier: Apache-2.0
/// A storage call that does not come back: it is seen, nothing is answered meanwhile, and what was
/// asked is decided by the time that it is when it comes back (engine/SEMANTICS.md, 4.10).

#include "tests/unit/committer_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace fencekv::testing {
namespace {

using ::testing::StartsWith;

class Stalled : public CommitterTest {
 protected:
  static bool soon(const std::function<bool()>& holds) {
    for (int i = 0; i < 2000 && !holds(); ++i) std::this_thread::sleep_for(5ms);
    return holds();
  }
  Renew renewal(Token token) { return {.name = "job", .owner = "me", .token = token, .ttl = 10s}; }
};

TEST_F(Stalled, TheCallInFlightIsSeenWithItsAge) {
  store();
  EXPECT_TRUE(soon([this] { return store().in_flight() == 0ms; }));

  collect_a_group();

  EXPECT_TRUE(soon([this] { return store().in_flight() >= 50ms; }));
  EXPECT_GE(store().stats().in_flight, 50ms);
  const auto older = store().in_flight() + 20ms;
  EXPECT_TRUE(soon([&] { return store().in_flight() >= older; }));
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(1));
  EXPECT_TRUE(soon([this] { return store().in_flight() == 0ms; }));
}

// Reported of a node that was stuck in fdatasync and then renewed from what it remembered.
TEST_F(Stalled, NothingIsRenewedFromMemoryAndExpiryIsLookedAtAnew) {
  const auto grant = store().acquire("job", "me", 10s);
  ASSERT_TRUE(grant && *grant) << line_of(grant);
  const auto token = (*grant)->token;
  collect_a_group();
  submit("renew", renewal(token));
  auto live = write_of("live", "v", token);
  live.lease = "job";
  live.live = true;
  submit("live", live);
  auto fenced = write_of("fenced", "v", token);
  fenced.lease = "job";
  submit("fenced", fenced);

  // Three times its ttl.
  clock_->advance(30s);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(answers_.size(), 0U);
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(4));

  EXPECT_EQ(answers_.line("renew"), "LEASELOST expired");
  EXPECT_THAT(answers_.line("live"), StartsWith("EXPIRED"));
  // Nobody else came: fencing alone lets it in.
  EXPECT_EQ(answers_.line("fenced"), "OK");
}

TEST_F(Stalled, WhoWaitedIsGrantedBeforeAnythingQueuedIsAnswered) {
  const auto grant = store().acquire("job", "me", 10s);
  ASSERT_TRUE(grant && *grant) << line_of(grant);
  const auto token = (*grant)->token;
  auto next = acquire_of("job");
  next.owner = "next";
  next.wait = 24h;
  submit("next", next);
  collect_a_group();
  submit("renew", renewal(token));
  auto late = write_of("key", "late", token);
  late.lease = "job";
  submit("late", late);

  clock_->advance(30s);
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(4));

  const auto granted = answers_.reply<Acquire>("next");
  ASSERT_TRUE(granted.has_value());
  // Its time counts from the grant, which is now.
  EXPECT_EQ(granted->remaining, 10s);
  EXPECT_EQ(answers_.line("renew"), "LEASELOST superseded");
  EXPECT_THAT(answers_.line("late"), StartsWith("FENCED"));
  EXPECT_EQ(value_of("key"), std::nullopt);
}

}  // namespace
}  // namespace fencekv::testing
