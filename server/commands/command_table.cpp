// SPDX-License-Identifier: Apache-2.0

#include "server/commands/command_table.h"

#include "server/commands/arguments.h"
#include "server/commands/families.h"

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <array>
#include <cassert>
#include <string>

namespace fencekv::server {
namespace {

using Index = boost::unordered_flat_map<std::string_view, const CommandSpec*>;

std::string lower_case(std::string_view text) {
  std::string lowered(text);
  for (char& letter : lowered) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return lowered;
}

const Index& index_by_name() {
  static const Index index = [] {
    Index built;
    for (const CommandSpec* spec : all_commands()) {
      assert(!built.contains(spec->name) && "two commands of one name");
      built[spec->name] = spec;
      for (const CommandSpec& subcommand : spec->subcommands) built[subcommand.name] = &subcommand;
    }
    return built;
  }();
  return index;
}

/// Commands that write without a token, and others that a client may try.
struct Refusal {
  std::string_view advice;
  std::span<const std::string_view> names;
};

constexpr std::string_view kSetters[] = {
    "set",      "setex",       "psetex",  "setnx",  "getset", "append", "setrange", "incr",
    "incrby",   "incrbyfloat", "decr",    "decrby", "setbit", "bitop",  "bitfield", "rename",
    "renamenx", "copy",        "restore", "move",   "pfadd",  "pfmerge"};
constexpr std::string_view kMultiSetters[] = {"mset", "msetnx"};
constexpr std::string_view kDeleters[] = {"del", "unlink", "getdel"};
constexpr std::string_view kFlushers[] = {"flushall", "flushdb", "swapdb"};
constexpr std::string_view kExpirers[] = {"expire",    "pexpire", "expireat",
                                          "pexpireat", "persist", "getex"};
constexpr std::string_view kCollections[] = {
    "hset",  "hmset", "hsetnx", "hdel",    "hincrby", "hget", "hgetall", "lpush",
    "rpush", "lpop",  "rpop",   "lset",    "ltrim",   "lrem", "sadd",    "srem",
    "spop",  "zadd",  "zrem",   "zincrby", "xadd",    "xdel", "geoadd"};
constexpr std::string_view kScripts[] = {"eval",  "evalsha",  "eval_ro", "evalsha_ro",
                                         "fcall", "fcall_ro", "script",  "function"};
constexpr std::string_view kTransactions[] = {"multi", "exec", "discard", "watch", "unwatch"};
constexpr std::string_view kPublishers[] = {"subscribe",    "unsubscribe", "psubscribe",
                                            "punsubscribe", "ssubscribe",  "sunsubscribe",
                                            "publish",      "spublish",    "pubsub"};
constexpr std::string_view kReplication[] = {"sync", "psync", "replconf", "replicaof", "slaveof"};
constexpr std::string_view kLists[] = {"keys"};

constexpr Refusal kRefusals[] = {
    {"ERR a write needs a token: use FENCE.SET key token value", kSetters},
    {"ERR a write needs a token: use FENCE.MSET token numkeys key value ...", kMultiSetters},
    {"ERR a delete needs a token: use FENCE.DEL key token", kDeleters},
    {"ERR keys are deleted one by one, each with a token: use FENCE.DEL key token", kFlushers},
    {"ERR keys do not expire: delete with FENCE.DEL key token; for a time limit use LEASE.ACQUIRE",
     kExpirers},
    {"ERR values are strings and a write needs a token: use FENCE.SET key token value",
     kCollections},
    {"ERR scripts are not supported: use FENCE.SET with IFVER, and LEASE.ACQUIRE for a lock",
     kScripts},
    {"ERR transactions are not supported: use FENCE.MSET, or FENCE.SET with IFVER", kTransactions},
    {"ERR publish and subscribe are not supported: for changes of leases use LEASE.WATCH, or "
     "LEASE.WAIT",
     kPublishers},
    {"ERR this server does not replicate by the Redis protocol", kReplication},
    {"ERR KEYS would hold up all other clients: use SCAN 0 MATCH pattern", kLists},
};

}  // namespace

std::vector<const CommandSpec*> all_commands() {
  std::vector<const CommandSpec*> all;
  for (const auto family : {fence_commands(), lease_commands(), read_commands(),
                            connection_commands(), store_commands(), server_commands()}) {
    for (const CommandSpec& spec : family) all.push_back(&spec);
  }
  return all;
}

const CommandSpec* find_command(std::string_view name) {
  constexpr std::size_t kLongest = 64;
  if (name.size() > kLongest) return nullptr;
  std::array<char, kLongest> lowered{};
  std::transform(name.begin(), name.end(), lowered.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  const Index& index = index_by_name();
  const auto found = index.find(std::string_view(lowered.data(), name.size()));
  return found == index.end() ? nullptr : found->second;
}

const CommandSpec* find_subcommand(const CommandSpec& container, std::string_view word) {
  const std::size_t prefix = container.name.size() + 1;
  for (const CommandSpec& subcommand : container.subcommands) {
    if (same_word(subcommand.name.substr(prefix), word)) return &subcommand;
  }
  return nullptr;
}

bool fits_arity(const CommandSpec& spec, std::size_t arguments) {
  const auto count = static_cast<std::int64_t>(arguments);
  return spec.arity >= 0 ? count == spec.arity : count >= -spec.arity;
}

Result<std::vector<std::string_view>> keys_of(const CommandSpec& spec,
                                              std::span<const std::string_view> request) {
  const auto misfit = [] {
    return Error(Errc::invalid, "Invalid number of arguments specified for command");
  };
  if (!fits_arity(spec, request.size())) return misfit();
  std::vector<std::string_view> keys;
  if (spec.keys.first == 0) return keys;

  const auto first = static_cast<std::size_t>(spec.keys.first);
  const auto step = static_cast<std::size_t>(spec.keys.step);
  std::size_t count = 0;
  if (spec.keys.count_at != 0) {
    const auto number =
        parse_number("number of keys", request[spec.keys.count_at], 1, Limits::kKeysPerCommand);
    if (!number) return number.error();
    count = *number;
    if (first + count * step > request.size()) return misfit();
  } else {
    const std::size_t last = spec.keys.last >= 0
                                 ? static_cast<std::size_t>(spec.keys.last)
                                 : request.size() - static_cast<std::size_t>(-spec.keys.last);
    count = (last - first) / step + 1;
  }
  for (std::size_t i = 0; i < count; ++i) keys.push_back(request[first + i * step]);
  return keys;
}

std::vector<std::string_view> categories_of(const CommandSpec& spec) {
  std::vector<std::string_view> categories;
  switch (spec.access) {
    case Access::connection:
      categories = {"connection"};
      break;
    case Access::read:
      categories = {"read"};
      break;
    case Access::write:
      categories = {"write"};
      break;
    case Access::admin:
      categories = {"admin", "dangerous"};
      break;
  }
  if (spec.group == "fence") categories.push_back("fence");
  return categories;
}

std::string_view advice_for(std::string_view name) {
  const std::string lowered = lower_case(name.substr(0, 32));
  for (const Refusal& refusal : kRefusals) {
    if (std::find(refusal.names.begin(), refusal.names.end(), lowered) != refusal.names.end()) {
      return refusal.advice;
    }
  }
  return {};
}

}  // namespace fencekv::server
