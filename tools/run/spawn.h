// SPDX-License-Identifier: Apache-2.0
/// Starts the command.

#pragma once

#include "tools/run/signals.h"
#include "tools/run/terminal.h"

#include <functional>
#include <string>
#include <sys/types.h>
#include <variant>
#include <vector>

namespace fencekv::run {

/// The files that are open now, but the standard streams. Asked at the start, these are the ones
/// that the command shall have as well: what fencekv-run opens is not for it, least of all the
/// connection on which it is logged in.
std::vector<int> open_files();

struct Command {
  std::vector<std::string> words;        ///< At least one.
  std::vector<std::string> environment;  ///< `NAME=value` each.
  std::vector<int> files;                ///< Stay open in it. In rising order.
};

/// Starts `command` in a process group of its own, with the signals as they were before `signals`
/// was opened, and with the terminal, if it listens to this process. The kernel kills it when the
/// calling thread ends, so call it from the main thread.
///
/// `before_it_runs` is called with the process once it exists; not before that returns does the
/// command run. If this process ends meanwhile the command never does.
///
/// Returns the process, which leads its group; or the error number of fork() or exec().
std::variant<pid_t, std::errc> spawn(
    const Command& command, const Signals& signals, Terminal& terminal,
    const std::function<void(pid_t)>& before_it_runs = [](pid_t) {});

}  // namespace fencekv::run
