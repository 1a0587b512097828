// SPDX-License-Identifier: Apache-2.0

#include "server/dispatcher.h"

#include "server/commands/arguments.h"
#include "server/commands/command_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

namespace fencekv::server {

Outcome Call::refuse(const Error& error) const {
  reply().error(error.line());
  return std::nullopt;
}

Outcome Call::refuse_line(std::string_view line) const {
  reply().error(line);
  return std::nullopt;
}

Outcome Call::ok() const {
  reply().simple("OK");
  return std::nullopt;
}

namespace {

/// A page in a browser can be made to post to any address; its first line or its headers then look
/// like inline commands, and what follows would be run.
bool is_web_request(const resp::Request& request) {
  const std::string_view name = request[0];
  if (same_word(name, "post") || same_word(name, "host:")) return true;
  if (request.size() != 3 || !request[2].starts_with("HTTP/")) return false;
  constexpr std::string_view kMethods[] = {"GET",     "PUT",   "HEAD",    "DELETE",
                                           "OPTIONS", "PATCH", "CONNECT", "TRACE"};
  return std::any_of(std::begin(kMethods), std::end(kMethods),
                     [&](std::string_view method) { return same_word(name, method); });
}

std::string unknown_command(const resp::Request& request) {
  constexpr std::size_t kShownBytes = 128;
  std::string line =
      fmt::format("ERR unknown command '{}', with args beginning with: ", escaped(request[0]));
  std::size_t shown = 0;
  for (std::size_t at = 1; at < request.size() && shown < kShownBytes; ++at) {
    const std::string text = escaped(request[at].substr(0, kShownBytes - shown));
    line += fmt::format("'{}' ", text);
    shown += text.size();
  }
  return line;
}

/// CLIENT HELP and the like: how each subcommand is called.
void write_help(const Call& call) {
  auto reply = call.reply();
  reply.array(2 * call.spec.subcommands.size());
  for (const CommandSpec& subcommand : call.spec.subcommands) {
    reply.simple(usage(subcommand));
    reply.simple(fmt::format("    {}", subcommand.summary));
  }
}

}  // namespace

Dispatched dispatch(const resp::Request& request, Client& client, Context& server,
                    bool writes_under_way, std::string& out) {
  resp::ReplyWriter reply(out, client.protocol);
  const auto refused = [&](std::string_view line) {
    reply.error(line);
    return Dispatched{};
  };

  if (is_web_request(request)) return {.kind = Dispatched::Kind::drop};
  const CommandSpec* spec = find_command(request[0]);
  // `client|id` is a name of the table, not of a command.
  if (spec != nullptr && request[0].find('|') != std::string_view::npos) spec = nullptr;
  if (!client.authenticated && (spec == nullptr || !spec->before_auth)) {
    return refused("NOAUTH Authentication required.");
  }
  if (spec == nullptr) {
    const std::string_view advice = advice_for(request[0]);
    return refused(advice.empty() ? unknown_command(request) : std::string(advice));
  }

  const CommandSpec& named = *spec;
  if (!named.subcommands.empty() && request.size() > 1) {
    spec = find_subcommand(named, request[1]);
    if (spec == nullptr) {
      if (same_word(request[1], "help")) {
        write_help(Call{named, request, client, server, out});
        return {};
      }
      std::string container = usage(named);
      return refused(fmt::format("ERR unknown subcommand '{}'. Try {} HELP.", escaped(request[1]),
                                 container.substr(0, container.find(' '))));
    }
  }
  if (!fits_arity(*spec, request.size()) || spec->handler == nullptr) {
    return refused(fmt::format("ERR wrong number of arguments for '{}' command", spec->name));
  }
  if (spec->after_writes && writes_under_way) return {.kind = Dispatched::Kind::later};

  client.starts(*spec);
  Call call{*spec, request, client, server, out};
  Dispatched done;
  done.call = spec->handler(call);
  if (done.call) done.kind = Dispatched::Kind::store;
  return done;
}

}  // namespace fencekv::server
