// SPDX-License-Identifier: Apache-2.0
#include "engine/core/lease.h"

#include "engine/core/owner.h"

#include <algorithm>
#include <cassert>

namespace fencekv::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// Milliseconds left of a held grant, rounded up: in (0, ttl].
milliseconds remaining(const GrantRecord& grant, const Circumstances& at) {
  // A clock that was set back (a machine restored from an image) must not show more than the ttl.
  return std::min(std::chrono::ceil<milliseconds>(end_of_time(grant, at.boots) - at.now),
                  grant.ttl);
}

LeaseHolder holder(const GrantRecord& grant, const Circumstances& at) {
  return {.owner = owner_fingerprint(grant.owner),
          .token = grant.token,
          .mode = grant.mode,
          .remaining = remaining(grant, at),
          .client = grant.client,
          .bound = grant.bound};
}

}  // namespace

Lease::Lease(LeaseRecord record, std::vector<GrantRecord> others)
    : newest_(std::move(record.newest)),
      others_(std::move(others)),
      permits_(record.permits),
      blocked_(record.blocked),
      block_(record.block),
      ended_since_(record.ended_since),
      ended_(record.ended),
      ended_before_(record.ended_before) {}

std::vector<GrantRecord>::iterator Lease::other(Token token) {
  const auto found =
      std::lower_bound(others_.begin(), others_.end(), token,
                       [](const GrantRecord& grant, Token wanted) { return grant.token < wanted; });
  return found != others_.end() && found->token == token ? found : others_.end();
}

const GrantRecord* Lease::find(Token token) const {
  if (token == newest_.token) return &newest_;
  const auto found = const_cast<Lease*>(this)->other(token);
  return found == others_.end() ? nullptr : &*found;
}

GrantRecord& Lease::change(Token token) {
  if (token == newest_.token) return newest_;
  const auto found = other(token);
  assert(found != others_.end());
  changes_.push_back(token);
  return *found;
}

void Lease::grant(GrantRecord grant, std::uint64_t permits) {
  assert(grant.token > newest_.token);
  if (newest_.end == GrantEnd::open) {
    changes_.push_back(newest_.token);
    others_.push_back(std::move(newest_));
  }
  newest_ = std::move(grant);
  permits_ = permits;
  block_until({}, milliseconds(0));
}

void Lease::end(Token token, GrantEnd how) {
  if (token != newest_.token) return forget(token);
  newest_.end = how;
}

void Lease::forget(Token token) {
  if (token == newest_.token) {
    newest_.end = GrantEnd::released;
    return;
  }
  const auto found = other(token);
  assert(found != others_.end());
  changes_.push_back(token);
  others_.erase(found);
}

void Lease::block_until(Deadline end, milliseconds length) {
  blocked_ = end;
  block_ = length;
}

void Lease::remember(Token token, const Boots& boots, nanoseconds now, nanoseconds retention) {
  const Deadline moment{.boot = boots.current(), .at = now};
  // Two spans of one retention each: whatever ended in the one before the last is of no interest.
  const auto since = age(ended_since_, boots, now);
  if (ended_.is_none() || since > 2 * retention) {
    ended_before_ = Token();
    ended_since_ = moment;
    ended_ = token;
  } else if (since > retention) {
    ended_before_ = ended_;
    ended_since_ = moment;
    ended_ = token;
  } else {
    ended_ = std::min(ended_, token);
  }
}

Token Lease::lowest_ended(const Boots& boots, nanoseconds now, nanoseconds retention) const {
  if (ended_.is_none()) return {};
  const auto since = age(ended_since_, boots, now);
  if (since > 2 * retention) return {};
  if (since > retention || ended_before_.is_none()) return ended_;
  return std::min(ended_, ended_before_);
}

nanoseconds age(Deadline then, const Boots& boots, nanoseconds now) {
  return now - (then.boot == boots.current() ? then.at : boots.opened());
}

LeaseRecord Lease::record() const {
  return {.newest = newest_,
          .others = static_cast<std::uint32_t>(others_.size()),
          .permits = static_cast<std::uint32_t>(permits_),
          .blocked = blocked_,
          .block = block_,
          .ended_since = ended_since_,
          .ended = ended_,
          .ended_before = ended_before_};
}

nanoseconds end_of_time(const GrantRecord& grant, const Boots& boots) {
  return boots.resolve(grant.deadline, grant.ttl).value_or(boots.opened());
}

GrantEnd standing(const GrantRecord& grant, const Circumstances& at) {
  if (grant.end != GrantEnd::open) return grant.end;
  if (grant.token < at.floor) return GrantEnd::revoked;
  // Whether its time ran out before that process ended is not known: then it is closed.
  if (grant.bound && grant.origin.process != at.process) return GrantEnd::disconnected;
  const auto end = at.boots.resolve(grant.deadline, grant.ttl);
  if (!end || at.now >= *end) return GrantEnd::expired;
  if (grant.bound && !at.sessions.is_open(grant.origin.session)) return GrantEnd::disconnected;
  return GrantEnd::open;
}

std::optional<nanoseconds> end_of_delay(const GrantRecord& grant, GrantEnd how,
                                        const Circumstances& at) {
  // A lifted floor ends leases, and their delays with them.
  if (grant.delay.count() == 0 || grant.token < at.floor) return std::nullopt;
  if (how == GrantEnd::open || how == GrantEnd::released) return std::nullopt;
  auto until = std::optional(at.now + nanoseconds(grant.delay));
  if (how == GrantEnd::expired) {
    until = at.boots.resolve_delay(grant.deadline, grant.ttl, grant.delay);
  } else if (how == GrantEnd::disconnected && grant.origin.process != at.process) {
    // Its session ended with its process, at the latest when this one began.
    until = std::min(at.process_began, end_of_time(grant, at.boots)) + nanoseconds(grant.delay);
  }
  return until && *until > at.now ? until : std::nullopt;
}

std::optional<nanoseconds> end_of_block(const Lease& lease, const Circumstances& at) {
  std::optional<nanoseconds> end;
  if (lease.fence() < at.floor) return end;
  if (lease.block() != milliseconds(0)) {
    end = at.boots.resolve(lease.blocked(), lease.block());
    if (end && at.now >= *end) end.reset();
  }
  const auto consider = [&](const GrantRecord& grant) {
    if (grant.end != GrantEnd::open) return;
    // An empty optional is less than any other.
    end = std::max(end, end_of_delay(grant, standing(grant, at), at));
  };
  std::for_each(lease.others().begin(), lease.others().end(), consider);
  consider(lease.newest());
  return end;
}

bool is_closed(GrantEnd end) {
  return end != GrantEnd::open && end != GrantEnd::expired;
}

LeaseChange change_of(GrantEnd end) {
  if (end == GrantEnd::open) return LeaseChange::granted;
  if (end == GrantEnd::expired) return LeaseChange::expired;
  if (end == GrantEnd::released) return LeaseChange::released;
  if (end == GrantEnd::revoked) return LeaseChange::revoked;
  return LeaseChange::disconnected;
}

std::string_view reason_of(GrantEnd end) {
  return to_string(change_of(end));
}

LeaseState describe(std::string_view name, const Lease* lease, std::size_t waiters,
                    const Circumstances& at) {
  LeaseState state;
  state.name = name;
  state.waiters = waiters;
  if (lease == nullptr) return state;

  state.fence = lease->fence();
  const auto add = [&](const GrantRecord& grant) {
    if (standing(grant, at) != GrantEnd::open) return;
    state.holders.push_back(holder(grant, at));
    state.payload = grant.payload;
  };
  for (const auto& grant : lease->others()) add(grant);
  add(lease->newest());
  if (const auto end = end_of_block(*lease, at)) {
    state.blocked = std::min(std::chrono::ceil<milliseconds>(*end - at.now), Limits::kMaxDelay);
  }
  return state;
}

}  // namespace fencekv::core
