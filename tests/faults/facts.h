// SPDX-License-Identifier: Apache-2.0
/// What a store was asked and what it answered, and whether what is found later is all of that.

#pragma once

#include "fencekv/store.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fencekv::testing {

/// Thread safety: none.
class Facts {
 public:
  static constexpr std::chrono::milliseconds kTtl = std::chrono::seconds(60);

  /// Each member asks the store, checks that the answer may be given at all, and remembers it.
  void set(Store& store, const std::string& key, const std::string& value, Token token,
           const WriteOptions& options = {});
  void remove(Store& store, const std::string& key, Token token);
  /// Two keys that are written by nothing else: both or none.
  void set_both(Store& store, const std::string& first, const std::string& second,
                const std::string& value, Token token);
  void acquire(Store& store, const std::string& name, const std::string& owner,
               const AcquireOptions& options = {}, std::chrono::milliseconds ttl = kTtl);
  /// Names that nobody else takes: all or none.
  void acquire_together(Store& store, const std::vector<std::string>& names,
                        const std::string& owner);
  /// The grant of `owner`; if that has none, the newest one.
  void release(Store& store, const std::string& name, const std::string& owner);
  /// One that is held, by one.
  void revoke(Store& store, const std::string& name);
  /// What is read now, when some of it may not be readable: never anything else than what was
  /// written.
  void look(Store& store);

  /// Nothing is asked: the time of all grants of `name` is over.
  void has_ended(const std::string& name) { leases_[name].holders.clear(); }

  /// The same of a damaged store: each fact is there, or its record says that it cannot be read; a
  /// listing has all of its kind, or says that; and all are counted. Nothing may be in doubt.
  void look_at_damaged(Store& store);

  /// All of it is there. To be called with a sound disk; `store` takes writes again.
  void check(Store& store);
  /// The same where a new history began (restored, loaded): all values and fences, no lease.
  void check_restored(Store& store);

  /// The keys as the lines of a dump between its first and its last (tools/admin/dump.h). Nothing
  /// may be in doubt.
  std::vector<std::string> dump_lines() const;
  std::uint64_t live_keys() const;
  std::uint64_t tombstones() const;

  /// The token of the newest grant of `name`.
  Token token_of(const std::string& name) const { return leases_.at(name).token; }

  /// What was wrong; empty: nothing.
  const std::vector<std::string>& problems() const { return problems_; }
  /// Commands that were answered with success.
  int acknowledged() const { return acknowledged_; }
  /// The highest token that anybody was ever given.
  Token highest() const { return highest_; }

 private:
  struct State {
    std::optional<std::string> value;
    std::uint64_t fence = 0;
    std::uint64_t version = 0;
    std::optional<std::string> guard;
    std::optional<std::string> request;

    friend bool operator==(const State&, const State&) = default;
  };
  /// The states that a key may be in: the one that was acknowledged last, and those of writes in
  /// doubt since then, in order.
  struct Key {
    std::vector<State> may_be{State()};
  };
  struct Holder {
    std::string owner;  ///< Fingerprint.
    Token token;
    LeaseMode mode = LeaseMode::exclusive;

    friend bool operator==(const Holder&, const Holder&) = default;
  };
  struct Lease {
    Token token;
    std::vector<Holder> holders;  ///< In the order of their tokens.
    std::optional<std::string> payload;
    std::chrono::milliseconds delay{0};
    bool is_blocked = false;
    bool is_sure = true;  ///< No command about it is in doubt.
  };

  /// A write of both in doubt.
  struct Pair {
    std::string first;
    std::string second;
    std::string value;
  };

  void wrote(const Write& write, const Result<Write::Reply>& reply);
  /// What a write of `value` makes of a key.
  static State after(const State& before, const Write& write,
                     const std::optional<std::string>& value, std::uint64_t version);
  /// Whether `owner` may be told that somebody else has it.
  bool may_be_taken(const std::string& name, const std::string& owner,
                    const AcquireOptions& options) const;
  void granted(const std::string& name, Token token, const std::string& owner,
               const AcquireOptions& options);
  void look_at_keys(Store& store, bool may_be_damaged);
  void look_at_leases(Store& store, bool may_be_damaged);
  void check_keys(Store& store);
  void check_pairs(Store& store);
  void check_together(Store& store);
  void check_next_token(Store& store);
  void check_lease(const LeaseState& state, const Lease& lease);
  /// That a listing is complete: it has nothing that could say that something is missing.
  void check_listed_keys(Store& store, bool may_be_damaged);
  void check_listed_leases(Store& store, bool may_be_damaged);
  void check_counts(Store& store);
  void say(std::string problem) { problems_.push_back(std::move(problem)); }
  /// Whether a command may be answered so on a failing disk.
  void may_fail(const std::string& what, const Error& error);
  static State seen(const KeyState& state);
  static std::vector<Holder> holders_of(const LeaseState& state);
  static std::string shown(const State& state);
  static std::string shown(const std::vector<Holder>& holders);

  std::map<std::string, Key> keys_;
  std::map<std::string, Lease> leases_;
  std::vector<Pair> pairs_;
  std::vector<std::vector<std::string>> together_;  ///< Acquired together, in doubt.
  Token highest_;
  int acknowledged_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace fencekv::testing
