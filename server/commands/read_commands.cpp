// SPDX-License-Identifier: Apache-2.0
/// Reads as every Redis client knows them. They see live values and lift no fence.

#include "server/commands/arguments.h"
#include "server/commands/families.h"
#include "server/commands/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::server {
namespace {

using resp::ReplyWriter;

constexpr Argument kKey{.name = "key", .type = ArgumentType::key};
constexpr Argument kKeyArguments[] = {kKey};
constexpr Argument kKeysArguments[] = {
    {.name = "key", .type = ArgumentType::key, .multiple = true}};
constexpr Argument kMemoryUsageArguments[] = {
    kKey, {.name = "count", .type = ArgumentType::integer, .token = "SAMPLES", .optional = true}};

/// What a record takes beside key and value, as far as one can say: fence, version, times, guard.
constexpr std::int64_t kRecordBytes = 64;

StoreCall read_one(std::string_view key, Format format) {
  return {Read{{std::string(key)}}, std::move(format)};
}

const std::optional<std::string>& only_value(const Reply& answer) {
  return std::get<Read::Reply>(answer).front().value;
}

void write_value(ReplyWriter& reply, const std::optional<std::string>& value) {
  if (value) {
    reply.bulk(*value);
  } else {
    reply.null();
  }
}

Outcome get(Call& call) {
  return read_one(call.arguments[1], [](ReplyWriter& reply, Reply& answer) {
    write_value(reply, only_value(answer));
  });
}

/// Reads all arguments as keys. Errors: as syntax: too many.
Outcome read_many(Call& call, Format format) {
  const std::size_t count = call.arguments.size() - 1;
  if (count > Limits::kKeysPerCommand) {
    return call.refuse(Error(Errc::invalid, fmt::format("{} keys, expected at most {}", count,
                                                        Limits::kKeysPerCommand)));
  }
  Read read;
  read.keys.assign(call.arguments.begin() + 1, call.arguments.end());
  return StoreCall{std::move(read), std::move(format)};
}

Outcome mget(Call& call) {
  return read_many(call, [](ReplyWriter& reply, Reply& answer) {
    const auto& states = std::get<Read::Reply>(answer);
    reply.array(states.size());
    for (const KeyState& state : states) write_value(reply, state.value);
  });
}

Outcome exists(Call& call) {
  return read_many(call, [](ReplyWriter& reply, Reply& answer) {
    const auto& states = std::get<Read::Reply>(answer);
    reply.integer(std::count_if(states.begin(), states.end(),
                                [](const KeyState& state) { return state.value.has_value(); }));
  });
}

Outcome strlen_command(Call& call) {
  return read_one(call.arguments[1], [](ReplyWriter& reply, Reply& answer) {
    const auto& value = only_value(answer);
    reply.integer(value ? static_cast<std::int64_t>(value->size()) : 0);
  });
}

Outcome type(Call& call) {
  return read_one(call.arguments[1], [](ReplyWriter& reply, Reply& answer) {
    reply.simple(only_value(answer) ? "string" : "none");
  });
}

/// TTL and PTTL: keys do not expire.
Outcome time_to_live(Call& call) {
  return read_one(call.arguments[1], [](ReplyWriter& reply, Reply& answer) {
    reply.integer(only_value(answer) ? -1 : -2);
  });
}

Outcome scan(Call& call) {
  const auto request = parse_scan(call, Listing::keys);
  if (!request) return call.refuse(request.error());
  if (!request->strings) {
    write_scan_header(call, Listing::keys, std::nullopt, 0);
    return std::nullopt;
  }
  const auto page = call.server.store.list_keys(request->after, request->examine);
  if (!page) return call.refuse(page.error());

  const auto selected =
      select(*page, *request, [](const std::string& key) -> const std::string& { return key; });
  auto reply = call.reply();
  write_scan_header(call, Listing::keys, selected.next, selected.items.size());
  for (const std::string* key : selected.items) reply.bulk(*key);
  return std::nullopt;
}

Outcome dbsize(Call& call) {
  call.reply().integer(static_cast<std::int64_t>(call.server.store.stats().live_keys));
  return std::nullopt;
}

Outcome object_encoding(Call& call) {
  return read_one(call.arguments[2], [](ReplyWriter& reply, Reply& answer) {
    if (only_value(answer)) {
      reply.bulk("raw");
    } else {
      reply.null();
    }
  });
}

Outcome object_freq(Call& call) {
  return call.refuse_line("ERR access frequency is not tracked; there is nothing to evict by it");
}

Outcome memory_usage(Call& call) {
  const auto options = parse_options(call, 3);
  if (!options) return call.refuse(options.error());
  if (const auto samples = options->get("SAMPLES")) {
    const auto number = parse_number("number of samples", *samples, 0, INT64_MAX);
    if (!number) return call.refuse(number.error());
  }
  const auto key_bytes = static_cast<std::int64_t>(call.arguments[2].size());
  return read_one(call.arguments[2], [key_bytes](ReplyWriter& reply, Reply& answer) {
    const auto& value = only_value(answer);
    if (value) {
      reply.integer(key_bytes + static_cast<std::int64_t>(value->size()) + kRecordBytes);
    } else {
      reply.null();
    }
  });
}

constexpr CommandSpec kObjectSubcommands[] = {
    {.name = "object|encoding",
     .arity = 3,
     .keys = {2, 2, 1},
     .group = "generic",
     .summary = "Tells how a value is kept: always raw.",
     .arguments = kKeyArguments,
     .handler = object_encoding},
    {.name = "object|freq",
     .arity = 3,
     .keys = {2, 2, 1},
     .group = "generic",
     .summary = "Refused: access frequency is not tracked.",
     .arguments = kKeyArguments,
     .handler = object_freq},
};

constexpr CommandSpec kMemorySubcommands[] = {
    {.name = "memory|usage",
     .arity = -3,
     .keys = {2, 2, 1},
     .group = "server",
     .summary = "Estimates the bytes that a key and its value take.",
     .arguments = kMemoryUsageArguments,
     .handler = memory_usage},
};

constexpr CommandSpec kCommands[] = {
    {.name = "get",
     .arity = 2,
     .keys = {1, 1, 1},
     .group = "string",
     .summary = "Returns the value of a key.",
     .arguments = kKeyArguments,
     .handler = get},
    {.name = "mget",
     .arity = -2,
     .keys = {1, -1, 1},
     .group = "string",
     .summary = "Returns the values of several keys, all of one point in time.",
     .arguments = kKeysArguments,
     .handler = mget},
    {.name = "exists",
     .arity = -2,
     .keys = {1, -1, 1},
     .group = "generic",
     .summary = "Counts how many of the keys have a value.",
     .arguments = kKeysArguments,
     .handler = exists},
    {.name = "strlen",
     .arity = 2,
     .keys = {1, 1, 1},
     .group = "string",
     .summary = "Returns the length of a value in bytes.",
     .arguments = kKeyArguments,
     .handler = strlen_command},
    {.name = "type",
     .arity = 2,
     .keys = {1, 1, 1},
     .group = "generic",
     .summary = "Returns string or none.",
     .arguments = kKeyArguments,
     .handler = type},
    {.name = "ttl",
     .arity = 2,
     .keys = {1, 1, 1},
     .group = "generic",
     .summary = "Returns -1 for a key with a value, -2 for none: keys do not expire.",
     .arguments = kKeyArguments,
     .handler = time_to_live},
    {.name = "pttl",
     .arity = 2,
     .keys = {1, 1, 1},
     .group = "generic",
     .summary = "Returns -1 for a key with a value, -2 for none: keys do not expire.",
     .arguments = kKeyArguments,
     .handler = time_to_live},
    {.name = "scan",
     .arity = -2,
     .group = "generic",
     .summary = "Walks through the keys that have a value.",
     .arguments = kTypedScanArguments,
     .handler = scan,
     .after_writes = true},
    {.name = "dbsize",
     .arity = 1,
     .group = "server",
     .summary = "Returns the number of keys that have a value.",
     .handler = dbsize,
     .after_writes = true},
    {.name = "object",
     .arity = -2,
     .group = "generic",
     .summary = "Looks at how a value is kept.",
     .subcommands = kObjectSubcommands},
    {.name = "memory",
     .arity = -2,
     .group = "server",
     .summary = "Looks at memory.",
     .subcommands = kMemorySubcommands},
};

}  // namespace

std::span<const CommandSpec> read_commands() {
  return kCommands;
}

}  // namespace fencekv::server
