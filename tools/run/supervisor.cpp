// SPDX-License-Identifier: Apache-2.0
#include "tools/run/supervisor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <poll.h>
#include <signal.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace fencekv::run {

using namespace std::chrono_literals;

namespace {

constexpr const char* kNoRenewal = "no renewal was acknowledged in time";

}  // namespace

Supervisor::Supervisor(pid_t child, const HeldLease& lease, std::chrono::milliseconds grace,
                       Signals& signals, Watchman& watchman, Terminal& terminal)
    : child_(child),
      lease_(lease),
      grace_(grace),
      signals_(signals),
      watchman_(watchman),
      terminal_(terminal),
      timer_(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)),
      deadline_(lease.deadline()) {
  watchman_.watch(child_, deadline_);
}

Outcome Supervisor::run() {
  for (;;) {
    reap();
    if (is_over()) break;
    look_at_lease();
    kill_if_due();
    pause_if_due();
    sleep();
    while (const auto signal = signals_.next()) answer(*signal);
  }
  watchman_.rest();
  terminal_.take();
  return {code_.value_or(128 + SIGKILL), loss_};
}

void Supervisor::reap() {
  int status = 0;
  while (const pid_t id = ::waitpid(-1, &status, WNOHANG | WUNTRACED)) {
    if (id < 0) return;
    if (id != child_) continue;  // Left behind by the command and handed to this process.
    if (WIFEXITED(status)) code_ = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) {
      code_ = 128 + WTERMSIG(status);
      // The watchman was faster: this process was stopped, or had no time.
      if (WTERMSIG(status) == SIGKILL && !kill_at_ && boot_time() >= deadline_) loss_ = kNoRenewal;
    }
    // SIGSTOP by somebody is between them and the command, unless it answers our own TSTP so.
    if (WIFSTOPPED(status) && (stop_at_ || WSTOPSIG(status) != SIGSTOP)) pause();
  }
}

/// The command has ended, and nobody of its group is left; or nothing helps any more.
bool Supervisor::is_over() const {
  if (code_ && ::kill(-child_, 0) != 0 && errno == ESRCH) return true;
  return killed_at_ && boot_time() >= *killed_at_ + kKillPatience;
}

void Supervisor::look_at_lease() {
  if (kill_at_) return;
  // In this order: between the two the lease may be lost, and its deadline is of no use then.
  const auto deadline = lease_.deadline();
  auto loss = lease_.loss();
  const auto now = boot_time();
  if (!loss && deadline > deadline_) {
    deadline_ = deadline;
    watchman_.extend(deadline_);
  }
  const auto kill_at = std::min<BootTime>(now + grace_, deadline_ - kKillMargin);
  if (loss) return stop(std::move(loss), kill_at);
  if (now >= deadline_ - std::max(grace_, kKillMargin)) {
    return stop(kNoRenewal, deadline_ - kKillMargin);
  }
  if (code_) stop(std::nullopt, kill_at);
}

void Supervisor::stop(std::optional<std::string> loss, BootTime kill_at) {
  kill_at_ = kill_at;
  if (!code_) loss_ = std::move(loss);
  // Who wakes up from a stop when it is too late must not run at all: SIGKILL needs no SIGCONT.
  if (boot_time() >= kill_at) return;
  ::kill(-child_, SIGTERM);
  ::kill(-child_, SIGCONT);
}

void Supervisor::kill_if_due() {
  if (!kill_at_ || killed_at_ || boot_time() < *kill_at_) return;
  ::kill(-child_, SIGKILL);
  killed_at_ = boot_time();
}

void Supervisor::sleep() {
  auto until = deadline_ - std::max(grace_, kKillMargin);
  if (stop_at_) until = std::min(until, *stop_at_);
  if (kill_at_) until = *kill_at_;
  if (killed_at_) until = *killed_at_ + kKillPatience;
  itimerspec alarm{};
  alarm.it_value.tv_sec = until / 1s;
  alarm.it_value.tv_nsec = (until % 1s).count();
  ::timerfd_settime(timer_.number(), TFD_TIMER_ABSTIME, &alarm, nullptr);

  std::array<pollfd, 3> any{{{signals_.descriptor(), POLLIN, 0},
                             {timer_.number(), POLLIN, 0},
                             // Said once; it stays readable.
                             {kill_at_ ? -1 : lease_.loss_descriptor(), POLLIN, 0}}};
  // Nobody tells when the last one of the group is gone.
  const int patience = code_ ? 10 : -1;
  ::poll(any.data(), any.size(), patience);
}

void Supervisor::answer(int signal) {
  switch (signal) {
    case SIGTERM:
    case SIGHUP:
    case SIGUSR1:
    case SIGUSR2:
      if (!code_) ::kill(child_, signal);
      return;
    case SIGINT:
    case SIGQUIT:
    case SIGWINCH:
      ::kill(-child_, signal);
      return;
    case SIGTSTP:
      stop_at_ = boot_time() + kStopPatience;
      ::kill(-child_, SIGTSTP);
      return;
    case SIGCONT:
      return resume();
    default:
      return;  // SIGCHLD: reap() looks. SIGTTOU: nothing.
  }
}

/// The command's stop is not always reported: one that is between vfork() and exec() cannot stop
/// before what it starts has gone on, and that has been stopped.
void Supervisor::pause_if_due() {
  if (!stop_at_ || kill_at_ || boot_time() < *stop_at_) return;
  ::kill(-child_, SIGSTOP);
  pause();
}

void Supervisor::pause() {
  stop_at_.reset();
  // At a terminal the whole job stops, as it does without fencekv-run: a script around it, too.
  ::kill(terminal_.take() ? 0 : ::getpid(), SIGSTOP);
  // Here it goes on after SIGCONT, which is also in the queue of signals.
}

void Supervisor::resume() {
  // First whether there is still a lease: the group must not run one instruction without.
  look_at_lease();
  kill_if_due();
  if (kill_at_) return;
  terminal_.give(child_);
  ::kill(-child_, SIGCONT);
}

}  // namespace fencekv::run
