// SPDX-License-Identifier: Apache-2.0
#include "engine/core/waiters.h"

#include <algorithm>
#include <cassert>

namespace fencekv::core {

const Waiters::Queue* Waiters::find_queue(std::string_view name) const {
  const auto found = queues_.find(name);
  return found == queues_.end() ? nullptr : &found->second;
}

void Waiters::forget_session_wait(std::uint64_t session, Ticket ticket) {
  const auto found = session_waits_.find(session);
  assert(found != session_waits_.end());
  found->second.erase(ticket);
  if (found->second.empty()) session_waits_.erase(found);
}

void Waiters::add(Waiter waiter) {
  const auto ticket = waiter.ticket;
  const auto& kept = waiters_.emplace(ticket, std::move(waiter)).first->second;
  for (const auto& name : kept.demand.names) {
    auto& queue = queues_[name];
    queue.waiting.emplace(ticket, &kept);
    queue.owners[kept.demand.owner].insert(ticket);
    if (kept.demand.mode == LeaseMode::permit) {
      ++queue.permit_waiters;
      queue.permits = kept.demand.permits;
    }
    changed_queues_.push_back(name);
  }
  ends_.emplace(kept.until, ticket);
  session_waits_[kept.demand.session].insert(ticket);
}

const Waiters::Waiter* Waiters::first(std::string_view name) const {
  const auto* queue = find_queue(name);
  return queue == nullptr ? nullptr : queue->waiting.begin()->second;
}

std::size_t Waiters::queue_length(std::string_view name) const {
  const auto* queue = find_queue(name);
  return queue == nullptr ? 0 : queue->waiting.size();
}

std::optional<std::uint64_t> Waiters::permits_wanted(std::string_view name) const {
  const auto* queue = find_queue(name);
  if (queue == nullptr || queue->permit_waiters == 0) return std::nullopt;
  return queue->permits;
}

std::vector<const Waiters::Waiter*> Waiters::queue(std::string_view name) const {
  std::vector<const Waiter*> waiting;
  if (const auto* queue = find_queue(name)) {
    for (const auto& [ticket, waiter] : queue->waiting) waiting.push_back(waiter);
  }
  return waiting;
}

std::vector<Ticket> Waiters::of_owner(std::string_view name, std::string_view owner) const {
  const auto* queue = find_queue(name);
  if (queue == nullptr) return {};
  const auto found = queue->owners.find(owner);
  if (found == queue->owners.end()) return {};
  return {found->second.begin(), found->second.end()};
}

std::optional<Waiters::Waiter> Waiters::take(Ticket ticket) {
  const auto found = waiters_.find(ticket);
  if (found == waiters_.end()) return std::nullopt;
  auto& waiter = found->second;
  const auto& demand = waiter.demand;

  for (const auto& name : demand.names) {
    const auto place = queues_.find(name);
    auto& queue = place->second;
    queue.waiting.erase(ticket);
    if (demand.mode == LeaseMode::permit) --queue.permit_waiters;
    // The key is a view into a waiter, maybe into this one: give it another that stays.
    const auto owner = queue.owners.find(demand.owner);
    auto tickets = std::move(owner->second);
    queue.owners.erase(owner);
    tickets.erase(ticket);
    if (!tickets.empty()) {
      const auto& heir = waiters_.at(*tickets.begin());
      queue.owners.emplace(heir.demand.owner, std::move(tickets));
    }
    if (queue.waiting.empty()) queues_.erase(place);
    changed_queues_.push_back(name);
  }
  ends_.erase({waiter.until, ticket});
  forget_session_wait(demand.session, ticket);

  auto taken = std::move(waiter);
  waiters_.erase(found);
  return taken;
}

void Waiters::add(Lookout lookout) {
  const auto ticket = lookout.ticket;
  lookouts_by_name_[lookout.name].emplace(lookout.token, ticket);
  ends_.emplace(lookout.until, ticket);
  session_waits_[lookout.session].insert(ticket);
  lookouts_.emplace(ticket, std::move(lookout));
}

std::size_t Waiters::lookouts(std::string_view name) const {
  const auto found = lookouts_by_name_.find(name);
  return found == lookouts_by_name_.end() ? 0 : found->second.size();
}

std::vector<Ticket> Waiters::take_lookouts(std::string_view name, Token from, Token to) {
  std::vector<Ticket> taken;
  const auto found = lookouts_by_name_.find(name);
  if (found == lookouts_by_name_.end()) return taken;

  const auto& waiting = found->second;
  for (auto at = waiting.lower_bound({from, 0}); at != waiting.end() && at->first <= to; ++at) {
    taken.push_back(at->second);
  }
  for (const auto ticket : taken) take_lookout(ticket);
  return taken;
}

bool Waiters::take_lookout(Ticket ticket) {
  const auto found = lookouts_.find(ticket);
  if (found == lookouts_.end()) return false;
  const auto& lookout = found->second;

  const auto place = lookouts_by_name_.find(lookout.name);
  place->second.erase({lookout.token, ticket});
  if (place->second.empty()) lookouts_by_name_.erase(place);
  ends_.erase({lookout.until, ticket});
  forget_session_wait(lookout.session, ticket);
  lookouts_.erase(found);
  return true;
}

const Waiters::Lookout* Waiters::lookout(Ticket ticket) const {
  const auto found = lookouts_.find(ticket);
  return found == lookouts_.end() ? nullptr : &found->second;
}

std::optional<Ticket> Waiters::overdue(Time now) const {
  if (ends_.empty() || ends_.begin()->first > now) return std::nullopt;
  return ends_.begin()->second;
}

std::vector<Ticket> Waiters::of_session(std::uint64_t session) const {
  const auto found = session_waits_.find(session);
  if (found == session_waits_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

void Waiters::watch(std::uint64_t session, const std::string& name) {
  if (!session_watches_[session].insert(name).second) return;
  watchers_[name].emplace(session, ++newest_watch_);
}

bool Waiters::is_watched_by(std::uint64_t session, std::string_view name) const {
  const auto* sessions = watchers(name);
  return sessions != nullptr && sessions->contains(session);
}

std::size_t Waiters::watches(std::uint64_t session) const {
  const auto found = session_watches_.find(session);
  return found == session_watches_.end() ? 0 : found->second.size();
}

std::vector<std::string> Waiters::unwatch(std::uint64_t session) {
  const auto found = session_watches_.find(session);
  if (found == session_watches_.end()) return {};

  std::vector<std::string> names(found->second.begin(), found->second.end());
  for (const auto& name : names) {
    const auto place = watchers_.find(name);
    place->second.erase(session);
    if (place->second.empty()) watchers_.erase(place);
  }
  session_watches_.erase(found);
  return names;
}

const Waiters::Watchers* Waiters::watchers(std::string_view name) const {
  const auto found = watchers_.find(name);
  return found == watchers_.end() ? nullptr : &found->second;
}

void Waiters::bind(std::uint64_t session, std::string_view name, Token token) {
  // The process itself ends with all that is in memory here.
  if (session != 0) session_bound_[session].emplace(name, token);
}

void Waiters::unbind(std::uint64_t session, std::string_view name, Token token) {
  const auto found = session_bound_.find(session);
  if (found == session_bound_.end()) return;
  found->second.erase({std::string(name), token});
  if (found->second.empty()) session_bound_.erase(found);
}

std::vector<std::string> Waiters::take_bound(std::uint64_t session) {
  std::vector<std::string> names;
  const auto bound = session_bound_.extract(session);
  if (bound.empty()) return names;
  for (const auto& [name, token] : bound.mapped()) names.push_back(name);
  return names;
}

bool Waiters::is_awaited(std::string_view name) const {
  return queues_.contains(name) || lookouts_by_name_.contains(name) || watchers_.contains(name);
}

std::vector<std::string> Waiters::awaited() const {
  std::set<std::string> names;
  for (const auto& [name, queue] : queues_) names.insert(name);
  for (const auto& [name, waiting] : lookouts_by_name_) names.insert(name);
  for (const auto& [name, sessions] : watchers_) names.insert(name);
  return {names.begin(), names.end()};
}

void Waiters::set_timer(std::string_view name, std::optional<Time> due) {
  const auto found = timers_.find(name);
  if (found != timers_.end()) {
    if (due == found->second) return;
    timer_order_.erase({found->second, found->first});
    if (!due) {
      timers_.erase(found);
      return;
    }
    found->second = *due;
    timer_order_.emplace(*due, found->first);
    return;
  }
  if (!due) return;
  const auto added = timers_.emplace(name, *due).first;
  timer_order_.emplace(*due, added->first);
}

std::optional<std::string> Waiters::take_due(Time now) {
  if (timer_order_.empty() || timer_order_.begin()->first > now) return std::nullopt;
  std::string name(timer_order_.begin()->second);
  set_timer(name, std::nullopt);
  return name;
}

std::optional<Waiters::Time> Waiters::next_timer() const {
  if (timer_order_.empty()) return std::nullopt;
  return timer_order_.begin()->first;
}

std::optional<Waiters::Time> Waiters::next_end() const {
  if (ends_.empty()) return std::nullopt;
  return ends_.begin()->first;
}

}  // namespace fencekv::core
