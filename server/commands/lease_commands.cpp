// SPDX-License-Identifier: Apache-2.0

#include "server/commands/arguments.h"
#include "server/commands/families.h"
#include "server/commands/listing.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace fencekv::server {
namespace {

using resp::ReplyWriter;

// The name of a lease stands where clients and proxies look for a key.
constexpr Argument kName{.name = "name", .type = ArgumentType::key};
constexpr Argument kOwner{.name = "owner"};
constexpr Argument kToken{.name = "token", .type = ArgumentType::integer};
constexpr Argument kTtl{.name = "ttl-ms", .type = ArgumentType::integer};

constexpr Argument kWait{
    .name = "ms", .type = ArgumentType::integer, .token = "WAIT", .optional = true};
constexpr Argument kModeChoices[] = {
    {.name = "shared", .type = ArgumentType::pure_token, .token = "SHARED"},
    {.name = "count", .type = ArgumentType::integer, .token = "PERMITS"}};
constexpr Argument kHoldingParts[] = {kName, kOwner, kToken};
constexpr Argument kHoldings{
    .name = "lease", .type = ArgumentType::block, .multiple = true, .parts = kHoldingParts};
constexpr Argument kHoldingsCount{.name = "numleases", .type = ArgumentType::integer};
constexpr Argument kNames{.name = "name", .type = ArgumentType::key, .multiple = true};

constexpr Argument kAcquireArguments[] = {
    kName,
    kOwner,
    kTtl,
    kWait,
    {.name = "mode", .type = ArgumentType::oneof, .optional = true, .parts = kModeChoices},
    {.name = "bind", .type = ArgumentType::pure_token, .token = "BIND", .optional = true},
    {.name = "ms", .type = ArgumentType::integer, .token = "DELAY", .optional = true},
    {.name = "bytes", .token = "PAYLOAD", .optional = true}};
constexpr Argument kAcquireManyArguments[] = {
    {.name = "numnames", .type = ArgumentType::integer}, kNames, kOwner, kTtl, kWait};
constexpr Argument kRenewArguments[] = {kName, kOwner, kToken, kTtl};
constexpr Argument kRenewManyArguments[] = {kTtl, kHoldingsCount, kHoldings};
constexpr Argument kReleaseArguments[] = {kName, kOwner, kToken};
constexpr Argument kReleaseManyArguments[] = {kHoldingsCount, kHoldings};
constexpr Argument kNameArguments[] = {kName};
constexpr Argument kAwaitArguments[] = {
    kName, kToken, {.name = "timeout-ms", .type = ArgumentType::integer}};
constexpr Argument kWatchArguments[] = {kNames};

void write_grant(ReplyWriter& reply, Reply& answer) {
  const auto& grant = std::get<Acquire::Reply>(answer);
  if (!grant) {
    reply.null_array();
    return;
  }
  reply.array(2);
  reply.number_as_bulk(grant->token.number());
  reply.integer(grant->remaining.count());
}

/// For each element what the single command answers; `write` writes one that succeeded.
template <class Element, class WriteOne>
void write_each(ReplyWriter& reply, const std::vector<Result<Element>>& answers, WriteOne write) {
  reply.array(answers.size());
  for (const Result<Element>& answer : answers) {
    if (answer) {
      write(*answer);
    } else {
      reply.error(answer.error().line());
    }
  }
}

void write_holder(ReplyWriter& reply, const LeaseHolder& holder) {
  reply.map(6);
  reply.bulk("owner");
  reply.bulk(holder.owner);
  reply.bulk("token");
  reply.number_as_bulk(holder.token.number());
  reply.bulk("mode");
  reply.bulk(to_string(holder.mode));
  reply.bulk("remaining");
  reply.integer(holder.remaining.count());
  reply.bulk("client");
  reply.bulk(holder.client);
  reply.bulk("bound");
  reply.integer(holder.bound ? 1 : 0);
}

void write_lease(ReplyWriter& reply, const LeaseState& lease) {
  reply.map(7);
  reply.bulk("name");
  reply.bulk(lease.name);
  reply.bulk("fence");
  reply.number_as_bulk(lease.fence.number());
  reply.bulk("mode");
  if (const auto mode = lease.mode()) {
    reply.bulk(to_string(*mode));
  } else {
    reply.null();
  }
  reply.bulk("holders");
  reply.array(lease.holders.size());
  for (const LeaseHolder& holder : lease.holders) write_holder(reply, holder);
  reply.bulk("waiters");
  reply.integer(static_cast<std::int64_t>(lease.waiters));
  reply.bulk("blocked");
  reply.integer(lease.blocked.count());
  reply.bulk("payload");
  if (lease.payload) {
    reply.bulk(*lease.payload);
  } else {
    reply.null();
  }
}

void write_waiters(ReplyWriter& reply, const std::vector<LeaseWaiter>& waiters) {
  reply.array(waiters.size());
  for (const LeaseWaiter& waiter : waiters) {
    reply.map(5);
    reply.bulk("owner");
    reply.bulk(waiter.owner);
    reply.bulk("mode");
    reply.bulk(to_string(waiter.mode));
    reply.bulk("waited");
    reply.integer(waiter.waited.count());
    reply.bulk("remaining");
    reply.integer(waiter.remaining.count());
    reply.bulk("client");
    reply.bulk(waiter.client);
  }
}

void write_change(ReplyWriter& reply, const Await::Reply& event) {
  if (!event) {
    reply.null_array();
    return;
  }
  reply.array(3);
  reply.bulk(to_string(event->change));
  reply.bulk(event->name);
  reply.number_as_bulk(event->token.number());
}

/// Adds the options of a call to `acquire`.
Result<void> read_acquire_options(const Call& call, Acquire& acquire) {
  const auto options = parse_options(call, 4);
  if (!options) return options.error();
  if (const auto text = options->get("WAIT")) {
    const auto wait = parse_wait("wait", *text);
    if (!wait) return wait.error();
    acquire.wait = *wait;
  }
  if (options->has("SHARED")) acquire.mode = LeaseMode::shared;
  if (const auto text = options->get("PERMITS")) {
    const auto permits = parse_number("number of permits", *text, 1, Limits::kMaxPermits);
    if (!permits) return permits.error();
    acquire.mode = LeaseMode::permit;
    acquire.permits = *permits;
  }
  acquire.bind = options->has("BIND");
  if (const auto text = options->get("DELAY")) {
    const auto delay = parse_delay(*text);
    if (!delay) return delay.error();
    acquire.delay = *delay;
  }
  if (const auto payload = options->get("PAYLOAD")) acquire.payload = std::string(*payload);
  return {};
}

/// The grants that a request names from `count_at` on: their number, then name, owner and token of
/// each, and nothing else.
Result<std::vector<Holding>> parse_holdings(const Call& call, std::size_t count_at) {
  const auto& words = call.arguments;
  const auto count = parse_number("number of leases", words[count_at], 1, Limits::kKeysPerCommand);
  if (!count) return count.error();
  const std::size_t begin = count_at + 1;
  const std::size_t end = begin + 3 * *count;
  if (words.size() < end) {
    return syntax_error(fmt::format("fewer than {} times name, owner and token", *count),
                        call.spec);
  }
  if (const auto rest = parse_options(call, end); !rest) return rest.error();

  std::vector<Holding> holdings;
  holdings.reserve(*count);
  for (std::size_t at = begin; at < end; at += 3) {
    const auto token = parse_token(words[at + 2]);
    if (!token) return token.error();
    holdings.push_back({std::string(words[at]), std::string(words[at + 1]), *token});
  }
  return holdings;
}

Outcome lease_acquire(Call& call) {
  const auto ttl = parse_ttl(call.arguments[3]);
  if (!ttl) return call.refuse(ttl.error());
  Acquire acquire{
      .name = std::string(call.arguments[1]), .owner = std::string(call.arguments[2]), .ttl = *ttl};
  if (const auto read = read_acquire_options(call, acquire); !read) {
    return call.refuse(read.error());
  }
  return StoreCall{std::move(acquire), write_grant};
}

Outcome lease_acquire_many(Call& call) {
  const auto& words = call.arguments;
  const auto count = parse_number("number of names", words[1], 1, Limits::kKeysPerCommand);
  if (!count) return call.refuse(count.error());
  const std::size_t end = 2 + *count;
  if (words.size() < end + 2) {
    return call.refuse(
        syntax_error(fmt::format("fewer than {} names, owner and ttl", *count), call.spec));
  }
  const auto ttl = parse_ttl(words[end + 1]);
  if (!ttl) return call.refuse(ttl.error());
  const auto options = parse_options(call, end + 2);
  if (!options) return call.refuse(options.error());

  AcquireMany acquire{.owner = std::string(words[end]), .ttl = *ttl};
  if (const auto text = options->get("WAIT")) {
    const auto wait = parse_wait("wait", *text);
    if (!wait) return call.refuse(wait.error());
    acquire.wait = *wait;
  }
  acquire.names.assign(words.begin() + 2, words.begin() + static_cast<std::ptrdiff_t>(end));
  return StoreCall{std::move(acquire), write_grant};
}

Outcome lease_renew(Call& call) {
  const auto token = parse_token(call.arguments[3]);
  if (!token) return call.refuse(token.error());
  const auto ttl = parse_ttl(call.arguments[4]);
  if (!ttl) return call.refuse(ttl.error());
  return StoreCall{
      Renew{std::string(call.arguments[1]), std::string(call.arguments[2]), *token, *ttl},
      [](ReplyWriter& reply, Reply& answer) {
        reply.integer(std::get<Renew::Reply>(answer).count());
      }};
}

Outcome lease_renew_many(Call& call) {
  const auto ttl = parse_ttl(call.arguments[1]);
  if (!ttl) return call.refuse(ttl.error());
  auto grants = parse_holdings(call, 2);
  if (!grants) return call.refuse(grants.error());
  return StoreCall{
      RenewMany{*std::move(grants), *ttl}, [](ReplyWriter& reply, Reply& answer) {
        write_each(reply, std::get<RenewMany::Reply>(answer),
                   [&](std::chrono::milliseconds remaining) { reply.integer(remaining.count()); });
      }};
}

Outcome lease_release(Call& call) {
  const auto token = parse_token(call.arguments[3]);
  if (!token) return call.refuse(token.error());
  return StoreCall{Release{std::string(call.arguments[1]), std::string(call.arguments[2]), *token},
                   [](ReplyWriter& reply, Reply&) { reply.simple("OK"); }};
}

Outcome lease_release_many(Call& call) {
  auto grants = parse_holdings(call, 1);
  if (!grants) return call.refuse(grants.error());
  return StoreCall{ReleaseMany{*std::move(grants)}, [](ReplyWriter& reply, Reply& answer) {
                     write_each(reply, std::get<ReleaseMany::Reply>(answer),
                                [&](std::monostate) { reply.simple("OK"); });
                   }};
}

Outcome lease_revoke(Call& call) {
  std::string name(call.arguments[1]);
  // It ends what another holds, so it leaves a trace of who did that.
  auto log_and_write = [shown = escaped(name), client = call.client.shown(),
                        &log = call.server.log](ReplyWriter& reply, Reply& answer) {
    const std::uint64_t fence = std::get<Token>(answer).number();
    log.warn("LEASE.REVOKE {}: token {} granted -> revoked by {}", shown, fence, *client);
    reply.number_as_bulk(fence);
  };
  return StoreCall{Revoke{std::move(name)}, std::move(log_and_write)};
}

Outcome lease_inspect(Call& call) {
  return StoreCall{Inspect{std::string(call.arguments[1])}, [](ReplyWriter& reply, Reply& answer) {
                     write_lease(reply, std::get<LeaseState>(answer));
                   }};
}

Outcome lease_waiters(Call& call) {
  return StoreCall{ListWaiters{std::string(call.arguments[1])},
                   [](ReplyWriter& reply, Reply& answer) {
                     write_waiters(reply, std::get<ListWaiters::Reply>(answer));
                   }};
}

Outcome lease_wait(Call& call) {
  const auto token = parse_token_or_none(call.arguments[2]);
  if (!token) return call.refuse(token.error());
  const auto timeout = parse_wait("timeout", call.arguments[3]);
  if (!timeout) return call.refuse(timeout.error());
  return StoreCall{Await{std::string(call.arguments[1]), *token, *timeout},
                   [](ReplyWriter& reply, Reply& answer) {
                     write_change(reply, std::get<Await::Reply>(answer));
                   }};
}

constexpr std::string_view kNeedsPushes =
    "ERR changes are told by the pushes of RESP3: send HELLO 3 first, or wait for one change with "
    "LEASE.WAIT name token timeout-ms";

void write_ok(ReplyWriter& reply, Reply&) {
  reply.simple("OK");
}

Outcome lease_watch(Call& call) {
  if (call.client.protocol != resp::Protocol::resp3) return call.refuse_line(kNeedsPushes);
  return StoreCall{Watch{{call.arguments.begin() + 1, call.arguments.end()}}, write_ok};
}

Outcome lease_unwatch(Call& call) {
  if (call.client.protocol != resp::Protocol::resp3) return call.refuse_line(kNeedsPushes);
  return StoreCall{Unwatch{}, write_ok};
}

Outcome lease_scan(Call& call) {
  const auto request = parse_scan(call, Listing::leases);
  if (!request) return call.refuse(request.error());
  const auto page = call.server.store.list_leases(request->after, request->examine);
  if (!page) return call.refuse(page.error());

  const auto selected = select(
      *page, *request, [](const LeaseState& lease) -> const std::string& { return lease.name; });
  auto reply = call.reply();
  write_scan_header(call, Listing::leases, selected.next, selected.items.size());
  for (const LeaseState* lease : selected.items) write_lease(reply, *lease);
  return std::nullopt;
}

constexpr CommandSpec kCommands[] = {
    {.name = "lease.acquire",
     .arity = -4,
     .keys = {1, 1, 1},
     .access = Access::write,
     .group = "fence",
     .summary = "Takes a lease, or waits for it. Returns token and remaining ms, or nil.",
     .arguments = kAcquireArguments,
     .handler = lease_acquire,
     .may_wait = true},
    {.name = "lease.macquire",
     .arity = -5,
     .keys = {.first = 2, .last = 0, .step = 1, .count_at = 1},
     .access = Access::write,
     .group = "fence",
     .summary = "Takes several leases, all or none, with one token, or waits for them.",
     .arguments = kAcquireManyArguments,
     .handler = lease_acquire_many,
     .may_wait = true},
    {.name = "lease.renew",
     .arity = 5,
     .keys = {1, 1, 1},
     .access = Access::write,
     .group = "fence",
     .summary = "Gives a lease that is still held its time again. Returns remaining ms.",
     .arguments = kRenewArguments,
     .handler = lease_renew},
    {.name = "lease.mrenew",
     .arity = -6,
     .keys = {.first = 3, .last = 0, .step = 3, .count_at = 2},
     .access = Access::write,
     .group = "fence",
     .summary = "Gives many leases their time again. Returns what LEASE.RENEW does, for each.",
     .arguments = kRenewManyArguments,
     .handler = lease_renew_many},
    {.name = "lease.release",
     .arity = 4,
     .keys = {1, 1, 1},
     .access = Access::write,
     .group = "fence",
     .summary = "Ends a lease; nothing in flight with its token lands any more.",
     .arguments = kReleaseArguments,
     .handler = lease_release},
    {.name = "lease.mrelease",
     .arity = -5,
     .keys = {.first = 2, .last = 0, .step = 3, .count_at = 1},
     .access = Access::write,
     .group = "fence",
     .summary = "Ends many leases. Returns what LEASE.RELEASE does, for each.",
     .arguments = kReleaseManyArguments,
     .handler = lease_release_many},
    {.name = "lease.revoke",
     .arity = 2,
     .keys = {1, 1, 1},
     .access = Access::admin,
     .group = "fence",
     .summary = "Ends whatever holds a lease. Returns the lease fence.",
     .arguments = kNameArguments,
     .handler = lease_revoke},
    {.name = "lease.info",
     .arity = 2,
     .keys = {1, 1, 1},
     .access = Access::read,
     .group = "fence",
     .summary = "Tells who holds a lease, its fence, and how many wait for it.",
     .arguments = kNameArguments,
     .handler = lease_inspect},
    {.name = "lease.waiters",
     .arity = 2,
     .keys = {1, 1, 1},
     .access = Access::read,
     .group = "fence",
     .summary = "Lists who waits for a lease, in order.",
     .arguments = kNameArguments,
     .handler = lease_waiters},
    {.name = "lease.wait",
     .arity = 4,
     .keys = {1, 1, 1},
     .access = Access::read,
     .group = "fence",
     .summary = "Waits until a grant is over or a newer one exists. Returns what is now, or nil.",
     .arguments = kAwaitArguments,
     .handler = lease_wait,
     .may_wait = true},
    {.name = "lease.watch",
     .arity = -2,
     .keys = {1, -1, 1},
     .access = Access::read,
     .group = "fence",
     .summary = "From now on tells every change of leases as a push. RESP3 only.",
     .arguments = kWatchArguments,
     .handler = lease_watch},
    {.name = "lease.unwatch",
     .arity = 1,
     .access = Access::read,
     .group = "fence",
     .summary = "Ends all watches of this connection.",
     .handler = lease_unwatch},
    {.name = "lease.scan",
     .arity = -2,
     .access = Access::read,
     .group = "fence",
     .summary = "Walks through the leases that have a holder or a waiter.",
     .arguments = kScanArguments,
     .handler = lease_scan,
     .after_writes = true},
};

}  // namespace

std::span<const CommandSpec> lease_commands() {
  return kCommands;
}

}  // namespace fencekv::server
