// SPDX-License-Identifier: Apache-2.0
#include "tests/model/lease_model.h"

#include <algorithm>
#include <utility>

namespace fencekv::testing {
namespace {

constexpr std::size_t kWaitersPerName = 10'000;
const LeaseModel::Answer kNotInTime{"OK (none)", 0};
const LeaseModel::Answer kRefused{"ERR", 0};

std::string text(const std::optional<std::string>& maybe) {
  return maybe.value_or("(none)");
}

}  // namespace

std::string to_string(LeaseModel::Mode mode) {
  switch (mode) {
    case LeaseModel::Mode::exclusive:
      return "exclusive";
    case LeaseModel::Mode::shared:
      return "shared";
    case LeaseModel::Mode::permit:
      return "permit";
  }
  return "?";
}

void LeaseModel::tell(const std::string& change, const std::string& name, std::uint64_t token) {
  for (const auto& [user, watched] : watches_) {
    if (watched.contains(name)) events_[user].push_back({change, name, token});
  }
}

LeaseModel::Grant* LeaseModel::held_by(const std::string& name, const std::string& owner) {
  const auto found = names_.find(name);
  if (found == names_.end()) return nullptr;
  for (auto& holder : found->second.holders) {
    if (holder.owner == owner) return &holder;
  }
  return nullptr;
}

// Who queues.

std::size_t LeaseModel::queue_length(const std::string& name) const {
  return static_cast<std::size_t>(
      std::count_if(waiters_.begin(), waiters_.end(), [&](const auto& waiter) {
        const auto& names = waiter.second.ask.names;
        return std::find(names.begin(), names.end(), name) != names.end();
      }));
}

bool LeaseModel::is_first(const std::string& name, Number number) const {
  for (const auto& [other, waiter] : waiters_) {
    if (other >= number) return true;
    const auto& names = waiter.ask.names;
    if (std::find(names.begin(), names.end(), name) != names.end()) return false;
  }
  return true;
}

bool LeaseModel::has_another_number_of_permits(const std::string& name, const Ask& ask) const {
  if (ask.mode != Mode::permit) return false;
  const auto found = names_.find(name);
  if (found != names_.end() && !found->second.holders.empty() &&
      found->second.holders.back().mode == Mode::permit && found->second.permits != ask.permits) {
    return true;
  }
  return std::any_of(waiters_.begin(), waiters_.end(), [&](const auto& waiter) {
    const auto& other = waiter.second.ask;
    return other.mode == Mode::permit && other.names.front() == name &&
           other.permits != ask.permits;
  });
}

/// Whether the holders and the block leave room.
bool LeaseModel::is_free_for(const Name& name, const Ask& ask) const {
  if (now_ < name.blocked_until) return false;
  if (name.holders.empty()) return true;
  if (ask.mode == Mode::exclusive || name.holders.back().mode != ask.mode) return false;
  return ask.mode == Mode::shared || name.holders.size() < name.permits;
}

// Grants.

LeaseModel::Answer LeaseModel::grant(const Ask& ask) {
  const auto token = ++newest_;
  for (const auto& name : ask.names) {
    auto& lease = names_[name];
    lease.fence = token;
    lease.last.reset();
    lease.permits = ask.permits;
    lease.holders.push_back({.token = token,
                             .owner = ask.owner,
                             .mode = ask.mode,
                             .ttl = ask.ttl,
                             .deadline = now_ + ask.ttl,
                             .delay = ask.delay.value_or(0),
                             .payload = ask.payload,
                             .bound = ask.bind,
                             .user = ask.user,
                             .ended = ""});
    tell("granted", name, token);
  }
  return {"OK " + std::to_string(ask.ttl), token};
}

LeaseModel::Answer LeaseModel::reacquire(Grant& grant, const Ask& ask) {
  grant.ttl = ask.ttl;
  grant.deadline = now_ + ask.ttl;
  if (ask.delay) grant.delay = *ask.delay;
  if (ask.payload) grant.payload = ask.payload;
  grant.bound = grant.bound || ask.bind;
  grant.user = ask.user;
  return {"OK " + std::to_string(ask.ttl), grant.token};
}

/// What an owner gets that holds one of the names already; nullopt: it holds none.
std::optional<LeaseModel::Answer> LeaseModel::decide_for_holder(const Ask& ask, Number number) {
  std::vector<Grant*> held;
  for (const auto& name : ask.names) {
    if (auto* grant = held_by(name, ask.owner); grant != nullptr) held.push_back(grant);
  }
  if (held.empty()) return std::nullopt;

  if (ask.many) {
    if (held.size() != ask.names.size()) return kRefused;
    for (const auto* grant : held) {
      if (grant->token != held.front()->token || grant->mode != Mode::exclusive) return kRefused;
    }
    for (auto* grant : held) reacquire(*grant, ask);
    return Answer{"OK " + std::to_string(ask.ttl), held.front()->token};
  }

  const auto& name = ask.names.front();
  auto& lease = names_[name];
  auto& grant = *held.front();
  if (grant.mode == ask.mode) {
    if (ask.mode == Mode::permit && ask.permits != lease.permits) return kRefused;
    return reacquire(grant, ask);
  }
  if (grant.mode == Mode::exclusive && ask.mode == Mode::shared) {
    grant.mode = Mode::shared;
    return reacquire(grant, ask);
  }
  const bool others_queue = std::any_of(waiters_.begin(), waiters_.end(), [&](const auto& waiter) {
    const auto& names = waiter.second.ask.names;
    return waiter.first != number && std::find(names.begin(), names.end(), name) != names.end();
  });
  if (grant.mode == Mode::shared && ask.mode == Mode::exclusive && lease.holders.size() == 1 &&
      !others_queue && now_ >= lease.blocked_until) {
    reacquire(grant, ask);
    grant.mode = Mode::exclusive;
    grant.token = ++newest_;
    lease.fence = grant.token;
    lease.last.reset();
    tell("granted", name, grant.token);
    return Answer{"OK " + std::to_string(ask.ttl), grant.token};
  }
  return kRefused;
}

std::optional<LeaseModel::Answer> LeaseModel::acquire(const Ask& ask, Number number) {
  if (auto answer = decide_for_holder(ask, number)) {
    // A downgrade lets readers in.
    hand_out();
    tell_awaiting(false);
    return answer;
  }
  bool is_free = true;
  bool is_full = false;
  for (const auto& name : ask.names) {
    if (has_another_number_of_permits(name, ask)) return kRefused;
    const auto queue = queue_length(name);
    is_full = is_full || queue >= kWaitersPerName;
    is_free = is_free && queue == 0 && is_free_for(names_[name], ask);
  }
  if (is_free) {
    auto answer = grant(ask);
    tell_awaiting(false);
    return answer;
  }
  if (ask.wait == 0) return kNotInTime;
  if (is_full) return Answer{"OVERLOADED", 0};
  waiters_[number] = {ask, now_};
  return std::nullopt;
}

/// To those who wait, in the order of their arrival.
void LeaseModel::hand_out() {
  for (bool found = true; found;) {
    found = false;
    for (const auto& [number, waiter] : waiters_) {
      const auto& ask = waiter.ask;
      const auto mine = number;  // clang 14 lets no lambda capture a binding
      const bool can_have = std::all_of(ask.names.begin(), ask.names.end(), [&](const auto& name) {
        return is_first(name, mine) && is_free_for(names_[name], ask);
      });
      if (!can_have) continue;
      const auto owner = ask.owner;
      ended_[number] = grant(ask);
      waiters_.erase(number);
      decide_waits_of(owner);
      found = true;
      break;
    }
  }
}

/// Its other waits are decided as if it asked now, for it holds a name now that they ask for.
void LeaseModel::decide_waits_of(const std::string& owner) {
  std::vector<Number> own;
  for (const auto& [number, waiter] : waiters_) {
    if (waiter.ask.owner == owner) own.push_back(number);
  }
  for (const auto number : own) {
    const auto answer = decide_for_holder(waiters_[number].ask, number);
    if (!answer) continue;
    ended_[number] = *answer;
    waiters_.erase(number);
  }
}

// Ends.

void LeaseModel::end(const std::string& name, std::size_t holder, const std::string& how,
                     Milliseconds at) {
  auto& lease = names_[name];
  auto grant = lease.holders[holder];
  lease.holders.erase(lease.holders.begin() + static_cast<std::ptrdiff_t>(holder));
  if (how != "released" && grant.delay > 0 && at + grant.delay > lease.blocked_until) {
    lease.blocked_until = at + grant.delay;
    lease.block = grant.delay;
  }
  if (grant.token >= floor_) tell(how, name, grant.token);
  grant.ended = how;
  if (grant.token == lease.fence) lease.last = std::move(grant);
}

void LeaseModel::end_bound(std::optional<User> user) {
  for (auto& [name, lease] : names_) {
    for (std::size_t i = lease.holders.size(); i-- > 0;) {
      const auto& holder = lease.holders[i];
      if (holder.bound && (!user || holder.user == *user)) end(name, i, "disconnected", now_);
    }
  }
}

void LeaseModel::expire() {
  for (auto& [name, lease] : names_) {
    for (std::size_t i = lease.holders.size(); i-- > 0;) {
      if (now_ >= lease.holders[i].deadline) end(name, i, "expired", lease.holders[i].deadline);
    }
  }
}

void LeaseModel::time_out() {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (now_ < waiter->second.since + waiter->second.ask.wait) {
      ++waiter;
      continue;
    }
    ended_[waiter->first] = kNotInTime;
    waiter = waiters_.erase(waiter);
  }
}

void LeaseModel::advance(Milliseconds step) {
  now_ += step;
  expire();
  time_out();
  tell_awaiting(true);
  hand_out();
  tell_awaiting(false);
}

void LeaseModel::cancel(Number number) {
  if (!is_waiting(number)) return;
  ended_[number] = kNotInTime;
  waiters_.erase(number);
  awaits_.erase(number);
  hand_out();
  tell_awaiting(false);
}

void LeaseModel::drop_waits(User user) {
  const auto drop = [&](auto& waits, const auto& user_of) {
    for (auto wait = waits.begin(); wait != waits.end();) {
      if (user_of(wait->second) != user) {
        ++wait;
        continue;
      }
      ended_[wait->first] = {"LEASELOST disconnected", 0};
      wait = waits.erase(wait);
    }
  };
  drop(waiters_, [](const Waiter& waiter) { return waiter.ask.user; });
  drop(awaits_, [](const Awaiting& await) { return await.user; });
}

void LeaseModel::end_waits(User user) {
  drop_waits(user);
  hand_out();
  tell_awaiting(false);
}

void LeaseModel::disconnect(User user) {
  watches_.erase(user);
  drop_waits(user);
  end_bound(user);
  hand_out();
  tell_awaiting(false);
}

void LeaseModel::restart() {
  for (const auto& [number, waiter] : waiters_) ended_[number] = {"LEASELOST disconnected", 0};
  for (const auto& [number, await] : awaits_) ended_[number] = {"LEASELOST disconnected", 0};
  waiters_.clear();
  awaits_.clear();
  watches_.clear();
  end_bound(std::nullopt);
}

void LeaseModel::reboot() {
  restart();
  boot_began_ = now_;
  for (auto& [name, lease] : names_) {
    for (auto& holder : lease.holders) holder.deadline = now_ + holder.ttl;
    if (now_ < lease.blocked_until) lease.blocked_until = now_ + lease.block;
  }
}

void LeaseModel::restart_after(Milliseconds down) {
  restart();
  ended_.clear();
  events_.clear();
  advance(down);
}

void LeaseModel::lift_floor(std::uint64_t floor, std::uint64_t newest) {
  floor_ = floor;
  newest_ = newest;
  for (auto& [name, lease] : names_) {
    if (lease.fence >= floor) continue;
    while (!lease.holders.empty()) end(name, 0, "revoked", now_);
    lease.blocked_until = 0;
    if (lease.last && lease.last->ended == "expired") lease.last->ended = "revoked";
  }
}

std::uint64_t LeaseModel::reclaim() {
  const auto is_looked_at = [this](const std::string& name) {
    return queue_length(name) > 0 ||
           std::any_of(awaits_.begin(), awaits_.end(),
                       [&](const auto& await) { return await.second.name == name; }) ||
           std::any_of(watches_.begin(), watches_.end(),
                       [&](const auto& watch) { return watch.second.contains(name); });
  };
  return std::erase_if(names_, [&](const auto& name) {
    const auto& [word, lease] = name;
    return lease.fence > 0 && lease.fence < floor_ && lease.holders.empty() && !is_looked_at(word);
  });
}

void LeaseModel::learn_end(const std::string& name, const std::string& how) {
  auto& lease = names_.at(name);
  if (lease.last) lease.last->ended = how;
}

// What holders ask.

/// Why the grant is not the owner's any more; empty: it holds it.
std::string LeaseModel::lost(const std::string& name, const std::string& owner,
                             std::uint64_t token) const {
  const auto found = names_.find(name);
  if (found == names_.end() || token < floor_ || token > found->second.fence) {
    return "LEASELOST unknown";
  }
  const auto& lease = found->second;
  for (const auto& holder : lease.holders) {
    if (holder.token == token) return holder.owner == owner ? "" : "LEASELOST unknown";
  }
  if (token < lease.fence) return "LEASELOST superseded";
  return lease.last->owner == owner ? "LEASELOST " + lease.last->ended : "LEASELOST unknown";
}

std::string LeaseModel::renew(const std::string& name, const std::string& owner,
                              std::uint64_t token, Milliseconds ttl) {
  const auto why = lost(name, owner, token);
  if (!why.empty()) return why;
  auto* grant = held_by(name, owner);
  grant->ttl = ttl;
  grant->deadline = now_ + ttl;
  return "OK " + std::to_string(ttl);
}

std::string LeaseModel::release(const std::string& name, const std::string& owner,
                                std::uint64_t token) {
  const auto why = lost(name, owner, token);
  if (why == "LEASELOST released") return "OK";
  if (!why.empty()) return why;
  const auto& holders = names_[name].holders;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    if (holders[i].token != token) continue;
    end(name, i, "released", now_);
    break;
  }
  hand_out();
  tell_awaiting(false);
  return "OK";
}

std::string LeaseModel::revoke(const std::string& name) {
  const auto found = names_.find(name);
  if (found == names_.end() || found->second.fence == 0) return "LEASELOST unknown";
  auto& lease = found->second;
  const auto fence = lease.fence;
  if (lease.last && lease.last->ended == "expired") {
    lease.last->ended = "revoked";
    if (fence >= floor_) tell("revoked", name, fence);
  }
  while (!lease.holders.empty()) end(name, 0, "revoked", now_);
  hand_out();
  tell_awaiting(false);
  return "OK " + std::to_string(fence);
}

std::string LeaseModel::write_refusal(const std::string& name, std::uint64_t token,
                                      bool live) const {
  const auto found = names_.find(name);
  if (found == names_.end() || found->second.fence == 0) return "NOLEASE " + name;
  const auto& lease = found->second;
  const auto numbers = std::to_string(lease.fence) + " " + std::to_string(token);
  for (const auto& holder : lease.holders) {
    if (holder.token == token && holder.mode != Mode::exclusive) return "ERR";
  }
  if (lease.last && lease.last->token == token && lease.last->mode != Mode::exclusive) return "ERR";
  if (token > lease.fence) return "UNISSUED " + numbers;
  if (token < lease.fence) return "FENCED " + numbers + " superseded";
  if (!lease.last) return "";
  if (lease.last->ended != "expired") return "FENCED " + numbers + " " + lease.last->ended;
  if (!live) return "";
  return "EXPIRED " + std::to_string(now_ - std::max(lease.last->deadline, boot_began_));
}

// Those who only look.

/// What an await is answered now; nullopt: it goes on waiting.
std::optional<LeaseModel::Answer> LeaseModel::await_answer(const Awaiting& await) const {
  const auto found = names_.find(await.name);
  if (found == names_.end() || await.token > found->second.fence) return std::nullopt;
  const auto& lease = found->second;
  if (await.token == 0 && lease.holders.empty()) return std::nullopt;
  if (await.token == lease.fence && !lease.last) return std::nullopt;
  const auto change = lease.last ? lease.last->ended : "granted";
  return Answer{"OK " + change + " " + await.name, lease.fence};
}

std::optional<LeaseModel::Answer> LeaseModel::await(const std::string& name, std::uint64_t token,
                                                    Milliseconds timeout, User user,
                                                    Number number) {
  const Awaiting asked{name, token, now_ + timeout, user};
  if (auto answer = await_answer(asked)) return answer;
  if (timeout == 0) return kNotInTime;
  awaits_[number] = asked;
  return std::nullopt;
}

/// One whose time is over is told what came before that, and nothing of the grants that come after.
void LeaseModel::tell_awaiting(bool only_overdue) {
  for (auto await = awaits_.begin(); await != awaits_.end();) {
    const bool is_overdue = now_ >= await->second.deadline;
    auto answer = only_overdue && !is_overdue ? std::nullopt : await_answer(await->second);
    if (!answer && is_overdue) answer = kNotInTime;
    if (!answer) {
      ++await;
      continue;
    }
    ended_[await->first] = *answer;
    await = awaits_.erase(await);
  }
}

void LeaseModel::watch(User user, const std::vector<std::string>& names) {
  watches_[user].insert(names.begin(), names.end());
}

std::string LeaseModel::inspect(const std::string& name) const {
  const auto found = names_.find(name);
  const auto lease = found == names_.end() ? Name{} : found->second;
  auto line = name + " fence " + std::to_string(lease.fence) + " held by";
  for (const auto& holder : lease.holders) {
    line += " [" + holder.owner + " " + std::to_string(holder.token) + " " +
            to_string(holder.mode) + " " + std::to_string(holder.deadline - now_) +
            (holder.bound ? " bound" : "") + "]";
  }
  const auto payload = lease.holders.empty() ? std::nullopt : lease.holders.back().payload;
  return line + " waiters " + std::to_string(queue_length(name)) + " blocked " +
         std::to_string(std::max<Milliseconds>(0, lease.blocked_until - now_)) + " payload " +
         text(payload);
}

std::string LeaseModel::list_waiters(const std::string& name) const {
  auto line = name + ":";
  for (const auto& [number, waiter] : waiters_) {
    const auto& names = waiter.ask.names;
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    line += " [" + waiter.ask.owner + " " + to_string(waiter.ask.mode) + " " +
            std::to_string(now_ - waiter.since) + " " +
            std::to_string(waiter.since + waiter.ask.wait - now_) + "]";
  }
  return line;
}

std::vector<std::string> LeaseModel::listed() const {
  std::set<std::string> listed;
  for (const auto& [name, lease] : names_) {
    if (!lease.holders.empty()) listed.insert(name);
  }
  for (const auto& [number, waiter] : waiters_) {
    listed.insert(waiter.ask.names.begin(), waiter.ask.names.end());
  }
  return {listed.begin(), listed.end()};
}

std::uint64_t LeaseModel::names_granted() const {
  return static_cast<std::uint64_t>(std::count_if(
      names_.begin(), names_.end(), [](const auto& name) { return name.second.fence > 0; }));
}

// Tokens.

std::vector<LeaseModel::Event> LeaseModel::with_tokens(
    std::vector<Event> events, const std::map<std::uint64_t, std::uint64_t>& actual) {
  for (auto& event : events) {
    if (const auto found = actual.find(event.token); found != actual.end()) {
      event.token = found->second;
    }
  }
  return events;
}

bool LeaseModel::settle(const std::map<std::uint64_t, std::uint64_t>& actual) {
  const auto rename = [&](std::uint64_t& token) {
    if (const auto found = actual.find(token); found != actual.end()) token = found->second;
  };
  bool in_order = true;
  for (auto& [name, lease] : names_) {
    rename(lease.fence);
    if (lease.last) rename(lease.last->token);
    std::uint64_t before = 0;
    for (auto& holder : lease.holders) {
      rename(holder.token);
      in_order = in_order && holder.token > before && holder.token <= lease.fence;
      before = holder.token;
    }
  }
  for (const auto& [drawn, token] : actual) newest_ = std::max(newest_, token);
  ended_.clear();
  events_.clear();
  return in_order;
}

std::vector<LeaseModel::Event> normal(std::vector<LeaseModel::Event> events) {
  for (auto first = events.begin(); first != events.end();) {
    auto last = first;
    while (last != events.end() && last->change == first->change) ++last;
    std::sort(first, last);
    first = last;
  }
  return events;
}

std::string to_string(const std::vector<LeaseModel::Event>& events) {
  std::string line;
  for (const auto& event : events) {
    line += "[" + event.change + " " + event.name + " " + std::to_string(event.token) + "]";
  }
  return line;
}

}  // namespace fencekv::testing
