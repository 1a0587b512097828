// SPDX-License-Identifier: Apache-2.0
/// What clients say about their connection: HELLO, AUTH, CLIENT …

#include "server/commands/arguments.h"
#include "server/commands/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace fencekv::server {
namespace {

constexpr std::string_view kDefaultUser = "default";
constexpr std::size_t kMaxClientNameBytes = 256;

constexpr Argument kMessage[] = {{.name = "message", .optional = true}};
constexpr Argument kEchoed[] = {{.name = "message"}};
constexpr Argument kIndex[] = {{.name = "index", .type = ArgumentType::integer}};
constexpr Argument kAuthArguments[] = {{.name = "username", .optional = true},
                                       {.name = "password"}};
constexpr Argument kHelloArguments[] = {
    {.name = "protover", .type = ArgumentType::integer, .optional = true},
    {.name = "username password", .token = "AUTH", .optional = true},
    {.name = "clientname", .token = "SETNAME", .optional = true}};
constexpr Argument kConnectionName[] = {{.name = "connection-name"}};
constexpr Argument kKillArguments[] = {
    {.name = "ip:port", .optional = true},
    {.name = "filter value", .optional = true, .multiple = true}};
constexpr Argument kListArguments[] = {
    {.name = "client-type", .token = "TYPE", .optional = true},
    {.name = "client-id", .type = ArgumentType::integer, .token = "ID", .optional = true}};
constexpr Argument kSwitchChoices[] = {
    {.name = "on", .type = ArgumentType::pure_token, .token = "ON"},
    {.name = "off", .type = ArgumentType::pure_token, .token = "OFF"}};
constexpr Argument kSwitch[] = {
    {.name = "enabled", .type = ArgumentType::oneof, .parts = kSwitchChoices}};
constexpr Argument kReplyChoices[] = {
    {.name = "on", .type = ArgumentType::pure_token, .token = "ON"},
    {.name = "off", .type = ArgumentType::pure_token, .token = "OFF"},
    {.name = "skip", .type = ArgumentType::pure_token, .token = "SKIP"}};
constexpr Argument kReplyArguments[] = {
    {.name = "mode", .type = ArgumentType::oneof, .parts = kReplyChoices}};
constexpr Argument kSetinfoChoices[] = {{.name = "libname", .token = "LIB-NAME"},
                                        {.name = "libver", .token = "LIB-VER"}};
constexpr Argument kSetinfoArguments[] = {
    {.name = "attr", .type = ArgumentType::oneof, .parts = kSetinfoChoices}};
constexpr Argument kAnything[] = {{.name = "argument", .optional = true, .multiple = true}};

/// Listings put names between blanks, one client a line; other bytes would forge fields of others.
bool is_name(std::string_view text) {
  return text.size() <= kMaxClientNameBytes && std::all_of(text.begin(), text.end(), [](char byte) {
           return byte >= '!' && byte <= '~';
         });
}

constexpr std::string_view kBadName =
    "ERR Client names cannot contain spaces, newlines or special characters, and have at most 256 "
    "bytes.";

/// Lets the client in, or says why not. nullopt: it is in.
std::optional<std::string_view> authenticate(Call& call, std::string_view user,
                                             std::string_view password) {
  // Compared before the user is looked at, so that time does not tell which of the two was wrong.
  const bool right = call.server.password.matches(password);
  if (user == kDefaultUser && right) {
    call.client.authenticated = true;
    return std::nullopt;
  }
  if (const auto held_back = call.server.failed_logins.pass()) {
    call.server.log.warn("AUTH failed: {} ({} more before)", call.client.peer, *held_back);
  }
  return "WRONGPASS invalid username-password pair or user is disabled.";
}

Outcome auth(Call& call) {
  if (call.arguments.size() > 3) {
    return call.refuse(syntax_error("too many arguments", call.spec));
  }
  const bool named = call.arguments.size() == 3;
  if (!named && !call.server.password.is_set()) {
    return call.refuse_line(
        "ERR AUTH <password> called without any password configured for the default user. Are you "
        "sure your configuration is correct?");
  }
  const auto refused =
      authenticate(call, named ? call.arguments[1] : kDefaultUser, call.arguments[named ? 2 : 1]);
  return refused ? call.refuse_line(*refused) : call.ok();
}

Outcome hello(Call& call) {
  const auto& words = call.arguments;
  auto protocol = call.client.protocol.load();
  if (words.size() > 1) {
    const auto version = parse_decimal(words[1]);
    if (!version) {
      return call.refuse_line("ERR Protocol version is not an integer or out of range");
    }
    if (*version != 2 && *version != 3) {
      return call.refuse_line("NOPROTO unsupported protocol version");
    }
    protocol = *version == 3 ? resp::Protocol::resp3 : resp::Protocol::resp2;
  }

  // Everything is looked at before anything is done.
  struct Login {
    std::string_view user;
    std::string_view password;
  };
  std::optional<Login> login;
  std::optional<std::string_view> name;
  for (std::size_t at = 2; at < words.size();) {
    if (same_word(words[at], "AUTH") && at + 2 < words.size() && !login) {
      login = Login{words[at + 1], words[at + 2]};
      at += 3;
    } else if (same_word(words[at], "SETNAME") && at + 1 < words.size() && !name) {
      name = words[at + 1];
      at += 2;
    } else {
      return call.refuse_line(
          fmt::format("ERR Syntax error in HELLO option '{}'", escaped(words[at])));
    }
  }
  if (name && !is_name(*name)) return call.refuse_line(kBadName);
  if (login) {
    if (const auto refused = authenticate(call, login->user, login->password)) {
      return call.refuse_line(*refused);
    }
  }
  if (!call.client.authenticated) {
    return call.refuse_line(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
        "<proto> AUTH <user> <pass> option can be used to authenticate the client and select the "
        "RESP protocol version at the same time");
  }
  if (name) call.client.set_name(*name);
  call.client.protocol = protocol;

  // `redis`, since clients branch on it; INFO has our own name.
  auto reply = call.reply();
  reply.map(7);
  reply.bulk("server");
  reply.bulk("redis");
  reply.bulk("version");
  reply.bulk(kRedisVersion);
  reply.bulk("proto");
  reply.integer(static_cast<std::int64_t>(protocol));
  reply.bulk("id");
  reply.integer(static_cast<std::int64_t>(call.client.id));
  reply.bulk("mode");
  reply.bulk("standalone");
  reply.bulk("role");
  reply.bulk("master");
  reply.bulk("modules");
  reply.array(0);
  return std::nullopt;
}

Outcome ping(Call& call) {
  if (call.arguments.size() > 2) {
    return call.refuse(syntax_error("too many arguments", call.spec));
  }
  if (call.arguments.size() == 2) {
    call.reply().bulk(call.arguments[1]);
  } else {
    call.reply().simple("PONG");
  }
  return std::nullopt;
}

Outcome echo(Call& call) {
  call.reply().bulk(call.arguments[1]);
  return std::nullopt;
}

Outcome select_database(Call& call) {
  const auto index = parse_decimal(call.arguments[1]);
  if (!index) return call.refuse_line("ERR value is not an integer or out of range");
  return *index == 0 ? call.ok() : call.refuse_line("ERR DB index is out of range");
}

Outcome quit(Call& call) {
  call.client.close_after_reply = true;
  return call.ok();
}

Outcome reset(Call& call) {
  call.client.protocol = resp::Protocol::resp2;
  call.client.reply_mode = ReplyMode::on;
  call.client.authenticated = !call.server.password.is_set();
  call.client.set_name("");
  call.reply().simple("RESET");
  return std::nullopt;
}

Outcome client_id(Call& call) {
  call.reply().integer(static_cast<std::int64_t>(call.client.id));
  return std::nullopt;
}

Outcome client_describe(Call& call) {
  call.reply().verbatim(call.client.describe(std::chrono::steady_clock::now()) + "\n");
  return std::nullopt;
}

/// Every connection is of the type normal.
std::optional<bool> is_normal(std::string_view type) {
  if (same_word(type, "normal")) return true;
  for (const std::string_view other : {"master", "replica", "slave", "pubsub"}) {
    if (same_word(type, other)) return false;
  }
  return std::nullopt;
}

Outcome client_list(Call& call) {
  const auto& words = call.arguments;
  if (words.size() == 2) {
    call.reply().verbatim(call.server.clients.describe([](const Client&) { return true; }));
    return std::nullopt;
  }
  if (same_word(words[2], "TYPE") && words.size() == 4) {
    const auto normal = is_normal(words[3]);
    if (!normal) {
      return call.refuse_line(fmt::format("ERR Unknown client type '{}'", escaped(words[3])));
    }
    call.reply().verbatim(call.server.clients.describe([&](const Client&) { return *normal; }));
    return std::nullopt;
  }
  if (same_word(words[2], "ID") && words.size() > 3) {
    std::vector<std::uint64_t> ids;
    for (std::size_t at = 3; at < words.size(); ++at) {
      const auto id = parse_decimal(words[at]);
      if (!id) return call.refuse_line("ERR Invalid client ID");
      ids.push_back(*id);
    }
    call.reply().verbatim(call.server.clients.describe([&](const Client& client) {
      return std::find(ids.begin(), ids.end(), client.id) != ids.end();
    }));
    return std::nullopt;
  }
  return call.refuse(syntax_error(fmt::format("unexpected '{}'", escaped(words[2])), call.spec));
}

struct KillFilter {
  std::optional<std::uint64_t> id;
  std::optional<std::string_view> peer;
  std::optional<std::string_view> local;
  std::optional<std::uint64_t> min_age_seconds;
  bool normal = true;
  bool default_user = true;
  bool skip_me = true;
};

Result<KillFilter> parse_kill_filter(const Call& call) {
  const auto& words = call.arguments;
  KillFilter filter;
  for (std::size_t at = 2; at < words.size(); at += 2) {
    if (at + 1 == words.size()) {
      return syntax_error(fmt::format("'{}' without its value", escaped(words[at])), call.spec);
    }
    const std::string_view value = words[at + 1];
    if (same_word(words[at], "ID")) {
      filter.id = parse_decimal(value);
      if (!filter.id) return Error(Errc::invalid, "client-id should be greater than 0");
    } else if (same_word(words[at], "ADDR")) {
      filter.peer = value;
    } else if (same_word(words[at], "LADDR")) {
      filter.local = value;
    } else if (same_word(words[at], "MAXAGE")) {
      filter.min_age_seconds = parse_decimal(value);
      if (!filter.min_age_seconds) return Error(Errc::invalid, "maxage is not a number of seconds");
    } else if (same_word(words[at], "USER")) {
      filter.default_user = value == kDefaultUser;
    } else if (same_word(words[at], "TYPE")) {
      const auto normal = is_normal(value);
      if (!normal) {
        return Error(Errc::invalid, fmt::format("Unknown client type '{}'", escaped(value)));
      }
      filter.normal = *normal;
    } else if (same_word(words[at], "SKIPME") &&
               (same_word(value, "yes") || same_word(value, "no"))) {
      filter.skip_me = same_word(value, "yes");
    } else {
      return syntax_error(
          fmt::format("unexpected '{}', known filters are ID ADDR LADDR USER TYPE MAXAGE SKIPME",
                      escaped(words[at])),
          call.spec);
    }
  }
  return filter;
}

Outcome client_kill(Call& call) {
  const bool by_address = call.arguments.size() == 3;
  KillFilter filter;
  if (by_address) {
    filter.peer = call.arguments[2];
    filter.skip_me = false;
  } else {
    const auto parsed = parse_kill_filter(call);
    if (!parsed) return call.refuse(parsed.error());
    filter = *parsed;
  }

  const auto now = std::chrono::steady_clock::now();
  const auto matches = [&](const Client& client) {
    return filter.normal && filter.default_user && (!filter.id || *filter.id == client.id) &&
           (!filter.peer || *filter.peer == client.peer) &&
           (!filter.local || *filter.local == client.local) &&
           (!filter.min_age_seconds ||
            now - client.connected >= std::chrono::seconds(std::min<std::uint64_t>(
                                          *filter.min_age_seconds, std::uint64_t{1} << 32)));
  };
  std::size_t killed = call.server.clients.hang_up(
      [&](const Client& client) { return client.id != call.client.id && matches(client); });
  if (!filter.skip_me && matches(call.client)) {
    // Itself it ends after the reply.
    call.client.close_after_reply = true;
    ++killed;
  }
  if (by_address) return killed > 0 ? call.ok() : call.refuse_line("ERR No such client");
  call.reply().integer(static_cast<std::int64_t>(killed));
  return std::nullopt;
}

Outcome client_setname(Call& call) {
  if (!is_name(call.arguments[2])) return call.refuse_line(kBadName);
  call.client.set_name(call.arguments[2]);
  return call.ok();
}

Outcome client_getname(Call& call) {
  const std::string name = call.client.name();
  if (name.empty()) {
    call.reply().null();
  } else {
    call.reply().bulk(name);
  }
  return std::nullopt;
}

Outcome client_setinfo(Call& call) {
  const std::string_view value = call.arguments[3];
  if (!is_name(value)) {
    return call.refuse_line(fmt::format(
        "ERR {} cannot contain spaces, newlines or special characters, and has at most {} bytes",
        escaped(call.arguments[2]), kMaxClientNameBytes));
  }
  if (same_word(call.arguments[2], "LIB-NAME")) {
    call.client.set_library(value);
  } else if (same_word(call.arguments[2], "LIB-VER")) {
    call.client.set_library_version(value);
  } else {
    return call.refuse_line(fmt::format(
        "ERR Unrecognized option '{}', expected LIB-NAME or LIB-VER", escaped(call.arguments[2])));
  }
  return call.ok();
}

/// NO-EVICT and NO-TOUCH: nothing is ever evicted here, so both are true of every client.
Outcome client_switch(Call& call) {
  const auto options = parse_options(call, 2);
  return options ? call.ok() : call.refuse(options.error());
}

Outcome client_reply(Call& call) {
  const std::string_view mode = call.arguments[2];
  if (same_word(mode, "ON")) {
    call.client.reply_mode = ReplyMode::on;
    return call.ok();
  }
  if (same_word(mode, "OFF")) {
    call.client.reply_mode = ReplyMode::off;
  } else if (same_word(mode, "SKIP")) {
    if (call.client.reply_mode == ReplyMode::on) call.client.reply_mode = ReplyMode::skip_next;
  } else {
    return call.refuse(syntax_error(fmt::format("unexpected '{}'", escaped(mode)), call.spec));
  }
  return std::nullopt;
}

Outcome client_capa(Call& call) {
  return call.ok();
}

Outcome client_tracking(Call& call) {
  return call.refuse_line(
      "ERR client side caching is not supported: a cached value could not be fenced");
}

Outcome client_maintenance(Call& call) {
  return call.refuse_line("ERR maintenance notifications are not supported");
}

constexpr CommandSpec kClientSubcommands[] = {
    {.name = "client|id",
     .arity = 2,
     .access = Access::connection,
     .group = "connection",
     .summary = "Returns the id of this connection.",
     .handler = client_id},
    {.name = "client|info",
     .arity = 2,
     .access = Access::connection,
     .group = "connection",
     .summary = "Describes this connection.",
     .handler = client_describe},
    {.name = "client|list",
     .arity = -2,
     .access = Access::admin,
     .group = "connection",
     .summary = "Describes all connections, one a line.",
     .arguments = kListArguments,
     .handler = client_list},
    {.name = "client|kill",
     .arity = -3,
     .access = Access::admin,
     .group = "connection",
     .summary = "Closes connections.",
     .arguments = kKillArguments,
     .handler = client_kill},
    {.name = "client|setname",
     .arity = 3,
     .access = Access::connection,
     .group = "connection",
     .summary = "Names this connection; listings show the name.",
     .arguments = kConnectionName,
     .handler = client_setname},
    {.name = "client|getname",
     .arity = 2,
     .access = Access::connection,
     .group = "connection",
     .summary = "Returns the name of this connection.",
     .handler = client_getname},
    {.name = "client|setinfo",
     .arity = 4,
     .access = Access::connection,
     .group = "connection",
     .summary = "Says which library speaks.",
     .arguments = kSetinfoArguments,
     .handler = client_setinfo},
    {.name = "client|no-evict",
     .arity = 3,
     .access = Access::connection,
     .group = "connection",
     .summary = "Accepted: nothing is evicted.",
     .arguments = kSwitch,
     .handler = client_switch},
    {.name = "client|no-touch",
     .arity = 3,
     .access = Access::connection,
     .group = "connection",
     .summary = "Accepted: nothing is evicted.",
     .arguments = kSwitch,
     .handler = client_switch},
    {.name = "client|reply",
     .arity = 3,
     .access = Access::connection,
     .group = "connection",
     .summary = "Switches the replies to this connection on, off, or off for one command.",
     .arguments = kReplyArguments,
     .handler = client_reply},
    {.name = "client|capa",
     .arity = -3,
     .access = Access::connection,
     .group = "connection",
     .summary = "Accepted: says what a client is capable of.",
     .arguments = kAnything,
     .handler = client_capa},
    {.name = "client|tracking",
     .arity = -3,
     .access = Access::connection,
     .group = "connection",
     .summary = "Refused: there is no client side caching.",
     .arguments = kAnything,
     .handler = client_tracking},
    {.name = "client|maint_notifications",
     .arity = -2,
     .access = Access::connection,
     .group = "connection",
     .summary = "Refused: there are no maintenance notifications.",
     .arguments = kAnything,
     .handler = client_maintenance},
};

constexpr CommandSpec kCommands[] = {
    {.name = "hello",
     .arity = -1,
     .access = Access::connection,
     .group = "connection",
     .summary = "Chooses RESP2 or RESP3, and may authenticate and name the connection.",
     .arguments = kHelloArguments,
     .handler = hello,
     .before_auth = true},
    {.name = "auth",
     .arity = -2,
     .access = Access::connection,
     .group = "connection",
     .summary = "Authenticates the connection.",
     .arguments = kAuthArguments,
     .handler = auth,
     .before_auth = true},
    {.name = "ping",
     .arity = -1,
     .access = Access::connection,
     .group = "connection",
     .summary = "Returns PONG, or the message.",
     .arguments = kMessage,
     .handler = ping},
    {.name = "echo",
     .arity = 2,
     .access = Access::connection,
     .group = "connection",
     .summary = "Returns the message.",
     .arguments = kEchoed,
     .handler = echo},
    {.name = "select",
     .arity = 2,
     .access = Access::connection,
     .group = "connection",
     .summary = "Accepts database 0, the only one.",
     .arguments = kIndex,
     .handler = select_database},
    {.name = "quit",
     .arity = -1,
     .access = Access::connection,
     .group = "connection",
     .summary = "Closes the connection after the reply.",
     .handler = quit,
     .before_auth = true},
    {.name = "reset",
     .arity = 1,
     .access = Access::connection,
     .group = "connection",
     .summary = "Makes the connection as it was when it began.",
     .handler = reset,
     .before_auth = true},
    {.name = "client",
     .arity = -2,
     .access = Access::connection,
     .group = "connection",
     .summary = "Looks at and changes connections.",
     .subcommands = kClientSubcommands},
};

}  // namespace

std::span<const CommandSpec> connection_commands() {
  return kCommands;
}

}  // namespace fencekv::server
