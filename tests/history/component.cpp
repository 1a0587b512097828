// SPDX-License-Identifier: Apache-2.0
#include "tests/history/component.h"

#include "fencekv/types.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>

namespace fencekv::testing {
namespace {

using Kind = Operation::Kind;
using End = State::End;

constexpr Time kGranularity = std::chrono::milliseconds(1);  // Remaining times are rounded up.

std::string text(std::uint64_t number) {
  return std::to_string(number);
}

/// Whether `line` says what `expected` says; what follows is for people.
bool says(const std::string& line, const std::string& expected) {
  return line == expected || line.starts_with(expected + " ");
}

/// The number that stands first after the code of an error line; 0: none.
std::uint64_t first_number(std::string_view line) {
  const auto blank = line.find(' ');
  if (blank == std::string_view::npos) return 0;
  const auto rest = line.substr(blank + 1);
  return parse_decimal(rest.substr(0, rest.find(' '))).value_or(0);
}

std::string_view reason_of(End end) {
  switch (end) {
    case End::released:
      return "released";
    case End::revoked:
      return "revoked";
    case End::expired:
      return "expired";
    default:
      return "";
  }
}

bool is_closed(End end) {
  return end == End::released || end == End::revoked;
}

void finish(State::Lease& lease, End end) {
  lease.end = end;
  lease.may_be_given_back = false;
  lease.low = lease.high = Time(0);
}

void mix(std::size_t& hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
}

/// The call runs at `invoked` at the earliest, and not before what ran before it.
Time earliest_of(const Call& call, const State& state) {
  return std::max(state.earliest, call.operation->invoked);
}

/// The lease's time is not over yet: possible?
bool may_be_alive(const Call& call, const State& state, const State::Lease& lease) {
  return lease.end == End::open && earliest_of(call, state) < lease.high;
}

/// The lease's time is over: possible, at `now` at the latest? Then it is so in `state`.
bool expire(State& state, State::Lease& lease, Time now) {
  if (lease.end == End::expired) return true;
  if (lease.end != End::open || lease.low > now) return false;
  state.earliest = std::max(state.earliest, lease.low);
  finish(lease, End::expired);
  return true;
}

}  // namespace

bool State::same_as(const State& other) const {
  if (keys != other.keys) return false;
  return std::equal(leases.begin(), leases.end(), other.leases.begin(), other.leases.end(),
                    [](const Lease& a, const Lease& b) {
                      return a.fence == b.fence && a.is_fence_known == b.is_fence_known &&
                             a.may_be_given_back == b.may_be_given_back && a.owner == b.owner &&
                             a.end == b.end;
                    });
}

std::size_t State::hash() const {
  std::size_t hash = keys.size();
  for (const auto& key : keys) {
    mix(hash, key.version);
    mix(hash, key.fence);
    mix(hash, static_cast<std::uint64_t>(key.value));
    mix(hash, static_cast<std::uint64_t>(key.request));
  }
  for (const auto& lease : leases) {
    mix(hash, lease.fence * 2 + (lease.is_fence_known ? 1 : 0));
    mix(hash, static_cast<std::uint64_t>(lease.owner));
    mix(hash, static_cast<std::uint64_t>(lease.end));
  }
  return hash;
}

bool State::widen(const State& other) {
  bool was_more = other.earliest < earliest;
  earliest = std::min(earliest, other.earliest);
  for (std::size_t i = 0; i < leases.size(); ++i) {
    was_more = was_more || other.leases[i].low < leases[i].low;
    was_more = was_more || other.leases[i].high > leases[i].high;
    leases[i].low = std::min(leases[i].low, other.leases[i].low);
    leases[i].high = std::max(leases[i].high, other.leases[i].high);
  }
  return was_more;
}

Component::Component(const std::vector<const Operation*>& history) {
  auto in_order = history;
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const Operation* a, const Operation* b) { return a->invoked < b->invoked; });
  for (const auto* operation : in_order) {
    Call call;
    call.operation = operation;
    for (const auto& entry : operation->entries) {
      call.keys.push_back(number(key_numbers_, entry.key));
      call.values.push_back(entry.value ? number(value_numbers_, *entry.value) : State::kNone);
    }
    if (!operation->lease.empty()) call.lease = number(lease_numbers_, operation->lease);
    if (!operation->owner.empty()) call.owner = number(owner_numbers_, operation->owner);
    if (!operation->request.empty()) call.request = number(request_numbers_, operation->request);
    calls_.push_back(std::move(call));
  }
  // Guards that only reads name.
  for (const auto* operation : history) {
    for (const auto& seen : operation->seen) {
      if (seen.guard) number(lease_numbers_, *seen.guard);
      if (seen.value) number(value_numbers_, *seen.value);
    }
  }
  lease_names_.resize(lease_numbers_.size());
  for (const auto& [name, i] : lease_numbers_) lease_names_[static_cast<std::size_t>(i)] = name;
  value_texts_.resize(value_numbers_.size());
  for (const auto& [value, i] : value_numbers_) value_texts_[static_cast<std::size_t>(i)] = value;
  for (const auto& call : calls_) learn(call);
}

int Component::number(std::map<std::string, int>& numbers, const std::string& name) {
  return numbers.try_emplace(name, static_cast<int>(numbers.size())).first->second;
}

/// Of contradictions the first is believed here; the search or the invariants then find the other.
void Component::learn(const Call& call) {
  const auto& operation = *call.operation;
  if (call.owner >= 0 && !operation.is_unknown()) {
    auto& last = last_mentions_.try_emplace(call.owner, Time(0)).first->second;
    last = std::max(last, operation.returned);
  }
  if (!operation.is_done()) return;
  for (std::size_t i = 0; i < call.keys.size(); ++i) {
    if (operation.kind == Kind::write && i < operation.versions.size()) {
      auto& fact = versions_.try_emplace({call.keys[i], operation.versions[i]}).first->second;
      fact = {.value = call.values[i], .token = operation.token};
    } else if (i < operation.seen.size() && operation.seen[i].version) {
      const auto& seen = operation.seen[i];
      versions_.try_emplace(
          {call.keys[i], *seen.version},
          Fact{.value = seen.value ? value_numbers_.at(*seen.value) : State::kNone});
    }
  }
  if (operation.kind == Kind::acquire && operation.told != 0) {
    grants_.try_emplace(operation.told, call.lease, call.owner);
  }
}

bool Component::contradicts(int key, std::uint64_t version, int value, std::uint64_t token) const {
  const auto fact = versions_.find({key, version});
  if (fact == versions_.end()) return false;
  return fact->second.value != value || (fact->second.token != 0 && fact->second.token != token);
}

State Component::initial() const {
  State state;
  state.keys.resize(key_numbers_.size());
  state.leases.resize(lease_numbers_.size());
  return state;
}

Component::Steps Component::run(const Call& call, const State& state, Time now) const {
  Steps steps;
  if (call.operation->outcome == Operation::Outcome::not_executed) {
    steps.is_idle = true;
    return steps;
  }
  switch (call.operation->kind) {
    case Kind::write:
      write(call, state, now, steps);
      break;
    case Kind::raise:
    case Kind::fenced_read:
      lift(call, state, now, steps);
      break;
    case Kind::read:
      read(call, state, steps);
      break;
    case Kind::acquire:
      acquire(call, state, now, steps);
      break;
    case Kind::renew:
    case Kind::release:
      renew_or_release(call, state, now, steps);
      break;
    case Kind::revoke:
      revoke(call, state, steps);
      break;
    case Kind::inspect:
      inspect(call, state, now, steps);
      break;
  }
  for (auto& next : steps.next) {
    next.earliest = std::max(next.earliest, earliest_of(call, state));
  }
  return steps;
}

std::vector<State> Component::by_itself(const State& state) const {
  std::vector<State> next;
  for (std::size_t i = 0; i < state.leases.size(); ++i) {
    if (!state.leases[i].may_be_given_back || state.leases[i].end != End::open) continue;
    next.push_back(state);
    finish(next.back().leases[i], End::released);
  }
  return next;
}

bool Component::is_spent(const Call& call, const State& state) const {
  const auto& operation = *call.operation;
  const auto* lease =
      call.lease < 0 ? nullptr : &state.leases[static_cast<std::size_t>(call.lease)];
  const bool is_of_token = operation.token != 0;
  if (lease != nullptr && is_of_token) {
    // Fences only rise, and what is closed stays closed.
    if (operation.token < lease->fence) return true;
    if (operation.token == lease->fence && !lease->is_fence_known) return true;
    if (operation.token == lease->fence && lease->is_fence_known) {
      if (is_closed(lease->end)) return true;
      if (lease->end == End::expired && operation.is_about_lease()) return true;
    }
  }
  for (const auto key : call.keys) {
    const auto& at = state.keys[static_cast<std::size_t>(key)];
    if (is_of_token && operation.token < at.fence) return true;
    if (operation.kind != Kind::write && is_of_token && operation.token == at.fence) return true;
    if (operation.if_version && *operation.if_version != 0 && at.version > *operation.if_version) {
      return true;
    }
  }
  return operation.kind == Kind::read || operation.kind == Kind::inspect;
}

bool Component::is_forgotten(const Call& call, Time now) const {
  if (!call.operation->is_unknown()) return false;
  const auto last = last_mentions_.find(call.owner);
  return last == last_mentions_.end() || last->second < now;
}

std::optional<Component::Sort> Component::sort_of(const Call& call, const State& state,
                                                  Time now) const {
  const auto& operation = *call.operation;
  const bool is_alike = operation.kind == Kind::revoke ||
                        (operation.kind == Kind::acquire && is_forgotten(call, now));
  if (!operation.is_unknown() || !is_alike) return std::nullopt;
  // The holder's own gives it its time again.
  if (operation.kind == Kind::acquire &&
      state.leases[static_cast<std::size_t>(call.lease)].owner == call.owner) {
    return std::nullopt;
  }
  return Sort{operation.kind, call.lease, operation.ttl, operation.wait.count() > 0,
              operation.latest};
}

std::uint64_t Component::bound(const Call& call, std::size_t entry) {
  const auto& operation = *call.operation;
  if (!operation.is_done()) return UINT64_MAX;
  if (operation.kind == Kind::write && entry < operation.versions.size()) {
    return call.request < 0 ? operation.versions[entry] - 1 : operation.versions[entry];
  }
  if (entry < operation.seen.size() && operation.seen[entry].version) {
    return *operation.seen[entry].version;
  }
  return UINT64_MAX;
}

bool Component::bind(State::Lease& lease, int name, std::uint64_t token) const {
  if (lease.is_fence_known) return lease.fence == token;
  if (token <= lease.fence) return false;
  const auto grant = grants_.find(token);
  if (grant != grants_.end() && grant->second != std::pair(name, lease.owner)) return false;
  lease.fence = token;
  lease.is_fence_known = true;
  return true;
}

bool Component::check_lease(const Call& call, State& state, int name, Time now,
                            std::string& refusal) const {
  const auto& operation = *call.operation;
  auto& lease = state.leases[static_cast<std::size_t>(name)];
  if (lease.end == End::never_held) {
    refusal = "NOLEASE " + lease_names_[static_cast<std::size_t>(name)];
    return true;
  }
  if (!lease.is_fence_known) {
    // The answer tells which token it was.
    const bool tells =
        operation.refusal.starts_with("FENCED") || operation.refusal.starts_with("UNISSUED");
    const auto token = tells ? first_number(operation.refusal) : operation.token;
    if (!bind(lease, name, token)) return false;
  }
  if (operation.token > lease.fence) {
    refusal = "UNISSUED " + text(lease.fence) + " " + text(operation.token);
  } else if (operation.token < lease.fence) {
    refusal = "FENCED " + text(lease.fence) + " " + text(operation.token) + " superseded";
  } else if (is_closed(lease.end)) {
    refusal = "FENCED " + text(lease.fence) + " " + text(operation.token) + " " +
              std::string(reason_of(lease.end));
  } else if (operation.live) {
    const bool was_refused = operation.refusal.starts_with("EXPIRED");
    if (was_refused ? !expire(state, lease, now) : !may_be_alive(call, state, lease)) return false;
    if (was_refused) refusal = "EXPIRED";
  }
  return true;
}

void Component::write(const Call& call, const State& state, Time now, Steps& steps) const {
  const auto& operation = *call.operation;
  const auto key_at = [&](std::size_t i) -> const State::Key& {
    return state.keys[static_cast<std::size_t>(call.keys[i])];
  };

  if (call.request >= 0) {
    std::vector<std::uint64_t> remembered;
    for (std::size_t i = 0; i < call.keys.size(); ++i) {
      const auto& key = key_at(i);
      if (key.request == call.request && key.request_token == operation.token) {
        remembered.push_back(key.version);
      }
    }
    if (!remembered.empty()) {
      const bool is_whole = remembered.size() == call.keys.size();
      steps.is_idle = is_whole ? operation.is_done() && operation.versions == remembered
                               : operation.refusal.starts_with("ERR");
      return;
    }
  }

  auto next = state;
  std::string refusal;
  for (std::size_t i = 0; i < call.keys.size() && refusal.empty(); ++i) {
    const auto& key = key_at(i);
    const auto lease = call.lease >= 0 ? call.lease : key.guard;
    if (key.guard >= 0 && lease != key.guard) {
      refusal = "WRONGLEASE " + lease_names_[static_cast<std::size_t>(key.guard)];
    } else if (lease >= 0) {
      if (!check_lease(call, next, lease, now, refusal)) return;
    } else if (operation.live) {
      refusal = "ERR";
    } else if (operation.refusal.starts_with("UNISSUED")) {
      // Of the newest token of the whole store a component knows nothing: see broken_invariants().
      refusal = operation.refusal;
    }
    if (!refusal.empty()) break;
    if (operation.token < key.fence) {
      refusal = "FENCED " + text(key.fence) + " " + text(operation.token) + " stale";
    } else if (operation.once && operation.token == key.fence) {
      refusal = "FENCED " + text(key.fence) + " " + text(operation.token) + " once";
    } else if (operation.if_version) {
      const bool fits = *operation.if_version == 0 ? key.value == State::kNone
                                                   : key.version == *operation.if_version;
      if (!fits) refusal = "VERSION " + text(key.version) + " " + text(*operation.if_version);
    }
  }

  if (!refusal.empty()) {
    if (operation.outcome != Operation::Outcome::refused || !says(operation.refusal, refusal)) {
      return;
    }
    // Nothing but what is known of the lease may have changed.
    steps.is_idle = next.same_as(state);
    if (!steps.is_idle) steps.next.push_back(std::move(next));
    return;
  }
  if (operation.outcome == Operation::Outcome::refused) return;
  for (std::size_t i = 0; i < call.keys.size(); ++i) {
    auto& key = next.keys[static_cast<std::size_t>(call.keys[i])];
    key.version += 1;
    key.value = call.values[i];
    key.fence = operation.token;
    key.request = call.request;
    key.request_token = call.request < 0 ? 0 : operation.token;
    if (call.lease >= 0) key.guard = call.lease;
    if (operation.is_done() ? operation.versions[i] != key.version
                            : contradicts(call.keys[i], key.version, key.value, operation.token)) {
      return;
    }
  }
  steps.next.push_back(std::move(next));
}

void Component::lift(const Call& call, const State& state, Time now, Steps& steps) const {
  const auto& operation = *call.operation;
  auto next = state;
  auto& key = next.keys[static_cast<std::size_t>(call.keys[0])];
  const auto lease = call.lease >= 0 ? call.lease : key.guard;
  std::string refusal;
  if (key.guard >= 0 && lease != key.guard) {
    refusal = "WRONGLEASE " + lease_names_[static_cast<std::size_t>(key.guard)];
  } else if (lease >= 0) {
    if (!check_lease(call, next, lease, now, refusal)) return;
  } else if (operation.refusal.starts_with("UNISSUED")) {
    refusal = operation.refusal;
  }
  if (refusal.empty() && operation.token < key.fence) {
    refusal = "FENCED " + text(key.fence) + " " + text(operation.token) + " stale";
  }
  if (!refusal.empty()) {
    if (operation.outcome != Operation::Outcome::refused || !says(operation.refusal, refusal)) {
      return;
    }
  } else {
    if (operation.outcome == Operation::Outcome::refused) return;
    key.fence = operation.token;
    if (operation.is_done()) {
      if (operation.kind == Kind::raise && operation.told != key.fence) return;
      if (operation.kind == Kind::fenced_read &&
          (operation.seen.size() != 1 || !shows(operation.seen[0], key))) {
        return;
      }
    }
  }
  if (!next.same_as(state)) {
    steps.next.push_back(std::move(next));
  } else {
    steps.is_idle = !operation.is_unknown();
  }
}

bool Component::shows(const Operation::Seen& seen, const State::Key& key) const {
  if (seen.value.has_value() != (key.value != State::kNone)) return false;
  if (seen.value && *seen.value != value_texts_[static_cast<std::size_t>(key.value)]) return false;
  if (!seen.version) return true;
  if (*seen.version != key.version || seen.fence != key.fence) return false;
  return seen.guard.has_value() == (key.guard >= 0) &&
         (!seen.guard || *seen.guard == lease_names_[static_cast<std::size_t>(key.guard)]);
}

void Component::read(const Call& call, const State& state, Steps& steps) const {
  const auto& operation = *call.operation;
  if (!operation.is_done() || operation.seen.size() != call.keys.size()) return;
  for (std::size_t i = 0; i < call.keys.size(); ++i) {
    const auto& key = state.keys[static_cast<std::size_t>(call.keys[i])];
    if (!shows(operation.seen[i], key)) return;
  }
  steps.is_idle = true;
}

void Component::acquire(const Call& call, const State& state, Time now, Steps& steps) const {
  const auto& operation = *call.operation;
  if (operation.outcome == Operation::Outcome::refused) return;
  const auto at = static_cast<std::size_t>(call.lease);
  const auto& lease = state.leases[at];
  const auto since = earliest_of(call, state);
  const bool is_nil = operation.is_done() && operation.told == 0;

  if (is_nil) {
    // A wait whose time is over with the holder's ends first: "expiries, timeouts, grants".
    steps.is_idle = lease.end == End::open && lease.owner != call.owner &&
                    (operation.wait.count() > 0 || may_be_alive(call, state, lease));
    return;
  }
  const auto begin_time = [&](State::Lease& granted) {
    granted.low = since + operation.ttl;
    granted.high = now + operation.ttl;
  };
  // Of two who are forgotten nobody knows whether they are one.
  const bool is_its_own =
      lease.owner == call.owner || (lease.owner == State::kNobodyKnown && is_forgotten(call, now));
  if (is_its_own && may_be_alive(call, state, lease)) {
    auto next = state;
    auto& again = next.leases[at];
    if (!operation.is_done() || bind(again, call.lease, operation.told)) {
      begin_time(again);
      if (operation.is_done()) again.may_be_given_back = false;
      steps.next.push_back(std::move(next));
    }
  }
  auto next = state;
  auto& granted = next.leases[at];
  if (granted.end == End::open && !expire(next, granted, now)) return;
  if (operation.is_done()) {
    if (operation.told <= granted.fence) return;
    granted.fence = operation.told;
    granted.is_fence_known = true;
  } else {
    // Above the one before, whatever that was.
    granted.is_fence_known = false;
  }
  granted.owner = is_forgotten(call, now) ? State::kNobodyKnown : call.owner;
  granted.end = End::open;
  granted.may_be_given_back = operation.is_unknown() && operation.wait.count() > 0;
  granted.low = std::max(since, next.earliest) + operation.ttl;
  granted.high = now + operation.ttl;
  steps.next.push_back(std::move(next));
}

void Component::renew_or_release(const Call& call, const State& state, Time now,
                                 Steps& steps) const {
  const auto& operation = *call.operation;
  const bool is_renewal = operation.kind == Kind::renew;
  const auto at = static_cast<std::size_t>(call.lease);
  const auto& lease = state.leases[at];

  if (operation.outcome != Operation::Outcome::refused) {
    auto next = state;
    auto& own = next.leases[at];
    if (own.owner != call.owner || !bind(own, call.lease, operation.token)) return;
    if (!is_renewal && own.end == End::released) {
      // Repeated.
      if (next.same_as(state)) {
        steps.is_idle = operation.is_done();
      } else if (operation.is_done()) {
        steps.next.push_back(std::move(next));
      }
      return;
    }
    if (!may_be_alive(call, state, own)) return;
    if (is_renewal) {
      own.low = earliest_of(call, state) + operation.ttl;
      own.high = now + operation.ttl;
      // An answer that is known has reached its owner. A copy of it may still be under way.
    } else {
      finish(own, End::released);
    }
    steps.next.push_back(std::move(next));
    return;
  }

  const std::string_view line = operation.refusal;
  if (!line.starts_with("LEASELOST ")) return;
  const auto reason = line.substr(line.find(' ') + 1);
  if (reason == "unknown") {
    steps.is_idle = lease.end == End::never_held || !lease.is_fence_known ||
                    operation.token > lease.fence ||
                    (operation.token == lease.fence && lease.owner != call.owner);
    return;
  }
  if (lease.end == End::never_held) return;
  if (reason == "superseded") {
    if (operation.token < lease.fence ||
        (operation.token == lease.fence && !lease.is_fence_known)) {
      steps.is_idle = true;
    } else if (!lease.is_fence_known) {
      auto next = state;
      next.leases[at].fence = operation.token;
      steps.next.push_back(std::move(next));
    }
    return;
  }
  auto next = state;
  auto& own = next.leases[at];
  if (own.owner != call.owner || !bind(own, call.lease, operation.token)) return;
  if (reason == "expired" && !expire(next, own, now)) return;
  if (reason != reason_of(own.end)) return;
  if (next.same_as(state)) {
    steps.is_idle = true;
  } else {
    steps.next.push_back(std::move(next));
  }
}

void Component::revoke(const Call& call, const State& state, Steps& steps) const {
  const auto& operation = *call.operation;
  const auto at = static_cast<std::size_t>(call.lease);
  if (operation.outcome == Operation::Outcome::refused) {
    steps.is_idle =
        state.leases[at].end == End::never_held && says(operation.refusal, "LEASELOST unknown");
    return;
  }
  auto next = state;
  auto& lease = next.leases[at];
  if (lease.end == End::never_held) return;
  if (operation.is_done() && !bind(lease, call.lease, operation.told)) return;
  if (!is_closed(lease.end)) finish(lease, End::revoked);
  if (!next.same_as(state)) {
    steps.next.push_back(std::move(next));
  } else {
    steps.is_idle = operation.is_done();
  }
}

void Component::inspect(const Call& call, const State& state, Time now, Steps& steps) const {
  const auto& operation = *call.operation;
  if (!operation.is_done()) return;
  const auto at = static_cast<std::size_t>(call.lease);
  auto next = state;
  auto& lease = next.leases[at];
  if (lease.end == End::never_held) {
    steps.is_idle = operation.told == 0 && operation.holder == 0;
    return;
  }
  if (!bind(lease, call.lease, operation.told)) return;
  if (operation.holder != 0) {
    if (operation.holder != operation.told || !may_be_alive(call, state, lease)) return;
    const auto since = earliest_of(call, state);
    if (since + operation.remaining - kGranularity > lease.high) return;
    if (now + operation.remaining < lease.low) return;
  } else if (lease.end == End::open && !expire(next, lease, now)) {
    return;
  }
  if (next.same_as(state)) {
    steps.is_idle = true;
  } else {
    steps.next.push_back(std::move(next));
  }
}

std::string Component::describe(const State& state) const {
  std::string all;
  for (const auto& [name, i] : key_numbers_) {
    const auto& key = state.keys[static_cast<std::size_t>(i)];
    all +=
        " " + name + "{v" + text(key.version) + " fence " + text(key.fence) + " " +
        (key.value < 0 ? "none" : value_texts_[static_cast<std::size_t>(key.value)].substr(0, 20)) +
        "}";
  }
  constexpr std::string_view kEnds[] = {"never held", "open", "released", "revoked", "expired"};
  for (std::size_t i = 0; i < state.leases.size(); ++i) {
    const auto& lease = state.leases[i];
    std::string owner = "-";
    for (const auto& [name, number] : owner_numbers_) {
      if (number == lease.owner) owner = name;
    }
    all += " " + lease_names_[i] + "{" + (lease.is_fence_known ? "" : ">") + text(lease.fence) +
           " of " + owner + " " + std::string(kEnds[static_cast<std::size_t>(lease.end)]) +
           (lease.may_be_given_back ? ", maybe given back" : "");
    if (lease.end == End::open) {
      all +=
          " until " + std::to_string(lease.low.count()) + ".." + std::to_string(lease.high.count());
    }
    all += "}";
  }
  return all;
}

}  // namespace fencekv::testing
