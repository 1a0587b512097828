// SPDX-License-Identifier: Apache-2.0
/// Waiting for leases, watching them, and what a lost connection does to both, on the real server.
/// Names such as G3 are those of the reports that a test answers.

#include "fencekv/store.h"
#include "tests/support/promptness.h"
#include "tests/support/raw_client.h"
#include "tests/support/sanitized.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using namespace std::chrono_literals;

milliseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

/// The token of a reply `[$token, :remaining]`; empty: it is no grant.
std::string token_of(const std::string& grant) {
  if (!grant.starts_with("[$")) return {};
  return grant.substr(2, grant.find(',') - 2);
}

std::string grant(std::uint64_t token, std::uint64_t remaining) {
  return "[$" + std::to_string(token) + ", :" + std::to_string(remaining) + "]";
}

/// As shown() writes a push of LEASE.WATCH.
std::string push(const std::string& event, const std::string& name, std::uint64_t token) {
  return ">[$lease, $" + event + ", $" + name + ", $" + std::to_string(token) + "]";
}

class WaitingTest : public ::testing::Test {
 protected:
  ServerProcess& start(std::vector<std::string> more = {}) {
    std::vector<std::string> flags = {"--dir", (directory_.path() / "store").string(), "--port",
                                      "0"};
    flags.insert(flags.end(), more.begin(), more.end());
    server_ = std::make_unique<ServerProcess>(ServerProcess::Start{.flags = std::move(flags)});
    port_ = server_->wait_ready();
    EXPECT_NE(port_, 0) << server_->log();
    observer_.emplace(port_);
    return *server_;
  }

  RawClient connect() const { return RawClient(port_); }
  RawClient connect_resp3() const {
    auto client = connect();
    EXPECT_THAT(client.ask({"HELLO", "3"}), StartsWith("{"));
    return client;
  }

  /// A connection whose acquire of `name` waits, and already stands in the queue.
  RawClient waiter(const std::string& name, const std::string& owner, milliseconds wait = 60s,
                   std::vector<std::string> more = {}) {
    const std::size_t before = waiting(name);
    auto client = connect();
    std::vector<std::string> words = {"LEASE.ACQUIRE", name,   owner,
                                      "600000",        "WAIT", std::to_string(wait.count())};
    words.insert(words.end(), more.begin(), more.end());
    client.send(request(words));
    EXPECT_TRUE(becomes([&] { return waiting(name) == before + 1; })) << "it does not wait";
    return client;
  }

  std::string ask(const std::vector<std::string>& words) { return observer_->ask(words); }

  /// A number of LEASE.INFO.
  std::size_t waiting(const std::string& name) {
    observer_->send(request({"LEASE.INFO", name}));
    const auto lease = observer_->read();
    const auto* waiters = lease ? lease->at("waiters") : nullptr;
    return waiters != nullptr ? static_cast<std::size_t>(waiters->integer) : 0;
  }

  /// The `client` of each waiter, in order.
  std::vector<std::string> queue(const std::string& name) {
    observer_->send(request({"LEASE.WAITERS", name}));
    const auto waiters = observer_->read();
    std::vector<std::string> clients;
    for (const auto& waiter : waiters ? waiters->parts : std::vector<resp::Value>()) {
      if (const auto* client = waiter.at("client")) clients.push_back(client->text);
    }
    return clients;
  }

  /// The control is a write: it takes the same way through the server as a grant. Token 1 has to
  /// be handed out before the first turn ends.
  Promptness promptness_of(const char* what) {
    return {what, [this] {
              EXPECT_THAT(ask({"FENCE.SET", "control", "1", "v"}), StartsWith(":"));
            }};
  }

  /// Whether `condition` becomes true in time.
  static bool becomes(const std::function<bool()>& condition, milliseconds patience = 10s) {
    const auto deadline = Clock::now() + patience;
    while (!condition()) {
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(2ms);
    }
    return true;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<ServerProcess> server_;
  std::uint16_t port_ = 0;
  std::optional<RawClient> observer_;
};

// ---- What ends a wait ----------------------------------------------------------------------

TEST_F(WaitingTest, GrantsToTheNextInTheMomentOfARelease) {
  start({"--durability", "process"});
  ASSERT_EQ(ask({"LEASE.ACQUIRE", "l", "holder", "600000"}), grant(1, 600000));
  auto next = waiter("l", "next");
  ASSERT_EQ(ask({"LEASE.RELEASE", "l", "holder", "1"}), "+OK");
  EXPECT_EQ(next.line(), grant(2, 600000)) << "time runs from the grant";

  // The fence has closed behind the first.
  EXPECT_EQ(ask({"FENCE.SET", "k", "1", "late", "LEASE", "l"}).substr(0, 24),
            "-FENCED 2 1 superseded");
  EXPECT_EQ(next.ask({"FENCE.SET", "k", "2", "v", "LEASE", "l"}), ":1");

  auto promptness = promptness_of("releases");
  for (std::uint64_t token = 3; promptness.wants_another(); token += 2) {
    const std::string name = "l" + std::to_string(token);
    ASSERT_EQ(ask({"LEASE.ACQUIRE", name, "holder", "600000"}), grant(token, 600000));
    auto another = waiter(name, "next");
    const auto begin = Clock::now();
    ASSERT_EQ(ask({"LEASE.RELEASE", name, "holder", std::to_string(token)}), "+OK");
    ASSERT_EQ(another.line(), grant(token + 1, 600000));
    promptness.note(begin);
  }
  promptness.expect();
}

TEST_F(WaitingTest, GrantsToTheNextInTheMomentOfARevocation) {
  start({"--durability", "process"});
  auto promptness = promptness_of("revocations");
  for (std::uint64_t token = 1; promptness.wants_another(); token += 2) {
    const std::string name = "l" + std::to_string(token);
    ASSERT_EQ(ask({"LEASE.ACQUIRE", name, "holder", "600000"}), grant(token, 600000));
    auto next = waiter(name, "next");
    const auto begin = Clock::now();
    ASSERT_EQ(ask({"LEASE.REVOKE", name}), "$" + std::to_string(token));
    ASSERT_EQ(next.line(), grant(token + 1, 600000));
    promptness.note(begin);
  }
  promptness.expect();
}

// G3: an expiry wakes the next, not only a release. Not the disk is measured.
TEST_F(WaitingTest, GrantsToTheNextInTheMomentOfAnExpiry) {
  start({"--durability", "process"});
  auto holder = connect();
  auto promptness = promptness_of("expiries");
  for (int turn = 0; promptness.wants_another(); ++turn) {
    const auto begin = Clock::now();
    const std::string name = "l" + std::to_string(turn);
    ASSERT_NE(token_of(holder.ask({"LEASE.ACQUIRE", name, "holder", "300"})), "");
    auto next = waiter(name, "next");
    ASSERT_NE(token_of(next.line()), "");
    promptness.note(begin + 300ms);
  }
  promptness.expect();
}

TEST_F(WaitingTest, AnswersNilWhenTheTimeOfAWaitIsOver) {
  start({"--durability", "process"});
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  auto client = connect();
  auto promptness = promptness_of("timeouts");
  while (promptness.wants_another()) {
    const auto begin = Clock::now();
    EXPECT_EQ(client.ask({"LEASE.ACQUIRE", "l", "other", "1000", "WAIT", "200"}), "_");
    promptness.note(begin + 200ms);
  }
  EXPECT_EQ(client.ask({"LEASE.ACQUIRE", "l", "other", "1000", "WAIT", "0"}), "_");
  promptness.expect();
  EXPECT_EQ(waiting("l"), 0U);
  // G11: a wait that failed leaves nothing behind.
  EXPECT_THAT(ask({"INFO", "fencekv"}), HasSubstr("waiting:0\r\n"));
}

TEST_F(WaitingTest, AnswersAtOnceWhatNeedsNoWait) {
  start();
  auto client = connect();
  EXPECT_EQ(client.ask({"LEASE.ACQUIRE", "l", "me", "600000", "WAIT", "60000"}), grant(1, 600000));
  EXPECT_EQ(client.ask({"LEASE.ACQUIRE", "l", "me", "500000", "WAIT", "60000"}), grant(1, 500000));
  EXPECT_THAT(client.ask({"LEASE.ACQUIRE", "l", "me", "1000", "PERMITS", "2", "WAIT", "60000"}),
              StartsWith("-ERR"))
      << "held in another way";
}

TEST_F(WaitingTest, GrantsInTheOrderOfTheQueueWithGrowingTokens) {
  start({"--durability", "process"});
  constexpr std::uint64_t kWaiters = 300;
  ask({"LEASE.ACQUIRE", "l", "w0", "600000"});
  std::vector<RawClient> clients;
  for (std::uint64_t i = 1; i <= kWaiters; ++i) {
    clients.push_back(waiter("l", "w" + std::to_string(i)));
  }
  ASSERT_EQ(queue("l").size(), kWaiters);

  ASSERT_EQ(ask({"LEASE.RELEASE", "l", "w0", "1"}), "+OK");
  for (std::uint64_t i = 1; i <= kWaiters; ++i) {
    // I1: each once, tokens strictly rising.
    ASSERT_EQ(clients[i - 1].line(), grant(i + 1, 600000));
    ASSERT_EQ(
        clients[i - 1].ask({"LEASE.RELEASE", "l", "w" + std::to_string(i), std::to_string(i + 1)}),
        "+OK");
  }
  EXPECT_THAT(ask({"LEASE.INFO", "l"}), HasSubstr("$holders, [], $waiters, :0"));
}

/// How many connections this process can hold, `wanted` at most.
std::size_t affordable_connections(std::size_t wanted) {
  constexpr rlim_t kOthers = 100;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, std::max(limit.rlim_cur, wanted + kOthers));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return std::min<std::size_t>(wanted, limit.rlim_cur - kOthers);
}

TEST_F(WaitingTest, GrantsTenThousandWaitersEachOnceAndInOrder) {
  const std::size_t count = affordable_connections(Limits::kWaitersPerName);
  start({"--durability", "process", "--max-connections", "10100"});
  ASSERT_EQ(ask({"LEASE.ACQUIRE", "l", "holder", "600000"}), grant(1, 600000));
  const std::size_t before = server_->memory();
  std::vector<RawClient> clients;
  std::map<std::string, std::size_t> number_of;  // by what the listing shows of the owner
  for (std::size_t i = 0; i < count; ++i) {
    const std::string owner = "waiter " + std::to_string(i);
    number_of[owner_fingerprint(owner)] = i;
    clients.push_back(connect());
    clients.back().send(request({"LEASE.ACQUIRE", "l", owner, "600000", "WAIT", "600000"}));
  }
  ASSERT_EQ(number_of.size(), count) << "two owners look the same";
  ASSERT_TRUE(becomes([&] { return waiting("l") == count; }, 60s));
  const std::size_t bytes = server_->memory() - before;
  if (count == Limits::kWaitersPerName) {
    EXPECT_THAT(ask({"LEASE.ACQUIRE", "l", "late", "1000", "WAIT", "1000"}),
                StartsWith("-OVERLOADED"));
  }
  observer_->send(request({"LEASE.WAITERS", "l"}));
  const auto waiters = observer_->read();
  ASSERT_TRUE(waiters && waiters->parts.size() == count);

  const auto begin = Clock::now();
  std::string owner = "holder";
  RawClient* holder = &*observer_;
  for (std::size_t turn = 0; turn < count; ++turn) {
    ASSERT_EQ(holder->ask({"LEASE.RELEASE", "l", owner, std::to_string(turn + 1)}), "+OK");
    const std::size_t next = number_of.at(waiters->parts[turn].at("owner")->text);
    holder = &clients[next];
    owner = "waiter " + std::to_string(next);
    ASSERT_EQ(holder->line(), grant(turn + 2, 600000)) << "turn " << turn;
  }
  std::printf(
      "[ waiters ] %zu, %zu bytes of the server each, connection included; %.0f us a turn\n", count,
      bytes / count,
      std::chrono::duration<double, std::micro>(Clock::now() - begin).count() /
          static_cast<double>(count));
}

TEST_F(WaitingTest, LetsReadersInTogetherAndStarvesNoWriter) {
  start();
  ASSERT_EQ(ask({"LEASE.ACQUIRE", "l", "r1", "600000", "SHARED"}), grant(1, 600000));
  auto writer = waiter("l", "w");
  auto second = waiter("l", "r2", 60s, {"SHARED"});
  auto third = waiter("l", "r3", 60s, {"SHARED"});

  // G9: the writer is not overtaken; the readers behind it come together.
  ask({"LEASE.RELEASE", "l", "r1", "1"});
  EXPECT_EQ(writer.line(), grant(2, 600000));
  EXPECT_EQ(waiting("l"), 2U);
  writer.ask({"LEASE.RELEASE", "l", "w", "2"});
  EXPECT_EQ(second.line(), grant(3, 600000));
  EXPECT_EQ(third.line(), grant(4, 600000));
  EXPECT_THAT(ask({"LEASE.INFO", "l"}), HasSubstr("$fence, $4, $mode, $shared, $holders, [["));
  EXPECT_THAT(second.ask({"FENCE.SET", "k", "3", "v", "LEASE", "l"}), StartsWith("-ERR"));
}

TEST_F(WaitingTest, GivesOutPermitsUpToTheirNumber) {
  start();
  EXPECT_EQ(ask({"LEASE.ACQUIRE", "l", "a", "600000", "PERMITS", "2"}), grant(1, 600000));
  EXPECT_EQ(ask({"LEASE.ACQUIRE", "l", "b", "600000", "PERMITS", "2"}), grant(2, 600000));
  EXPECT_EQ(ask({"LEASE.ACQUIRE", "l", "c", "600000", "PERMITS", "2"}), "_");
  EXPECT_THAT(ask({"LEASE.ACQUIRE", "l", "c", "600000", "PERMITS", "3"}), StartsWith("-ERR"));
  auto third = waiter("l", "c", 60s, {"PERMITS", "2"});
  ask({"LEASE.RELEASE", "l", "a", "1"});
  EXPECT_EQ(third.line(), grant(3, 600000));
}

// J7: two that name the same leases in opposite order.
TEST_F(WaitingTest, NeverDeadlocksOnSeveralNamesInOppositeOrder) {
  start({"--durability", "process"});
  constexpr int kTurns = 100;
  const auto work = [this](const std::string& owner, const std::string& first,
                           const std::string& second) {
    RawClient client(port_);
    for (int turn = 0; turn < kTurns; ++turn) {
      const auto token = token_of(
          client.ask({"LEASE.MACQUIRE", "2", first, second, owner, "600000", "WAIT", "60000"}));
      if (token.empty()) return turn;
      if (client.ask({"LEASE.MRELEASE", "2", first, owner, token, second, owner, token}) !=
          "[+OK, +OK]") {
        return turn;
      }
    }
    return kTurns;
  };
  int one = 0;
  int two = 0;
  std::thread other([&] { one = work("one", "a", "b"); });
  two = work("two", "b", "a");
  other.join();
  EXPECT_EQ(one, kTurns);
  EXPECT_EQ(two, kTurns);
}

TEST_F(WaitingTest, AcquiresSeveralNamesOnlyTogether) {
  start();
  ask({"LEASE.ACQUIRE", "b", "holder", "600000"});
  auto both = connect();
  both.send(request({"LEASE.MACQUIRE", "3", "a", "b", "c", "me", "600000", "WAIT", "60000"}));
  ASSERT_TRUE(becomes([&] { return waiting("a") == 1 && waiting("b") == 1 && waiting("c") == 1; }));
  // J8: none of them is held while one is not to be had.
  EXPECT_THAT(ask({"LEASE.INFO", "a"}), HasSubstr("$fence, $0, $mode, _, $holders, []"));
  EXPECT_EQ(ask({"LEASE.MACQUIRE", "2", "b", "d", "you", "600000"}), "_");
  ask({"LEASE.RELEASE", "b", "holder", "1"});
  EXPECT_EQ(both.line(), grant(2, 600000));
  EXPECT_THAT(ask({"LEASE.INFO", "c"}), HasSubstr("$token, $2"));
  EXPECT_THAT(ask({"LEASE.INFO", "d"}), HasSubstr("$fence, $0"));
}

TEST_F(WaitingTest, RefusesMoreWaitersThanItIsConfiguredFor) {
  start({"--max-waiting", "3"});
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(waiter("l", "w" + std::to_string(i)));
  EXPECT_THAT(ask({"LEASE.ACQUIRE", "l", "late", "1000", "WAIT", "60000"}),
              StartsWith("-OVERLOADED"));
  EXPECT_THAT(ask({"LEASE.WAIT", "l", "1", "60000"}), StartsWith("-OVERLOADED"));
  EXPECT_EQ(ask({"LEASE.ACQUIRE", "l", "late", "1000"}), "_") << "who does not wait is answered";
  EXPECT_EQ(waiting("l"), 3U);
  clients.pop_back();
  EXPECT_TRUE(becomes([&] { return waiting("l") == 2; }));
  auto late = waiter("l", "late");
  EXPECT_EQ(queue("l").size(), 3U);
}

// ---- Waiters that go -----------------------------------------------------------------------

struct Parting {
  std::string_view name;
  std::function<void(RawClient&)> go;
};

const Parting kPartings[] = {
    {"Closes", [](RawClient& client) { client.close(); }},
    {"Resets", [](RawClient& client) { client.reset(); }},
    {"ClosesItsSendingSide", [](RawClient& client) { client.finish_sending(); }},
};

class WaiterThatGoes : public WaitingTest, public ::testing::WithParamInterface<Parting> {};

TEST_P(WaiterThatGoes, LeavesAtOnceAndTheOthersKeepTheirPlaces) {
  start();
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  std::vector<RawClient> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(waiter("l", "w" + std::to_string(i)));
  auto expected = queue("l");
  ASSERT_EQ(expected.size(), 5U);

  const auto begin = Clock::now();
  GetParam().go(clients[0]);
  GetParam().go(clients[2]);
  EXPECT_TRUE(becomes([&] { return waiting("l") == 3; }));
  EXPECT_LT(since(begin), 5s);

  expected.erase(expected.begin() + 2);
  expected.erase(expected.begin());
  EXPECT_EQ(queue("l"), expected);
  ask({"LEASE.RELEASE", "l", "holder", "1"});
  EXPECT_EQ(clients[1].line(), grant(2, 600000)) << "no token is lost on those who left";
  clients[1].ask({"LEASE.RELEASE", "l", "w1", "2"});
  EXPECT_EQ(clients[3].line(), grant(3, 600000));
}

TEST_P(WaiterThatGoes, LeavesThoughItHasSentMoreBehindItsWait) {
  start({"--unguarded-tokens", "any"});
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  // Less than the server takes in behind a wait, which is 1 MiB, and more; but not so much more
  // that it does not fit the smallest receive buffer: the end of the connection comes behind it.
  for (const std::size_t bytes :
       {std::size_t{5000}, std::size_t{900'000}, std::size_t{1'085'000}}) {
    auto client = waiter("l", "w");
    std::string behind;
    while (behind.size() < bytes) {
      behind += request({"FENCE.SET", "behind", "1", std::string(500, 'v')});
    }
    ASSERT_TRUE(client.send(behind));
    EXPECT_EQ(waiting("l"), 1U);

    const auto begin = Clock::now();
    GetParam().go(client);
    EXPECT_TRUE(becomes([&] { return waiting("l") == 0; })) << bytes;
    EXPECT_LT(since(begin), 5s);
  }
  EXPECT_EQ(ask({"EXISTS", "behind"}), ":0") << "what is behind a wait that was not answered ran";
  EXPECT_TRUE(becomes([&] {
    return ask({"INFO", "clients"}).find("connected_clients:1\r\n") != std::string::npos;
  }));
}

// G6: the client goes just before the release that would have granted it the lease, so that the
// server may learn of both in any order.
TEST_P(WaiterThatGoes, GetsNoGrantOnceItHasGone) {
  start({"--durability", "process"});
  auto holder = connect();
  std::uint64_t token = 1;
  ASSERT_EQ(holder.ask({"LEASE.ACQUIRE", "l", "holder", "600000"}), grant(1, 600000));
  for (int turn = 0; turn < 100; ++turn) {
    auto first = waiter("l", "first");
    auto second = waiter("l", "second");
    GetParam().go(first);
    ASSERT_EQ(holder.ask({"LEASE.RELEASE", "l", "holder", std::to_string(token)}), "+OK");
    // A token that the one who went was granted for a moment is a gap.
    const std::string granted = token_of(second.line());
    ASSERT_NE(granted, "") << "turn " << turn << ": the lease is held by nobody";
    ASSERT_GT(std::stoull(granted), token);
    ASSERT_EQ(second.ask({"LEASE.RELEASE", "l", "second", granted}), "+OK");
    token = std::stoull(token_of(holder.ask({"LEASE.ACQUIRE", "l", "holder", "600000"})));
  }
  EXPECT_EQ(waiting("l"), 0U) << "a ghost stands in the queue";
}

TEST_P(WaiterThatGoes, GivesAllOfSeveralNamesBack) {
  start({"--durability", "process"});
  for (int turn = 0; turn < 30; ++turn) {
    const auto token = token_of(ask({"LEASE.ACQUIRE", "l", "holder", "600000"}));
    ASSERT_NE(token, "") << "turn " << turn;
    auto several = connect();
    several.send(request({"LEASE.MACQUIRE", "2", "m", "l", "several", "600000", "WAIT", "60000"}));
    ASSERT_TRUE(becomes([&] { return waiting("m") == 1; }));
    auto next = waiter("m", "next");
    GetParam().go(several);
    ASSERT_EQ(ask({"LEASE.RELEASE", "l", "holder", token}), "+OK");
    const auto granted = token_of(next.line());
    ASSERT_NE(granted, "") << "turn " << turn << ": m is held by nobody";
    ASSERT_EQ(next.ask({"LEASE.RELEASE", "m", "next", granted}), "+OK");
  }
}

// The same in the very moment: whoever the grant came to, nobody is granted what another holds, and
// nobody stays behind in the queue.
TEST_P(WaiterThatGoes, LeavesNoGhostWhenItGoesInTheMomentOfItsGrant) {
  start({"--durability", "process"});
  auto holder = connect();
  std::string token = token_of(holder.ask({"LEASE.ACQUIRE", "l", "holder", "600000"}));
  for (int turn = 0; turn < 60; ++turn) {
    auto first = waiter("l", "first");
    std::thread leave([&] { GetParam().go(first); });
    const auto begin = Clock::now();
    while (Clock::now() - begin < std::chrono::microseconds(turn * 10)) {
    }
    ASSERT_EQ(holder.ask({"LEASE.RELEASE", "l", "holder", token}), "+OK");
    leave.join();
    ASSERT_TRUE(becomes([&] { return waiting("l") == 0; }));
    // It may have had its reply before it went; then the lease is its own for a ttl.
    ask({"LEASE.REVOKE", "l"});
    const std::string next =
        token_of(holder.ask({"LEASE.ACQUIRE", "l", "holder", "600000", "WAIT", "10000"}));
    ASSERT_NE(next, "");
    ASSERT_GT(std::stoull(next), std::stoull(token));
    token = next;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryWay, WaiterThatGoes, ::testing::ValuesIn(kPartings),
                         [](const auto& parting) { return std::string(parting.param.name); });

TEST_F(WaitingTest, LetsAKilledWaiterGoAtOnce) {
  auto& server = start();
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  auto first = waiter("l", "first");
  auto second = waiter("l", "second");
  const auto before = queue("l");
  ASSERT_EQ(before.size(), 2U);

  EXPECT_EQ(ask({"CLIENT", "KILL", "ADDR", before[0]}), ":1");
  EXPECT_TRUE(first.closes_within(RawClient::kPatience));
  EXPECT_TRUE(becomes([&] { return waiting("l") == 1; }));
  EXPECT_THAT(queue("l"), ElementsAre(before[1]));
  ask({"LEASE.RELEASE", "l", "holder", "1"});
  EXPECT_EQ(second.line(), grant(2, 600000));
  EXPECT_THAT(server.log(), Not(HasSubstr("error")));
}

TEST_F(WaitingTest, LetsTheWaitersOfAKilledProcessGo) {
  start();
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  const pid_t child = ::fork();
  if (child == 0) {
    RawClient client(port_);
    client.send(request({"LEASE.ACQUIRE", "l", "doomed", "600000", "WAIT", "60000"}));
    client.line(60s);
    ::_exit(0);
  }
  ASSERT_TRUE(becomes([&] { return waiting("l") == 1; }));
  auto next = waiter("l", "next");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(becomes([&] { return waiting("l") == 1; }));
  ask({"LEASE.RELEASE", "l", "holder", "1"});
  EXPECT_EQ(next.line(), grant(2, 600000));
}

TEST_F(WaitingTest, SeesWaitersGoOnAUnixSocketToo) {
  const std::string socket = (directory_.path() / "s.sock").string();
  start({"--unix", socket});
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  // More than the server takes in behind a wait, and no more than the socket holds besides: who
  // sends more waits with it, for as long as the lease does.
  for (const std::size_t behind : {std::size_t{0}, std::size_t{1'085'000}}) {
    RawClient client(socket);
    client.send(request({"LEASE.ACQUIRE", "l", "me", "600000", "WAIT", "60000"}));
    ASSERT_TRUE(becomes([&] { return waiting("l") == 1; }));
    client.send(std::string(behind, '\n'));
    client.close();
    EXPECT_TRUE(becomes([&] { return waiting("l") == 0; })) << behind;
  }
}

// F8: the reply to an acquire that did not wait is lost. The grant stands, and the same owner gets
// it again; nobody else has to know.
TEST_F(WaitingTest, KeepsAnUnwaitedGrantForItsOwnerWhenTheReplyIsLost) {
  start();
  {
    auto client = connect();
    client.send(request({"LEASE.ACQUIRE", "l", "me", "600000"}));
    client.reset();
  }
  ASSERT_TRUE(becomes([&] {
    return ask({"LEASE.INFO", "l"}).find("$fence, $1") != std::string::npos;
  }));
  EXPECT_EQ(ask({"LEASE.ACQUIRE", "l", "you", "600000"}), "_");
  EXPECT_EQ(ask({"LEASE.ACQUIRE", "l", "me", "600000"}), grant(1, 600000));
}

// A re-acquire whose connection goes does not take the lease from its owner.
TEST_F(WaitingTest, LeavesALeaseThatWasHeldAlreadyAloneWhenTheReplyIsLost) {
  start();
  ASSERT_EQ(ask({"LEASE.ACQUIRE", "l", "me", "600000"}), grant(1, 600000));
  for (int turn = 0; turn < 30; ++turn) {
    auto client = connect();
    client.send(request({"LEASE.ACQUIRE", "l", "me", "600000", "WAIT", "60000"}));
    if (turn % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100 * turn));
    client.reset();
  }
  ASSERT_TRUE(becomes([&] {
    return ask({"INFO", "clients"}).find("connected_clients:1\r\n") != std::string::npos;
  }));
  EXPECT_EQ(ask({"LEASE.RENEW", "l", "me", "1", "600000"}), ":600000");
}

TEST_F(WaitingTest, NeverCutsOffAWaiterForBeingIdle) {
  start({"--idle-timeout-ms", "2000"});
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  auto watcher = connect_resp3();
  ASSERT_EQ(watcher.ask({"LEASE.WATCH", "l"}), "+OK");
  auto client = connect();
  const auto begin = Clock::now();
  EXPECT_EQ(client.ask({"LEASE.ACQUIRE", "l", "me", "1000", "WAIT", "5000"}), "_");
  EXPECT_GE(since(begin), 5000ms);
  EXPECT_EQ(watcher.ask({"PING"}), "+PONG") << "a connection that watches is not idle";
  EXPECT_TRUE(client.closes_within(RawClient::kPatience)) << "after its wait it is";
}

// ---- What stands around a wait in a pipeline -----------------------------------------------

TEST_F(WaitingTest, AnswersWhatCameBeforeAWaitAtOnceAndRunsWhatIsBehindAfterIt) {
  start({"--unguarded-tokens", "any"});
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  auto client = connect();
  client.send(request({"FENCE.SET", "before", "1", "v"}) + request({"ECHO", "before"}) +
              request({"LEASE.ACQUIRE", "l", "me", "600000", "WAIT", "60000"}) +
              request({"FENCE.SET", "behind", "1", "v"}) + request({"ECHO", "behind"}));
  EXPECT_EQ(client.line(), ":1");
  EXPECT_EQ(client.line(), "$before");
  ASSERT_TRUE(becomes([&] { return waiting("l") == 1; }));
  client.send(request({"ECHO", "later"}).substr(0, 9));
  EXPECT_EQ(ask({"EXISTS", "behind"}), ":0");

  ask({"LEASE.RELEASE", "l", "holder", "1"});
  EXPECT_EQ(client.line(), grant(2, 600000));
  EXPECT_EQ(client.line(), ":1");
  EXPECT_EQ(client.line(), "$behind");
  client.send(request({"ECHO", "later"}).substr(9));
  EXPECT_EQ(client.line(), "$later");
}

TEST_F(WaitingTest, RunsThousandsOfRequestsBehindAWaitInOrder) {
  start();
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  auto client = waiter("l", "me");
  constexpr int kBehind = 60'000;
  std::string behind;
  for (int i = 0; i < kBehind; ++i) behind += request({"ECHO", std::to_string(i)});
  ASSERT_GT(behind.size(), std::size_t{1} << 20);
  std::thread sender([&] { client.send(behind); });
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(waiting("l"), 1U);

  ask({"LEASE.RELEASE", "l", "holder", "1"});
  EXPECT_EQ(client.line(), grant(2, 600000));
  for (int i = 0; i < kBehind; ++i) {
    const std::string reply = client.line();
    if (reply != "$" + std::to_string(i)) {
      ADD_FAILURE() << "reply " << i << ": " << reply;
      break;
    }
  }
  sender.join();
}

TEST_F(WaitingTest, RunsOneWaitAfterTheOtherOfOneConnection) {
  start();
  ask({"LEASE.ACQUIRE", "a", "holder", "600000"});
  auto client = connect();
  client.send(request({"LEASE.ACQUIRE", "a", "me", "600000", "WAIT", "100"}) +
              request({"LEASE.ACQUIRE", "b", "me", "600000", "WAIT", "100"}) +
              request({"LEASE.WAIT", "a", "1", "100"}) + request({"LEASE.WAIT", "b", "0", "100"}) +
              request({"LEASE.ACQUIRE", "a", "me", "600000", "WAIT", "60000"}));
  EXPECT_EQ(client.line(), "_");
  EXPECT_EQ(client.line(), grant(2, 600000));
  EXPECT_EQ(client.line(), "_");
  EXPECT_EQ(client.line(), "[$granted, $b, $2]");
  ask({"LEASE.RELEASE", "a", "holder", "1"});
  EXPECT_EQ(client.line(), grant(3, 600000));
}

TEST_F(WaitingTest, KeepsQuietAboutAWaitWhenRepliesAreOff) {
  start();
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  auto client = connect();
  client.send(request({"CLIENT", "REPLY", "SKIP"}) +
              request({"LEASE.ACQUIRE", "l", "me", "600000", "WAIT", "100"}) +
              request({"ECHO", "skipped one"}) + request({"CLIENT", "REPLY", "OFF"}) +
              request({"LEASE.ACQUIRE", "l", "me", "600000", "WAIT", "60000"}) + request({"PING"}) +
              request({"CLIENT", "REPLY", "ON"}) + request({"ECHO", "end"}));
  EXPECT_EQ(client.line(), "$skipped one");
  ASSERT_TRUE(becomes([&] { return waiting("l") == 1; }));
  ask({"LEASE.RELEASE", "l", "holder", "1"});
  EXPECT_EQ(client.line(), "+OK");
  EXPECT_EQ(client.line(), "$end");
  EXPECT_THAT(ask({"LEASE.INFO", "l"}), HasSubstr("$token, $2"));
}

TEST_F(WaitingTest, QuitsAndResetsBehindAWait) {
  start();
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  auto client = connect_resp3();
  client.send(request({"LEASE.ACQUIRE", "l", "me", "1000", "WAIT", "100"}) + request({"RESET"}) +
              request({"LEASE.INFO", "free"}) +
              request({"LEASE.ACQUIRE", "l", "me", "1000", "WAIT", "100"}) + request({"QUIT"}) +
              request({"ECHO", "never"}));
  EXPECT_EQ(client.line(), "_");
  EXPECT_EQ(client.line(), "+RESET");
  EXPECT_THAT(client.line(), StartsWith("[$name, $free")) << "RESP2 again";
  EXPECT_EQ(client.line(), "_");
  EXPECT_EQ(client.line(), "+OK");
  EXPECT_EQ(client.line(), "closed");
}

TEST_F(WaitingTest, EndsAWaitByABrokenRequestBehindItOnlyAfterItsAnswer) {
  start();
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  auto client = waiter("l", "me");
  client.send("*2\r\n$4\r\nECHO\r\n:1\r\n");
  EXPECT_EQ(waiting("l"), 1U);
  ask({"LEASE.RELEASE", "l", "holder", "1"});
  EXPECT_EQ(client.line(), grant(2, 600000));
  EXPECT_THAT(client.line(), StartsWith("-ERR Protocol error"));
  EXPECT_EQ(client.line(), "closed");
}

// ---- Bound leases --------------------------------------------------------------------------

class HolderThatGoes : public WaitingTest, public ::testing::WithParamInterface<Parting> {};

// I1, I6: a bound lease ends with its connection, and everybody concerned hears of it once.
TEST_P(HolderThatGoes, EndsItsBoundLeases) {
  start();
  auto watcher = connect_resp3();
  ASSERT_EQ(watcher.ask({"LEASE.WATCH", "a", "b", "c"}), "+OK");
  auto holder = connect();
  ASSERT_EQ(holder.ask({"LEASE.ACQUIRE", "a", "me", "600000", "BIND"}), grant(1, 600000));
  ASSERT_EQ(holder.ask({"LEASE.ACQUIRE", "b", "me", "600000", "BIND"}), grant(2, 600000));
  ASSERT_EQ(holder.ask({"LEASE.ACQUIRE", "c", "me", "600000"}), grant(3, 600000));
  ASSERT_EQ(holder.ask({"FENCE.SET", "k", "1", "v", "LEASE", "a"}), ":1");
  EXPECT_THAT(ask({"LEASE.INFO", "a"}), HasSubstr("$bound, :1"));
  EXPECT_THAT(ask({"LEASE.INFO", "c"}), HasSubstr("$bound, :0"));
  auto next = waiter("a", "next");

  const auto begin = Clock::now();
  GetParam().go(holder);
  EXPECT_EQ(next.line(), grant(4, 600000));
  EXPECT_LT(since(begin), 5s);

  for (const auto& expected :
       {push("granted", "a", 1), push("granted", "b", 2), push("granted", "c", 3)}) {
    EXPECT_EQ(watcher.line(), expected);
  }
  std::vector<std::string> ends = {watcher.line(), watcher.line(), watcher.line()};
  EXPECT_THAT(
      ends, ::testing::UnorderedElementsAre(push("disconnected", "a", 1),
                                            push("disconnected", "b", 2), push("granted", "a", 4)));
  EXPECT_EQ(watcher.ask({"PING"}), "+PONG") << "one event a lease, none for what is not bound";
  EXPECT_EQ(ask({"LEASE.RENEW", "b", "me", "2", "1000"}), "-LEASELOST disconnected");
  EXPECT_THAT(ask({"FENCE.SET", "x", "2", "v", "LEASE", "b"}),
              StartsWith("-FENCED 2 2 disconnected"));
  EXPECT_THAT(ask({"FENCE.SET", "k", "1", "v"}), StartsWith("-FENCED 4 1 superseded"));
  EXPECT_EQ(ask({"LEASE.RENEW", "c", "me", "3", "600000"}), ":600000") << "not bound";
}

INSTANTIATE_TEST_SUITE_P(EveryWay, HolderThatGoes, ::testing::ValuesIn(kPartings),
                         [](const auto& parting) { return std::string(parting.param.name); });

TEST_F(WaitingTest, EndsBoundLeasesOfKilledAndQuittingConnections) {
  start();
  auto killed = connect();
  killed.ask({"LEASE.ACQUIRE", "a", "me", "600000", "BIND"});
  killed.send(request({"CLIENT", "ID"}));
  EXPECT_EQ(ask({"CLIENT", "KILL", "ID", std::to_string(killed.read()->integer)}), ":1");
  EXPECT_EQ(ask({"LEASE.WAIT", "a", "1", "10000"}), "[$disconnected, $a, $1]");
  // The client keeps its side open after QUIT: its lease does not. The server hears it out for a
  // second; a busy machine may take as long for one of them, but not for each.
  auto fastest = 1h + 0ms;
  for (int turn = 0; turn < 20 && fastest >= 900ms; ++turn) {
    auto quitting = connect();
    const auto token = token_of(quitting.ask({"LEASE.ACQUIRE", "b", "me", "600000", "BIND"}));
    const auto begin = Clock::now();
    EXPECT_EQ(quitting.ask({"QUIT"}), "+OK");
    EXPECT_EQ(ask({"LEASE.WAIT", "b", token, "10000"}), "[$disconnected, $b, $" + token + "]");
    fastest = std::min(fastest, since(begin));
  }
  EXPECT_LT(fastest, 900ms);
}

TEST_F(WaitingTest, EndsABoundLeaseAtItsTtlThoughItsConnectionLives) {
  start();
  auto holder = connect();
  ASSERT_EQ(holder.ask({"LEASE.ACQUIRE", "l", "me", "300", "BIND"}), grant(1, 300));
  EXPECT_EQ(ask({"LEASE.WAIT", "l", "1", "10000"}), "[$expired, $l, $1]");
  EXPECT_EQ(holder.ask({"PING"}), "+PONG");
}

TEST_F(WaitingTest, BindsALeaseToTheConnectionThatAcquiredItLast) {
  start();
  auto old = connect();
  auto fresh = connect();
  ASSERT_EQ(old.ask({"LEASE.ACQUIRE", "l", "me", "600000", "BIND"}), grant(1, 600000));
  ASSERT_EQ(fresh.ask({"LEASE.ACQUIRE", "l", "me", "600000"}), grant(1, 600000));
  old.close();
  ASSERT_TRUE(becomes([&] {
    return ask({"INFO", "clients"}).find("connected_clients:2\r\n") != std::string::npos;
  }));
  EXPECT_EQ(fresh.ask({"LEASE.RENEW", "l", "me", "1", "600000"}), ":600000");
  fresh.close();
  EXPECT_EQ(ask({"LEASE.WAIT", "l", "1", "10000"}), "[$disconnected, $l, $1]");
}

TEST_F(WaitingTest, EndsBoundLeasesWithTheServer) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    start();
    auto holder = connect();
    const std::string name = "l" + std::to_string(signal);
    const auto token = token_of(holder.ask({"LEASE.ACQUIRE", name, "me", "600000", "BIND"}));
    ASSERT_NE(token, "");
    server_->signal(signal);
    server_->wait_exit();
    start();
    EXPECT_EQ(ask({"LEASE.RENEW", name, "me", token, "600000"}), "-LEASELOST disconnected");
    server_->signal(SIGKILL);
    server_->wait_exit();
  }
}

TEST_F(WaitingTest, BlocksANameForItsDelayAfterADisconnection) {
  start();
  auto holder = connect();
  ASSERT_EQ(holder.ask({"LEASE.ACQUIRE", "l", "me", "600000", "BIND", "DELAY", "3000", "PAYLOAD",
                        "host 7"}),
            grant(1, 600000));
  EXPECT_THAT(ask({"LEASE.INFO", "l"}), HasSubstr("$blocked, :0, $payload, $host 7]"));
  auto next = waiter("l", "next");
  const auto begin = Clock::now();
  holder.close();
  EXPECT_EQ(ask({"LEASE.WAIT", "l", "1", "10000"}), "[$disconnected, $l, $1]");
  EXPECT_THAT(ask({"LEASE.INFO", "l"}), MatchesRegex(".*waiters, :1, .blocked, :[1-9][0-9]*, .*"));
  EXPECT_EQ(next.line(), grant(2, 600000));
  EXPECT_GE(since(begin), 2999ms);
}

/// A timer that the kernel has for a connection: as /proc/net/tcp shows it.
struct KernelTimer {
  unsigned kind = 0;  ///< 2: keepalive
  milliseconds left{};
};

/// Of the ends at `port` of all established connections.
std::vector<KernelTimer> timers_at(std::uint16_t port) {
  std::ifstream file("/proc/net/tcp");
  std::vector<KernelTimer> timers;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    unsigned local = 0;
    unsigned state = 0;
    unsigned kind = 0;
    unsigned long ticks = 0;
    constexpr unsigned kEstablished = 1;
    if (std::sscanf(line.c_str(), "%*d: %*8x:%4x %*8x:%*4x %2x %*8x:%*8x %2x:%8lx", &local, &state,
                    &kind, &ticks) == 4 &&
        local == port && state == kEstablished) {
      timers.push_back({kind, milliseconds(1000 * ticks / ::sysconf(_SC_CLK_TCK))});
    }
  }
  return timers;
}

// I1: a peer without power says nothing, and by itself the kernel asks after two hours. To see the
// end of such a connection would take rights over the network; that it is asked for is seen here.
TEST_F(WaitingTest, AsksAConnectionThatSaysNothingWithinHalfAMinute) {
  start();
  if (timers_at(port_).empty()) GTEST_SKIP() << "/proc/net/tcp does not show connections here";
  auto holder = connect();
  ASSERT_EQ(holder.ask({"LEASE.ACQUIRE", "l", "me", "600000", "BIND"}), grant(1, 600000));
  // For a moment after a reply the timer is that of its delivery.
  EXPECT_TRUE(becomes([&] {
    const auto timers = timers_at(port_);
    return timers.size() == 2 && std::all_of(timers.begin(), timers.end(), [](const auto& timer) {
             return timer.kind == 2 && timer.left <= 30s;
           });
  }));
  for (const auto& timer : timers_at(port_)) {
    EXPECT_EQ(timer.kind, 2U) << "no keepalive";
    EXPECT_LE(timer.left, 30s);
  }
}

// ---- Watching ------------------------------------------------------------------------------

TEST_F(WaitingTest, TellsEveryChangeInOrderWithItsToken) {
  start();
  auto watcher = connect_resp3();
  EXPECT_EQ(watcher.ask({"LEASE.WATCH", "a"}), "+OK");
  EXPECT_EQ(watcher.ask({"LEASE.WATCH", "b", "a"}), "+OK");
  ask({"LEASE.ACQUIRE", "a", "one", "600000"});
  ask({"LEASE.ACQUIRE", "a", "one", "600000"});
  ask({"LEASE.RENEW", "a", "one", "1", "600000"});
  ask({"LEASE.RELEASE", "a", "one", "1"});
  ask({"LEASE.ACQUIRE", "unwatched", "one", "600000"});
  ask({"LEASE.ACQUIRE", "b", "two", "100"});
  EXPECT_EQ(ask({"LEASE.WAIT", "b", "3", "10000"}), "[$expired, $b, $3]");
  ask({"LEASE.MACQUIRE", "2", "b", "a", "three", "600000"});
  ask({"LEASE.REVOKE", "a"});

  const std::vector<std::string> of_a = {push("granted", "a", 1), push("released", "a", 1),
                                         push("granted", "a", 4), push("revoked", "a", 4)};
  const std::vector<std::string> of_b = {push("granted", "b", 3), push("expired", "b", 3),
                                         push("granted", "b", 4)};
  std::vector<std::string> seen_a;
  std::vector<std::string> seen_b;
  for (std::size_t i = 0; i < of_a.size() + of_b.size(); ++i) {
    const std::string line = watcher.line();
    (line.find(", $a, ") != std::string::npos ? seen_a : seen_b).push_back(line);
  }
  EXPECT_EQ(seen_a, of_a);
  EXPECT_EQ(seen_b, of_b);
  EXPECT_EQ(watcher.ask({"PING"}), "+PONG") << "and nothing more";
}

// G3: with nobody in the queue, too, an expiry is told when it happens.
TEST_F(WaitingTest, TellsAnExpiryInItsMoment) {
  start({"--durability", "process"});
  auto watcher = connect_resp3();
  ASSERT_EQ(watcher.ask({"LEASE.WATCH", "l"}), "+OK");
  auto promptness = promptness_of("pushes of an expiry");
  for (std::uint64_t token = 1; promptness.wants_another(); ++token) {
    const auto begin = Clock::now();
    ASSERT_EQ(ask({"LEASE.ACQUIRE", "l", "me", "200"}), grant(token, 200));
    ASSERT_EQ(watcher.line(), push("granted", "l", token));
    ASSERT_EQ(watcher.line(), push("expired", "l", token));
    promptness.note(begin + 200ms);
  }
  promptness.expect();
}

TEST_F(WaitingTest, EndsWatchesByUnwatchResetAndResp2) {
  start();
  auto unwatched = connect_resp3();
  auto reset = connect_resp3();
  auto changed = connect_resp3();
  for (auto* client : {&unwatched, &reset, &changed}) {
    ASSERT_EQ(client->ask({"LEASE.WATCH", "l"}), "+OK");
  }
  ask({"LEASE.ACQUIRE", "l", "me", "600000"});
  for (auto* client : {&unwatched, &reset, &changed}) {
    EXPECT_EQ(client->line(), push("granted", "l", 1));
  }
  EXPECT_EQ(unwatched.ask({"LEASE.UNWATCH"}), "+OK");
  EXPECT_EQ(reset.ask({"RESET"}), "+RESET");
  EXPECT_THAT(changed.ask({"HELLO", "2"}), StartsWith("[$server"));
  EXPECT_THAT(changed.ask({"HELLO", "3"}), StartsWith("{$server"));
  ask({"LEASE.RELEASE", "l", "me", "1"});
  ask({"LEASE.ACQUIRE", "l", "me", "600000"});
  for (auto* client : {&unwatched, &reset, &changed}) EXPECT_EQ(client->ask({"PING"}), "+PONG");
  EXPECT_EQ(unwatched.ask({"LEASE.UNWATCH"}), "+OK") << "nothing to end is no error";
  EXPECT_EQ(unwatched.ask({"LEASE.WATCH", "l"}), "+OK");
  ask({"LEASE.RELEASE", "l", "me", "2"});
  EXPECT_EQ(unwatched.line(), push("released", "l", 2));
}

TEST_F(WaitingTest, RefusesToWatchInResp2AndSaysWhatToUse) {
  start();
  auto client = connect();
  EXPECT_THAT(client.ask({"LEASE.WATCH", "l"}),
              ::testing::AllOf(StartsWith("-ERR "), HasSubstr("LEASE.WAIT")));
  EXPECT_THAT(client.ask({"LEASE.UNWATCH"}),
              ::testing::AllOf(StartsWith("-ERR "), HasSubstr("LEASE.WAIT")));
  client.send(request({"HELLO", "3"}) + request({"LEASE.WATCH", "l"}) + request({"HELLO", "2"}) +
              request({"LEASE.ACQUIRE", "l", "me", "1000"}) + request({"LEASE.WATCH", "l"}) +
              request({"PING"}));
  EXPECT_THAT(client.line(), StartsWith("{"));
  EXPECT_EQ(client.line(), "+OK");
  EXPECT_THAT(client.line(), StartsWith("["));
  EXPECT_EQ(client.line(), grant(1, 1000)) << "and no push, which RESP2 could not tell from it";
  EXPECT_THAT(client.line(), StartsWith("-ERR "));
  EXPECT_EQ(client.line(), "+PONG");
}

TEST_F(WaitingTest, TellsChangesWhileACommandOfTheConnectionWaits) {
  start();
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  auto client = connect_resp3();
  ASSERT_EQ(client.ask({"LEASE.WATCH", "l", "other"}), "+OK");
  client.send(request({"LEASE.ACQUIRE", "l", "me", "600000", "WAIT", "60000"}) +
              request({"ECHO", "behind"}));
  ASSERT_TRUE(becomes([&] { return waiting("l") == 1; }));
  ask({"LEASE.ACQUIRE", "other", "you", "600000"});
  EXPECT_EQ(client.line(), push("granted", "other", 2));
  ask({"LEASE.RELEASE", "other", "you", "2"});
  EXPECT_EQ(client.line(), push("released", "other", 2));
  ask({"LEASE.RELEASE", "l", "holder", "1"});
  std::vector<std::string> lines;
  for (int i = 0; i < 4; ++i) lines.push_back(client.line());
  EXPECT_THAT(lines,
              ::testing::UnorderedElementsAre(push("released", "l", 1), push("granted", "l", 3),
                                              grant(3, 600000), "$behind"));
}

TEST_F(WaitingTest, TellsPushesThoughRepliesAreOff) {
  start();
  auto client = connect_resp3();
  ASSERT_EQ(client.ask({"LEASE.WATCH", "l"}), "+OK");
  client.send(request({"CLIENT", "REPLY", "OFF"}) +
              request({"LEASE.ACQUIRE", "l", "me", "600000"}));
  EXPECT_EQ(client.line(), push("granted", "l", 1));
}

TEST_F(WaitingTest, PutsNoPushIntoAReply) {
  start({"--durability", "process"});
  auto client = connect_resp3();
  ASSERT_EQ(client.ask({"LEASE.WATCH", "l"}), "+OK");
  ASSERT_EQ(ask({"LEASE.ACQUIRE", "big", "me", "600000"}), grant(1, 600000));
  ASSERT_EQ(ask({"FENCE.SET", "big", "1", std::string(3 << 20, 'v')}), ":1");
  std::atomic<bool> done = false;
  std::thread churn([&] {
    RawClient other(port_);
    while (!done) {
      const auto token = token_of(other.ask({"LEASE.ACQUIRE", "l", "me", "600000"}));
      other.ask({"LEASE.RELEASE", "l", "me", token});
    }
  });
  int values = 0;
  int pushes = 0;
  std::uint64_t newest = 0;
  for (int i = 0; i < 30; ++i) client.send(request({"GET", "big"}));
  while (values < 30) {
    const auto reply = client.read();
    ASSERT_TRUE(reply) << "the stream is broken";
    if (reply->kind == resp::Value::Kind::push) {
      ++pushes;
      const std::uint64_t token = std::stoull(reply->parts[3].text);
      EXPECT_GE(token, newest);
      newest = token;
    } else {
      ASSERT_EQ(reply->text.size(), std::size_t{3} << 20);
      ++values;
    }
  }
  done = true;
  churn.join();
  EXPECT_GT(pushes, 0);
}

TEST_F(WaitingTest, TellsASlowSubscriberWhatItMissedAndBuffersNoMore) {
  start({"--durability", "process"});
  const std::string name(1000, 'n');
  auto slow = connect_resp3();
  ASSERT_EQ(slow.ask({"LEASE.WATCH", name}), "+OK");

  // Some 60 MiB of events, which neither the sockets nor the server's queue can hold.
  constexpr std::uint64_t kTurns = 30'000;
  constexpr std::uint64_t kBatch = 500;
  auto other = connect();
  std::size_t before = 0;
  for (std::uint64_t token = 1; token <= kTurns; token += kBatch) {
    std::string batch;
    for (std::uint64_t next = token; next < token + kBatch; ++next) {
      batch += request({"LEASE.ACQUIRE", name, "me", "600000"}) +
               request({"LEASE.RELEASE", name, "me", std::to_string(next)});
    }
    std::thread sender([&] { other.send(batch); });
    for (std::uint64_t i = 0; i < kBatch; ++i) {
      ASSERT_EQ(other.line(), grant(token + i, 600000));
      ASSERT_EQ(other.line(), "+OK");
    }
    sender.join();
    if (before == 0) before = server_->memory();
  }
  // A sanitizer keeps what was freed for a while, so there its own memory would be counted.
  if (!kSanitized) {
    EXPECT_LT(server_->memory(), before + (std::size_t{40} << 20));
  }

  std::uint64_t newest = 0;
  bool missed = false;
  std::string last;
  while (newest < kTurns || last != "missed") {
    const auto event = slow.read(5s);
    if (!event) break;
    ASSERT_EQ(event->kind, resp::Value::Kind::push);
    last = event->parts[1].text;
    const std::uint64_t token = std::stoull(event->parts[3].text);
    ASSERT_GE(token, newest) << "out of order";
    newest = token;
    if (last == "missed") missed = true;
  }
  EXPECT_TRUE(missed);
  EXPECT_EQ(newest, kTurns) << "the last thing told carries the newest token";
  EXPECT_EQ(slow.ask({"PING"}), "+PONG");
}

TEST_F(WaitingTest, CutsOffASubscriberThatReadsNothing) {
  auto& server = start({"--durability", "process"});
  const std::string name(1000, 'n');
  auto deaf = connect_resp3();
  ASSERT_EQ(deaf.ask({"LEASE.WATCH", name}), "+OK");
  ASSERT_EQ(deaf.ask({"LEASE.ACQUIRE", "bound", "me", "600000", "BIND"}), grant(1, 600000));
  auto other = connect();
  const auto begin = Clock::now();
  while (Clock::now() - begin < 60s &&
         server.log().find("it does not read its replies") == std::string::npos) {
    std::string batch;
    for (int i = 0; i < 100; ++i) {
      batch += request({"LEASE.ACQUIRE", name, "me", "600000"}) + request({"LEASE.REVOKE", name});
    }
    other.send(batch);
    for (int i = 0; i < 200; ++i) other.line();
  }
  EXPECT_GT(since(begin), 29s);
  EXPECT_THAT(server.log(), HasSubstr("it does not read its replies"));
  EXPECT_EQ(ask({"LEASE.WAIT", "bound", "1", "10000"}), "[$disconnected, $bound, $1]");
}

TEST_F(WaitingTest, RefusesToWatchMoreNamesThanItsLimit) {
  start();
  auto client = connect_resp3();
  for (int batch = 0; batch < 10; ++batch) {
    std::vector<std::string> words = {"LEASE.WATCH"};
    for (int i = 0; i < 1000; ++i) words.push_back("n" + std::to_string(1000 * batch + i));
    ASSERT_EQ(client.ask(words), "+OK");
  }
  EXPECT_THAT(client.ask({"LEASE.WATCH", "one more"}), StartsWith("-ERR"));
  std::vector<std::string> too_many(1026, "x");
  too_many[0] = "LEASE.WATCH";
  EXPECT_THAT(client.ask(too_many), StartsWith("-ERR"));
  ask({"LEASE.ACQUIRE", "n9999", "me", "600000"});
  EXPECT_EQ(client.line(), push("granted", "n9999", 1));
}

// ---- Waiting for a change ------------------------------------------------------------------

TEST_F(WaitingTest, WaitsForTheEndOfAGrantOrANewerOne) {
  start();
  const auto wait_for = [this](const std::string& name, std::uint64_t token) {
    auto client = connect();
    client.send(request({"LEASE.WAIT", name, std::to_string(token), "60000"}));
    return client;
  };
  auto anybody = wait_for("l", 0);
  auto newer = wait_for("l", 77);
  EXPECT_EQ(anybody.line(50ms), "closed");  // nothing yet
  ASSERT_EQ(ask({"LEASE.ACQUIRE", "l", "one", "600000"}), grant(1, 600000));
  EXPECT_EQ(anybody.line(), "[$granted, $l, $1]");

  auto released = wait_for("l", 1);
  std::this_thread::sleep_for(100ms);
  ask({"LEASE.RELEASE", "l", "one", "1"});
  EXPECT_EQ(released.line(), "[$released, $l, $1]");

  // G4: what was over before the wait began is answered at once.
  EXPECT_EQ(ask({"LEASE.WAIT", "l", "1", "60000"}), "[$released, $l, $1]");
  ask({"LEASE.ACQUIRE", "l", "two", "3000"});
  EXPECT_EQ(ask({"LEASE.WAIT", "l", "1", "60000"}), "[$granted, $l, $2]");
  EXPECT_EQ(ask({"LEASE.WAIT", "l", "0", "60000"}), "[$granted, $l, $2]");
  EXPECT_EQ(ask({"LEASE.WAIT", "l", "2", "60000"}), "[$expired, $l, $2]");
  EXPECT_EQ(ask({"LEASE.WAIT", "l", "2", "60000"}), "[$expired, $l, $2]");

  const auto begin = Clock::now();
  EXPECT_EQ(ask({"LEASE.WAIT", "l", "0", "200"}), "_") << "nobody holds it";
  EXPECT_GE(since(begin), 200ms);
  EXPECT_EQ(ask({"LEASE.WAIT", "l", "0", "0"}), "_");
  ask({"LEASE.ACQUIRE", "l", "three", "600000"});
  EXPECT_EQ(ask({"LEASE.WAIT", "l", "3", "100"}), "_") << "still held";
  ask({"LEASE.REVOKE", "l"});
  EXPECT_EQ(ask({"LEASE.WAIT", "l", "3", "100"}), "[$revoked, $l, $3]");
  EXPECT_EQ(newer.line(50ms), "closed") << "none of these is newer than 77";
}

TEST_F(WaitingTest, WaitsForANewerGrantThanATokenTheNameNeverHad) {
  start();
  ask({"LEASE.ACQUIRE", "elsewhere", "me", "600000"});
  ask({"LEASE.ACQUIRE", "elsewhere2", "me", "600000"});
  auto client = connect();
  client.send(request({"LEASE.WAIT", "l", "2", "60000"}));
  std::this_thread::sleep_for(100ms);
  ask({"LEASE.ACQUIRE", "l", "me", "600000"});
  EXPECT_EQ(client.line(), "[$granted, $l, $3]");
}

TEST_F(WaitingTest, LetsThoseWhoWaitForAChangeGo) {
  start();
  ask({"LEASE.ACQUIRE", "l", "me", "600000"});
  auto client = connect();
  client.send(request({"LEASE.WAIT", "l", "1", "60000"}));
  ASSERT_TRUE(becomes([&] {
    return ask({"INFO", "fencekv"}).find("waiting:1\r\n") != std::string::npos;
  }));
  EXPECT_EQ(waiting("l"), 0U) << "it waits for a change, not for the lease";
  client.reset();
  EXPECT_TRUE(becomes([&] {
    return ask({"INFO", "fencekv"}).find("waiting:0\r\n") != std::string::npos;
  }));
}

// ---- Listings ------------------------------------------------------------------------------

TEST_F(WaitingTest, ListsWaitersAndShowsNoOwner) {
  auto& server = start({"--log-level", "debug"});
  const std::string canary = "canary-owner-77f1";
  ask({"LEASE.ACQUIRE", "l", canary, "600000", "SHARED"});
  auto first = waiter("l", canary + "2", 600s);
  auto second = waiter("l", canary + "3", 300s, {"SHARED"});

  const std::string listed = ask({"LEASE.WAITERS", "l"});
  EXPECT_THAT(
      listed,
      MatchesRegex(
          R"(\[\[.owner, .[0-9a-f]{8}, .mode, .exclusive, .waited, :[0-9]+, .remaining, :(600000|[1-5][0-9]{5}), .client, .127[^,]*\], \[.owner, .[0-9a-f]{8}, .mode, .shared, .waited, :[0-9]+, .remaining, :(300000|[12][0-9]{5}), .client, .127[^,]*\]\])"));
  auto three = connect_resp3();
  EXPECT_THAT(three.ask({"LEASE.WAITERS", "l"}), StartsWith("[{$owner: $"));
  std::string all = listed + ask({"LEASE.INFO", "l"}) + ask({"LEASE.SCAN", "0"}) +
                    ask({"CLIENT", "LIST"}) + ask({"INFO"});
  EXPECT_THAT(all, Not(HasSubstr("canary-owner")));
  EXPECT_THAT(ask({"INFO"}), HasSubstr("waiting:2\r\n"));
  EXPECT_THAT(ask({"INFO"}), HasSubstr("blocked_clients:2\r\n"));
  EXPECT_THAT(ask({"INFO"}), HasSubstr("sessions:4\r\n"));
  first.reset();
  second.reset();
  EXPECT_TRUE(becomes([&] { return waiting("l") == 0; }));
  EXPECT_THAT(server.log(), Not(HasSubstr("canary-owner")));
}

TEST_F(WaitingTest, ScansWhatIsHeldOrWaitedFor) {
  start();
  ask({"LEASE.ACQUIRE", "held", "a", "600000"});
  ask({"LEASE.ACQUIRE", "free", "a", "600000"});
  ask({"LEASE.RELEASE", "free", "a", "2"});
  ask({"LEASE.ACQUIRE", "blocked", "a", "600000", "DELAY", "600000"});
  ask({"LEASE.REVOKE", "blocked"});
  auto client = waiter("blocked", "b");
  EXPECT_THAT(
      ask({"LEASE.SCAN", "0", "COUNT", "1000"}),
      MatchesRegex(R"(\[.0, \[\[.name, .blocked, .fence, .3, .mode, _, .holders, \[\], )"
                   R"(.waiters, :1, .blocked, :[0-9]+, .payload, _\], \[.name, .held, .*\]\])"));
}

TEST_F(WaitingTest, RenewsAndReleasesManyAndSaysWhichFailed) {
  start();
  ask({"LEASE.ACQUIRE", "a", "me", "60000"});
  ask({"LEASE.ACQUIRE", "b", "me", "60000"});
  ask({"LEASE.ACQUIRE", "c", "other", "600000"});
  EXPECT_EQ(ask({"LEASE.MRENEW", "600000", "4", "a", "me", "1", "c", "me", "3", "none", "me", "1",
                 "b", "me", "2"}),
            "[:600000, -LEASELOST unknown, -LEASELOST unknown, :600000]");
  // Nothing is done when a part of it cannot be read.
  EXPECT_THAT(ask({"LEASE.MRELEASE", "2", "a", "me", "1", "b", "me", "two"}), StartsWith("-ERR"));
  EXPECT_EQ(ask({"LEASE.RENEW", "a", "me", "1", "600000"}), ":600000");
  EXPECT_EQ(ask({"LEASE.MRELEASE", "3", "a", "me", "1", "a", "me", "1", "c", "me", "3"}),
            "[+OK, +OK, -LEASELOST unknown]");
}

// ---- The end and the stillness of the server -----------------------------------------------

TEST_F(WaitingTest, AnswersWaitersWhenItStops) {
  auto& server = start();
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  std::vector<RawClient> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(waiter("l", "w" + std::to_string(i)));
  auto change = connect();
  change.send(request({"LEASE.WAIT", "l", "1", "60000"}) + request({"ECHO", "behind"}) +
              request({"LEASE.ACQUIRE", "free", "me", "600000", "WAIT", "60000"}) +
              request({"LEASE.ACQUIRE", "l", "me", "600000", "WAIT", "60000"}));
  auto watcher = connect_resp3();
  ASSERT_EQ(watcher.ask({"LEASE.WATCH", "l"}), "+OK");
  ASSERT_TRUE(becomes([&] {
    return ask({"INFO", "fencekv"}).find("waiting:6\r\n") != std::string::npos;
  }));

  const auto begin = Clock::now();
  server.signal(SIGTERM);
  for (auto& client : clients) {
    EXPECT_THAT(client.line(), StartsWith("-OVERLOADED the server is stopping"));
    EXPECT_EQ(client.line(), "closed");
  }
  EXPECT_THAT(change.line(), StartsWith("-OVERLOADED the server is stopping"));
  EXPECT_EQ(change.line(), "$behind") << "what has arrived is answered";
  EXPECT_THAT(change.line(), ::testing::AnyOf(grant(2, 600000), StartsWith("-OVERLOADED")));
  EXPECT_THAT(change.line(), StartsWith("-OVERLOADED the server is stopping"));
  EXPECT_EQ(change.line(), "closed");
  EXPECT_EQ(watcher.line(), "closed");
  EXPECT_EQ(server.wait_exit(), 0) << server.log();
  EXPECT_LT(since(begin), 8s);

  start();
  EXPECT_EQ(ask({"LEASE.RENEW", "l", "holder", "1", "600000"}), ":600000");
  EXPECT_EQ(waiting("l"), 0U);
}

// C4 in small: whatever was queued while nothing ran, what is overdue expires first.
TEST_F(WaitingTest, ExpiresWhatIsOverdueBeforeItAnswersWhatWasQueuedWhileItWasStopped) {
  auto& server = start();
  auto holder = connect();
  ASSERT_EQ(holder.ask({"LEASE.ACQUIRE", "l", "old", "3000"}), grant(1, 3000));
  ASSERT_EQ(holder.ask({"FENCE.SET", "k", "1", "v", "LEASE", "l"}), ":1");
  auto next = waiter("l", "next");
  ASSERT_EQ(ask({"LEASE.ACQUIRE", "alone", "old", "3000"}), grant(2, 3000));

  server.signal(SIGSTOP);
  holder.send(request({"FENCE.SET", "k", "1", "late", "LEASE", "l"}) +
              request({"LEASE.RENEW", "l", "old", "1", "1000"}) +
              request({"LEASE.RENEW", "alone", "old", "2", "1000"}) +
              request({"FENCE.SET", "other", "2", "late", "LEASE", "alone", "LIVE"}) +
              request({"FENCE.SET", "other", "2", "late", "LEASE", "alone"}));
  std::this_thread::sleep_for(3500ms);
  server.signal(SIGCONT);

  EXPECT_THAT(holder.line(), StartsWith("-FENCED 3 1 superseded"));
  EXPECT_EQ(holder.line(), "-LEASELOST superseded");
  EXPECT_EQ(holder.line(), "-LEASELOST expired");
  EXPECT_THAT(holder.line(), StartsWith("-EXPIRED "));
  EXPECT_EQ(holder.line(), ":1") << "its time is over, but nobody else came";
  EXPECT_EQ(next.line(), grant(3, 600000)) << "its time runs from the grant";
  EXPECT_EQ(ask({"GET", "k"}), "$v");
}

// G2: the time of a wait is over while the server stands still, and its turn comes too.
TEST_F(WaitingTest, LetsAWaitEndInItsTimeThoughTheServerStoodStill) {
  auto& server = start();
  ask({"LEASE.ACQUIRE", "l", "holder", "600000"});
  auto client = waiter("l", "w", 3000ms);
  server.signal(SIGSTOP);
  std::this_thread::sleep_for(3500ms);
  server.signal(SIGCONT);
  EXPECT_EQ(client.line(), "_");
}

}  // namespace
}  // namespace fencekv::testing
