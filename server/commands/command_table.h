// SPDX-License-Identifier: Apache-2.0
/// The one table of commands, and what follows from it alone.

#pragma once

#include "server/commands/command.h"

#include <span>
#include <string_view>
#include <vector>

namespace fencekv::server {

/// All commands, by family. Subcommands are inside their container.
std::vector<const CommandSpec*> all_commands();

/// The command with that name in any case, `client|id` for a subcommand; nullptr: there is none.
const CommandSpec* find_command(std::string_view name);

/// The subcommand of `container` that argument 1 names, in any case; nullptr: there is none.
const CommandSpec* find_subcommand(const CommandSpec& container, std::string_view word);

/// Whether `arguments` many, the name counted, fit.
bool fits_arity(const CommandSpec& spec, std::size_t arguments);

/// The keys that a request touches.
/// Errors: invalid: the arguments do not fit, or the number of keys is no number.
Result<std::vector<std::string_view>> keys_of(const CommandSpec& spec,
                                              std::span<const std::string_view> request);

/// The categories of ACL that the command is in, without `@`.
std::vector<std::string_view> categories_of(const CommandSpec& spec);

/// Why a command that Redis has and fencekv does not is refused, and what to use instead: a line
/// with its code. Empty: nobody is known to expect the command.
std::string_view advice_for(std::string_view name);

}  // namespace fencekv::server
