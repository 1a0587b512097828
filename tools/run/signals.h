// SPDX-License-Identifier: Apache-2.0
/// The signals of this process as something to wait for, in order.

#pragma once

#include "fencekv/result.h"
#include "tools/run/descriptor.h"

#include <optional>
#include <signal.h>

namespace fencekv::run {

/// Blocks what fencekv-run answers or passes on, for good; what was ignored before stays ignored
/// (nohup). Open it before the first thread is started: threads inherit what is blocked.
class Signals {
 public:
  static Result<Signals> open();

  /// The next one that has come; nullopt: none. Does not wait.
  std::optional<int> next();

  /// Readable while there is one.
  int descriptor() const { return descriptor_.number(); }

  /// What was blocked before: the command starts with that.
  const sigset_t& before() const { return before_; }

 private:
  Signals() = default;

  Descriptor descriptor_;
  sigset_t before_{};
};

}  // namespace fencekv::run
