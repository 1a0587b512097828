// SPDX-License-Identifier: Apache-2.0

#include "server/commands/arguments.h"
#include "server/commands/families.h"
#include "server/commands/listing.h"

#include <string>
#include <utility>

namespace fencekv::server {
namespace {

using resp::ReplyWriter;

// The name of a lease stands where clients and proxies look for a key.
constexpr Argument kName{.name = "name", .type = ArgumentType::key};
constexpr Argument kOwner{.name = "owner"};
constexpr Argument kToken{.name = "token", .type = ArgumentType::integer};
constexpr Argument kTtl{.name = "ttl-ms", .type = ArgumentType::integer};

constexpr Argument kAcquireArguments[] = {kName, kOwner, kTtl};
constexpr Argument kRenewArguments[] = {kName, kOwner, kToken, kTtl};
constexpr Argument kReleaseArguments[] = {kName, kOwner, kToken};
constexpr Argument kNameArguments[] = {kName};

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

void write_lease(ReplyWriter& reply, const LeaseState& lease) {
  reply.map(7);
  reply.bulk("name");
  reply.bulk(lease.name);
  reply.bulk("fence");
  reply.number_as_bulk(lease.fence.number());
  reply.bulk("mode");
  if (lease.holders.empty()) {
    reply.null();
  } else {
    reply.bulk(to_string(lease.holders.front().mode));
  }
  reply.bulk("holders");
  reply.array(lease.holders.size());
  for (const LeaseHolder& holder : lease.holders) {
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
    reply.integer(0);
  }
  reply.bulk("waiters");
  reply.integer(0);
  reply.bulk("blocked");
  reply.integer(0);
  reply.bulk("payload");
  reply.null();
}

Outcome lease_acquire(Call& call) {
  const auto ttl = parse_ttl(call.arguments[3]);
  if (!ttl) return call.refuse(ttl.error());
  if (const auto options = parse_options(call, 4); !options) return call.refuse(options.error());
  return StoreCall{Acquire{std::string(call.arguments[1]), std::string(call.arguments[2]), *ttl},
                   write_grant};
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

Outcome lease_release(Call& call) {
  const auto token = parse_token(call.arguments[3]);
  if (!token) return call.refuse(token.error());
  return StoreCall{Release{std::string(call.arguments[1]), std::string(call.arguments[2]), *token},
                   [](ReplyWriter& reply, Reply&) { reply.simple("OK"); }};
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
     .summary = "Takes a lease if it is free. Returns token and remaining ms, or nil.",
     .arguments = kAcquireArguments,
     .handler = lease_acquire},
    {.name = "lease.renew",
     .arity = 5,
     .keys = {1, 1, 1},
     .access = Access::write,
     .group = "fence",
     .summary = "Gives a lease that is still held its time again. Returns remaining ms.",
     .arguments = kRenewArguments,
     .handler = lease_renew},
    {.name = "lease.release",
     .arity = 4,
     .keys = {1, 1, 1},
     .access = Access::write,
     .group = "fence",
     .summary = "Ends a lease; nothing in flight with its token lands any more.",
     .arguments = kReleaseArguments,
     .handler = lease_release},
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
     .summary = "Tells who holds a lease, and its fence.",
     .arguments = kNameArguments,
     .handler = lease_inspect},
    {.name = "lease.scan",
     .arity = -2,
     .access = Access::read,
     .group = "fence",
     .summary = "Walks through the leases that are held.",
     .arguments = kScanArguments,
     .handler = lease_scan,
     .after_writes = true},
};

}  // namespace

std::span<const CommandSpec> lease_commands() {
  return kCommands;
}

}  // namespace fencekv::server
