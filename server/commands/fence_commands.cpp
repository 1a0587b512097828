// SPDX-License-Identifier: Apache-2.0

#include "server/commands/arguments.h"
#include "server/commands/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::server {
namespace {

using resp::ReplyWriter;

constexpr Argument kKey{.name = "key", .type = ArgumentType::key};
constexpr Argument kToken{.name = "token", .type = ArgumentType::integer};
constexpr Argument kValue{.name = "value"};
constexpr Argument kLease{.name = "name", .token = "LEASE", .optional = true};
constexpr Argument kOnce{
    .name = "once", .type = ArgumentType::pure_token, .token = "ONCE", .optional = true};
constexpr Argument kIfVersion{
    .name = "version", .type = ArgumentType::integer, .token = "IFVER", .optional = true};
constexpr Argument kLive{
    .name = "live", .type = ArgumentType::pure_token, .token = "LIVE", .optional = true};
constexpr Argument kRequest{.name = "id", .token = "REQ", .optional = true};
constexpr Argument kReadToken{
    .name = "token", .type = ArgumentType::integer, .token = "TOKEN", .optional = true};
constexpr Argument kCount{
    .name = "count", .type = ArgumentType::integer, .token = "COUNT", .optional = true};
constexpr Argument kPairParts[] = {kKey, kValue};
constexpr Argument kGuardChoices[] = {
    {.name = "name", .token = "GUARD"},
    {.name = "noguard", .type = ArgumentType::pure_token, .token = "NOGUARD"}};

constexpr Argument kSetArguments[] = {kKey,  kToken,     kValue, kLease,
                                      kOnce, kIfVersion, kLive,  kRequest};
constexpr Argument kDelArguments[] = {kKey, kToken, kLease, kIfVersion, kLive, kRequest};
constexpr Argument kMsetArguments[] = {
    kToken,
    {.name = "numkeys", .type = ArgumentType::integer},
    {.name = "pair", .type = ArgumentType::block, .multiple = true, .parts = kPairParts},
    kLease,
    kLive,
    kRequest};
constexpr Argument kGetArguments[] = {kKey, kReadToken, kLease};
constexpr Argument kRaiseArguments[] = {kKey, kToken, kLease};
constexpr Argument kInfoArguments[] = {kKey};
constexpr Argument kRejectionsArguments[] = {kCount};
constexpr Argument kResetArguments[] = {
    kKey,
    kToken,
    {.name = "guard", .type = ArgumentType::oneof, .optional = true, .parts = kGuardChoices}};

std::optional<std::string> owned(std::optional<std::string_view> text) {
  if (!text) return std::nullopt;
  return std::string(*text);
}

void bulk_or_null(ReplyWriter& reply, const std::optional<std::string>& text) {
  if (text) {
    reply.bulk(*text);
  } else {
    reply.null();
  }
}

void write_single_version(ReplyWriter& reply, Reply& answer) {
  reply.integer(static_cast<std::int64_t>(std::get<Write::Reply>(answer).front()));
}

void write_versions(ReplyWriter& reply, Reply& answer) {
  const auto& versions = std::get<Write::Reply>(answer);
  reply.array(versions.size());
  for (const std::uint64_t version : versions) reply.integer(static_cast<std::int64_t>(version));
}

void write_fence(ReplyWriter& reply, Reply& answer) {
  reply.number_as_bulk(std::get<Token>(answer).number());
}

void write_reading(ReplyWriter& reply, const KeyState& state) {
  reply.map(4);
  reply.bulk("value");
  bulk_or_null(reply, state.value);
  reply.bulk("version");
  reply.integer(static_cast<std::int64_t>(state.version));
  reply.bulk("fence");
  reply.number_as_bulk(state.fence.number());
  reply.bulk("guard");
  bulk_or_null(reply, state.guard);
}

void write_description(ReplyWriter& reply, const KeyState& state) {
  reply.map(7);
  reply.bulk("version");
  reply.integer(static_cast<std::int64_t>(state.version));
  reply.bulk("fence");
  reply.number_as_bulk(state.fence.number());
  reply.bulk("guard");
  bulk_or_null(reply, state.guard);
  reply.bulk("exists");
  reply.integer(state.value ? 1 : 0);
  reply.bulk("size");
  reply.integer(state.value ? static_cast<std::int64_t>(state.value->size()) : 0);
  reply.bulk("request");
  bulk_or_null(reply, state.request);
  reply.bulk("written");
  reply.integer(state.written.count());
}

/// Adds the options of a call, from argument `from` on, to `write`.
Result<void> read_write_options(const Call& call, std::size_t from, Write& write) {
  const auto options = parse_options(call, from);
  if (!options) return options.error();
  if (const auto version = options->get("IFVER")) {
    const auto number = parse_number("version", *version, 0, INT64_MAX);
    if (!number) return number.error();
    write.if_version = *number;
  }
  write.lease = owned(options->get("LEASE"));
  write.once = options->has("ONCE");
  write.live = options->has("LIVE");
  write.request = owned(options->get("REQ"));
  return {};
}

Outcome fence_set(Call& call) {
  const auto token = parse_token(call.arguments[2]);
  if (!token) return call.refuse(token.error());
  Write write{.token = *token};
  if (const auto read = read_write_options(call, 4, write); !read) return call.refuse(read.error());
  write.entries.push_back({std::string(call.arguments[1]), std::string(call.arguments[3])});
  return StoreCall{std::move(write), write_single_version};
}

Outcome fence_del(Call& call) {
  const auto token = parse_token(call.arguments[2]);
  if (!token) return call.refuse(token.error());
  Write write{.token = *token};
  if (const auto read = read_write_options(call, 3, write); !read) return call.refuse(read.error());
  write.entries.push_back({std::string(call.arguments[1]), std::nullopt});
  return StoreCall{std::move(write), write_single_version};
}

Outcome fence_mset(Call& call) {
  const auto token = parse_token(call.arguments[1]);
  if (!token) return call.refuse(token.error());
  const auto count = parse_number("number of keys", call.arguments[2], 1, Limits::kKeysPerCommand);
  if (!count) return call.refuse(count.error());
  const std::size_t end = 3 + 2 * *count;
  if (call.arguments.size() < end) {
    return call.refuse(
        syntax_error(fmt::format("fewer than {} pairs of key and value", *count), call.spec));
  }

  Write write{.token = *token};
  if (const auto read = read_write_options(call, end, write); !read) {
    return call.refuse(read.error());
  }
  write.entries.reserve(*count);
  for (std::size_t at = 3; at < end; at += 2) {
    write.entries.push_back({std::string(call.arguments[at]), std::string(call.arguments[at + 1])});
  }
  return StoreCall{std::move(write), write_versions};
}

Outcome fence_get(Call& call) {
  const auto options = parse_options(call, 2);
  if (!options) return call.refuse(options.error());
  std::string key(call.arguments[1]);
  if (!options->has("TOKEN")) {
    if (options->has("LEASE")) {
      return call.refuse(syntax_error("LEASE without TOKEN", call.spec));
    }
    return StoreCall{Read{{std::move(key)}}, [](ReplyWriter& reply, Reply& answer) {
                       write_reading(reply, std::get<Read::Reply>(answer).front());
                     }};
  }
  const auto token = parse_token(*options->get("TOKEN"));
  if (!token) return call.refuse(token.error());
  return StoreCall{
      FencedRead{std::move(key), *token, owned(options->get("LEASE"))},
      [](ReplyWriter& reply, Reply& answer) { write_reading(reply, std::get<KeyState>(answer)); }};
}

Outcome fence_raise(Call& call) {
  const auto token = parse_token(call.arguments[2]);
  if (!token) return call.refuse(token.error());
  const auto options = parse_options(call, 3);
  if (!options) return call.refuse(options.error());
  return StoreCall{Raise{std::string(call.arguments[1]), *token, owned(options->get("LEASE"))},
                   write_fence};
}

Outcome fence_info(Call& call) {
  return StoreCall{Read{{std::string(call.arguments[1])}}, [](ReplyWriter& reply, Reply& answer) {
                     write_description(reply, std::get<Read::Reply>(answer).front());
                   }};
}

Outcome fence_rejections(Call& call) {
  constexpr std::uint64_t kDefaultCount = 10;
  constexpr std::uint64_t kKept = 1024;
  const auto options = parse_options(call, 1);
  if (!options) return call.refuse(options.error());
  std::uint64_t count = kDefaultCount;
  if (const auto text = options->get("COUNT")) {
    const auto number = parse_number("count", *text, 1, INT64_MAX);
    if (!number) return call.refuse(number.error());
    count = std::min(*number, kKept);
  }

  const auto rejections = call.server.store.rejections(count);
  auto reply = call.reply();
  reply.array(rejections.size());
  for (const Rejection& rejection : rejections) {
    reply.map(7);
    reply.bulk("when");
    reply.integer(rejection.when.count());
    reply.bulk("client");
    reply.bulk(rejection.client);
    reply.bulk("key");
    reply.bulk(rejection.key);
    reply.bulk("lease");
    bulk_or_null(reply, rejection.lease);
    reply.bulk("offered");
    reply.number_as_bulk(rejection.offered.number());
    reply.bulk("highest");
    reply.number_as_bulk(rejection.highest.number());
    reply.bulk("reason");
    reply.bulk(rejection.reason);
  }
  return std::nullopt;
}

Outcome fence_reset(Call& call) {
  const auto token = parse_token(call.arguments[2]);
  if (!token) return call.refuse(token.error());
  const auto options = parse_options(call, 3);
  if (!options) return call.refuse(options.error());

  Reset reset{.key = std::string(call.arguments[1]), .token = *token};
  if (options->has("NOGUARD")) reset.guard = Reset::Guard::clear;
  if (const auto guard = options->get("GUARD")) {
    reset.guard = Reset::Guard::set;
    reset.guard_name = *guard;
  }
  // It lowers what nothing else may lower, so it leaves a trace of who did that.
  auto log_and_write = [key = escaped(reset.key), client = call.client.shown(),
                        &log = call.server.log](ReplyWriter& reply, Reply& answer) {
    const auto& change = std::get<Reset::Reply>(answer);
    log.warn("FENCE.RESET {}: fence {} -> {} by {}", key, change.before.number(),
             change.after.number(), *client);
    reply.number_as_bulk(change.after.number());
  };
  return StoreCall{std::move(reset), std::move(log_and_write)};
}

constexpr CommandSpec kCommands[] = {
    {.name = "fence.set",
     .arity = -4,
     .keys = {1, 1, 1},
     .access = Access::write,
     .group = "fence",
     .summary =
         "Stores a value unless a newer token was accepted for the key. Returns the version.",
     .arguments = kSetArguments,
     .handler = fence_set},
    {.name = "fence.del",
     .arity = -3,
     .keys = {1, 1, 1},
     .access = Access::write,
     .group = "fence",
     .summary = "Deletes a key and keeps its fence. Returns the version.",
     .arguments = kDelArguments,
     .handler = fence_del},
    {.name = "fence.mset",
     .arity = -5,
     .keys = {.first = 3, .last = 0, .step = 2, .count_at = 2},
     .access = Access::write,
     .group = "fence",
     .summary = "Stores several values, all or none. Returns their versions.",
     .arguments = kMsetArguments,
     .handler = fence_mset},
    {.name = "fence.get",
     .arity = -2,
     .keys = {1, 1, 1},
     .access = Access::write,
     .group = "fence",
     .summary = "Reads a key with its version, fence and guard; with TOKEN lifts the fence first.",
     .arguments = kGetArguments,
     .handler = fence_get},
    {.name = "fence.raise",
     .arity = -3,
     .keys = {1, 1, 1},
     .access = Access::write,
     .group = "fence",
     .summary = "Lifts the fence of a key without writing. Returns the fence.",
     .arguments = kRaiseArguments,
     .handler = fence_raise},
    {.name = "fence.info",
     .arity = 2,
     .keys = {1, 1, 1},
     .access = Access::read,
     .group = "fence",
     .summary = "Tells all about a key but its value.",
     .arguments = kInfoArguments,
     .handler = fence_info},
    {.name = "fence.rejections",
     .arity = -1,
     .access = Access::read,
     .group = "fence",
     .summary = "Lists the newest refused writes.",
     .arguments = kRejectionsArguments,
     .handler = fence_rejections,
     .after_writes = true},
    {.name = "fence.reset",
     .arity = -3,
     .keys = {1, 1, 1},
     .access = Access::admin,
     .group = "fence",
     .summary = "Sets the fence of a key, down too: repairs a poisoned one. Returns the fence.",
     .arguments = kResetArguments,
     .handler = fence_reset},
};

}  // namespace

std::span<const CommandSpec> fence_commands() {
  return kCommands;
}

}  // namespace fencekv::server
