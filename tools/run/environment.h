// SPDX-License-Identifier: Apache-2.0
/// What the command is told.

#pragma once

#include "fencekv/types.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::run {

/// Where the server is.
struct Address {
  std::string host = "127.0.0.1";
  std::uint16_t port = 7433;
  std::string unix_path{};  ///< If given, host and port are not used.
};

/// `inherited` (`NAME=value` each) with the lease in it: FENCEKV_TOKEN, FENCEKV_LEASE, and either
/// FENCEKV_HOST and FENCEKV_PORT or FENCEKV_UNIX. What these were before is gone, so that a runner
/// within a runner speaks of its own lease only.
///
/// Neither the owner nor the password is in it: whoever may look at a process sees its environment.
std::vector<std::string> child_environment(const std::vector<std::string>& inherited,
                                           std::string_view lease, Token token,
                                           const Address& address);

}  // namespace fencekv::run
