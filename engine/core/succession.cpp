// SPDX-License-Identifier: Apache-2.0
#include "engine/core/succession.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

namespace fencekv::core {
namespace {

using std::chrono::nanoseconds;

// Names whose timer is due that one group looks at: commands come between.
constexpr int kDueNames = 1024;

}  // namespace

Result<const Lease*> Succession::visit(std::string_view name) {
  end_waits();
  const auto lease = state_.lease(name);
  if (!lease || state_.is_frozen()) return lease;
  const bool is_over = *lease != nullptr && is_overdue(**lease);
  if (!is_over && !state_.waiters().is_awaited(name) && touched_.empty()) return lease;
  touch(name);
  settle();
  return known(name);
}

const Lease* Succession::known(std::string_view name) const {
  const auto lease = state_.lease(name);
  assert(lease.has_value());
  return *lease;
}

void Succession::end_waits() {
  auto& waiters = state_.waiters();
  while (const auto ticket = waiters.overdue(now_)) {
    const auto* found = waiters.lookout(*ticket);
    if (found == nullptr) {
      end_wait(*ticket);
      continue;
    }
    // Grants end before waits do: who looks out for the end of one is told of it, late as it is.
    const auto lookout = *found;
    const auto lease = state_.is_frozen() ? state_.lease(lookout.name) : end_overdue(lookout.name);
    auto news_now = lease ? news(lookout.name, *lease, lookout.token) : std::nullopt;
    waiters.take_lookout(*ticket);
    state_.answer(*ticket, Reply(Await::Reply(std::move(news_now))));
  }
}

void Succession::end_wait(Ticket ticket, const std::optional<Error>& reason) {
  std::optional<Reply> time_is_over;
  if (const auto waiter = state_.waiters().take(ticket)) {
    for (const auto& name : waiter->demand.names) touch(name);
    time_is_over = Acquire::Reply();
  } else if (state_.waiters().take_lookout(ticket)) {
    time_is_over = Await::Reply();
  } else {
    return;
  }
  state_.answer(ticket, reason ? Result<Reply>(*reason) : Result<Reply>(*time_is_over));
}

void Succession::settle() {
  // Nothing durable can be changed: it is looked at again when it can.
  if (state_.is_frozen()) return touched_.clear();
  while (!touched_.empty()) {
    const auto name = std::move(touched_.extract(touched_.begin()).value());
    settle_name(name);
  }
}

void Succession::settle_name(const std::string& name) {
  auto& waiters = state_.waiters();
  if (const auto lease = end_overdue(name); !lease) {
    // A record that cannot be read is no reason to let anybody in, nor to keep them waiting.
    while (const auto* next = waiters.first(name)) end_wait(next->ticket, lease.error());
    return;
  }
  for (bool moves = true; moves;) {
    const auto* next = waiters.first(name);
    moves = next != nullptr && serve(*next);
  }
  tell_lookouts(name, known(name));
  set_timer(name, known(name));
}

bool Succession::is_over(const GrantRecord& grant) const {
  return grant.end == GrantEnd::open && standing_of(grant) != GrantEnd::open;
}

bool Succession::is_overdue(const Lease& lease) const {
  const auto& others = lease.others();
  return is_over(lease.newest()) ||
         std::any_of(others.begin(), others.end(), [this](const auto& g) { return is_over(g); });
}

/// Ends what is over at `name`. An end that is noticed is written down, so that what a reply says
/// about it stays true over a power cut: the grant cannot be found running again.
Result<const Lease*> Succession::end_overdue(std::string_view name) {
  const auto lease = state_.lease(name);
  if (!lease || *lease == nullptr || !is_overdue(**lease)) return lease;

  std::vector<GrantRecord> over;
  const auto add = [&](const GrantRecord& grant) {
    if (is_over(grant)) over.push_back(grant);
  };
  std::for_each((*lease)->others().begin(), (*lease)->others().end(), add);
  add((*lease)->newest());

  // In the order in which their times were over.
  std::stable_sort(over.begin(), over.end(), [this](const auto& a, const auto& b) {
    return end_of_time(a, state_.boots()) < end_of_time(b, state_.boots());
  });
  for (const auto& grant : over) end(name, grant, standing_of(grant));
  return known(name);
}

void Succession::end(std::string_view name, const GrantRecord& grant, GrantEnd how) {
  const auto ended = grant;
  const auto at = circumstances();
  auto& lease = state_.change_lease(name);
  const auto blocked = end_of_block(lease, at);
  if (ended.token != lease.fence()) remember(lease, ended.token);
  lease.end(ended.token, how);
  if (ended.bound && ended.origin.process == state_.process()) {
    state_.unbind(ended.origin.session, name, ended.token);
  }
  touch(name);
  // A lifted floor ends leases without a word.
  if (ended.token < state_.floor()) return;
  happened(change_of(how), name, ended.token);

  // One that had expired before it was revoked has its delay already.
  const auto until = ended.end == GrantEnd::open ? end_of_delay(ended, how, at) : std::nullopt;
  if (!until || until < blocked) return;
  lease.block_until({.boot = state_.boots().current(), .at = *until}, ended.delay);
}

void Succession::remember(Lease& lease, Token token) {
  lease.remember(token, state_.boots(), now_, state_.fence_retention());
}

/// Ends what is over at all names of a demand, so that they are known.
Result<void> Succession::look_at(const Demand& demand) {
  for (const auto& name : demand.names) {
    if (const auto lease = end_overdue(name); !lease) return lease.error();
  }
  return {};
}

/// Grants what the first in a queue asks for, if it can be. Returns whether it has left the queue.
bool Succession::serve(const Waiters::Waiter& waiter) {
  const auto ticket = waiter.ticket;
  // A single one is the name that is being settled.
  if (waiter.demand.several) {
    if (const auto looked = look_at(waiter.demand); !looked) {
      end_wait(ticket, looked.error());
      return true;
    }
  }
  if (!may_grant(waiter.demand, ticket)) return false;
  if (!state_.sessions().is_open(waiter.demand.session)) {
    // No token is lost on one who is gone.
    end_wait(ticket, Error::lease_lost("disconnected"));
    return true;
  }
  // Taken before the grant: nobody queues before oneself.
  const auto demand = state_.waiters().take(ticket)->demand;
  for (const auto& name : demand.names) touch(name);
  auto granted = grant(demand);
  const bool is_held = granted.has_value();
  state_.answer(ticket, std::move(granted));
  if (is_held) answer_others_of(demand);
  return true;
}

/// Who holds a name does not queue for it any more: other waits of the owner are decided now.
void Succession::answer_others_of(const Demand& held) {
  std::vector<Ticket> tickets;
  for (const auto& name : held.names) {
    const auto own = state_.waiters().of_owner(name, held.owner);
    tickets.insert(tickets.end(), own.begin(), own.end());
  }
  // In the order of their arrival, whichever names they ask for: what was asked last counts.
  std::sort(tickets.begin(), tickets.end());
  tickets.erase(std::unique(tickets.begin(), tickets.end()), tickets.end());
  for (const auto ticket : tickets) {
    const auto demand = state_.waiters().take(ticket)->demand;
    for (const auto& touched : demand.names) touch(touched);
    state_.answer(ticket, answer_to_holder(demand));
  }
}

Result<Reply> Succession::answer_to_holder(const Demand& demand) {
  if (!state_.sessions().is_open(demand.session)) return Error::lease_lost("disconnected");
  if (const auto looked = look_at(demand); !looked) return looked.error();
  return *hold_again(demand);
}

std::optional<LeaseEvent> Succession::news(std::string_view name, const Lease* lease,
                                           Token token) const {
  if (lease == nullptr) return std::nullopt;
  const auto newest = standing_of(lease->newest());
  const LeaseEvent event{
      .change = change_of(newest), .name = std::string(name), .token = lease->fence()};
  if (token.is_none()) {
    const auto& others = lease->others();
    const bool is_held = newest == GrantEnd::open ||
                         std::any_of(others.begin(), others.end(), [this](const auto& g) {
                           return standing_of(g) == GrantEnd::open;
                         });
    return is_held ? std::optional(event) : std::nullopt;
  }
  if (token < lease->fence()) return event;
  if (token == lease->fence() && newest != GrantEnd::open) return event;
  return std::nullopt;
}

void Succession::tell_lookouts(std::string_view name, const Lease* lease) {
  auto& waiters = state_.waiters();
  if (lease == nullptr || waiters.lookouts(name) == 0) return;
  const auto tell = [&](Token from, Token to) {
    const auto event = news(name, lease, to);
    if (!event) return;
    for (const auto ticket : waiters.take_lookouts(name, from, to)) {
      state_.answer(ticket, Reply(Await::Reply(event)));
    }
  };
  tell(Token(), Token());
  const auto fence = lease->fence().number();
  if (fence > 1) tell(Token{1}, Token{fence - 1});
  tell(lease->fence(), lease->fence());
}

/// When there is something to do at `name` next without a command, if anybody waits for it.
void Succession::set_timer(std::string_view name, const Lease* lease) {
  std::optional<nanoseconds> due;
  const auto at = circumstances();
  const auto consider = [&due](nanoseconds time) { due = due ? std::min(*due, time) : time; };
  if (lease != nullptr && state_.waiters().is_awaited(name)) {
    const auto consider_end = [&](const GrantRecord& grant) {
      if (standing(grant, at) == GrantEnd::open) consider(end_of_time(grant, at.boots));
    };
    std::for_each(lease->others().begin(), lease->others().end(), consider_end);
    consider_end(lease->newest());
    if (const auto end = end_of_block(*lease, at)) consider(*end);
  }
  state_.waiters().set_timer(name, due);
}

void Succession::happened(LeaseChange change, std::string_view name, Token token) {
  if (state_.waiters().watchers(name) == nullptr) return;
  state_.happened({.change = change, .name = std::string(name), .token = token});
}

bool pass_time(State& state, const Moment& moment) {
  Succession succession(state, moment);
  succession.end_waits();
  succession.settle();
  if (state.is_frozen()) return true;
  for (int looked = 0; looked < kDueNames; ++looked) {
    const auto name = state.waiters().take_due(moment.since_boot);
    if (!name) return true;
    succession.touch(*name);
    succession.settle();
  }
  return false;
}

void look_everywhere(State& state, const Moment& moment) {
  Succession succession(state, moment);
  for (const auto& name : state.waiters().awaited()) succession.touch(name);
  succession.settle();
}

void cancel_wait(State& state, Ticket ticket, const Moment& moment) {
  Succession succession(state, moment);
  succession.end_wait(ticket);
  succession.settle();
}

void end_session(State& state, std::uint64_t session, const Moment& moment) {
  Succession succession(state, moment);
  auto& waiters = state.waiters();
  for (const auto ticket : waiters.of_session(session)) {
    succession.end_wait(ticket, Error::lease_lost("disconnected"));
  }
  for (const auto& name : waiters.unwatch(session)) {
    if (!waiters.is_awaited(name)) waiters.set_timer(name, std::nullopt);
  }
  for (const auto& name : waiters.take_bound(session)) {
    succession.touch(name);
    // In case it cannot be written down now.
    waiters.set_timer(name, moment.since_boot);
  }
  succession.settle();
}

Result<Reclaimed> reclaim(State& state, const std::vector<std::string>& keys,
                          const std::vector<std::string>& names, const Moment& moment) {
  Reclaimed reclaimed;
  reclaimed.floor = state.floor();
  for (const auto& name : keys) {
    const auto key = state.key(name);
    if (!key) return key.error();
    if (*key == nullptr || (*key)->value || (*key)->fence >= state.floor()) continue;
    state.erase_key(name);
    ++reclaimed.tombstones;
  }
  for (const auto& name : names) {
    const auto lease = Succession(state, moment).visit(name);
    if (!lease) return lease.error();
    if (*lease == nullptr || (*lease)->fence() >= state.floor()) continue;
    // Its newest grant is what those who wait for it would be told of.
    if (state.waiters().is_awaited(name)) continue;
    state.erase_lease(name);
    ++reclaimed.lease_names;
  }
  return reclaimed;
}

}  // namespace fencekv::core
