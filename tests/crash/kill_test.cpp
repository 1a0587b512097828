// SPDX-License-Identifier: Apache-2.0
/// A process that is killed at any moment loses nothing that it acknowledged.
///
/// FENCEKV_CRASH_SEED chooses the moments (it is printed), FENCEKV_CRASH_KILLS how many there are.
/// For hours: tools/soak/kill.sh. After a kill the page cache survives: loss of power is another
/// test's (tests/simulation), on a disk that forgets what was not synced.

#include "tests/crash/crash_store.h"
#include "tests/support/acknowledgement_log.h"
#include "tests/support/child_process.h"
#include "tests/support/seed_from_environment.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kThreads = 4;

using Told = AcknowledgementLog;

/// One thread of a worker: it takes a lease, and writes and deletes pairs of keys under it.
void work(Store& store, int out, int thread, unsigned seed) {
  std::mt19937 random(seed);
  const auto name = "lease-" + std::to_string(thread);
  while (true) {
    const auto owner = new_owner();
    const auto grant = store.acquire(name, owner, 1h);
    if (!grant || !*grant) _exit(21);
    const auto token = (*grant)->token;
    say(out, "token " + std::to_string(token.number()) + "\n");

    for (int i = 0; i < 20; ++i) {
      // Both keys in one command: all or nothing.
      const auto pair = std::to_string(thread) + "." + std::to_string(random() % 8);
      const bool deletes = random() % 5 == 0;
      const auto value =
          deletes ? "-" : std::string(1 + random() % 300, static_cast<char>('a' + random() % 26));
      const auto before = state_of(store, "left-" + pair);
      if (!before) _exit(22);
      const auto version = before->version + 1;

      Write write;
      write.token = token;
      write.lease = name;
      std::string tried;
      std::string acknowledged;
      for (const auto& key : {"left-" + pair, "right-" + pair}) {
        write.entries.push_back(
            {.key = key, .value = deletes ? std::nullopt : std::optional(value)});
        const auto line = key + " " + std::to_string(token.number()) + " " +
                          std::to_string(version) + " " + value + "\n";
        tried += "try " + line;
        acknowledged += "ack " + line;
      }
      say(out, tried);
      const auto reply = store.execute(std::move(write));
      if (!reply) _exit(23);
      if (*reply != Write::Reply{version, version}) _exit(24);
      say(out, acknowledged);
    }
    if (!store.release(name, owner, token)) _exit(25);
  }
}

/// Runs workers until they are killed, `after` they were started or, if `at_work`, began to write.
/// Returns what they said.
std::string kill_workers(const std::filesystem::path& path, const Options& options, unsigned seed,
                         bool at_work, std::chrono::microseconds after) {
  ChildProcess child([&](int out) {
    auto store = open_rocksdb(path, options);
    if (!store) {
      say(out, "cannot open: " + store.error().line() + "\n");
      return 20;
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back(work, std::ref(**store), out, i, seed + static_cast<unsigned>(i));
    }
    for (auto& thread : threads) thread.join();
    return 0;
  });
  auto said = at_work ? child.read_some() : "";
  std::thread killer([&] {
    std::this_thread::sleep_for(after);
    child.kill(SIGKILL);
  });
  said += child.read_all();
  killer.join();
  EXPECT_EQ(child.wait(), "signal 9") << said.substr(0, 300);
  return said;
}

/// Opens what the killed ones left, and looks at every key. Says `ack` for each that is there, and
/// `token` for the one that it drew.
void inspect(const std::filesystem::path& path, const Options& options, const Told& told, int out) {
  auto opened = open_rocksdb(path, options);
  ASSERT_TRUE(opened.has_value()) << line_of(opened);
  auto& store = **opened;

  std::uint64_t live = 0;
  std::uint64_t dead = 0;
  for (const auto& key : told.keys()) {
    const auto state = state_of(store, key);
    ASSERT_TRUE(state.has_value()) << line_of(state);
    const Told::Version found{.token = state->fence.number(),
                              .version = state->version,
                              .value = state->value.value_or("-")};
    // What was acknowledged is there; what was in flight is there in full or not at all.
    const auto acknowledged = told.acknowledged.find(key);
    const auto tried = told.tried.find(key);
    const bool as_acknowledged = acknowledged == told.acknowledged.end()
                                     ? *state == KeyState{}
                                     : found == acknowledged->second;
    const bool as_tried = tried != told.tried.end() && found == tried->second;
    ASSERT_TRUE(as_acknowledged || as_tried)
        << key << " has token " << found.token << ", version " << found.version;

    // The two halves of one command are never apart.
    const auto dash = key.find('-');
    const auto other =
        state_of(store, (key.starts_with("left") ? "right" : "left") + key.substr(dash));
    ASSERT_TRUE(other.has_value());
    EXPECT_EQ(*other, *state) << key;

    if (state->fence.is_none()) continue;
    ++(state->value ? live : dead);
    say(out, "ack " + key + " " + std::to_string(found.token) + " " +
                 std::to_string(found.version) + " " + found.value + "\n");
  }
  expect_counters_equal_a_count(store, live);
  EXPECT_EQ(store.stats().tombstones, dead);

  // A token that is drawn now is newer than every one before.
  const auto grant = store.acquire("checker", new_owner(), 1s);
  ASSERT_TRUE(grant && *grant) << line_of(grant);
  const std::uint64_t newest = told.tokens.empty() ? 0 : told.tokens.back();
  EXPECT_GT((*grant)->token.number(), newest);
  say(out, "token " + std::to_string((*grant)->token.number()) + "\n");
  for (int i = 0; i < kThreads; ++i) {
    const auto revoked = store.execute(Revoke{.name = "lease-" + std::to_string(i)});
    EXPECT_TRUE(revoked.has_value() || revoked.error().code() == Errc::lease_lost);
  }
  EXPECT_TRUE(store.execute(Revoke{.name = "checker"}).has_value());
}

class Kill : public ::testing::TestWithParam<Durability> {};

TEST_P(Kill, LosesNothingThatWasAcknowledged) {
  const auto seed = seed_from_environment("FENCEKV_CRASH_SEED");
  const auto kills =
      std::max(number_from_environment("FENCEKV_CRASH_KILLS").value_or(20) / 2, std::uint64_t{1});
  std::cout << "FENCEKV_CRASH_SEED=" << seed << std::endl;
  std::mt19937 random(static_cast<unsigned>(seed));
  const TemporaryDirectory directory;
  const auto path = directory.path() / "store";
  const Options options{.durability = GetParam()};

  Told told;
  for (std::uint64_t round = 0; round < kills && !HasFailure(); ++round) {
    SCOPED_TRACE("kill " + std::to_string(round));
    // Sometimes while the store is still opening, sometimes well into the work.
    const bool at_work = round % 3 != 2;
    const std::chrono::microseconds after(random() % 150'000);
    const auto newest = told.tokens.empty() ? 0 : told.tokens.back();
    told.tokens.clear();
    const auto child_seed = static_cast<unsigned>(random());
    told.hear_all(kill_workers(path, options, child_seed, at_work, after));

    // Tokens only grow, over all lives, and none comes twice.
    std::sort(told.tokens.begin(), told.tokens.end());
    EXPECT_EQ(std::adjacent_find(told.tokens.begin(), told.tokens.end()), told.tokens.end());
    if (told.tokens.empty()) told.tokens.push_back(newest);
    EXPECT_GE(told.tokens.front(), newest);

    const auto found = in_child([&](int out) { inspect(path, options, told, out); });
    told.tried.clear();
    told.hear_all(found);
  }
  // A test that never saw an acknowledged write would prove nothing.
  EXPECT_GT(told.acks, 0);
  std::cout << told.acks << " acknowledged or found, " << kills << " kills" << std::endl;
}

INSTANTIATE_TEST_SUITE_P(Durabilities, Kill,
                         ::testing::Values(Durability::sync, Durability::process),
                         [](const auto& entry) {
                           return entry.param == Durability::sync ? "sync" : "process";
                         });

TEST(KilledHolder, LeavesTheDirectoryToTheNext) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "store";
  ChildProcess child([&](int out) {
    const auto store = open_rocksdb(path, {});
    say(out, store ? "open" : store.error().line());
    pause();
    return 0;
  });
  ASSERT_EQ(child.read_some(), "open");

  in_child([&](int) {
    const auto second = open_rocksdb(path, {});
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code(), Errc::in_use);
    EXPECT_THAT(second.error().detail(), HasSubstr("process " + std::to_string(child.id())));
  });

  child.kill(SIGKILL);
  EXPECT_EQ(child.wait(), "signal 9");
  in_child([&](int) { EXPECT_EQ(line_of(open_rocksdb(path, {})), "OK"); });
}

TEST(KilledCreation, IsMadeAnewWhateverItLeft) {
  const auto seed = seed_from_environment("FENCEKV_CRASH_SEED");
  std::cout << "FENCEKV_CRASH_SEED=" << seed << std::endl;
  std::mt19937 random(static_cast<unsigned>(seed));
  for (int i = 0; i < 10; ++i) {
    const TemporaryDirectory directory;
    ChildProcess child([&](int) {
      const auto store = open_rocksdb(directory.path() / "store", {});
      pause();
      return 0;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    child.kill(SIGKILL);
    ASSERT_EQ(child.wait(), "signal 9");

    in_child([&](int) {
      const auto store = open_rocksdb(directory.path() / "store", {});
      ASSERT_TRUE(store.has_value()) << line_of(store);
      const auto grant = (*store)->acquire("lease", "me", 10s);
      ASSERT_TRUE(grant && *grant);
      EXPECT_TRUE((*store)->set("key", "v", (*grant)->token).has_value());
    });
  }
}

}  // namespace
}  // namespace fencekv::testing
