// SPDX-License-Identifier: Apache-2.0
/// Who waits for what: the part of the lease service that lives in memory only, since those who
/// wait are connections, and end with the process.
///
///     demands     acquires in the queues of their names, each queue in the order of arrival
///     lookouts   those that wait for a change of a name
///     watches    sessions that are told of every change of a name
///     bound      which names end with which session
///     timers     when something is over at a name that anybody above waits for
///
/// Changes are never undone: whoever left a queue has been answered, or is being so.
///
/// Sizes are bounded by the rules (Limits::kWaitersPerName …) and by Options::max_waiting.

#pragma once

#include "fencekv/command.h"
#include "fencekv/store.h"
#include "fencekv/types.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fencekv::core {

/// What an acquire asks, of one name or of several.
struct Demand {
  std::vector<std::string> names;
  bool several = false;  ///< Asked as several, though it may be one.
  std::string owner;
  std::chrono::milliseconds ttl{0};
  LeaseMode mode = LeaseMode::exclusive;
  std::uint64_t permits = 0;
  bool bind = false;
  std::optional<std::chrono::milliseconds> delay;
  std::optional<std::string> payload;

  std::uint64_t session = 0;
  std::string client;
};

/// Thread safety: none; it belongs to whoever leads the committer.
class Waiters {
 public:
  using Time = std::chrono::nanoseconds;

  struct Waiter {
    Ticket ticket = 0;  ///< Tickets rise in the order in which commands arrive.
    Time since{0};
    Time until{0};
    Demand demand;
  };

  struct Lookout {
    Ticket ticket = 0;
    Time until{0};
    std::uint64_t session = 0;
    std::string name;
    Token token;
  };

  // Claims.

  void add(Waiter waiter);
  /// The first in the queue of `name`; nullptr: nobody queues.
  const Waiter* first(std::string_view name) const;
  std::size_t queue_length(std::string_view name) const;
  /// How many permits those who queue for some want; nullopt: nobody does.
  std::optional<std::uint64_t> permits_wanted(std::string_view name) const;
  /// All in the queue of `name`, in order.
  std::vector<const Waiter*> queue(std::string_view name) const;
  /// The tickets of one owner in the queue of `name`, in order.
  std::vector<Ticket> of_owner(std::string_view name, std::string_view owner) const;
  /// Takes a waiter out of all its queues; nullopt: it is in none.
  std::optional<Waiter> take(Ticket ticket);

  // Lookouts.

  void add(Lookout lookout);
  std::size_t lookouts(std::string_view name) const;
  /// Takes the lookouts of `name` that wait for tokens in [from, to].
  std::vector<Ticket> take_lookouts(std::string_view name, Token from, Token to);
  bool take_lookout(Ticket ticket);
  /// nullptr: the ticket is none's.
  const Lookout* lookout(Ticket ticket) const;

  // Both.

  std::size_t size() const { return waiters_.size() + lookouts_.size(); }
  /// The next one whose time is over at `now`.
  std::optional<Ticket> overdue(Time now) const;
  /// What `session` waits for, in order.
  std::vector<Ticket> of_session(std::uint64_t session) const;

  // Watches.

  /// A session by when it began to watch, as newest_watch() counts.
  using Watchers = std::map<std::uint64_t, std::uint64_t>;

  void watch(std::uint64_t session, const std::string& name);
  std::size_t watches(std::uint64_t session) const;
  bool is_watched_by(std::uint64_t session, std::string_view name) const;
  /// Returns the names that it watched.
  std::vector<std::string> unwatch(std::uint64_t session);
  /// nullptr: nobody watches it.
  const Watchers* watchers(std::string_view name) const;
  /// The number of the newest watch: one with a higher number begins later.
  std::uint64_t newest_watch() const { return newest_watch_; }

  // Bound leases.

  /// Notes that the grant with `token` of `name` ends with `session`.
  void bind(std::uint64_t session, std::string_view name, Token token);
  void unbind(std::uint64_t session, std::string_view name, Token token);
  std::vector<std::string> take_bound(std::uint64_t session);

  // Timers.

  /// Does anybody want to know at once when something changes at `name`?
  bool is_awaited(std::string_view name) const;
  /// The names that anybody waits for.
  std::vector<std::string> awaited() const;
  /// Sets or, with nullopt, takes away the timer of `name`.
  void set_timer(std::string_view name, std::optional<Time> due);
  /// A name whose timer is due at `now`; takes the timer away.
  std::optional<std::string> take_due(Time now);
  std::optional<Time> next_timer() const;
  /// When the next wait is over.
  std::optional<Time> next_end() const;

  /// Names whose queue changed its length since the last call. May name one twice.
  std::vector<std::string> take_changed_queues() { return std::exchange(changed_queues_, {}); }

 private:
  struct Queue {
    std::map<Ticket, const Waiter*> waiting;
    std::map<std::string_view, std::set<Ticket>> owners;  // views into the waiters
    std::uint64_t permit_waiters = 0;
    std::uint64_t permits = 0;  // what they want
  };
  template <class Value>
  using ByName = std::map<std::string, Value, std::less<>>;

  const Queue* find_queue(std::string_view name) const;
  void forget_session_wait(std::uint64_t session, Ticket ticket);

  std::unordered_map<Ticket, Waiter> waiters_;
  ByName<Queue> queues_;
  std::unordered_map<Ticket, Lookout> lookouts_;
  ByName<std::set<std::pair<Token, Ticket>>> lookouts_by_name_;
  std::set<std::pair<Time, Ticket>> ends_;
  std::unordered_map<std::uint64_t, std::set<Ticket>> session_waits_;

  std::uint64_t newest_watch_ = 0;
  ByName<Watchers> watchers_;
  std::unordered_map<std::uint64_t, std::set<std::string>> session_watches_;
  std::unordered_map<std::uint64_t, std::set<std::pair<std::string, Token>>> session_bound_;

  ByName<Time> timers_;
  std::set<std::pair<Time, std::string_view>> timer_order_;  // views into the keys of timers_
  std::vector<std::string> changed_queues_;
};

}  // namespace fencekv::core
