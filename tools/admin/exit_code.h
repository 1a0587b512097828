// SPDX-License-Identifier: Apache-2.0
/// How fencekv-admin ends. The numbers that the server has too mean the same.

#pragma once

#include "fencekv/result.h"

namespace fencekv::admin {

enum ExitCode : int {
  exit_ok = 0,
  exit_problems = 1,      ///< verify found problems in a store that can be opened.
  exit_usage = 2,         ///< Wrong arguments, or there is no store that could be opened.
  exit_busy = 3,          ///< A server is creating the store right now.
  exit_damaged = 4,       ///< A server would refuse to open the store, or not all could be read.
  exit_newer_format = 5,  ///< A newer version wrote it.
  exit_io = 8,            ///< The storage cannot be read now, or the output cannot be written.
};

inline ExitCode exit_code_of(Errc code) {
  switch (code) {
    case Errc::corrupt:
      return exit_damaged;
    case Errc::newer_format:
      return exit_newer_format;
    case Errc::in_use:
      return exit_busy;
    case Errc::misconf:
    case Errc::no_space:
      return exit_io;
    default:
      return exit_usage;
  }
}

}  // namespace fencekv::admin
