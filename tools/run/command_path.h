// SPDX-License-Identifier: Apache-2.0
/// Where the program of a command is.

#pragma once

#include "tools/run/exit_code.h"

#include <optional>
#include <string>

namespace fencekv::run {

/// What execvp(3) would say about `command`, before anything is done for it: nobody should wait an
/// hour for a lease to learn of a typing mistake. nullopt: it can be run, as far as one can see.
std::optional<ExitCode> why_not_runnable(const std::string& command);

}  // namespace fencekv::run
