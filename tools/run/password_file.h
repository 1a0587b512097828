// SPDX-License-Identifier: Apache-2.0
/// The password for the server, from a file: command line and environment are seen by others.

#pragma once

#include "fencekv/result.h"

#include <string>

namespace fencekv::run {

/// The first line of `file`, without its line break.
/// Errors: invalid, the file cannot be read, is empty, or may be used by group or others.
Result<std::string> read_password(const std::string& file);

}  // namespace fencekv::run
