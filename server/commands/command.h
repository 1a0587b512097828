// SPDX-License-Identifier: Apache-2.0
/// What a command of the protocol is: its name, shape and documentation as data, and its handler.
///
/// One table of these (command_table.h) is the only place that knows which commands exist: the
/// dispatcher, COMMAND, COMMAND DOCS, ACL CAT and the test of PROTOCOL.md all read it.

#pragma once

#include "fencekv/command.h"
#include "fencekv/result.h"
#include "server/client.h"
#include "server/context.h"
#include "server/resp/reply_writer.h"
#include "server/resp/request_parser.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fencekv::server {

/// The Redis version whose behaviour clients may expect; INFO has fencekv's own.
inline constexpr std::string_view kRedisVersion = "7.2.4";

struct CommandSpec;

/// Turns the store's answer into a reply. Called on the session's thread.
using Format = std::function<void(resp::ReplyWriter&, Reply&)>;

/// What a handler wants from the store before it can reply.
struct StoreCall {
  Command command;
  Format format;
  /// Instead of the command: begins work that answers once, from any thread.
  std::function<void(const std::function<void(Result<Reply>)>& done)> work = {};
};

/// nullopt: the handler has replied itself.
using Outcome = std::optional<StoreCall>;

/// One request, as its handler sees it. Lives until the handler returns.
struct Call {
  const CommandSpec& spec;
  const resp::Request& arguments;  ///< [0] is the name; their number fits the spec's arity.
  Client& client;
  Context& server;
  std::string& out;  ///< Where replies go.

  /// In the protocol that the client speaks at this moment (HELLO changes it).
  resp::ReplyWriter reply() const { return {out, client.protocol}; }

  /// Replies with an error, and is what the handler then returns.
  Outcome refuse(const Error& error) const;
  /// The same for a line that carries its code: `ERR …`.
  Outcome refuse_line(std::string_view line) const;
  Outcome ok() const;
};

using Handler = Outcome (*)(Call&);

/// Who may run a command, and what it does to the store.
enum class Access : std::uint8_t {
  connection,  ///< Concerns the connection only.
  read,        ///< Reads keys or leases, or looks at the server.
  write,       ///< Changes keys or leases.
  admin,       ///< Changes what others hold, or the server. Without ACLs: whoever is authenticated.
};

enum class ArgumentType : std::uint8_t { string, integer, key, pattern, pure_token, oneof, block };

/// One argument, as COMMAND DOCS describes it and as parse_options() reads it.
// Members in the order in which people write them; a table of some hundred may have padding.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct Argument {
  std::string_view name;
  ArgumentType type = ArgumentType::string;
  std::string_view token = {};  ///< The word in front of the value, `LEASE`; or the word itself.
  bool optional = false;
  bool multiple = false;
  std::span<const Argument> parts = {};  ///< Of a oneof or a block.
};

/// Where the keys of a request are, as Redis counts: the name is 0, a negative last counts from
/// the end.
struct KeyPositions {
  int first = 0;  ///< 0: no keys.
  int last = 0;
  int step = 0;
  int count_at = 0;  ///< The argument that says how many keys start at `first`; 0: none does.
};

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct CommandSpec {
  std::string_view name;  ///< Lower case; a subcommand is `client|id`.
  int arity = 1;          ///< Arguments with the name; negative: at least as many.
  KeyPositions keys;
  Access access = Access::read;
  std::string_view group;
  std::string_view summary;
  std::span<const Argument> arguments;
  Handler handler = nullptr;                      ///< nullptr: only its subcommands can be called.
  std::span<const CommandSpec> subcommands = {};  ///< Chosen by argument 1.
  bool before_auth = false;
  /// Looks at the store past its queue: it has to wait for the writes that the same client sent
  /// before it, or a pipeline would not see its own effects.
  bool after_writes = false;
  bool may_wait = false;  ///< May take as long as its caller allows: `blocking` in COMMAND.
};

}  // namespace fencekv::server
