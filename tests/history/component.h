// SPDX-License-Identifier: Apache-2.0
/// Fenced keys and leases as a sequential machine with several possible next states: what
/// engine/SEMANTICS.md allows one command to do, when nobody knows the exact moment, the token of a
/// grant whose reply was lost, or whether a lease had run out yet.
///
/// A component is a set of keys and lease names that commands have named together (MSET, MGET,
/// LEASE of a write): what is in different components cannot influence each other, so each is
/// checked by itself. Within one everything is checked jointly: a write of many keys is one step.
///
/// Covered: exclusive leases, floor 0, `unguarded_tokens = issued`, no RESET, no BIND, no DELAY.

#pragma once

#include "tests/history/operation.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace fencekv::testing {

/// A command with its names as numbers.
struct Call {
  const Operation* operation = nullptr;
  std::vector<int> keys;    ///< One an entry.
  std::vector<int> values;  ///< One an entry; kNone deletes.
  int lease = -1;
  int owner = -1;
  int request = -1;
};

struct State {
  static constexpr int kNone = -1;
  static constexpr int kNobodyKnown = -2;  ///< An owner of whom nothing is heard any more.

  struct Key {
    int value = kNone;
    int guard = kNone;
    int request = kNone;  ///< Of the last accepted write.
    std::uint64_t request_token = 0;
    std::uint64_t version = 0;
    std::uint64_t fence = 0;

    friend bool operator==(const Key&, const Key&) = default;
  };
  enum class End : std::uint8_t { never_held, open, released, revoked, expired };
  struct Lease {
    std::uint64_t fence = 0;         ///< If it is known; else the newest grant's token is above it.
    bool is_fence_known = true;      ///< The reply of the newest grant was lost.
    bool may_be_given_back = false;  ///< It was a waiter's, and may have been undeliverable.
    int owner = kNone;               ///< Of the newest grant.
    End end = End::never_held;       ///< `expired`: an expiry that was noticed.
    /// While open: its deadline is within [low, high].
    Time low{0};
    Time high{0};
  };

  std::vector<Key> keys;
  std::vector<Lease> leases;
  /// The last step was not before this.
  Time earliest{0};

  /// Equal but for the times, which widen() makes equal.
  bool same_as(const State& other) const;
  std::size_t hash() const;
  /// Allows for all that `other` allows; returns whether that was more.
  bool widen(const State& other);
};

/// One component and what its whole history says of it.
///
/// Thread safety: const members may be called concurrently.
class Component {
 public:
  /// `history` outlives the component.
  explicit Component(const std::vector<const Operation*>& history);

  /// In the order in which they were invoked.
  const std::vector<Call>& calls() const { return calls_; }
  State initial() const;

  struct Steps {
    std::vector<State> next;
    bool is_idle = false;  ///< The answer fits, and nothing changes: then `next` is empty.
  };
  /// What can be after `call` ran in `state`, at some moment in [invoked, now]. Of an unknown
  /// outcome only what changes anything.
  Steps run(const Call& call, const State& state, Time now) const;
  /// What can happen by itself: undeliverable grants are given back.
  std::vector<State> by_itself(const State& state) const;
  /// An unknown call that cannot change anything any more, whatever comes.
  bool is_spent(const Call& call, const State& state) const;
  /// What unknown calls have in common that are the same but for the moment they were invoked: only
  /// the oldest one has to be tried, for what a later one can do it can do, too. nullopt: it is
  /// like no other.
  using Sort = std::tuple<Operation::Kind, int, std::chrono::milliseconds, bool, Time>;
  std::optional<Sort> sort_of(const Call& call, const State& state, Time now) const;
  /// The newest version that `call`, whose answer is known, can still be right with; for `key`.
  static std::uint64_t bound(const Call& call, std::size_t entry);

  /// For people.
  std::string describe(const State& state) const;

 private:
  struct Fact {
    int value = State::kNone;
    std::uint64_t token = 0;  ///< 0: only reads have shown it.
  };

  int number(std::map<std::string, int>& numbers, const std::string& name);
  void learn(const Call& call);
  /// An acquire of unknown outcome, of whose owner no answer speaks from `now` on.
  bool is_forgotten(const Call& call, Time now) const;
  bool contradicts(int key, std::uint64_t version, int value, std::uint64_t token) const;
  /// The newest grant of the lease is found to have `token`; false: it cannot.
  bool bind(State::Lease& lease, int name, std::uint64_t token) const;
  /// What the rules say of a token under a lease; empty: nothing against it. False: `state` cannot
  /// have answered what was answered.
  bool check_lease(const Call& call, State& state, int name, Time now, std::string& refusal) const;

  void write(const Call& call, const State& state, Time now, Steps& steps) const;
  void lift(const Call& call, const State& state, Time now, Steps& steps) const;
  void read(const Call& call, const State& state, Steps& steps) const;
  void acquire(const Call& call, const State& state, Time now, Steps& steps) const;
  void renew_or_release(const Call& call, const State& state, Time now, Steps& steps) const;
  void revoke(const Call& call, const State& state, Steps& steps) const;
  void inspect(const Call& call, const State& state, Time now, Steps& steps) const;
  bool shows(const Operation::Seen& seen, const State::Key& key) const;

  std::map<std::string, int> key_numbers_;
  std::map<std::string, int> lease_numbers_;
  std::map<std::string, int> value_numbers_;
  std::map<std::string, int> owner_numbers_;
  std::map<std::string, int> request_numbers_;
  std::vector<std::string> lease_names_;
  std::vector<std::string> value_texts_;
  std::vector<Call> calls_;
  std::map<std::pair<int, std::uint64_t>, Fact> versions_;  // By key and version.
  std::map<int, Time> last_mentions_;                       // Of an owner, in an answer.
  std::map<std::uint64_t, std::pair<int, int>> grants_;     // Token to lease, owner.
};

}  // namespace fencekv::testing
