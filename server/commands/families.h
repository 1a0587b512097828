// SPDX-License-Identifier: Apache-2.0
/// The families of commands. Each is a table next to its handlers; command_table.h joins them.

#pragma once

#include "server/commands/command.h"

#include <span>

namespace fencekv::server {

std::span<const CommandSpec> fence_commands();       ///< FENCE.*
std::span<const CommandSpec> lease_commands();       ///< LEASE.*
std::span<const CommandSpec> read_commands();        ///< GET, SCAN …: plain reads.
std::span<const CommandSpec> connection_commands();  ///< HELLO, AUTH, CLIENT …
std::span<const CommandSpec> store_commands();       ///< STORE.*
std::span<const CommandSpec> server_commands();      ///< INFO, CONFIG, COMMAND, ACL …

}  // namespace fencekv::server
