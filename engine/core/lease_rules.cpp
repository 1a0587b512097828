// SPDX-License-Identifier: Apache-2.0
#include "engine/core/owner.h"
#include "engine/core/rules.h"
#include "engine/core/succession.h"

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace fencekv::core {
namespace {

using std::chrono::milliseconds;

/// A time in [low, high]? `what` begins the error.
Result<void> check_time(std::string_view what, milliseconds time, milliseconds low,
                        milliseconds high) {
  if (time >= low && time <= high) return {};
  return Error(Errc::invalid, "invalid " + std::string(what) + " '" + std::to_string(time.count()) +
                                  "', expected a decimal number " + "from " +
                                  std::to_string(low.count()) + " to " +
                                  std::to_string(high.count()));
}

Result<void> check_ttl(milliseconds ttl) {
  return check_time("ttl", ttl, milliseconds(1), Limits::kMaxTtl);
}

Result<void> check_wait(std::string_view what, milliseconds wait) {
  return check_time(what, wait, milliseconds(0), Limits::kMaxWait);
}

Result<void> check_name(std::string_view name) {
  return check_length("lease name", name, Limits::kNameBytes);
}

Result<void> check_count(std::string_view what, std::size_t count) {
  if (count >= 1 && count <= Limits::kKeysPerCommand) return {};
  return Error(Errc::invalid, std::to_string(count) + " " + std::string(what) + "; expected 1 to " +
                                  std::to_string(Limits::kKeysPerCommand));
}

Result<void> check_holding(const Holding& holding) {
  if (auto ok = check_name(holding.name); !ok) return ok;
  if (auto ok = check_length("owner", holding.owner, Limits::kOwnerBytes); !ok) return ok;
  return check_token(holding.token);
}

Result<void> check_holdings(const std::vector<Holding>& holdings) {
  if (auto ok = check_count("grants", holdings.size()); !ok) return ok;
  for (const auto& holding : holdings) {
    if (auto ok = check_holding(holding); !ok) return ok;
  }
  return {};
}

Result<void> check_demand(const Demand& demand) {
  if (auto ok = check_count("lease names", demand.names.size()); !ok) return ok;
  std::unordered_set<std::string_view> seen;
  for (const auto& name : demand.names) {
    if (auto ok = check_name(name); !ok) return ok;
    if (!seen.insert(name).second) {
      return Error(Errc::invalid, "the lease name " + escaped(name) + " is given twice");
    }
  }
  if (auto ok = check_length("owner", demand.owner, Limits::kOwnerBytes); !ok) return ok;
  if (auto ok = check_ttl(demand.ttl); !ok) return ok;

  const bool wants_permit = demand.mode == LeaseMode::permit;
  if (wants_permit && (demand.permits < 1 || demand.permits > Limits::kMaxPermits)) {
    return Error(Errc::invalid, "invalid permits '" + std::to_string(demand.permits) +
                                    "', expected a decimal number from 1 to " +
                                    std::to_string(Limits::kMaxPermits));
  }
  if (!wants_permit && demand.permits != 0) {
    return Error(Errc::invalid, "a number of permits is for leases in permit mode");
  }
  if (demand.delay) {
    if (auto ok = check_time("delay", *demand.delay, milliseconds(0), Limits::kMaxDelay); !ok) {
      return ok;
    }
  }
  if (demand.payload && demand.payload->size() > Limits::kPayloadBytes) {
    return Error(Errc::invalid, "payload of " + std::to_string(demand.payload->size()) +
                                    " bytes; at most " + std::to_string(Limits::kPayloadBytes));
  }
  return {};
}

/// Nothing may wait for, or end with, a session that is not there any more.
Result<void> check_session(const State& state, const Asker& asker) {
  if (state.sessions().is_open(asker.session)) return {};
  return Error::lease_lost("disconnected");
}

Decision decide_demand(State& state, const Policy& policy, Demand demand, milliseconds wait,
                       const Moment& moment, const Asker& asker) {
  demand.session = asker.session;
  demand.client = asker.client;
  if (auto ok = check_demand(demand); !ok) return ok.error();
  if (auto ok = check_wait("wait", wait); !ok) return ok.error();
  if (auto ok = check_session(state, asker); !ok) return ok.error();
  if (moment.stands_still) {
    return Error(Errc::misconf, "the machine's clock stands still: a lease would never expire");
  }

  Succession succession(state, moment);
  for (const auto& name : demand.names) {
    if (const auto lease = succession.visit(name); !lease) return lease.error();
  }
  if (auto decision = succession.decide(demand)) {
    succession.settle();
    return decision;
  }
  if (wait == milliseconds(0)) return Reply(Acquire::Reply());

  auto& waiters = state.waiters();
  bool is_full = waiters.size() >= policy.max_waiting;
  for (const auto& name : demand.names) {
    is_full = is_full || waiters.queue_length(name) >= Limits::kWaitersPerName;
  }
  if (is_full) return Error(Errc::overloaded, "too many wait for this lease; not queued");
  for (const auto& name : demand.names) succession.touch(name);
  waiters.add({.ticket = asker.ticket,
               .since = moment.since_boot,
               .until = moment.since_boot + wait,
               .demand = std::move(demand)});
  succession.settle();
  return std::nullopt;
}

/// A grant that somebody names with its owner and its token.
struct Own {
  const GrantRecord* grant;
  GrantEnd standing;
};

/// Who else asks learns nothing about it: a wrong owner of a token is `unknown`. Of grants that
/// ended, only the newest is remembered.
Result<Own> find_own(State& state, Succession& succession, const Holding& holding) {
  const auto lease = succession.visit(holding.name);
  if (!lease) return lease.error();

  if (*lease == nullptr || holding.token < state.floor()) return Error::lease_lost("unknown");
  if (holding.token > (*lease)->fence()) return Error::lease_lost("unknown");
  const auto* grant = (*lease)->find(holding.token);
  if (grant == nullptr) return Error::lease_lost("superseded");
  if (grant->owner != holding.owner) return Error::lease_lost("unknown");

  const auto standing = succession.standing_of(*grant);
  return Own{.grant = grant, .standing = standing};
}

Result<milliseconds> renew(State& state, const Holding& holding, milliseconds ttl,
                           const Moment& moment) {
  Succession succession(state, moment);
  const auto own = find_own(state, succession, holding);
  if (!own) return own.error();
  if (own->standing != GrantEnd::open) return Error::lease_lost(reason_of(own->standing));

  auto& grant = state.change_lease(holding.name).change(holding.token);
  grant.ttl = ttl;
  grant.deadline = {.boot = state.boots().current(), .at = moment.since_boot + ttl};
  // A timer may be too late now.
  succession.touch(holding.name);
  succession.settle();
  return ttl;
}

Result<std::monostate> release(State& state, const Holding& holding, const Moment& moment) {
  Succession succession(state, moment);
  const auto own = find_own(state, succession, holding);
  if (!own) return own.error();
  // A retried release is harmless while its grant is the newest.
  if (own->standing == GrantEnd::released) return std::monostate{};
  if (own->standing != GrantEnd::open) return Error::lease_lost(reason_of(own->standing));

  succession.end(holding.name, *own->grant, GrantEnd::released);
  succession.settle();
  return std::monostate{};
}

template <class T>
Result<Reply> as_reply(Result<T> result) {
  if (!result) return std::move(result).error();
  return Reply(*std::move(result));
}

}  // namespace

Result<void> check_lease(State& state, std::string_view name, Token token, bool live,
                         const Moment& moment) {
  Succession succession(state, moment);
  const auto found = succession.visit(name);
  if (!found) return found.error();
  if (*found == nullptr) return Error::no_lease(name);
  const auto& lease = **found;

  const auto* grant = lease.find(token);
  if (grant != nullptr && grant->mode != LeaseMode::exclusive) {
    return Error(Errc::invalid, "token " + std::to_string(token.number()) + " is that of a " +
                                    std::string(to_string(grant->mode)) +
                                    " grant, which may not write, raise or read under its lease");
  }
  const auto fence = lease.fence();
  if (token > fence) return Error::unissued(fence, token);
  if (kCompareFences && token < fence) return Error::fenced(fence, token, "superseded");
  const auto standing = succession.standing_of(lease.newest());
  if (kCompareFences && is_closed(standing)) {
    return Error::fenced(fence, token, reason_of(standing));
  }
  if (!live || standing == GrantEnd::open) return {};

  const auto since = moment.since_boot - end_of_time(lease.newest(), state.boots());
  return Error::expired(
      static_cast<std::uint64_t>(std::chrono::floor<milliseconds>(since).count()));
}

Decision decide(State& state, const Policy& policy, Acquire& command, const Moment& moment,
                const Asker& asker) {
  Demand demand;
  demand.names.push_back(std::move(command.name));
  demand.owner = std::move(command.owner);
  demand.ttl = command.ttl;
  demand.mode = command.mode;
  demand.permits = command.permits;
  demand.bind = command.bind;
  demand.delay = command.delay;
  demand.payload = std::move(command.payload);
  return decide_demand(state, policy, std::move(demand), command.wait, moment, asker);
}

Decision decide(State& state, const Policy& policy, AcquireMany& command, const Moment& moment,
                const Asker& asker) {
  Demand demand;
  demand.names = std::move(command.names);
  demand.several = true;
  demand.owner = std::move(command.owner);
  demand.ttl = command.ttl;
  return decide_demand(state, policy, std::move(demand), command.wait, moment, asker);
}

Result<Reply> decide(State& state, const Renew& command, const Moment& moment) {
  const Holding holding{.name = command.name, .owner = command.owner, .token = command.token};
  if (auto ok = check_ttl(command.ttl); !ok) return ok.error();
  if (auto ok = check_holding(holding); !ok) return ok.error();
  return as_reply(renew(state, holding, command.ttl, moment));
}

Result<Reply> decide(State& state, const RenewMany& command, const Moment& moment) {
  if (auto ok = check_ttl(command.ttl); !ok) return ok.error();
  if (auto ok = check_holdings(command.grants); !ok) return ok.error();
  RenewMany::Reply renewed;
  for (const auto& holding : command.grants) {
    renewed.push_back(renew(state, holding, command.ttl, moment));
  }
  return Reply(std::move(renewed));
}

Result<Reply> decide(State& state, const Release& command, const Moment& moment) {
  const Holding holding{.name = command.name, .owner = command.owner, .token = command.token};
  if (auto ok = check_holding(holding); !ok) return ok.error();
  return as_reply(release(state, holding, moment));
}

Result<Reply> decide(State& state, const ReleaseMany& command, const Moment& moment) {
  if (auto ok = check_holdings(command.grants); !ok) return ok.error();
  ReleaseMany::Reply released;
  for (const auto& holding : command.grants) released.push_back(release(state, holding, moment));
  return Reply(std::move(released));
}

Result<Reply> decide(State& state, const GiveBack& command, const Moment& moment,
                     const Asker& asker) {
  Succession succession(state, moment);
  const Origin origin{.process = state.process(), .session = asker.session};
  for (const auto& name : command.names) {
    const auto own =
        find_own(state, succession, {.name = name, .owner = command.owner, .token = command.token});
    // Its owner may have got it by another session, too, or it is over already.
    if (!own && own.error().code() != Errc::lease_lost) return own.error();
    if (!own || own->standing != GrantEnd::open) continue;
    if (own->grant->origin != origin || own->grant->again) continue;
    succession.end(name, *own->grant, GrantEnd::released);
  }
  succession.settle();
  return Reply(std::monostate{});
}

Result<Reply> decide(State& state, const Revoke& command, const Moment& moment) {
  if (auto ok = check_name(command.name); !ok) return ok.error();
  Succession succession(state, moment);
  const auto found = succession.visit(command.name);
  if (!found) return found.error();
  if (*found == nullptr) return Error::lease_lost("unknown");

  const auto fence = (*found)->fence();
  auto grants = (*found)->others();
  if (!is_closed((*found)->newest().end)) grants.push_back((*found)->newest());
  for (const auto& grant : grants) succession.end(command.name, grant, GrantEnd::revoked);
  succession.settle();
  return Reply(fence);
}

Result<Reply> decide(State& state, const Inspect& command, const Moment& moment) {
  if (auto ok = check_name(command.name); !ok) return ok.error();
  Succession succession(state, moment);
  const auto lease = succession.visit(command.name);
  if (!lease) return lease.error();
  return Reply(describe(command.name, *lease, state.waiters().queue_length(command.name),
                        succession.circumstances()));
}

Result<Reply> decide(State& state, const ListWaiters& command, const Moment& moment) {
  if (auto ok = check_name(command.name); !ok) return ok.error();
  Succession succession(state, moment);
  if (const auto lease = succession.visit(command.name); !lease) return lease.error();

  ListWaiters::Reply waiters;
  for (const auto* waiter : state.waiters().queue(command.name)) {
    const auto left = waiter->until - moment.since_boot;
    waiters.push_back(
        {.owner = owner_fingerprint(waiter->demand.owner),
         .mode = waiter->demand.mode,
         .waited = std::chrono::floor<milliseconds>(moment.since_boot - waiter->since),
         .remaining = std::chrono::ceil<milliseconds>(left),
         .client = waiter->demand.client});
  }
  return Reply(std::move(waiters));
}

Decision decide(State& state, const Policy& policy, const Await& command, const Moment& moment,
                const Asker& asker) {
  if (auto ok = check_name(command.name); !ok) return ok.error();
  if (!command.token.is_none()) {
    if (auto ok = check_token(command.token); !ok) return ok.error();
  }
  if (auto ok = check_wait("timeout", command.timeout); !ok) return ok.error();
  if (auto ok = check_session(state, asker); !ok) return ok.error();

  Succession succession(state, moment);
  const auto lease = succession.visit(command.name);
  if (!lease) return lease.error();
  auto news = succession.news(command.name, *lease, command.token);
  if (news || command.timeout == milliseconds(0)) return Reply(Await::Reply(std::move(news)));

  auto& waiters = state.waiters();
  if (waiters.size() >= policy.max_waiting ||
      waiters.lookouts(command.name) >= Limits::kWaitersPerName) {
    return Error(Errc::overloaded, "too many wait for a change of this lease; not queued");
  }
  waiters.add(Waiters::Lookout{.ticket = asker.ticket,
                               .until = moment.since_boot + command.timeout,
                               .session = asker.session,
                               .name = command.name,
                               .token = command.token});
  succession.touch(command.name);
  succession.settle();
  return std::nullopt;
}

Result<Reply> decide(State& state, const Watch& command, const Moment& moment, const Asker& asker) {
  if (auto ok = check_count("lease names", command.names.size()); !ok) return ok.error();
  for (const auto& name : command.names) {
    if (auto ok = check_name(name); !ok) return ok.error();
  }
  if (auto ok = check_session(state, asker); !ok) return ok.error();
  auto& waiters = state.waiters();
  const std::unordered_set<std::string_view> names(command.names.begin(), command.names.end());
  auto total = waiters.watches(asker.session);
  for (const auto name : names) total += waiters.is_watched_by(asker.session, name) ? 0 : 1;
  if (total > Limits::kWatchesPerSession) {
    return Error(Errc::invalid, "a session watches at most " +
                                    std::to_string(Limits::kWatchesPerSession) + " lease names");
  }

  Succession succession(state, moment);
  for (const auto& name : command.names) {
    if (const auto lease = succession.visit(name); !lease) return lease.error();
  }
  for (const auto& name : command.names) {
    waiters.watch(asker.session, name);
    succession.touch(name);
  }
  succession.settle();
  return Reply(std::monostate{});
}

Result<Reply> decide(State& state, const Unwatch&, const Asker& asker) {
  auto& waiters = state.waiters();
  for (const auto& name : waiters.unwatch(asker.session)) {
    if (!waiters.is_awaited(name)) waiters.set_timer(name, std::nullopt);
  }
  return Reply(std::monostate{});
}

}  // namespace fencekv::core
