// SPDX-License-Identifier: Apache-2.0
/// Who ends the command when fencekv-run cannot.

#pragma once

#include "fencekv/result.h"
#include "tools/run/boot_time.h"
#include "tools/run/descriptor.h"

#include <sys/types.h>

namespace fencekv::run {

/// A small process that sends SIGKILL to the command's group if fencekv-run has ended without
/// sending it away, or if the deadline has passed: after a SIGKILL of fencekv-run, or while it is
/// stopped, nobody else would. It holds no connection, and knows no password.
///
/// Lifetime: it ends with its object.
class Watchman {
 public:
  /// Call it before the first thread is started and before anything secret is read: it is a copy of
  /// this process.
  static Result<Watchman> start();
  ~Watchman();
  Watchman(Watchman&& other) noexcept;
  Watchman& operator=(Watchman&&) = delete;

  /// From here on it ends `group` at `deadline`, and with this process.
  void watch(pid_t group, BootTime deadline);
  /// Later than before.
  void extend(BootTime deadline);
  /// It ends nobody any more, until it is told to watch again.
  void rest();

  pid_t id() const { return id_; }

 private:
  struct Orders;
  Watchman(Orders* orders, pid_t id, Descriptor life) noexcept
      : orders_(orders), id_(id), life_(std::move(life)) {}

  Orders* orders_;  // shared with the process
  pid_t id_;
  Descriptor life_;  // its end is the end of this process
};

}  // namespace fencekv::run
