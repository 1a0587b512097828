// SPDX-License-Identifier: Apache-2.0
/// What clients and people ask of the server as a whole: INFO, CONFIG, COMMAND, ACL …

#include "server/commands/arguments.h"
#include "server/commands/command_table.h"
#include "server/commands/families.h"
#include "server/commands/glob.h"
#include "server/storage_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fencekv::server {
namespace {

using resp::ReplyWriter;

// ---- INFO ----------------------------------------------------------------------------------

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::string server_section(const Context& server) {
  const auto uptime = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::steady_clock::now() - server.started)
                          .count();
  return fmt::format(
      "redis_version:{}\r\nfencekv_version:{}\r\nredis_mode:standalone\r\nprocess_id:{}\r\n"
      "run_id:{}\r\ntcp_port:{}\r\nuptime_in_seconds:{}\r\nuptime_in_days:{}\r\n"
      "io_threads:{}\r\n",
      kRedisVersion, FENCEKV_VERSION, ::getpid(), server.run_id, server.port.load(), uptime,
      uptime / 86400, server.options.io_threads);
}

std::string clients_section(const Context& server) {
  return fmt::format("connected_clients:{}\r\nmaxclients:{}\r\nblocked_clients:{}\r\n",
                     server.clients.size(), server.options.max_connections,
                     server.store.stats().waiting);
}

std::string memory_section(const Context& server) {
  const auto bytes = resident_bytes();
  return fmt::format("used_memory:{}\r\nused_memory_rss:{}\r\nmaxmemory:0\r\nmemory_budget:{}\r\n",
                     bytes, bytes, server.store.options().memory_budget);
}

std::string persistence_section(const Context& server) {
  const auto refusal = server.store.refuses_writes();
  return fmt::format("loading:0\r\naof_enabled:1\r\naof_last_write_status:{}\r\n",
                     refusal ? "err" : "ok");
}

std::string stats_section(const Context& server) {
  return fmt::format(
      "total_connections_received:{}\r\nrejected_connections:{}\r\n"
      "total_commands_processed:{}\r\ntotal_net_input_bytes:{}\r\ntotal_net_output_bytes:{}\r\n",
      server.counters.connections.load(), server.counters.refused_connections.load(),
      server.counters.commands.load(), server.counters.input_bytes.load(),
      server.counters.output_bytes.load());
}

std::string replication_section(const Context& server) {
  return fmt::format("role:master\r\nconnected_slaves:0\r\nmaster_replid:{}\r\n", server.run_id);
}

std::string cluster_section(const Context&) {
  return "cluster_enabled:0\r\n";
}

std::string keyspace_section(const Context& server) {
  const auto keys = server.store.stats().live_keys;
  return keys == 0 ? std::string() : fmt::format("db0:keys={},expires=0,avg_ttl=0\r\n", keys);
}

std::string_view name_of(Durability durability) {
  return durability == Durability::sync ? "sync" : "process";
}

std::string_view name_of(UnguardedTokens tokens) {
  switch (tokens) {
    case UnguardedTokens::issued:
      return "issued";
    case UnguardedTokens::any:
      return "any";
    case UnguardedTokens::refuse:
      return "refuse";
  }
  return "issued";
}

/// A reason, as one line of INFO.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

/// Whether disk and clock do what they are for, and what was found on the disk.
std::string storage_lines(const Context& server, const StoreStats& stats) {
  return fmt::format(
      "ready:{}\r\nstorage_in_flight_ms:{}\r\nclock_stands_still:{}\r\n"
      "disk_space:{}\r\ndisk_free:{}\r\n"
      "soft_disk_floor:{}\r\nhard_disk_floor:{}\r\nscrub_last:{}\r\nscrub_last_records:{}\r\n"
      "scrub_last_bytes:{}\r\nscrub_problems:{}\r\n{}",
      is_ready(server.store, server.options) ? 1 : 0, stats.in_flight.count(),
      stats.clock_stands_still ? 1 : 0, to_string(stats.space), stats.free_bytes,
      stats.soft_disk_floor, stats.hard_disk_floor, stats.scrubbed.count(), stats.scrubbed_records,
      stats.scrubbed_bytes, stats.scrub_problems,
      stats.ailment ? fmt::format("ailment:{}\r\n", one_line(*stats.ailment)) : std::string());
}

std::string fencekv_section(const Context& server) {
  const StoreStats stats = server.store.stats();
  const Options& options = server.store.options();
  const auto refusal = server.store.refuses_writes();
  return fmt::format(
      "incarnation:{}\r\nnewest_token:{}\r\nfloor:{}\r\nlive_keys:{}\r\ntombstones:{}\r\n"
      "lease_names:{}\r\nwaiting:{}\r\nsessions:{}\r\nepoch:{}\r\ngroups:{}\r\ndurability:{}"
      "\r\nunguarded_tokens:{}\r\n"
      "max_value_bytes:{}\r\naccepts_writes:{}\r\n{}{}",
      stats.incarnation, stats.newest.number(), stats.floor.number(), stats.live_keys,
      stats.tombstones, stats.lease_names, stats.waiting, stats.sessions, stats.epoch, stats.groups,
      name_of(options.durability), name_of(options.unguarded_tokens), options.max_value_bytes,
      refusal ? 0 : 1,
      refusal ? fmt::format("refuses_writes:{}\r\n", one_line(*refusal)) : std::string(),
      storage_lines(server, stats));
}

struct Section {
  std::string_view name;
  std::string (*write)(const Context&);
};

constexpr Section kSections[] = {
    {"Server", server_section},   {"Clients", clients_section},
    {"Memory", memory_section},   {"Persistence", persistence_section},
    {"Stats", stats_section},     {"Replication", replication_section},
    {"Cluster", cluster_section}, {"Keyspace", keyspace_section},
    {"Fencekv", fencekv_section},
};

Outcome describe_server(Call& call) {
  const auto wanted = [&](std::string_view section) {
    if (call.arguments.size() == 1) return true;
    return std::any_of(call.arguments.begin() + 1, call.arguments.end(),
                       [&](std::string_view word) {
                         return same_word(word, section) || same_word(word, "all") ||
                                same_word(word, "default") || same_word(word, "everything");
                       });
  };
  std::string text;
  for (const Section& section : kSections) {
    if (!wanted(section.name)) continue;
    if (!text.empty()) text += "\r\n";
    text += fmt::format("# {}\r\n", section.name);
    text += section.write(call.server);
  }
  call.reply().verbatim(text);
  return std::nullopt;
}

// ---- CONFIG --------------------------------------------------------------------------------

/// What is set, by our names and by those of Redis that clients ask for. No secret is in it.
std::vector<std::pair<std::string_view, std::string>> settings_of(const Context& server) {
  const ServerOptions& options = server.options;
  // As it is opened: with what was left to the store.
  const Options& opened = server.store.options();
  const auto seconds = [](auto time) {
    return std::chrono::duration_cast<std::chrono::seconds>(time).count();
  };
  const auto text = [](auto number) { return fmt::format("{}", number); };
  return {
      {"appendfsync", options.store.durability == Durability::sync ? "always" : "no"},
      {"appendonly", "yes"},
      {"bind", options.bind},
      {"databases", "1"},
      {"dir", options.dir.string()},
      {"durability", std::string(name_of(options.store.durability))},
      {"fence_cache_bytes", text(opened.fence_cache_bytes.value_or(0))},
      {"fence_retention_s", text(seconds(options.store.fence_retention))},
      {"hard_disk_floor", text(server.store.stats().hard_disk_floor)},
      {"idle_timeout_ms", text(options.idle_timeout.count())},
      {"io_threads", text(options.io_threads)},
      {"max_buffer_bytes", text(options.max_buffer_bytes)},
      {"max_connections", text(options.max_connections)},
      {"max_value_bytes", text(options.store.max_value_bytes)},
      {"max_waiting", text(options.store.max_waiting)},
      {"maxclients", text(options.max_connections)},
      {"maxmemory", "0"},
      {"maxmemory-policy", "noeviction"},
      {"memory_budget", text(opened.memory_budget)},
      {"port", text(std::max(0, server.port.load()))},
      {"proto-max-bulk-len", text(resp::RequestLimits().argument_bytes)},
      {"read_cache_bytes", text(opened.read_cache_bytes.value_or(0))},
      {"reclaim_interval_s", text(seconds(options.store.reclaim_interval))},
      {"replica-read-only", "yes"},
      {"save", ""},
      {"scrub_interval_s", text(seconds(options.store.scrub_interval))},
      {"scrub_rate", text(options.store.scrub_bytes_per_second)},
      {"slave-read-only", "yes"},
      {"soft_disk_floor", text(server.store.stats().soft_disk_floor)},
      {"stall_exit_ms", text(options.stall_exit.count())},
      {"stall_warning_ms", text(options.stall_warning.count())},
      {"timeout", text(seconds(options.idle_timeout))},
      {"unguarded_tokens", std::string(name_of(options.store.unguarded_tokens))},
      {"unixsocket", options.unix_path.string()},
  };
}

Outcome config_get(Call& call) {
  std::vector<Glob> patterns;
  for (const std::string_view pattern : std::span(call.arguments).subspan(2)) {
    if (pattern.size() > Glob::kMaxBytes) {
      return call.refuse(
          Error(Errc::invalid, fmt::format("the pattern has {} bytes, expected at most {}",
                                           pattern.size(), Glob::kMaxBytes)));
    }
    std::string lowered(pattern);
    for (char& letter : lowered) {
      if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
    }
    patterns.emplace_back(lowered);
  }
  auto settings = settings_of(call.server);
  std::erase_if(settings, [&](const auto& setting) {
    return std::none_of(patterns.begin(), patterns.end(),
                        [&](const Glob& pattern) { return pattern.matches(setting.first); });
  });
  auto reply = call.reply();
  reply.map(settings.size());
  for (const auto& [name, value] : settings) {
    reply.bulk(name);
    reply.bulk(value);
  }
  return std::nullopt;
}

Outcome config_set(Call& call) {
  return call.refuse_line(
      "ERR settings are read at the start: change the configuration file or the flags, and "
      "restart");
}

// ---- COMMAND -------------------------------------------------------------------------------

void write_words(ReplyWriter& reply, const std::vector<std::string_view>& words) {
  reply.set(words.size());
  for (const std::string_view word : words) reply.simple(word);
}

std::vector<std::string_view> flags_of(const CommandSpec& spec) {
  std::vector<std::string_view> flags;
  if (spec.access == Access::write) flags.push_back("write");
  if (spec.access == Access::read) flags.push_back("readonly");
  if (spec.access == Access::admin) flags.push_back("admin");
  if (spec.may_wait) flags.push_back("blocking");
  if (spec.before_auth) flags.push_back("no_auth");
  if (spec.keys.count_at != 0) flags.push_back("movablekeys");
  return flags;
}

std::vector<std::string_view> key_flags_of(const CommandSpec& spec) {
  if (spec.access == Access::read) return {"RO", "ACCESS"};
  return {"RW", "UPDATE"};
}

void write_key_specs(ReplyWriter& reply, const CommandSpec& spec) {
  const KeyPositions& keys = spec.keys;
  if (keys.first == 0) {
    reply.set(0);
    return;
  }
  const bool counted = keys.count_at != 0;
  reply.set(1);
  reply.map(3);
  reply.bulk("flags");
  write_words(reply, key_flags_of(spec));
  reply.bulk("begin_search");
  reply.map(2);
  reply.bulk("type");
  reply.bulk("index");
  reply.bulk("spec");
  reply.map(1);
  reply.bulk("index");
  reply.integer(counted ? keys.count_at : keys.first);
  reply.bulk("find_keys");
  reply.map(2);
  reply.bulk("type");
  reply.bulk(counted ? "keynum" : "range");
  reply.bulk("spec");
  reply.map(3);
  if (counted) {
    reply.bulk("keynumidx");
    reply.integer(0);
    reply.bulk("firstkey");
    reply.integer(keys.first - keys.count_at);
    reply.bulk("keystep");
    reply.integer(keys.step);
  } else {
    reply.bulk("lastkey");
    reply.integer(keys.last < 0 ? keys.last : keys.last - keys.first);
    reply.bulk("keystep");
    reply.integer(keys.step);
    reply.bulk("limit");
    reply.integer(0);
  }
}

/// The ten fields of COMMAND.
void write_spec(ReplyWriter& reply, const CommandSpec& spec) {
  const bool movable = spec.keys.count_at != 0;
  reply.array(10);
  reply.bulk(spec.name);
  reply.integer(spec.arity);
  write_words(reply, flags_of(spec));
  reply.integer(movable ? 0 : spec.keys.first);
  reply.integer(movable ? 0 : spec.keys.last);
  reply.integer(movable ? 0 : spec.keys.step);
  const auto categories = categories_of(spec);
  reply.set(categories.size());
  for (const std::string_view category : categories) reply.simple(fmt::format("@{}", category));
  reply.set(0);  // tips
  write_key_specs(reply, spec);
  reply.array(spec.subcommands.size());
  for (const CommandSpec& subcommand : spec.subcommands) write_spec(reply, subcommand);
}

std::string_view name_of(ArgumentType type) {
  switch (type) {
    case ArgumentType::string:
      return "string";
    case ArgumentType::integer:
      return "integer";
    case ArgumentType::key:
      return "key";
    case ArgumentType::pattern:
      return "pattern";
    case ArgumentType::pure_token:
      return "pure-token";
    case ArgumentType::oneof:
      return "oneof";
    case ArgumentType::block:
      return "block";
  }
  return "string";
}

void write_argument_docs(ReplyWriter& reply, const Argument& argument) {
  std::vector<std::string_view> flags;
  if (argument.optional) flags.push_back("optional");
  if (argument.multiple) flags.push_back("multiple");

  reply.map(3 + (argument.token.empty() ? 0 : 1) + (argument.type == ArgumentType::key ? 1 : 0) +
            (flags.empty() ? 0 : 1) + (argument.parts.empty() ? 0 : 1));
  reply.bulk("name");
  reply.bulk(argument.name);
  reply.bulk("type");
  reply.bulk(name_of(argument.type));
  reply.bulk("display_text");
  reply.bulk(argument.name);
  if (argument.type == ArgumentType::key) {
    reply.bulk("key_spec_index");
    reply.integer(0);
  }
  if (!argument.token.empty()) {
    reply.bulk("token");
    reply.bulk(argument.token);
  }
  if (!flags.empty()) {
    reply.bulk("flags");
    write_words(reply, flags);
  }
  if (!argument.parts.empty()) {
    reply.bulk("arguments");
    reply.array(argument.parts.size());
    for (const Argument& part : argument.parts) write_argument_docs(reply, part);
  }
}

/// A name and its documentation: one entry of the map of COMMAND DOCS.
void write_docs(ReplyWriter& reply, const CommandSpec& spec) {
  reply.bulk(spec.name);
  reply.map(3 + (spec.arguments.empty() ? 0 : 1) + (spec.subcommands.empty() ? 0 : 1));
  reply.bulk("summary");
  reply.bulk(spec.summary);
  reply.bulk("since");
  reply.bulk(FENCEKV_VERSION);
  reply.bulk("group");
  reply.bulk(spec.group);
  if (!spec.arguments.empty()) {
    reply.bulk("arguments");
    reply.array(spec.arguments.size());
    for (const Argument& argument : spec.arguments) write_argument_docs(reply, argument);
  }
  if (!spec.subcommands.empty()) {
    reply.bulk("subcommands");
    reply.map(spec.subcommands.size());
    for (const CommandSpec& subcommand : spec.subcommands) write_docs(reply, subcommand);
  }
}

void write_all_specs(const Call& call) {
  const auto all = all_commands();
  auto reply = call.reply();
  reply.array(all.size());
  for (const CommandSpec* spec : all) write_spec(reply, *spec);
}

Outcome command(Call& call) {
  write_all_specs(call);
  return std::nullopt;
}

Outcome command_count(Call& call) {
  call.reply().integer(static_cast<std::int64_t>(all_commands().size()));
  return std::nullopt;
}

Outcome command_describe(Call& call) {
  if (call.arguments.size() == 2) {
    write_all_specs(call);
    return std::nullopt;
  }
  auto reply = call.reply();
  reply.array(call.arguments.size() - 2);
  for (const std::string_view name : std::span(call.arguments).subspan(2)) {
    if (const CommandSpec* spec = find_command(name)) {
      write_spec(reply, *spec);
    } else {
      reply.null_array();
    }
  }
  return std::nullopt;
}

Outcome command_docs(Call& call) {
  std::vector<const CommandSpec*> wanted;
  if (call.arguments.size() == 2) {
    wanted = all_commands();
  } else {
    for (const std::string_view name : std::span(call.arguments).subspan(2)) {
      if (const CommandSpec* spec = find_command(name)) wanted.push_back(spec);
    }
  }
  auto reply = call.reply();
  reply.map(wanted.size());
  for (const CommandSpec* spec : wanted) write_docs(reply, *spec);
  return std::nullopt;
}

Outcome command_list(Call& call) {
  const auto& words = call.arguments;
  auto all = all_commands();
  if (words.size() > 2) {
    if (words.size() != 5 || !same_word(words[2], "FILTERBY")) {
      return call.refuse(syntax_error("unexpected arguments", call.spec));
    }
    if (same_word(words[3], "MODULE")) {
      all.clear();  // there are no modules
    } else if (same_word(words[3], "ACLCAT")) {
      std::erase_if(all, [&](const CommandSpec* spec) {
        const auto categories = categories_of(*spec);
        return std::none_of(categories.begin(), categories.end(), [&](std::string_view category) {
          return same_word(category, words[4]);
        });
      });
    } else if (same_word(words[3], "PATTERN") && words[4].size() <= Glob::kMaxBytes) {
      const Glob pattern(words[4]);
      std::erase_if(all, [&](const CommandSpec* spec) { return !pattern.matches(spec->name); });
    } else {
      return call.refuse(syntax_error("unexpected filter", call.spec));
    }
  }
  auto reply = call.reply();
  reply.array(all.size());
  for (const CommandSpec* spec : all) reply.bulk(spec->name);
  return std::nullopt;
}

/// The command that the arguments from 2 on call, with its keys.
struct Resolved {
  const CommandSpec* spec;
  std::vector<std::string_view> keys;
};

Result<Resolved> resolve_keys(const Call& call) {
  const auto request = std::span(call.arguments).subspan(2);
  const CommandSpec* spec = find_command(request[0]);
  if (spec != nullptr && !spec->subcommands.empty() && request.size() > 1) {
    if (const CommandSpec* subcommand = find_subcommand(*spec, request[1])) spec = subcommand;
  }
  if (spec == nullptr) return Error(Errc::invalid, "Invalid command specified");
  auto keys = keys_of(*spec, request);
  if (!keys) return keys.error();
  if (keys->empty()) return Error(Errc::invalid, "The command has no key arguments");
  return Resolved{spec, *std::move(keys)};
}

Outcome command_getkeys(Call& call) {
  const auto resolved = resolve_keys(call);
  if (!resolved) return call.refuse(resolved.error());
  auto reply = call.reply();
  reply.array(resolved->keys.size());
  for (const std::string_view key : resolved->keys) reply.bulk(key);
  return std::nullopt;
}

Outcome command_getkeysandflags(Call& call) {
  const auto resolved = resolve_keys(call);
  if (!resolved) return call.refuse(resolved.error());
  auto reply = call.reply();
  reply.array(resolved->keys.size());
  for (const std::string_view key : resolved->keys) {
    reply.array(2);
    reply.bulk(key);
    write_words(reply, key_flags_of(*resolved->spec));
  }
  return std::nullopt;
}

// ---- the rest ------------------------------------------------------------------------------

Outcome time_now(Call& call) {
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  auto reply = call.reply();
  reply.array(2);
  reply.number_as_bulk(static_cast<std::uint64_t>(now / 1'000'000));
  reply.number_as_bulk(static_cast<std::uint64_t>(now % 1'000'000));
  return std::nullopt;
}

Outcome role(Call& call) {
  auto reply = call.reply();
  reply.array(3);
  reply.bulk("master");
  reply.integer(0);
  reply.array(0);
  return std::nullopt;
}

/// There are no replicas, so none has acknowledged anything.
Outcome wait_for_replicas(Call& call) {
  for (const std::size_t at : {1, 2}) {
    if (!parse_decimal(call.arguments[at], INT64_MAX)) {
      return call.refuse_line("ERR value is not an integer or out of range");
    }
  }
  call.reply().integer(0);
  return std::nullopt;
}

Outcome no_cluster(Call& call) {
  return call.refuse_line("ERR This instance has cluster support disabled");
}

Outcome shutdown(Call& call) {
  call.server.log.info("SHUTDOWN by {}", *call.client.shown());
  call.client.close_after_reply = true;
  call.server.stop();
  return call.ok();
}

Outcome empty_list(Call& call) {
  call.reply().array(0);
  return std::nullopt;
}

Outcome empty_map(Call& call) {
  call.reply().map(0);
  return std::nullopt;
}

Outcome zero(Call& call) {
  call.reply().integer(0);
  return std::nullopt;
}

Outcome accepted(Call& call) {
  return call.ok();
}

Outcome acl_whoami(Call& call) {
  call.reply().bulk("default");
  return std::nullopt;
}

Outcome acl_users(Call& call) {
  auto reply = call.reply();
  reply.array(1);
  reply.bulk("default");
  return std::nullopt;
}

Outcome acl_list(Call& call) {
  auto reply = call.reply();
  reply.array(1);
  reply.bulk(call.server.password.is_set() ? "user default on ~* &* +@all"
                                           : "user default on nopass ~* &* +@all");
  return std::nullopt;
}

Outcome acl_getuser(Call& call) {
  auto reply = call.reply();
  if (call.arguments[2] != "default") {
    reply.null();
    return std::nullopt;
  }
  reply.map(6);
  reply.bulk("flags");
  if (call.server.password.is_set()) {
    write_words(reply, {"on"});
  } else {
    write_words(reply, {"on", "nopass"});
  }
  reply.bulk("passwords");
  reply.array(0);  // not even the digest leaves the process
  reply.bulk("commands");
  reply.bulk("+@all");
  reply.bulk("keys");
  reply.bulk("~*");
  reply.bulk("channels");
  reply.bulk("&*");
  reply.bulk("selectors");
  reply.array(0);
  return std::nullopt;
}

Outcome acl_categories(Call& call) {
  constexpr std::string_view kAll[] = {"read",      "write",      "admin",
                                       "dangerous", "connection", "fence"};
  auto reply = call.reply();
  if (call.arguments.size() == 2) {
    reply.array(std::size(kAll));
    for (const std::string_view category : kAll) reply.bulk(category);
    return std::nullopt;
  }
  if (call.arguments.size() > 3) {
    return call.refuse(syntax_error("too many arguments", call.spec));
  }
  const std::string_view wanted = call.arguments[2];
  if (std::none_of(std::begin(kAll), std::end(kAll),
                   [&](std::string_view category) { return same_word(category, wanted); })) {
    return call.refuse_line(fmt::format("ERR Unknown category '{}'", escaped(wanted)));
  }
  std::vector<std::string_view> names;
  const auto add = [&](const CommandSpec& spec) {
    for (const std::string_view category : categories_of(spec)) {
      if (same_word(category, wanted)) names.push_back(spec.name);
    }
  };
  for (const CommandSpec* spec : all_commands()) {
    if (spec->handler != nullptr) add(*spec);
    for (const CommandSpec& subcommand : spec->subcommands) add(subcommand);
  }
  reply.array(names.size());
  for (const std::string_view name : names) reply.bulk(name);
  return std::nullopt;
}

constexpr Argument kSectionArguments[] = {{.name = "section", .optional = true, .multiple = true}};
constexpr Argument kParameterArguments[] = {
    {.name = "parameter", .type = ArgumentType::pattern, .multiple = true}};
constexpr Argument kAnything[] = {{.name = "argument", .optional = true, .multiple = true}};
constexpr Argument kNamesArguments[] = {
    {.name = "command-name", .optional = true, .multiple = true}};
constexpr Argument kGetkeysArguments[] = {{.name = "command"},
                                          {.name = "arg", .optional = true, .multiple = true}};
constexpr Argument kListArguments[] = {{.name = "MODULE name | ACLCAT category | PATTERN pattern",
                                        .token = "FILTERBY",
                                        .optional = true}};
constexpr Argument kWaitArguments[] = {{.name = "numreplicas", .type = ArgumentType::integer},
                                       {.name = "timeout", .type = ArgumentType::integer}};
constexpr Argument kUserArguments[] = {{.name = "username"}};
constexpr Argument kCategoryArguments[] = {{.name = "category", .optional = true}};
constexpr Argument kCountArguments[] = {
    {.name = "count", .type = ArgumentType::integer, .optional = true}};
constexpr Argument kEventArguments[] = {{.name = "event"}};

constexpr CommandSpec subcommand(std::string_view name, int arity, Access access,
                                 std::string_view summary, std::span<const Argument> arguments,
                                 Handler handler) {
  return {.name = name,
          .arity = arity,
          .access = access,
          .group = "server",
          .summary = summary,
          .arguments = arguments,
          .handler = handler};
}

constexpr CommandSpec kConfigSubcommands[] = {
    subcommand("config|get", -3, Access::admin, "Returns the settings that fit the patterns.",
               kParameterArguments, config_get),
    subcommand("config|set", -3, Access::admin, "Refused: settings are read at the start.",
               kAnything, config_set),
};

constexpr CommandSpec kCommandSubcommands[] = {
    subcommand("command|count", 2, Access::connection, "Returns the number of commands.", {},
               command_count),
    subcommand("command|info", -2, Access::connection, "Describes commands as COMMAND does.",
               kNamesArguments, command_describe),
    subcommand("command|docs", -2, Access::connection, "Returns the documentation of commands.",
               kNamesArguments, command_docs),
    subcommand("command|list", -2, Access::connection, "Returns the names of commands.",
               kListArguments, command_list),
    subcommand("command|getkeys", -3, Access::connection, "Returns the keys of a whole command.",
               kGetkeysArguments, command_getkeys),
    subcommand("command|getkeysandflags", -3, Access::connection,
               "Returns the keys of a whole command, and what it does to them.", kGetkeysArguments,
               command_getkeysandflags),
};

constexpr CommandSpec kSlowlogSubcommands[] = {
    subcommand("slowlog|get", -2, Access::admin, "Returns an empty list: nothing is logged there.",
               kCountArguments, empty_list),
    subcommand("slowlog|len", 2, Access::admin, "Returns 0.", {}, zero),
    subcommand("slowlog|reset", 2, Access::admin, "Accepted: there is nothing to forget.", {},
               accepted),
};

constexpr CommandSpec kLatencySubcommands[] = {
    subcommand("latency|latest", 2, Access::admin, "Returns an empty list.", {}, empty_list),
    subcommand("latency|history", 3, Access::admin, "Returns an empty list.", kEventArguments,
               empty_list),
    subcommand("latency|histogram", -2, Access::admin, "Returns an empty map.", kNamesArguments,
               empty_map),
    subcommand("latency|reset", -2, Access::admin, "Returns 0: there is nothing to forget.",
               kAnything, zero),
};

constexpr CommandSpec kModuleSubcommands[] = {
    subcommand("module|list", 2, Access::admin, "Returns an empty list: there are no modules.", {},
               empty_list),
};

constexpr CommandSpec kAclSubcommands[] = {
    subcommand("acl|whoami", 2, Access::connection, "Returns the user: default, the only one.", {},
               acl_whoami),
    subcommand("acl|users", 2, Access::admin, "Returns the users.", {}, acl_users),
    subcommand("acl|list", 2, Access::admin, "Returns the rules of the users.", {}, acl_list),
    subcommand("acl|getuser", 3, Access::admin, "Returns the rules of a user.", kUserArguments,
               acl_getuser),
    subcommand("acl|cat", -2, Access::connection,
               "Returns the categories of commands, or the commands of one.", kCategoryArguments,
               acl_categories),
    subcommand("acl|log", -2, Access::admin,
               "Returns an empty list: refused logins are in the server's log.", kAnything,
               empty_list),
};

constexpr CommandSpec container(std::string_view name, std::string_view summary,
                                std::span<const CommandSpec> subcommands) {
  return {.name = name,
          .arity = -2,
          .access = Access::connection,
          .group = "server",
          .summary = summary,
          .subcommands = subcommands};
}

constexpr CommandSpec kCommands[] = {
    {.name = "info",
     .arity = -1,
     .access = Access::read,
     .group = "server",
     .summary = "Returns numbers about the server and the store.",
     .arguments = kSectionArguments,
     .handler = describe_server,
     .after_writes = true},
    container("config", "Looks at the settings.", kConfigSubcommands),
    {.name = "command",
     .arity = -1,
     .access = Access::connection,
     .group = "server",
     .summary = "Describes all commands.",
     .handler = command,
     .subcommands = kCommandSubcommands},
    {.name = "time",
     .arity = 1,
     .access = Access::connection,
     .group = "server",
     .summary = "Returns the server's wall clock: seconds since 1970, and microseconds.",
     .handler = time_now},
    {.name = "role",
     .arity = 1,
     .access = Access::read,
     .group = "server",
     .summary = "Returns master, 0 and no replicas.",
     .handler = role},
    {.name = "wait",
     .arity = 3,
     .access = Access::connection,
     .group = "generic",
     .summary = "Returns 0, the number of replicas.",
     .arguments = kWaitArguments,
     .handler = wait_for_replicas},
    {.name = "readonly",
     .arity = 1,
     .access = Access::connection,
     .group = "cluster",
     .summary = "Refused: this is no cluster.",
     .handler = no_cluster},
    {.name = "readwrite",
     .arity = 1,
     .access = Access::connection,
     .group = "cluster",
     .summary = "Refused: this is no cluster.",
     .handler = no_cluster},
    {.name = "cluster",
     .arity = -2,
     .access = Access::connection,
     .group = "cluster",
     .summary = "Refused: this is no cluster.",
     .arguments = kAnything,
     .handler = no_cluster},
    container("slowlog", "Has nothing to tell.", kSlowlogSubcommands),
    container("latency", "Has nothing to tell.", kLatencySubcommands),
    container("module", "Has nothing to tell.", kModuleSubcommands),
    container("acl", "Tells about the only user.", kAclSubcommands),
    {.name = "shutdown",
     .arity = -1,
     .access = Access::admin,
     .group = "server",
     .summary = "Ends the server as SIGTERM does: everything received is answered first.",
     .arguments = kAnything,
     .handler = shutdown},
};

}  // namespace

std::span<const CommandSpec> server_commands() {
  return kCommands;
}

}  // namespace fencekv::server
