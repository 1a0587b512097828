// SPDX-License-Identifier: Apache-2.0
// Leader election: whatever happens to the leader, there is a next one, and the old one's writes
// are refused.
#include "tests/run/runner.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using run::boot_time;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Three candidates. Each that leads says so, and then writes its token under the lease, again and
/// again, with what the server answered in `answers.TOKEN`.
class ElectionTest : public RunnerTest {
 protected:
  virtual const char* ttl() const { return "2s"; }

  void SetUp() override {
    RunnerTest::SetUp();
    for (int i = 0; i < 3; ++i) {
      candidates_.push_back(start({"--ttl", ttl()},
                                  "echo $PPID $$ $FENCEKV_TOKEN >>leaders; while :; do redis-cli "
                                  "-p $FENCEKV_PORT FENCE.SET "
                                  "leader $FENCEKV_TOKEN $FENCEKV_TOKEN LEASE $FENCEKV_LEASE "
                                  ">>answers.$FENCEKV_TOKEN 2>&1; "
                                  "sleep 0.05; done"));
    }
  }

  struct Leader {
    pid_t runner = 0;
    pid_t command = 0;
    int token = 0;
  };

  /// The leader number `number`, counted from 1, once it has written.
  Leader await_leader(std::size_t number) {
    Leader leader;
    await_line(file("leaders"), number);
    std::stringstream(lines_of(file("leaders"))[number - 1]) >> leader.runner >> leader.command >>
        leader.token;
    EXPECT_TRUE(await([&] { return stored() == leader.token; })) << stored();
    return leader;
  }

  Runner& candidate(const Leader& leader) {
    return **std::find_if(candidates_.begin(), candidates_.end(),
                          [&](const auto& runner) { return runner->id() == leader.runner; });
  }

  /// The token that wrote last.
  int stored() const {
    const auto reply = ask({"GET", "leader"});
    return reply.starts_with("$") ? std::stoi(reply.substr(1)) : 0;
  }

  std::vector<std::unique_ptr<Runner>> candidates_;
};

TEST_F(ElectionTest, ANextOneLeadsWhenTheLeaderIsKilled) {
  const auto first = await_leader(1);
  candidate(first).signal(SIGKILL);
  const auto killed = boot_time();

  const auto second = await_leader(2);
  EXPECT_LT(boot_time() - killed, 2s + 10s) << "one ttl, and no polling";
  EXPECT_GT(second.token, first.token);
  EXPECT_FALSE(is_running(first.command));

  candidate(second).signal(SIGKILL);
  const auto third = await_leader(3);
  EXPECT_GT(third.token, second.token);
  EXPECT_NE(third.runner, second.runner);
}

/// Where nothing is waited for, a ttl far longer than any wait here.
class LongElectionTest : public ElectionTest {
 protected:
  const char* ttl() const override { return "1m"; }
};

TEST_F(LongElectionTest, ANextOneLeadsAtOnceWhenTheLeaderEnds) {
  const auto first = await_leader(1);
  candidate(first).signal(SIGTERM);
  const auto ended = boot_time();

  await_leader(2);

  EXPECT_LT(boot_time() - ended, 15s) << "it gave the lease back";
  EXPECT_EQ(candidate(first).wait(), 128 + SIGTERM);
}

TEST_F(ElectionTest, AStalledLeaderIsRefusedWhenItWakesUp) {
  const auto first = await_leader(1);
  // As when its machine is frozen: all of it, the watchman too.
  auto frozen = children_of(first.runner);
  frozen.push_back(first.runner);
  ASSERT_EQ(frozen.size(), 3U);
  for (const auto process : frozen) stop_process(process);
  ::kill(-first.command, SIGSTOP);

  const auto second = await_leader(2);
  ASSERT_GT(second.token, first.token);
  // The command goes on first, where it was: it believes that it leads.
  const auto answers = file("answers." + std::to_string(first.token));
  const auto before = lines_of(answers).size();
  ::kill(-first.command, SIGCONT);
  ASSERT_TRUE(await([&] { return lines_of(answers).size() > before + 3; }));

  EXPECT_THAT(lines_of(answers).back().empty() ? lines_of(answers)[lines_of(answers).size() - 2]
                                               : lines_of(answers).back(),
              StartsWith("FENCED " + std::to_string(second.token)));
  EXPECT_EQ(stored(), second.token);

  for (const auto process : frozen) ::kill(process, SIGCONT);
  EXPECT_EQ(candidate(first).wait(), 123);
  EXPECT_FALSE(is_running(first.command));
  EXPECT_EQ(stored(), second.token);
}

}  // namespace
}  // namespace fencekv::testing
