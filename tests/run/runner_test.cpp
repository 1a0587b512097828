// SPDX-License-Identifier: Apache-2.0
// fencekv-run as a program, beside a real server that is killed, frozen and started again.
#include "tests/run/runner.h"

#include "fencekv/store.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sys/stat.h>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using run::boot_time;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(RunnerTest, TellsTheCommandTokenLeaseAndAddress) {
  ASSERT_EQ(run({}, "env >env"), 0);

  const auto entries = lines_of(file("env"));
  EXPECT_THAT(entries, Contains("FENCEKV_TOKEN=1"));
  EXPECT_THAT(entries, Contains("FENCEKV_LEASE=job"));
  EXPECT_THAT(entries, Contains("FENCEKV_HOST=127.0.0.1"));
  EXPECT_THAT(entries, Contains("FENCEKV_PORT=" + std::to_string(port_)));
  EXPECT_THAT(entries, Each(Not(StartsWith("FENCEKV_UNIX"))));
  EXPECT_TRUE(is_free()) << "it was given back";
}

TEST_F(RunnerTest, ShowsTheOwnerToNobody) {
  auto runner = start({},
                      "env >env; tr '\\0' '\\n' </proc/$$/cmdline >words; "
                      "tr '\\0' '\\n' </proc/$PPID/cmdline >>words; echo >up; sleep 1000");
  await_line(file("up"));

  // A listing has the fingerprint; whoever found the owner could compare.
  const auto listed = info();
  const auto at = listed.find("$owner, $");
  ASSERT_NE(at, std::string::npos) << listed;
  const auto fingerprint = listed.substr(at + 9, 8);
  auto seen = lines_of(file("words"));
  for (const auto& entry : lines_of(file("env"))) seen.push_back(entry.substr(entry.find('=') + 1));
  ASSERT_THAT(seen, Contains("job"));
  for (const auto& word : seen) EXPECT_NE(owner_fingerprint(word), fingerprint) << word;
  runner->signal(SIGTERM);
  EXPECT_EQ(runner->wait(), 128 + SIGTERM);
}

TEST_F(RunnerTest, EndsAsTheCommandDoes) {
  EXPECT_EQ(run({}, "exit 0"), 0);
  EXPECT_EQ(run({}, "exit 3"), 3);
  EXPECT_EQ(run({}, "exit 123"), 123);
  EXPECT_EQ(run({}, "kill -9 $$"), 128 + SIGKILL);
  EXPECT_TRUE(is_free());
}

TEST_F(RunnerTest, HasAnExitCodeForEachWayNotToRun) {
  const auto code = [&](std::vector<std::string> words) {
    return Runner(std::move(words), folder_.path(), "code" + std::to_string(++started_)).wait();
  };
  const auto port = std::to_string(port_);
  EXPECT_EQ(code({"--lease", "job", "--port", port, "--", "/no/such/command"}), 127);
  EXPECT_EQ(code({"--lease", "job", "--port", port, "--", "no-such-command"}), 127);
  EXPECT_EQ(code({"--lease", "job", "--port", port, "--", "/etc/passwd"}), 126);
  EXPECT_EQ(code({"--lease", "job", "--port", port, "true"}), 125);
  EXPECT_EQ(code({"--lease", "job", "--port", "1", "--", "touch", "ran"}), 122);
  EXPECT_EQ(code({"--lease", "job", "--unix", "no-such-socket", "--", "touch", "ran"}), 122);

  ASSERT_THAT(ask({"LEASE.ACQUIRE", "job", "somebody", "60000"}), StartsWith("["));
  EXPECT_EQ(run({"--no-wait"}, "touch ran"), 124);
  const auto start = boot_time();
  EXPECT_EQ(run({"--wait", "300ms"}, "touch ran"), 124);
  EXPECT_GE(boot_time() - start, 300ms);
  // Exclusive and shared exclude each other.
  EXPECT_EQ(run({"--shared", "--no-wait"}, "touch ran"), 124);
  EXPECT_FALSE(std::filesystem::exists(file("ran")));
}

TEST_F(RunnerTest, PassesSignalsOnAndGivesTheLeaseBackBehindTheCommand) {
  auto runner = start({},
                      "trap 'sleep 0.3; echo end >end; exit 5' TERM; echo >up; "
                      "while :; do sleep 0.02; done");
  await_line(file("up"));

  runner->signal(SIGTERM);

  ASSERT_TRUE(await([&] { return is_free(); }));
  EXPECT_EQ(text("end"), "end\n") << "the command had ended before";
  EXPECT_EQ(runner->wait(), 5);
}

TEST_F(RunnerTest, EndsTheCommandWhenTheLeaseIsRevoked) {
  auto runner = start({"--ttl", "30s"}, "echo >up; " + kBeat);
  await_line(file("beats"));
  const auto start = boot_time();

  ASSERT_THAT(ask({"LEASE.REVOKE", "job"}), "$1");

  EXPECT_EQ(runner->wait(), 123);
  EXPECT_LT(last_beat(file("beats")), start + 8s) << "it did not wait for the next renewal";
  EXPECT_THAT(runner->err(),
              HasSubstr("the lease job with token 1 was lost: the server says: revoked"));
}

// The last renewal that was acknowledged was sent before the server stopped answering, so the
// deadline is at most one ttl after that.

TEST_F(RunnerTest, EndsTheCommandInTimeWhenTheServerIsKilled) {
  EXPECT_TRUE(is_in_time_once([&] {
    std::filesystem::remove(file("beats"));
    auto runner = start({"--ttl", "3s"}, kBeat);
    await_line(file("beats"));

    server_->signal(SIGKILL);
    const auto killed = boot_time();

    EXPECT_EQ(runner->wait(), 123);
    EXPECT_THAT(runner->err(), HasSubstr("no renewal was acknowledged in time"));
    const auto last = last_beat(file("beats"));
    start_server();
    return last <= killed + 3s && last >= killed + 1s;  // one failed renewal is not the end
  }));
}

TEST_F(RunnerTest, EndsTheCommandInTimeWhenTheServerIsFrozen) {
  EXPECT_TRUE(is_in_time_once([&] {
    std::filesystem::remove(file("beats"));
    auto runner = start({"--ttl", "3s"}, kBeat);
    await_line(file("beats"));

    server_->signal(SIGSTOP);
    const auto frozen = boot_time();

    EXPECT_EQ(runner->wait(), 123);
    const auto last = last_beat(file("beats"));
    server_->signal(SIGCONT);
    EXPECT_TRUE(is_free()) << "the server counts no less than the holder";
    return last <= frozen + 3s && last >= frozen + 1s;
  }));
}

TEST_F(RunnerTest, KillsACommandThatDoesNotStopInTime) {
  EXPECT_TRUE(is_in_time_once([&] {
    std::filesystem::remove(file("beats"));
    auto runner = start({"--ttl", "3s", "--grace", "500ms"}, "trap '' TERM; " + kBeat);
    await_line(file("beats"));

    server_->signal(SIGSTOP);
    const auto frozen = boot_time();

    EXPECT_EQ(runner->wait(), 123);
    server_->signal(SIGCONT);
    return last_beat(file("beats")) <= frozen + 3s;
  }));
}

TEST_F(RunnerTest, KeepsTheLeaseOverARestartOfTheServer) {
  // Longer than what is left when the server ends, so it is renewed with the next one.
  auto runner = start({"--ttl", "10s"}, "echo >up; sleep 12; exit 4");
  await_line(file("up"));

  server_->signal(SIGKILL);
  server_->wait_exit();
  start_server();

  EXPECT_EQ(runner->wait(), 4) << runner->err();
  EXPECT_TRUE(is_free());
}

TEST_F(RunnerTest, RunsOneAfterTheOther) {
  const std::string script =
      "echo $FENCEKV_TOKEN in >>log; sleep 0.3; echo $FENCEKV_TOKEN out >>log";
  auto first = start({}, script);
  await_line(file("log"));
  auto second = start({}, script);
  auto third = start({}, script);

  EXPECT_EQ(first->wait(), 0);
  EXPECT_EQ(second->wait(), 0);
  EXPECT_EQ(third->wait(), 0);

  const auto log = lines_of(file("log"));
  ASSERT_EQ(log.size(), 6U);
  int before = 0;
  for (std::size_t i = 0; i < log.size(); i += 2) {
    const auto token = std::stoi(log[i]);
    EXPECT_EQ(log[i], std::to_string(token) + " in");
    EXPECT_EQ(log[i + 1], std::to_string(token) + " out");
    EXPECT_GT(token, before);
    before = token;
  }
}

TEST_F(RunnerTest, RunsReadersTogetherAndAsManyAsThereArePermits) {
  // Each waits for the other: one alone would never end.
  const std::string together =
      "touch $NAME.$$; while [ $(ls | grep -c ^$NAME) -lt 2 ]; do sleep "
      "0.02; done; sleep 0.3";
  for (const auto& flags : {std::vector<std::string>{"--shared"}, {"--permits", "2"}}) {
    const auto script = "NAME=" + flags[0].substr(2) + "; " + together;
    auto one = start(flags, script);
    auto two = start(flags, script);
    EXPECT_EQ(one->wait(), 0);
    EXPECT_EQ(two->wait(), 0);
  }

  auto one = start({"--permits", "2"}, "echo >one; sleep 1000");
  auto two = start({"--permits", "2"}, "echo >two; sleep 1000");
  await_line(file("one"));
  await_line(file("two"));
  EXPECT_EQ(run({"--permits", "2", "--no-wait"}, "true"), 124);
  EXPECT_EQ(run({"--permits", "3", "--no-wait"}, "true"), 125) << "another number is a mistake";
}

TEST_F(RunnerTest, ALossOfOneReaderIsNoneOfTheOthers) {
  auto first = start({"--shared", "--ttl", "30s"}, "echo >one; sleep 1000");
  await_line(file("one"));
  auto second = start({"--shared", "--ttl", "30s"}, "echo >two; sleep 0.5; exit 6");
  await_line(file("two"));

  EXPECT_EQ(second->wait(), 6) << "it gave its own back";
  ASSERT_THAT(info(), HasSubstr("$mode, $shared")) << "the first one still has the lease";
  first->signal(SIGTERM);
  EXPECT_EQ(first->wait(), 128 + SIGTERM) << "and was not told that it lost it";
}

TEST_F(RunnerTest, ShowsWhoHoldsTheLease) {
  auto runner = start({}, "echo >up; sleep 1000");
  await_line(file("up"));
  EXPECT_THAT(info(), AllOf(HasSubstr("@"), HasSubstr(" " + std::to_string(runner->id()) + " sh")));
  EXPECT_THAT(info(), Not(HasSubstr("sleep 1000"))) << "arguments are nobody's business";
  runner.reset();
  ASSERT_THAT(ask({"LEASE.REVOKE", "job"}), StartsWith("$"));

  EXPECT_EQ(run({"--payload", "the night shift", "--delay", "1m"}, "exit 0"), 0);
  EXPECT_THAT(info(), HasSubstr("$blocked, :0")) << "given back, so there is nothing to wait for";
  runner = start({"--payload", "the night shift", "--delay", "1m"}, "echo >>up; sleep 1000");
  await_line(file("up"), 2);
  EXPECT_THAT(info(), HasSubstr("$payload, $the night shift"));
  ASSERT_THAT(ask({"LEASE.REVOKE", "job"}), StartsWith("$"));
  EXPECT_THAT(info(), Not(HasSubstr("$blocked, :0")));
}

TEST_F(RunnerTest, LogsInWithAFileAndOverAUnixSocket) {
  const auto password = file("password");
  std::ofstream(password) << "correct horse\n";
  ::chmod(password.c_str(), 0600);
  const auto wrong = file("wrong");
  std::ofstream(wrong) << "battery staple\n";
  ::chmod(wrong.c_str(), 0600);
  const auto socket = file("socket").string();
  server_->signal(SIGTERM);
  server_->wait_exit();
  start_server({"--password-file", password, "--unix", socket});

  const auto code = [&](const std::string& password_file, std::vector<std::string> address) {
    std::vector<std::string> words{"--lease", "job", "--password-file", password_file};
    words.insert(words.end(), address.begin(), address.end());
    words.insert(words.end(), {"--", "sh", "-c", "env >env"});
    return Runner(words, folder_.path(), "login" + std::to_string(++started_)).wait();
  };
  EXPECT_EQ(run({}, "true"), 122) << "no password";
  EXPECT_EQ(code(wrong, {"--port", std::to_string(port_)}), 122);
  EXPECT_EQ(code(password, {"--port", std::to_string(port_)}), 0);
  EXPECT_THAT(text("env"), Not(HasSubstr("correct horse")));
  EXPECT_EQ(code(password, {"--unix", socket}), 0);
  EXPECT_THAT(lines_of(file("env")), Contains("FENCEKV_UNIX=" + socket));
  EXPECT_THAT(lines_of(file("env")), Each(Not(StartsWith("FENCEKV_HOST"))));
  EXPECT_THAT(lines_of(file("env")), Each(Not(StartsWith("FENCEKV_PORT"))));
  ::chmod(password.c_str(), 0644);
  EXPECT_EQ(code(password, {"--unix", socket}), 125) << "others could read it";
}

TEST_F(RunnerTest, LeavesTheQueueWhenItIsToldToEnd) {
  ASSERT_THAT(ask({"LEASE.ACQUIRE", "job", "somebody", "60000"}), StartsWith("["));
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    auto runner = start({}, "touch ran");
    ASSERT_TRUE(await([&] { return has_waiters(1); }));

    runner->signal(number);

    EXPECT_EQ(runner->wait(), 128 + number);
    EXPECT_TRUE(await([&] { return has_waiters(0); }));
  }
  EXPECT_FALSE(std::filesystem::exists(file("ran")));
}

TEST_F(RunnerTest, GoesOnWaitingOverARestartOfTheServer) {
  ASSERT_THAT(ask({"LEASE.ACQUIRE", "job", "somebody", "6000"}), StartsWith("["));
  auto runner = start({}, "echo ran >ran");
  ASSERT_TRUE(await([&] { return has_waiters(1); }));

  server_->signal(SIGKILL);
  server_->wait_exit();
  start_server();

  EXPECT_EQ(runner->wait(), 0) << runner->err();
  EXPECT_EQ(text("ran"), "ran\n");
}

TEST_F(RunnerTest, TakesTheCommandAlongWhenItIsKilled) {
  // A shell and what it started: the signal of the kernel reaches the first only.
  auto runner = start({"--ttl", "1m"}, "echo $$ >outer; sh -c 'echo $$ >inner; sleep 1000'; true");
  await_line(file("inner"));
  const auto outer = std::stoi(text("outer"));
  const auto inner = std::stoi(text("inner"));
  ASSERT_TRUE(is_running(outer) && is_running(inner));

  runner->signal(SIGKILL);

  EXPECT_TRUE(await([&] { return !is_running(outer) && !is_running(inner); }));
}

TEST_F(RunnerTest, TheCommandEndsInTimeAlsoWhenTheRunnerIsFrozen) {
  EXPECT_TRUE(is_in_time_once([&] {
    std::filesystem::remove(file("beats"));
    auto runner = start({"--ttl", "3s"}, "echo $$ >up; " + kBeat);
    await_line(file("beats"));
    const auto command = std::stoi(text("up"));

    runner->signal(SIGSTOP);
    const auto frozen = boot_time();
    EXPECT_TRUE(await([&] { return !is_running(command); }));
    const auto last = last_beat(file("beats"));
    runner->signal(SIGCONT);
    EXPECT_EQ(runner->wait(), 123);
    return last <= frozen + 3s + 50ms && last >= frozen + 1s;
  }));
}

TEST_F(RunnerTest, StopsAndGoesOnTogetherWithTheCommand) {
  auto runner =
      start({"--ttl", "30s"}, "echo $$ >up; trap 'exit 8' USR1; while :; do sleep 0.02; done");
  await_line(file("up"));
  const auto child = std::stoi(text("up"));

  runner->signal(SIGTSTP);
  EXPECT_TRUE(await([&] { return is_stopped(child) && is_stopped(runner->id()); }));
  runner->signal(SIGCONT);
  EXPECT_TRUE(await([&] { return !is_stopped(child) && !is_stopped(runner->id()); }));

  runner->signal(SIGUSR1);
  EXPECT_EQ(runner->wait(), 8) << runner->err();
}

TEST_F(RunnerTest, StopsACommandThatDoesNotWantTo) {
  auto runner = start({"--ttl", "30s"}, "trap '' TSTP; echo $$ >up; " + kBeat);
  await_line(file("beats"));
  const auto child = std::stoi(text("up"));

  runner->signal(SIGTSTP);
  ASSERT_TRUE(await([&] { return is_stopped(runner->id()) && is_stopped(child); }));
  const auto stopped = lines_of(file("beats")).size();
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(lines_of(file("beats")).size(), stopped);

  runner->signal(SIGCONT);
  await_line(file("beats"), stopped + 1);
  runner->signal(SIGTERM);
  EXPECT_EQ(runner->wait(), 128 + SIGTERM);
}

TEST_F(RunnerTest, AStoppedCommandThatIsContinuedTooLateNeverRunsAgain) {
  auto runner = start({"--ttl", "4s"}, "echo $$ >up; trap 'echo awake >awake' CONT; " + kBeat);
  await_line(file("beats"));
  const auto child = std::stoi(text("up"));

  runner->signal(SIGTSTP);
  ASSERT_TRUE(await([&] { return is_stopped(child) && is_stopped(runner->id()); }));
  const auto stopped = boot_time();
  ASSERT_TRUE(await([&] { return is_free(); })) << "nobody renews for a stopped command";
  runner->signal(SIGCONT);

  EXPECT_EQ(runner->wait(), 123);
  EXPECT_LE(last_beat(file("beats")), stopped);
  EXPECT_EQ(text("awake"), "");
}

}  // namespace
}  // namespace fencekv::testing
