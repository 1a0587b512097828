// SPDX-License-Identifier: Apache-2.0
/// The terminal that the command may use, if there is one.

#pragma once

#include "tools/run/descriptor.h"

#include <sys/types.h>

namespace fencekv::run {

/// The command has a process group of its own, so that all of it can be ended; the terminal listens
/// to one group only, so that has to be handed over, and taken back.
class Terminal {
 public:
  Terminal();

  /// Hands it to `group`, if it listens to this process now.
  void give(pid_t group);
  /// Takes it back, if it was handed over; whether it was.
  bool take();

  /// For the process between fork() and exec(): may be called there.
  void give_to_self() const;

 private:
  bool is_ours() const;

  Descriptor device_;
  bool given_ = false;
};

}  // namespace fencekv::run
