// SPDX-License-Identifier: Apache-2.0
/// Who is granted what: the part of Succession that decides acquires.

#include "engine/core/succession.h"

#include <algorithm>
#include <string>
#include <utility>

namespace fencekv::core {
namespace {

Result<Reply> granted(Token token, std::chrono::milliseconds ttl) {
  return Reply(Acquire::Reply(Grant{.token = token, .remaining = ttl}));
}

Error holds_otherwise(LeaseMode mode) {
  return {Errc::invalid, "this owner holds the lease " + std::string(to_string(mode)) +
                             ": release it first, or ask as another owner"};
}

}  // namespace

Decision Succession::decide(const Demand& demand) {
  if (auto again = hold_again(demand)) return again;
  if (auto ok = check_permits(demand); !ok) return ok.error();
  if (!may_grant(demand, std::nullopt)) return std::nullopt;
  return grant(demand);
}

/// Nobody queues before `place` (of one who does not queue: at all) and all names are free.
bool Succession::may_grant(const Demand& demand, std::optional<Ticket> place) const {
  if (!may_grant_anything_) return false;
  return std::all_of(demand.names.begin(), demand.names.end(), [&](const std::string& name) {
    const auto* first = state_.waiters().first(name);
    return (first == nullptr || first->ticket == place) && is_free(name, demand);
  });
}

bool Succession::is_free(std::string_view name, const Demand& demand) const {
  const auto* lease = known(name);
  if (lease == nullptr) return true;
  if (end_of_block(*lease, circumstances())) return false;
  const auto mode = held_mode(*lease);
  if (!mode) return true;
  if (*mode != demand.mode || demand.mode == LeaseMode::exclusive) return false;
  if (demand.mode == LeaseMode::shared) return true;
  return count_holders(*lease) < demand.permits;
}

std::size_t Succession::count_holders(const Lease& lease) const {
  return lease.others().size() + (standing_of(lease.newest()) == GrantEnd::open ? 1 : 0);
}

/// Of a lease of which all that was over has been ended.
std::optional<LeaseMode> Succession::held_mode(const Lease& lease) const {
  if (standing_of(lease.newest()) == GrantEnd::open) return lease.newest().mode;
  if (lease.others().empty()) return std::nullopt;
  return lease.others().front().mode;
}

const GrantRecord* Succession::held_by(const Lease& lease, std::string_view owner) const {
  const auto is_his = [&](const GrantRecord& grant) {
    return grant.owner == owner && standing_of(grant) == GrantEnd::open;
  };
  if (is_his(lease.newest())) return &lease.newest();
  const auto found = std::find_if(lease.others().begin(), lease.others().end(), is_his);
  return found == lease.others().end() ? nullptr : &*found;
}

/// While anyone holds or waits for permits, another number of them is a mistake.
Result<void> Succession::check_permits(const Demand& demand) const {
  if (demand.mode != LeaseMode::permit) return {};
  const auto& name = demand.names.front();
  const auto* lease = known(name);

  auto in_force = state_.waiters().permits_wanted(name);
  if (lease != nullptr && held_mode(*lease) == LeaseMode::permit) in_force = lease->permits();
  if (!in_force || *in_force == demand.permits) return {};
  return Error(Errc::invalid, "this lease has " + std::to_string(*in_force) + " permits, not " +
                                  std::to_string(demand.permits) +
                                  ", while anybody holds or waits for one");
}

/// What an owner gets that holds names of its demand; nullopt: it holds none.
Decision Succession::hold_again(const Demand& demand) {
  std::size_t count = 0;
  std::optional<GrantRecord> one;
  bool differ = false;
  for (const auto& name : demand.names) {
    const auto* lease = known(name);
    const auto* held = lease == nullptr ? nullptr : held_by(*lease, demand.owner);
    if (held == nullptr) continue;
    ++count;
    differ = differ || (one && one->token != held->token) || held->mode != demand.mode;
    if (!one) one = *held;
  }
  if (count == 0) return std::nullopt;

  if (count < demand.names.size()) {
    return Error(Errc::invalid,
                 "this owner holds some of these leases and not all: release them "
                 "first, or ask as another owner");
  }
  if (demand.several && differ) {
    return Error(Errc::invalid,
                 "this owner did not acquire these leases together: renew them instead");
  }
  if (one->mode != demand.mode) return change_mode(demand, *one);
  if (auto ok = check_permits(demand); !ok) return ok.error();
  for (const auto& name : demand.names) hold_longer(name, demand, one->token);
  return granted(one->token, demand.ttl);
}

Result<Reply> Succession::change_mode(const Demand& demand, GrantRecord held) {
  const auto& name = demand.names.front();
  if (held.mode == LeaseMode::exclusive && demand.mode == LeaseMode::shared) {
    state_.change_lease(name).change(held.token).mode = LeaseMode::shared;
    hold_longer(name, demand, held.token);
    return granted(held.token, demand.ttl);
  }
  if (held.mode != LeaseMode::shared || demand.mode != LeaseMode::exclusive) {
    return holds_otherwise(held.mode);
  }

  const auto& lease = *known(name);
  if (count_holders(lease) > 1 || state_.waiters().first(name) != nullptr ||
      end_of_block(lease, circumstances())) {
    // To wait would be to wait for oneself.
    return Error(Errc::invalid,
                 "a reader becomes the exclusive holder only while nobody else holds or waits: "
                 "release the lease first");
  }
  const auto token = state_.draw();
  if (!token) return token.error();
  auto upgraded = fresh_grant(demand, *token);
  upgraded.bound = upgraded.bound || held.bound;
  if (!demand.delay) upgraded.delay = held.delay;
  if (!demand.payload) upgraded.payload = held.payload;
  auto& changed = state_.change_lease(name);
  if (changed.newest().end != GrantEnd::open) remember(changed, changed.fence());
  remember(changed, held.token);
  changed.forget(held.token);
  changed.grant(std::move(upgraded), 0);
  if (held.bound) state_.unbind(held.origin.session, name, held.token);
  if (changed.newest().bound) state_.waiters().bind(demand.session, name, *token);
  happened(LeaseChange::granted, name, *token);
  touch(name);
  return granted(*token, demand.ttl);
}

Result<Reply> Succession::grant(const Demand& demand) {
  const auto token = state_.draw();
  if (!token) return token.error();

  for (const auto& name : demand.names) {
    auto fresh = fresh_grant(demand, *token);
    if (known(name) == nullptr) {
      state_.put_lease(name, Lease(std::move(fresh), demand.permits));
    } else {
      auto& lease = state_.change_lease(name);
      if (lease.newest().end != GrantEnd::open) remember(lease, lease.fence());
      lease.grant(std::move(fresh), demand.permits);
    }
    if (demand.bind) state_.waiters().bind(demand.session, name, *token);
    happened(LeaseChange::granted, name, *token);
    touch(name);
  }
  return granted(*token, demand.ttl);
}

GrantRecord Succession::fresh_grant(const Demand& demand, Token token) const {
  return {.token = token,
          .mode = demand.mode,
          .end = GrantEnd::open,
          .deadline = {.boot = state_.boots().current(), .at = now_ + demand.ttl},
          .ttl = demand.ttl,
          .delay = demand.delay.value_or(std::chrono::milliseconds(0)),
          .bound = demand.bind,
          .origin = {.process = state_.process(), .session = demand.session},
          .owner = demand.owner,
          .client = demand.client,
          .payload = demand.payload};
}

/// The holder asks again: the same token, and its time from now on.
void Succession::hold_longer(std::string_view name, const Demand& demand, Token token) {
  auto& grant = state_.change_lease(name).change(token);
  const auto before = grant.origin;
  grant.again = true;
  grant.ttl = demand.ttl;
  grant.deadline = {.boot = state_.boots().current(), .at = now_ + demand.ttl};
  if (demand.delay) grant.delay = *demand.delay;
  if (demand.payload) grant.payload = demand.payload;
  // Once bound, a lease stays bound, to the session of the newest acquire.
  if (grant.bound && before.session != demand.session) state_.unbind(before.session, name, token);
  grant.bound = grant.bound || demand.bind;
  grant.origin = {.process = state_.process(), .session = demand.session};
  grant.client = demand.client;
  if (grant.bound) state_.waiters().bind(demand.session, name, token);
  touch(name);
}

}  // namespace fencekv::core
