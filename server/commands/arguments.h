// SPDX-License-Identifier: Apache-2.0
/// From the arguments of a request to numbers and options, with errors that say what was expected.

#pragma once

#include "fencekv/result.h"
#include "fencekv/types.h"
#include "server/commands/command.h"
#include "server/resp/request_parser.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fencekv::server {

/// Whether two words are the same but for the case of ASCII letters.
bool same_word(std::string_view a, std::string_view b);

/// A token, 1 to 2^63-1. Errors: invalid.
Result<Token> parse_token(std::string_view text);

/// The same, or 0 for none. Errors: invalid.
Result<Token> parse_token_or_none(std::string_view text);

/// A lease's time, 1 ms to Limits::kMaxTtl. Errors: invalid.
Result<std::chrono::milliseconds> parse_ttl(std::string_view text);

/// How long to wait, 0 to Limits::kMaxWait; `what` names it in the error. Errors: invalid.
Result<std::chrono::milliseconds> parse_wait(std::string_view what, std::string_view text);

/// How long a name stays blocked, 0 to Limits::kMaxDelay. Errors: invalid.
Result<std::chrono::milliseconds> parse_delay(std::string_view text);

/// A plain decimal from `low` to `high`; `what` names it in the error. Errors: invalid.
Result<std::uint64_t> parse_number(std::string_view what, std::string_view text, std::uint64_t low,
                                   std::uint64_t high);

/// The options that a request carried: each at most once, and only those of its spec.
class ParsedOptions {
 public:
  /// The value behind `token`; for an option without value the token itself; nullopt: not given.
  std::optional<std::string_view> get(std::string_view token) const;
  bool has(std::string_view token) const { return get(token).has_value(); }

 private:
  friend Result<ParsedOptions> parse_options(const Call& call, std::size_t from);

  struct Given {
    const Argument* option = nullptr;
    const Argument* choice = nullptr;  // the part of a oneof, else the option itself
    std::string_view value;
  };
  std::array<Given, 8> given_;
  std::size_t count_ = 0;
};

/// Reads the arguments of the call from `from` on as options of its spec, in any order.
/// Errors: invalid: unknown, twice, or without its value.
Result<ParsedOptions> parse_options(const Call& call, std::size_t from);

/// `syntax error: …`, with the arguments that the command takes.
Error syntax_error(std::string_view what, const CommandSpec& spec);

/// The command with its arguments as people write it: `FENCE.DEL key token [LEASE name] …`.
std::string usage(const CommandSpec& spec);

}  // namespace fencekv::server
