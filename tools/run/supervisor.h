// SPDX-License-Identifier: Apache-2.0
/// Lets a command run for as long as its lease is held, and no longer.

#pragma once

#include "tools/run/boot_time.h"
#include "tools/run/signals.h"
#include "tools/run/terminal.h"
#include "tools/run/watchman.h"

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>

namespace fencekv::run {

/// What is asked of a lease while the command is running.
class HeldLease {
 public:
  virtual ~HeldLease() = default;

  /// When its time is over, as far as is known now. Moves on with each renewal. Means nothing once
  /// loss() says something.
  virtual BootTime deadline() const = 0;
  /// Why it was lost, in words; nullopt: it was not, as far as is known.
  virtual std::optional<std::string> loss() const = 0;
  /// Becomes readable when loss() has something to say.
  virtual int loss_descriptor() const = 0;
};

/// How the command ended.
struct Outcome {
  int code = 0;  ///< Its exit code, or 128 and the signal that ended it.
  /// The lease was lost while it was running, for this reason; so it was ended.
  std::optional<std::string> loss{};
};

/// One command and its process group.
///
/// - Signals: TERM, HUP, USR1 and USR2 go to the command, INT, QUIT and WINCH to its whole group,
/// as
///   a terminal would send them.
/// - Stopping (TSTP): the group stops, then this process; who has not stopped after kStopPatience
///   is stopped with SIGSTOP. Nobody renews meanwhile. Continued in
/// time
///   both go on; when it is too late the group is killed, and never runs again.
/// - Loss: SIGTERM to the group, early enough to leave it `grace`; then SIGKILL, at the deadline at
///   the latest. When the server itself said that the lease is lost, at once.
/// - The command's end: what is left of its group is ended in the same way. A process that made a
///   group of its own is not.
class Supervisor {
 public:
  /// Sent so much before the deadline that everything is dead when it comes.
  static constexpr std::chrono::milliseconds kKillMargin{50};
  /// For what a command may want to tidy up before it stops.
  static constexpr std::chrono::milliseconds kStopPatience{500};
  /// How long after SIGKILL it waits for processes that hang in the kernel.
  static constexpr std::chrono::milliseconds kKillPatience{2'000};

  /// `child` leads its process group and is a child of this process.
  Supervisor(pid_t child, const HeldLease& lease, std::chrono::milliseconds grace, Signals& signals,
             Watchman& watchman, Terminal& terminal);

  /// Returns when the command and its group have ended. Reaps all children of this process.
  Outcome run();

 private:
  void reap();
  void look_at_lease();
  void stop(std::optional<std::string> loss, BootTime kill_at);
  void kill_if_due();
  bool is_over() const;
  void sleep();
  void answer(int signal);
  void pause_if_due();
  void pause();
  void resume();

  const pid_t child_;
  const HeldLease& lease_;
  const std::chrono::milliseconds grace_;
  Signals& signals_;
  Watchman& watchman_;
  Terminal& terminal_;
  const Descriptor timer_;

  BootTime deadline_{0};
  std::optional<BootTime> stop_at_;  ///< A TSTP was passed on; then it is no longer waited for.
  std::optional<int> code_;          ///< Of the command, once it has ended.
  std::optional<std::string> loss_;
  std::optional<BootTime> kill_at_;  ///< The group is being stopped.
  std::optional<BootTime> killed_at_;
};

}  // namespace fencekv::run
