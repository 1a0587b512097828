// SPDX-License-Identifier: Apache-2.0
// Real processes under a lease that a test plays.
#include "tools/run/supervisor.h"

#include "tests/run/watching.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_directory.h"
#include "tools/run/spawn.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>
#include <variant>
#include <vector>

namespace fencekv::run {
namespace {

using namespace std::chrono_literals;
using testing::await_line;
using testing::is_in_time_once;
using testing::is_running;
using testing::kBeat;
using testing::last_beat;
using testing::text_of;

class PlayedLease : public HeldLease {
 public:
  explicit PlayedLease(std::chrono::milliseconds ttl)
      : deadline_((boot_time() + ttl).count()), told_(::eventfd(0, EFD_CLOEXEC)) {}

  void renew(std::chrono::milliseconds ttl) { deadline_ = (boot_time() + ttl).count(); }
  void lose(std::string reason) {
    {
      const std::lock_guard lock(mutex_);
      loss_ = std::move(reason);
    }
    const std::uint64_t once = 1;
    ASSERT_EQ(::write(told_.number(), &once, sizeof once), 8);
  }

  BootTime deadline() const override { return BootTime(deadline_.load()); }
  std::optional<std::string> loss() const override {
    const std::lock_guard lock(mutex_);
    return loss_;
  }
  int loss_descriptor() const override { return told_.number(); }

 private:
  std::atomic<std::int64_t> deadline_;
  mutable std::mutex mutex_;
  std::optional<std::string> loss_;
  Descriptor told_;
};

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~SupervisorTest() override { ::pthread_sigmask(SIG_SETMASK, &signals_.before(), nullptr); }

  std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }

  /// Runs a shell script in the folder. `meanwhile` runs beside it.
  Outcome run(
      const std::string& script, PlayedLease& lease, std::chrono::milliseconds grace = 200ms,
      const std::function<void()>& meanwhile = [] {}) {
    Terminal terminal;
    const auto started = spawn({.words = {"sh", "-c", "cd \"$0\"; " + script, folder_.path()},
                                .environment = {"PATH=/usr/bin:/bin"},
                                .files = {}},
                               signals_, terminal);
    child_ = std::get<pid_t>(started);
    std::thread beside(meanwhile);
    Supervisor supervisor(child_, lease, grace, signals_, watchman_, terminal);
    auto outcome = supervisor.run();
    beside.join();
    return outcome;
  }

  testing::TemporaryDirectory folder_;
  Signals signals_ = *Signals::open();
  Watchman watchman_ = *Watchman::start();
  pid_t child_ = -1;
};

TEST_F(SupervisorTest, GivesTheCodeOfTheCommand) {
  PlayedLease lease(1min);
  for (const int code : {0, 1, 125, 255}) {
    const auto outcome = run("exit " + std::to_string(code), lease);
    EXPECT_EQ(outcome.code, code);
    EXPECT_EQ(outcome.loss, std::nullopt);
  }
}

TEST_F(SupervisorTest, GivesTheSignalThatEndedTheCommand) {
  PlayedLease lease(1min);
  EXPECT_EQ(run("kill -9 $$", lease).code, 128 + SIGKILL);
  EXPECT_EQ(run("kill -TERM $$", lease).code, 128 + SIGTERM);
}

TEST_F(SupervisorTest, StopsTheCommandBeforeTheDeadline) {
  EXPECT_TRUE(is_in_time_once([&] {
    std::filesystem::remove(file("beats"));
    PlayedLease lease(1s);
    const auto deadline = lease.deadline();

    const auto outcome = run(kBeat, lease, 300ms);

    const auto ended = boot_time();
    EXPECT_TRUE(outcome.loss);
    EXPECT_EQ(outcome.code, 128 + SIGTERM);
    EXPECT_FALSE(is_running(child_));
    const auto last = last_beat(file("beats"));
    // SIGTERM came as early as asked, and not much earlier.
    return ended <= deadline && last <= deadline - 100ms && last >= deadline - 500ms;
  }));
}

TEST_F(SupervisorTest, KillsACommandThatIgnoresSigterm) {
  EXPECT_TRUE(is_in_time_once([&] {
    std::filesystem::remove(file("beats"));
    PlayedLease lease(1s);
    const auto deadline = lease.deadline();

    const auto outcome = run("trap '' TERM; " + kBeat, lease, 300ms);

    const auto ended = boot_time();
    EXPECT_TRUE(outcome.loss);
    EXPECT_EQ(outcome.code, 128 + SIGKILL);
    const auto last = last_beat(file("beats"));
    return ended <= deadline && last <= deadline && last >= deadline - 250ms;  // it had its grace
  }));
}

TEST_F(SupervisorTest, KillsAtTheDeadlineWithoutAnyGraceToo) {
  EXPECT_TRUE(is_in_time_once([&] {
    std::filesystem::remove(file("beats"));
    PlayedLease lease(500ms);
    const auto deadline = lease.deadline();

    const auto outcome = run(kBeat, lease, 0ms);

    const auto ended = boot_time();
    EXPECT_EQ(outcome.code, 128 + SIGKILL);
    return ended <= deadline && last_beat(file("beats")) <= deadline;
  }));
}

TEST_F(SupervisorTest, EndsTheWholeGroup) {
  PlayedLease lease(2s);

  const auto outcome = run(
      "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >inner; while :; do sleep 1; done'", lease, 1s);

  EXPECT_TRUE(outcome.loss);
  EXPECT_FALSE(is_running(std::stoi(text_of(file("inner")))));
}

TEST_F(SupervisorTest, LetsTheCommandCleanUpInItsGrace) {
  PlayedLease lease(2s);

  const auto outcome =
      run("trap 'echo cleaned >end; exit 7' TERM; while :; do sleep 0.02; done", lease, 1s);

  EXPECT_EQ(text_of(file("end")), "cleaned\n");
  EXPECT_TRUE(outcome.loss) << "a command that ends well when told so has lost its lease even so";
  EXPECT_EQ(outcome.code, 7);
}

TEST_F(SupervisorTest, StopsAtOnceWhenTheServerSaysThatTheLeaseIsLost) {
  PlayedLease lease(1min);
  const auto start = boot_time();

  const auto outcome =
      run("echo up >up; trap '' TERM; while :; do sleep 0.02; done", lease, 300ms, [&] {
        await_line(file("up"));
        lease.lose("revoked");
      });

  EXPECT_EQ(outcome.loss, "revoked");
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_LT(boot_time() - start, 20s) << "long before the deadline";
}

TEST_F(SupervisorTest, GoesOnWhileTheLeaseIsRenewed) {
  PlayedLease lease(2s);

  const auto outcome = run("sleep 3; echo done >end", lease, 200ms, [&] {
    for (int i = 0; i < 200 && text_of(file("end")).empty(); ++i) {
      std::this_thread::sleep_for(100ms);
      lease.renew(2s);
    }
  });

  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.loss, std::nullopt);
  EXPECT_EQ(text_of(file("end")), "done\n");
}

TEST_F(SupervisorTest, EndsWhatTheCommandLeavesBehind) {
  PlayedLease lease(1min);
  const auto start = boot_time();

  const auto outcome =
      run("sleep 1000 & echo $! >polite; sh -c 'trap \"\" TERM; echo $$ >stubborn; while :; do "
          "sleep 1; "
          "done' & while ! [ -s stubborn ]; do sleep 0.01; done; exit 3",
          lease, 300ms);

  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.loss, std::nullopt) << "the command ended by itself";
  EXPECT_FALSE(is_running(std::stoi(text_of(file("polite")))));
  EXPECT_FALSE(is_running(std::stoi(text_of(file("stubborn")))));
  EXPECT_LT(boot_time() - start, 20s);
}

TEST_F(SupervisorTest, LeavesAProcessWithAGroupOfItsOwnAlone) {
  PlayedLease lease(1min);

  const auto outcome =
      run("setsid sh -c 'echo $$ >apart; exec sleep 1000' & "
          "while ! [ -s apart ]; do sleep 0.01; done",
          lease);

  EXPECT_EQ(outcome.code, 0);
  const auto apart = std::stoi(text_of(file("apart")));
  EXPECT_TRUE(is_running(apart));
  ::kill(apart, SIGKILL);
}

TEST_F(SupervisorTest, PassesSignalsOn) {
  const std::vector<std::pair<int, std::string>> passed{
      {SIGTERM, "TERM"}, {SIGHUP, "HUP"},   {SIGUSR1, "USR1"},  {SIGUSR2, "USR2"},
      {SIGINT, "INT"},   {SIGQUIT, "QUIT"}, {SIGWINCH, "WINCH"}};
  for (const auto& [number, name] : passed) {
    PlayedLease lease(1min);
    std::filesystem::remove(file("up"));

    const auto outcome = run("trap 'echo " + name + " >heard; exit 9' " + name +
                                 "; echo up >up; while :; do sleep 0.02; done",
                             lease, 200ms, [&, number = number] {
                               await_line(file("up"));
                               ::kill(::getpid(), number);
                             });

    EXPECT_EQ(outcome.code, 9) << name;
    EXPECT_EQ(outcome.loss, std::nullopt);
    EXPECT_EQ(text_of(file("heard")), name + "\n");
  }
}

TEST_F(SupervisorTest, LeavesTheSignalsOfTheCommandAsTheyWere) {
  PlayedLease lease(1min);

  // Without a shell in between: some unblock everything when they start.
  Terminal terminal;
  const auto child = std::get<pid_t>(
      spawn({.words = {"sed", "-n", "/^SigBlk/w " + file("mask").string(), "/proc/self/status"},
             .environment = {"PATH=/usr/bin:/bin"},
             .files = {}},
            signals_, terminal));
  Supervisor(child, lease, 200ms, signals_, watchman_, terminal).run();

  EXPECT_EQ(text_of(file("mask")), "SigBlk:\t0000000000000000\n");
}

TEST_F(SupervisorTest, HandsOnOnlyTheFilesThatItWasToldTo) {
  const int kept = ::eventfd(0, 0);
  const int secret = ::eventfd(0, 0);
  Terminal terminal;
  const auto child = std::get<pid_t>(spawn(
      {.words = {"sh", "-c",
                 "cd \"$0\"; for n in " + std::to_string(kept) + " " + std::to_string(secret) +
                     "; do [ -e /proc/self/fd/$n ] && echo $n; done >open",
                 folder_.path()},
       .environment = {"PATH=/usr/bin:/bin"},
       .files = {kept}},
      signals_, terminal));
  PlayedLease lease(1min);
  Supervisor(child, lease, 200ms, signals_, watchman_, terminal).run();

  EXPECT_EQ(text_of(file("open")), std::to_string(kept) + "\n");
  ::close(kept);
  ::close(secret);
}

// One that ran before it was watched would outlive a runner that is killed in between.
TEST_F(SupervisorTest, StartsNothingBeforeItIsWatched) {
  Terminal terminal;
  const Command command{
      .words = {"touch", file("ran")}, .environment = {"PATH=/usr/bin:/bin"}, .files = {}};
  pid_t announced = 0;
  const auto started = spawn(command, signals_, terminal, [&](pid_t child) {
    announced = child;
    std::this_thread::sleep_for(200ms);
    EXPECT_FALSE(std::filesystem::exists(file("ran")));
  });

  ASSERT_EQ(std::get<pid_t>(started), announced);
  ASSERT_EQ(::waitpid(announced, nullptr, 0), announced);
  EXPECT_TRUE(std::filesystem::exists(file("ran")));
}

TEST_F(SupervisorTest, NeverStartsWhatNobodyIsLeftToWatch) {
  testing::ChildProcess runner([&](int) {
    Terminal terminal;
    const auto end = [](pid_t) { ::_exit(0); };
    static_cast<void>(
        spawn({.words = {"touch", file("ran")}, .environment = {"PATH=/usr/bin:/bin"}, .files = {}},
              signals_, terminal, end));
    return 1;
  });

  EXPECT_EQ(runner.wait(), "exit 0");
  // What it leaves behind is handed to this process.
  EXPECT_GT(::waitpid(-1, nullptr, 0), 0);
  EXPECT_FALSE(std::filesystem::exists(file("ran")));
}

TEST_F(SupervisorTest, SaysWhyACommandCannotBeRun) {
  Terminal terminal;
  const auto try_to_run = [&](const std::string& word) {
    return std::get<std::errc>(
        spawn({.words = {word}, .environment = {}, .files = {}}, signals_, terminal));
  };
  EXPECT_EQ(try_to_run("/no/such/command"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(try_to_run("/etc/passwd"), std::errc::permission_denied);
}

// Somebody in a group of its own, who beats for as long as it lives.
pid_t start_beating(const std::filesystem::path& folder) {
  const pid_t id = ::fork();
  if (id == 0) {
    ::setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const std::string script = "cd \"$0\"; echo $$ >up; trap '' TERM; " + kBeat;
    ::execl("/bin/sh", "sh", "-c", script.c_str(), folder.c_str(), nullptr);
    ::_exit(127);
  }
  ::setpgid(id, id);
  return id;
}

TEST_F(SupervisorTest, AWatchmanKillsAtTheDeadlineWhenNobodyElseDoes) {
  EXPECT_TRUE(is_in_time_once([&] {
    std::filesystem::remove(file("beats"));
    const auto child = start_beating(folder_.path());
    const auto deadline = boot_time() + 700ms;
    watchman_.watch(child, boot_time() + 300ms);
    watchman_.extend(deadline);

    int status = 0;
    EXPECT_TRUE(testing::await([&] { return ::waitpid(child, &status, WNOHANG) == child; }));

    const auto ended = boot_time();
    EXPECT_EQ(testing::ending(status), "signal 9");
    watchman_.rest();
    // It heard of the extension, and waited for no more.
    return ended >= deadline && last_beat(file("beats")) <= deadline + 50ms;
  }));
}

TEST_F(SupervisorTest, AWatchmanKillsWhenItsProcessIsKilled) {
  testing::ChildProcess runner([&](int out) {
    // Not the one of the test: each watches one process.
    auto watchman = Watchman::start();
    watchman->watch(start_beating(folder_.path()), boot_time() + 1h);
    testing::say(out, "watching\n");
    for (;;) ::pause();
    return 0;
  });
  ASSERT_EQ(runner.read_some(), "watching\n");
  await_line(file("up"));
  const auto child = std::stoi(text_of(file("up")));
  ASSERT_TRUE(is_running(child));

  runner.kill(SIGKILL);
  runner.wait();

  for (int i = 0; i < 1000 && is_running(child); ++i) std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(is_running(child));
}

TEST_F(SupervisorTest, AWatchmanWhoRestsKillsNobody) {
  const auto child = start_beating(folder_.path());
  watchman_.watch(child, boot_time() + 200ms);
  watchman_.rest();

  std::this_thread::sleep_for(400ms);

  EXPECT_TRUE(is_running(child));
  ::kill(-child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace fencekv::run
