// SPDX-License-Identifier: Apache-2.0
/// The codes fencekv-run ends with when it is not the command's own.

#pragma once

namespace fencekv::run {

/// Those of a shell and of timeout(1) where they have one. A command that ends with one of them
/// itself cannot be told apart by the code alone; standard error says which it was.
enum ExitCode : int {
  exit_no_server = 122,       ///< The server cannot be reached, or lets nobody in.
  exit_lost = 123,            ///< The lease was lost, and the command was ended.
  exit_not_acquired = 124,    ///< Somebody else held the lease all the time. Nothing was run.
  exit_usage = 125,           ///< Wrong arguments, or fencekv-run itself could not go on.
  exit_not_executable = 126,  ///< The command is there, and cannot be run.
  exit_not_found = 127,       ///< There is no such command.
  exit_by_signal = 128,       ///< Plus the number of the signal that ended the command.
};

}  // namespace fencekv::run
