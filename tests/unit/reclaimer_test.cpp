// SPDX-License-Identifier: Apache-2.0
/// What is of no use any more goes, and nothing that anybody may still come back to.

#include "engine/core/lease.h"
#include "engine/core/make_store.h"
#include "engine/memory/memory_backend.h"
#include "tests/support/manual_clock.h"
#include "tests/support/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kDay = std::chrono::hours(24);

template <class T>
std::string line_of(const Result<T>& result) {
  return result ? "OK" : result.error().line();
}

class Reclaiming : public ::testing::Test {
 protected:
  Reclaiming() {
    options_.clock = clock_;
    options_.reclaim_interval = {};
    restart();
  }

  void restart() {
    store_.reset();
    auto opened = core::make_store(
        std::make_unique<memory::MemoryBackend>(disk_, options_.durability, clock_->boot_id()),
        options_);
    ASSERT_TRUE(opened) << line_of(opened);
    store_ = *std::move(opened);
  }
  Token take(const std::string& name, const std::string& owner, AcquireOptions options = {}) {
    const auto grant = store_->acquire(name, owner, 10s, std::move(options));
    EXPECT_TRUE(grant && *grant) << name << ": " << line_of(grant);
    return grant && *grant ? (*grant)->token : Token();
  }
  void give_back(const std::string& name, const std::string& owner, Token token) {
    EXPECT_TRUE(store_->release(name, owner, token));
  }
  Reclaimed reclaim() {
    const auto reclaimed = store_->reclaim();
    EXPECT_TRUE(reclaimed) << line_of(reclaimed);
    return reclaimed ? *reclaimed : Reclaimed{};
  }

  const std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  const std::shared_ptr<memory::MemoryDisk> disk_ = std::make_shared<memory::MemoryDisk>();
  Options options_;
  std::unique_ptr<Store> store_;
};

// Reported of stores whose side records were never removed (L1, L2).
TEST_F(Reclaiming, AChurnOfNamesLeavesNothingOnceItIsOldEnough) {
  for (int i = 0; i < 1'000; ++i) {
    const auto name = "job-" + std::to_string(i);
    give_back(name, "me", take(name, "me"));
  }
  const auto token = take("writer", "me");
  ASSERT_TRUE(store_->set("kept", "v", token, {.lease = "writer"}));
  for (int i = 0; i < 300; ++i) {
    const auto key = "gone-" + std::to_string(i);
    ASSERT_TRUE(store_->set(key, "v", token, {.lease = "writer"}));
    ASSERT_TRUE(store_->remove(key, token, {.lease = "writer"}));
  }
  give_back("writer", "me", token);

  EXPECT_EQ(reclaim().lease_names, 0U) << "a holder may still come back";
  clock_->advance(8 * kDay);
  const auto last = take("last", "me");
  const auto reclaimed = reclaim();
  EXPECT_EQ(reclaimed, (Reclaimed{.tombstones = 300, .lease_names = 1'001, .floor = last}));
  EXPECT_EQ(store_->stats().tombstones, 0U);
  EXPECT_EQ(store_->stats().lease_names, 1U);
  EXPECT_EQ(store_->stats().live_keys, 1U);
  EXPECT_EQ(disk_->records.size(), 5U) << "a key, a lease, and the three small records";

  // What is gone is below the floor, and stays so over a restart.
  restart();
  EXPECT_EQ(
      line_of(store_->set("gone-7", "late", token)),
      "FENCED " + std::to_string(last.number()) + " " + std::to_string(token.number()) + " floor");
  EXPECT_EQ(line_of(store_->renew("job-7", "me", Token{7}, 1s)), "LEASELOST unknown");
  EXPECT_TRUE(store_->renew("last", "me", last, 1s));
  EXPECT_EQ(*store_->get("kept"), "v");
}

TEST_F(Reclaiming, ALeaseThatIsRenewedForWeeksKeepsItsToken) {
  const auto held = store_->acquire("long", "me", 7 * kDay);
  const auto reader = store_->acquire("readers", "r1", 7 * kDay, {.mode = LeaseMode::shared});
  ASSERT_TRUE(held && *held && reader && *reader);
  const auto second = store_->acquire("readers", "r2", 7 * kDay, {.mode = LeaseMode::shared});
  ASSERT_TRUE(second && *second);
  for (int week = 0; week < 5; ++week) {
    clock_->advance(6 * kDay);
    ASSERT_TRUE(store_->renew("long", "me", (*held)->token, 7 * kDay));
    ASSERT_TRUE(store_->renew("readers", "r1", (*reader)->token, 7 * kDay));
    ASSERT_TRUE(store_->renew("readers", "r2", (*second)->token, 7 * kDay));
    EXPECT_EQ(reclaim().floor, (*held)->token);
  }
  EXPECT_TRUE(store_->set("key", "v", (*held)->token, {.lease = "long"}));

  give_back("long", "me", (*held)->token);
  clock_->advance(20 * kDay);
  EXPECT_EQ(reclaim().floor, (*second)->token) << "the readers are over, nobody came after them";
}

TEST_F(Reclaiming, WhoMadeRoomLatelyIsStillToldThatANewerOneCame) {
  const auto slow = store_->acquire("job", "slow", 7 * kDay);
  ASSERT_TRUE(slow && *slow);
  clock_->advance(6 * kDay);
  for (int i = 0; i < 50; ++i) give_back("other", "me", take("other", "me"));
  clock_->advance(2 * kDay);
  const auto next = take("job", "next");

  // It ended a day ago, and is not the newest of its name any more.
  clock_->advance(1 * kDay);
  EXPECT_LE(reclaim().floor, (*slow)->token);
  EXPECT_THAT(line_of(store_->set("key", "late", (*slow)->token, {.lease = "job"})),
              HasSubstr("superseded"));

  // Its memory fades, though the name goes on being used.
  for (int day = 0; day < 30; ++day) {
    clock_->advance(1 * kDay);
    take("job", "day " + std::to_string(day));
  }
  EXPECT_GT(reclaim().floor, next);
  EXPECT_THAT(line_of(store_->set("key", "late", (*slow)->token, {.lease = "job"})),
              HasSubstr("floor"));
}

TEST_F(Reclaiming, AfterARebootNobodyIsTakenForOlderThanTheMachineIsUp) {
  give_back("job", "me", take("job", "me"));
  take("newer", "me");
  store_.reset();
  clock_->reboot(1h);
  restart();
  clock_->advance(6 * kDay);
  EXPECT_EQ(reclaim().lease_names, 0U);
  clock_->advance(2 * kDay);
  EXPECT_EQ(reclaim().lease_names, 1U) << "the newest token is kept";
}

TEST_F(Reclaiming, ANameThatSomebodyWatchesStays) {
  give_back("watched", "me", take("watched", "me"));
  clock_->advance(8 * kDay);
  take("newer", "me");
  const Session session(*store_);
  ASSERT_TRUE(store_->execute(Watch{{"watched"}}, {.name = nullptr, .session = session.id()}));
  EXPECT_EQ(reclaim().lease_names, 0U);
}

TEST_F(Reclaiming, IsRefusedWhereTokensComeFromElsewhere) {
  options_.unguarded_tokens = UnguardedTokens::any;
  restart();
  EXPECT_THAT(line_of(store_->reclaim()), StartsWith("ERR with tokens of an external"));
}

TEST_F(Reclaiming, ADamagedLeaseIsNoReasonToLiftTheFloor) {
  take("job", "me");
  disk_->records["ljob"].back() ^= 1;
  clock_->advance(30 * kDay);
  restart();
  EXPECT_THAT(line_of(store_->reclaim()), StartsWith("CORRUPT"));
  EXPECT_TRUE(store_->stats().floor.is_none());
}

TEST_F(Reclaiming, GoesOnByItselfAndBesideEverybody) {
  give_back("job", "me", take("job", "me"));
  clock_->advance(8 * kDay);
  take("newer", "me");
  options_.reclaim_interval = 10ms;
  std::atomic<int> lines = 0;
  options_.log = [&](LogLevel, std::string_view line) {
    if (line.starts_with("reclaimed 0 tombstones and 1 lease names")) ++lines;
  };
  restart();
  std::thread writer([this] {
    for (int i = 0; i < 200; ++i) give_back("busy", "me", take("busy", "me"));
  });
  for (int i = 0; i < 2000 && lines == 0; ++i) std::this_thread::sleep_for(10ms);
  writer.join();
  EXPECT_EQ(lines, 1);
  store_.reset();
}

}  // namespace
}  // namespace fencekv::testing
