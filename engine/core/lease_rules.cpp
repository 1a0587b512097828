// SPDX-License-Identifier: Apache-2.0
#include "engine/core/owner.h"
#include "engine/core/rules.h"

#include <algorithm>
#include <string>
#include <utility>

namespace fencekv::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// The word for a grant that does not run any more. One that is still open ran out unnoticed.
std::string_view reason_of(GrantEnd end) {
  if (end == GrantEnd::released) return "released";
  if (end == GrantEnd::revoked) return "revoked";
  if (end == GrantEnd::disconnected) return "disconnected";
  return "expired";
}

bool is_closed(const LeaseRecord& lease) {
  return lease.end != GrantEnd::open && lease.end != GrantEnd::expired;
}

/// When the grant's time is over, on the running boot's clock. One that was over before this boot
/// counts from the boot's first opening: nobody knows better.
nanoseconds end_of_time(const LeaseRecord& lease, const Boots& boots) {
  return boots.resolve(lease.deadline, lease.ttl).value_or(boots.opened());
}

/// A lease name as a command finds it.
struct Found {
  const LeaseRecord* record;
  Standing standing;
};

/// How `lease` stands. An expiry that is noticed for the first time is written down, so that what a
/// reply says about it stays true over a power cut: the lease cannot be found running again.
Found notice(State& state, std::string_view name, const LeaseRecord* lease, const Moment& moment) {
  const auto now = standing(lease, state.floor(), state.boots(), moment.since_boot);
  if (now != Standing::expired || lease->end != GrantEnd::open) {
    return {.record = lease, .standing = now};
  }
  auto ended = *lease;
  ended.end = GrantEnd::expired;
  return {.record = &state.put_lease(name, std::move(ended)), .standing = now};
}

Result<Found> find(State& state, std::string_view name, const Moment& moment) {
  const auto lease = state.lease(name);
  if (!lease) return lease.error();
  return notice(state, name, *lease, moment);
}

Result<void> check_ttl(milliseconds ttl) {
  if (ttl >= milliseconds(1) && ttl <= Limits::kMaxTtl) return {};
  return Error(Errc::invalid, "invalid ttl '" + std::to_string(ttl.count()) +
                                  "', expected a decimal number from 1 to " +
                                  std::to_string(Limits::kMaxTtl.count()));
}

Result<void> check_claim(std::string_view name, std::string_view owner) {
  if (auto ok = check_length("lease name", name, Limits::kNameBytes); !ok) return ok;
  return check_length("owner", owner, Limits::kOwnerBytes);
}

/// Gives a grant its time, from `moment` on.
LeaseRecord timed(LeaseRecord lease, milliseconds ttl, const State& state, const Moment& moment) {
  lease.ttl = ttl;
  lease.deadline = {.boot = state.boots().current(), .at = moment.since_boot + ttl};
  return lease;
}

/// The grant that `owner` and `token` name, if it is the newest of its name. Who else asks learns
/// nothing about it: a wrong owner of the newest token is `unknown`.
Result<Found> find_own(State& state, std::string_view name, std::string_view owner, Token token,
                       const Moment& moment) {
  if (auto ok = check_claim(name, owner); !ok) return ok.error();
  if (auto ok = check_token(token); !ok) return ok.error();
  const auto found = find(state, name, moment);
  if (!found) return found.error();

  if (found->standing == Standing::never_held) return Error::lease_lost("unknown");
  if (token < state.floor()) return Error::lease_lost("unknown");
  if (token < found->record->fence) return Error::lease_lost("superseded");
  if (token > found->record->fence) return Error::lease_lost("unknown");
  if (owner != found->record->owner) return Error::lease_lost("unknown");
  return found;
}

}  // namespace

Standing standing(const LeaseRecord* lease, Token floor, const Boots& boots, nanoseconds now) {
  if (lease == nullptr) return Standing::never_held;
  if (lease->fence < floor) return Standing::fenced_off;
  if (is_closed(*lease)) return Standing::closed;
  if (lease->end == GrantEnd::expired) return Standing::expired;

  const auto end = boots.resolve(lease->deadline, lease->ttl);
  return end && now < *end ? Standing::held : Standing::expired;
}

milliseconds remaining(const LeaseRecord& lease, const Boots& boots, nanoseconds now) {
  // A clock that was set back (a machine restored from an image) must not show more than the ttl.
  return std::min(std::chrono::ceil<milliseconds>(end_of_time(lease, boots) - now), lease.ttl);
}

LeaseState describe(std::string_view name, const LeaseRecord* lease, Token floor,
                    const Boots& boots, nanoseconds now) {
  LeaseState state;
  state.name = name;
  if (lease == nullptr) return state;

  state.fence = lease->fence;
  if (standing(lease, floor, boots, now) != Standing::held) return state;
  state.holders.push_back({.owner = owner_fingerprint(lease->owner),
                           .token = lease->fence,
                           .mode = lease->mode,
                           .remaining = remaining(*lease, boots, now),
                           .client = lease->client});
  return state;
}

Result<void> check_lease(State& state, std::string_view name, Token token, bool live,
                         const Moment& moment) {
  const auto lease = state.lease(name);
  if (!lease) return lease.error();
  if (*lease == nullptr) return Error::no_lease(name);

  const auto fence = (*lease)->fence;
  if (token > fence) return Error::unissued(fence, token);
  if (kCompareFences && token < fence) return Error::fenced(fence, token, "superseded");
  if (kCompareFences && is_closed(**lease)) {
    return Error::fenced(fence, token, reason_of((*lease)->end));
  }
  if (!live) return {};

  const auto found = notice(state, name, *lease, moment);
  if (found.standing == Standing::held) return {};
  const auto since = moment.since_boot - end_of_time(*found.record, state.boots());
  return Error::expired(
      static_cast<std::uint64_t>(std::chrono::floor<milliseconds>(since).count()));
}

Result<Reply> decide(State& state, const Acquire& command, const Moment& moment,
                     const Asker& asker) {
  if (auto ok = check_claim(command.name, command.owner); !ok) return ok.error();
  if (auto ok = check_ttl(command.ttl); !ok) return ok.error();
  const auto found = find(state, command.name, moment);
  if (!found) return found.error();

  if (found->standing == Standing::held) {
    if (found->record->owner != command.owner) return Reply(Acquire::Reply{});
    const auto token = found->record->fence;
    state.put_lease(command.name, timed(*found->record, command.ttl, state, moment));
    return Reply(Acquire::Reply(Grant{.token = token, .remaining = command.ttl}));
  }

  const auto token = state.draw();
  if (!token) return token.error();
  LeaseRecord granted;
  granted.fence = *token;
  granted.owner = command.owner;
  granted.client = asker.client;
  state.put_lease(command.name, timed(std::move(granted), command.ttl, state, moment));
  return Reply(Acquire::Reply(Grant{.token = *token, .remaining = command.ttl}));
}

Result<Reply> decide(State& state, const Renew& command, const Moment& moment) {
  if (auto ok = check_ttl(command.ttl); !ok) return ok.error();
  const auto own = find_own(state, command.name, command.owner, command.token, moment);
  if (!own) return own.error();

  if (own->standing != Standing::held) return Error::lease_lost(reason_of(own->record->end));
  state.put_lease(command.name, timed(*own->record, command.ttl, state, moment));
  return Reply(command.ttl);
}

Result<Reply> decide(State& state, const Release& command, const Moment& moment) {
  const auto own = find_own(state, command.name, command.owner, command.token, moment);
  if (!own) return own.error();

  // A retried release is harmless while its grant is the newest.
  if (own->record->end == GrantEnd::released) return Reply(std::monostate{});
  if (own->standing != Standing::held) return Error::lease_lost(reason_of(own->record->end));
  auto released = *own->record;
  released.end = GrantEnd::released;
  state.put_lease(command.name, std::move(released));
  return Reply(std::monostate{});
}

Result<Reply> decide(State& state, const Revoke& command, const Moment& moment) {
  auto named = check_length("lease name", command.name, Limits::kNameBytes);
  if (!named) return named.error();
  const auto found = find(state, command.name, moment);
  if (!found) return found.error();
  if (found->standing == Standing::never_held) return Error::lease_lost("unknown");

  const auto fence = found->record->fence;
  if (!is_closed(*found->record)) {
    auto revoked = *found->record;
    revoked.end = GrantEnd::revoked;
    state.put_lease(command.name, std::move(revoked));
  }
  return Reply(fence);
}

Result<Reply> decide(State& state, const Inspect& command, const Moment& moment) {
  auto named = check_length("lease name", command.name, Limits::kNameBytes);
  if (!named) return named.error();
  const auto found = find(state, command.name, moment);
  if (!found) return found.error();
  return Reply(
      describe(command.name, found->record, state.floor(), state.boots(), moment.since_boot));
}

}  // namespace fencekv::core
