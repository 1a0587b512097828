// SPDX-License-Identifier: Apache-2.0
#include "tests/history/invariants.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace fencekv::testing {
namespace {

using Kind = Operation::Kind;

/// The largest number so far of those that were known at some moment.
class HighestAt {
 public:
  void add(Time since, std::uint64_t number, const Operation* by) {
    all_.push_back({since, number, by});
  }
  /// Call once, before known_before().
  void sort() {
    std::sort(all_.begin(), all_.end(),
              [](const Known& a, const Known& b) { return a.since < b.since; });
    for (std::size_t i = 1; i < all_.size(); ++i) {
      if (all_[i].number >= all_[i - 1].number) continue;
      all_[i].number = all_[i - 1].number;
      all_[i].by = all_[i - 1].by;
    }
  }
  /// 0: none.
  std::pair<std::uint64_t, const Operation*> known_before(Time time) const {
    const auto after =
        std::lower_bound(all_.begin(), all_.end(), time,
                         [](const Known& known, Time limit) { return known.since < limit; });
    if (after == all_.begin()) return {0, nullptr};
    return {std::prev(after)->number, std::prev(after)->by};
  }

 private:
  struct Known {
    Time since{0};
    std::uint64_t number = 0;
    const Operation* by = nullptr;
  };

  std::vector<Known> all_;
};

/// A grant, from all that was said of its token.
struct Grant {
  std::string lease;
  std::string owner;
  std::uint64_t token = 0;
  const Operation* told = nullptr;
  Time asked = kNever;     ///< It was drawn after this …
  Time answered = kNever;  ///< … and before this.
};

/// A time in which somebody certainly held a lease.
struct Hold {
  Time from;
  Time to;
  const Grant* grant;
};

class Looking {
 public:
  explicit Looking(const History& history) : history_(history) {}

  std::vector<std::string> all() {
    collect_grants();
    tokens_rise();
    holds_never_overlap();
    lease_fences_only_rise();
    waits_end_once();
    count_requests();
    collect_keys();
    fences_refuse_what_is_older();
    writes_stay();
    values_come_from_accepted_writes();
    repeated_requests_are_answered_alike();
    tokens_come_from_grants();
    return std::move(broken_);
  }

 private:
  using LeaseAndOwner = std::pair<std::string, std::string>;

  void found(std::string_view invariant, std::string_view what, const Operation* one,
             const Operation* other = nullptr) {
    auto text = std::string(invariant) + ": " + std::string(what) + "\n  " + line_of(*one);
    if (other != nullptr) text += "\n  " + line_of(*other);
    broken_.push_back(std::move(text));
  }

  void collect_grants() {
    std::map<LeaseAndOwner, Time> asked;
    for (const auto& operation : history_) {
      if (operation.kind != Kind::acquire) continue;
      auto& first = asked.try_emplace({operation.lease, operation.owner}, kNever).first->second;
      first = std::min(first, operation.invoked);
    }
    for (const auto& operation : history_) {
      if (operation.kind != Kind::acquire || !operation.is_done() || operation.told == 0) continue;
      auto& grant = grants_[operation.told];
      if (grant.told == nullptr) {
        grant = {.lease = operation.lease,
                 .owner = operation.owner,
                 .token = operation.told,
                 .told = &operation,
                 .asked = asked.at({operation.lease, operation.owner})};
      } else if (std::tie(grant.lease, grant.owner) != std::tie(operation.lease, operation.owner)) {
        found("I1", "one token for two grants", grant.told, &operation);
      }
      if (operation.returned < grant.answered) {
        grant.answered = operation.returned;
        grant.told = &operation;
      }
    }
  }

  void tokens_rise() {
    HighestAt highest;
    for (const auto& [token, grant] : grants_) highest.add(grant.answered, token, grant.told);
    highest.sort();
    for (const auto& [token, grant] : grants_) {
      const auto [before, by] = highest.known_before(grant.asked);
      if (before > token) found("I1", "a later grant has a smaller token", by, grant.told);
    }
  }

  void holds_never_overlap() {
    std::map<LeaseAndOwner, std::vector<const Operation*>> of_owner;
    std::map<std::string, std::vector<const Operation*>> revocations;
    for (const auto& operation : history_) {
      if (operation.kind == Kind::revoke) {
        revocations[operation.lease].push_back(&operation);
      } else if (operation.kind == Kind::acquire || operation.kind == Kind::renew ||
                 operation.kind == Kind::release) {
        of_owner[{operation.lease, operation.owner}].push_back(&operation);
      }
    }
    std::map<std::string, std::vector<Hold>> holds;
    for (const auto& [token, grant] : grants_) {
      for (const auto* given : of_owner.at({grant.lease, grant.owner})) {
        const bool is_grant = given->kind == Kind::acquire && given->told == token;
        const bool is_renewal = given->kind == Kind::renew && given->token == token;
        if (!given->is_done() || !(is_grant || is_renewal)) continue;
        auto until = given->invoked + given->ttl;
        for (const auto* other : of_owner.at({grant.lease, grant.owner})) {
          // It may have come before.
          if (!other->is_unknown() && other->returned < given->invoked) continue;
          if (other->kind == Kind::release) {
            if (other->token == token) until = std::min(until, other->invoked);
          } else if (other != given) {
            until = std::min(until, std::max(given->invoked, other->invoked) + other->ttl);
          }
        }
        for (const auto* revocation : revocations[grant.lease]) {
          if (!revocation->is_unknown() && revocation->returned < given->invoked) continue;
          until = std::min(until, revocation->invoked);
        }
        // From the first reply on, it is told.
        if (given->returned < until) {
          holds[grant.lease].push_back({.from = given->returned, .to = until, .grant = &grant});
        }
      }
    }
    for (auto& [lease, all] : holds) {
      std::sort(all.begin(), all.end(),
                [](const Hold& a, const Hold& b) { return a.from < b.from; });
      const Hold* longest = nullptr;
      for (const auto& hold : all) {
        if (longest != nullptr && longest->grant->token != hold.grant->token &&
            hold.from < longest->to) {
          found("I2", "two owners hold " + lease + " at a time", longest->grant->told,
                hold.grant->told);
        }
        if (longest == nullptr || hold.to > longest->to) longest = &hold;
      }
    }
  }

  void lease_fences_only_rise() {
    std::map<std::string, HighestAt> fences;
    const auto shown = [](const Operation& operation) -> std::uint64_t {
      if (!operation.is_done() || !operation.is_about_lease()) return 0;
      if (operation.kind == Kind::renew) return operation.token;
      return operation.told;
    };
    for (const auto& operation : history_) {
      const auto fence = shown(operation);
      if (fence != 0) fences[operation.lease].add(operation.returned, fence, &operation);
    }
    for (auto& [lease, fence] : fences) fence.sort();
    for (const auto& operation : history_) {
      const auto fence = shown(operation);
      const auto known = fences.find(operation.lease);
      const bool tells = fence != 0 || (operation.is_done() && operation.kind == Kind::inspect);
      if (!tells || known == fences.end()) continue;
      const auto [before, by] = known->second.known_before(operation.invoked);
      if (before > fence) found("I5", "a lease fence went back", by, &operation);
    }
  }

  void waits_end_once() {
    std::map<LeaseAndOwner, const Operation*> told_nothing;
    std::set<LeaseAndOwner> may_have;
    for (const auto& operation : history_) {
      if (operation.kind != Kind::acquire) continue;
      const LeaseAndOwner who{operation.lease, operation.owner};
      if (operation.is_done() && operation.told == 0) {
        told_nothing[who] = &operation;
        if (operation.returned - operation.invoked < operation.wait) {
          found("I8", "a wait ended with nothing before its time", &operation);
        }
      } else {
        may_have.insert(who);
      }
    }
    for (const auto& operation : history_) {
      if (operation.kind != Kind::renew || !operation.is_done()) continue;
      const LeaseAndOwner who{operation.lease, operation.owner};
      const auto nothing = told_nothing.find(who);
      if (nothing != told_nothing.end() && !may_have.contains(who)) {
        found("I8", "who was told that there is no grant has one", nothing->second, &operation);
      }
    }
  }

  struct KeyHistory {
    HighestAt versions;
    HighestAt fences;
    std::map<std::uint64_t, const Operation*> by_version;      // Acknowledged writes.
    std::map<std::uint64_t, std::uint64_t> tokens_by_version;  // The token that wrote it.
  };

  void count_requests() {
    for (const auto& operation : history_) {
      if (!operation.request.empty()) ++requests_[{operation.token, operation.request}];
    }
  }
  /// Another operation is the same request: one of them may be answered as the other was.
  bool is_repeated(const Operation& operation) const {
    return !operation.request.empty() && requests_.at({operation.token, operation.request}) > 1;
  }

  void collect_keys() {
    for (const auto& operation : history_) {
      if (!operation.is_done() || operation.is_about_lease()) continue;
      const bool is_copy = is_repeated(operation);
      for (std::size_t i = 0; i < operation.entries.size(); ++i) {
        auto& key = keys_[operation.entries[i].key];
        if (operation.token != 0) key.fences.add(operation.returned, operation.token, &operation);
        if (i < operation.seen.size() && operation.seen[i].version) {
          key.versions.add(operation.returned, *operation.seen[i].version, &operation);
          key.fences.add(operation.returned, operation.seen[i].fence, &operation);
        }
        if (operation.kind != Kind::write) continue;
        const auto version = operation.versions.at(i);
        key.versions.add(operation.returned, version, &operation);
        const auto [there, is_new] = key.by_version.try_emplace(version, &operation);
        if (!is_new && !(is_copy && there->second->request == operation.request)) {
          found("I4", "two acknowledged writes have one version", there->second, &operation);
        }
        key.tokens_by_version.try_emplace(version, operation.token);
      }
    }
    for (auto& [name, key] : keys_) {
      key.versions.sort();
      key.fences.sort();
    }
  }

  void fences_refuse_what_is_older() {
    std::map<std::string, HighestAt> granted;
    std::map<std::pair<std::string, std::uint64_t>, const Operation*> closed;
    for (const auto& operation : history_) {
      if (!operation.is_done()) continue;
      if (operation.kind == Kind::acquire && operation.told != 0) {
        granted[operation.lease].add(operation.returned, operation.told, &operation);
      }
      if (operation.kind == Kind::release || operation.kind == Kind::revoke) {
        const auto token = operation.kind == Kind::release ? operation.token : operation.told;
        auto& first = closed.try_emplace({operation.lease, token}, &operation).first->second;
        if (operation.returned < first->returned) first = &operation;
      }
    }
    for (auto& [lease, tokens] : granted) tokens.sort();

    for (const auto& operation : history_) {
      if (!operation.is_done() || operation.is_about_lease() || operation.token == 0) continue;
      // A repetition is answered as before, and writes nothing.
      if (is_repeated(operation)) continue;
      for (const auto& entry : operation.entries) {
        const auto [fence, by] = keys_[entry.key].fences.known_before(operation.invoked);
        if (fence > operation.token) {
          found("I3", "accepted below the fence of the key", by, &operation);
        }
      }
      if (operation.lease.empty()) continue;
      if (const auto tokens = granted.find(operation.lease); tokens != granted.end()) {
        const auto [fence, by] = tokens->second.known_before(operation.invoked);
        if (fence > operation.token) {
          found("I3", "accepted below the fence of the lease", by, &operation);
        }
      }
      const auto end = closed.find({operation.lease, operation.token});
      if (end != closed.end() && end->second->returned < operation.invoked) {
        found("I3", "accepted with the token of a closed grant", end->second, &operation);
      }
    }
    for (const auto& [name, key] : keys_) {
      std::uint64_t before = 0;
      for (const auto& [version, token] : key.tokens_by_version) {
        if (token < before) {
          found("I3", "a later version of " + name + " was written with a smaller token",
                key.by_version.at(version));
        }
        before = std::max(before, token);
      }
    }
  }

  void writes_stay() {
    for (const auto& operation : history_) {
      if (!operation.is_done()) continue;
      for (std::size_t i = 0; i < operation.seen.size(); ++i) {
        const auto& seen = operation.seen[i];
        if (!seen.version) continue;
        const auto& key = keys_.at(operation.entries[i].key);
        const auto [version, by] = key.versions.known_before(operation.invoked);
        if (*seen.version < version) {
          const bool is_write = by->kind == Kind::write;
          found(is_write ? "I4" : "I5",
                is_write ? "an acknowledged write is gone" : "a version went back", by, &operation);
        }
        const auto [fence, raised] = key.fences.known_before(operation.invoked);
        if (seen.fence < fence) found("I5", "a fence went back", raised, &operation);
        const auto write = key.by_version.find(*seen.version);
        if (write == key.by_version.end()) continue;
        for (const auto& entry : write->second->entries) {
          if (entry.key == operation.entries[i].key && entry.value != seen.value) {
            found("I4", "another value than was acknowledged", write->second, &operation);
          }
        }
      }
      if (operation.kind != Kind::write) continue;
      if (is_repeated(operation)) continue;
      for (std::size_t i = 0; i < operation.entries.size(); ++i) {
        const auto [version, by] =
            keys_.at(operation.entries[i].key).versions.known_before(operation.invoked);
        if (operation.versions[i] <= version) found("I5", "a version came again", by, &operation);
      }
    }
  }

  void values_come_from_accepted_writes() {
    std::map<std::pair<std::string, std::string>, std::vector<const Operation*>> writers;
    for (const auto& operation : history_) {
      if (operation.kind != Kind::write) continue;
      for (const auto& entry : operation.entries) {
        if (entry.value) writers[{entry.key, *entry.value}].push_back(&operation);
      }
    }
    for (const auto& operation : history_) {
      for (std::size_t i = 0; i < operation.seen.size(); ++i) {
        if (!operation.seen[i].value) continue;
        const auto from = writers.find({operation.entries[i].key, *operation.seen[i].value});
        if (from == writers.end()) {
          found("I6", "a value that nobody wrote", &operation);
          continue;
        }
        const auto may_have_written = [](const Operation* write) {
          return write->is_done() || write->is_unknown();
        };
        if (std::none_of(from->second.begin(), from->second.end(), may_have_written)) {
          found("I6", "the value of a refused write", from->second.front(), &operation);
        }
        // What it wrote beside must be there by now, or be overwritten with no smaller token.
        const auto& write = *from->second.front();
        for (const auto& entry : write.entries) {
          if (entry.key == operation.entries[i].key) continue;
          look_for_the_other_half(write, entry.key, operation);
        }
      }
    }
  }

  void look_for_the_other_half(const Operation& write, const std::string& other,
                               const Operation& seen_by) {
    // Fences only rise: the first read that comes later tells it for all.
    const auto& reads = reads_of(other);
    const auto later =
        std::upper_bound(reads.begin(), reads.end(), seen_by.returned,
                         [](Time time, const Operation* read) { return time < read->invoked; });
    if (later == reads.end()) return;
    const auto& read = **later;
    for (std::size_t i = 0; i < read.seen.size(); ++i) {
      if (read.entries[i].key != other || !read.seen[i].version) continue;
      if (read.seen[i].fence < write.token) {
        found("I12", "half of a write of many keys", &write, &read);
      }
    }
  }

  /// In the order in which they were asked.
  const std::vector<const Operation*>& reads_of(const std::string& key) {
    if (reads_.empty()) {
      for (const auto& operation : history_) {
        for (std::size_t i = 0; i < operation.seen.size(); ++i) {
          if (operation.seen[i].version) reads_[operation.entries[i].key].push_back(&operation);
        }
      }
      for (auto& [name, all] : reads_) {
        std::sort(all.begin(), all.end(),
                  [](const Operation* a, const Operation* b) { return a->invoked < b->invoked; });
      }
    }
    return reads_[key];
  }

  void repeated_requests_are_answered_alike() {
    using Identity = std::tuple<std::string, std::uint64_t, std::string>;  // Key, token, request.
    std::map<Identity, std::map<std::uint64_t, const Operation*>> answers;
    for (const auto& operation : history_) {
      if (operation.kind != Kind::write || !operation.is_done() || operation.request.empty())
        continue;
      for (std::size_t i = 0; i < operation.entries.size(); ++i) {
        answers[{operation.entries[i].key, operation.token, operation.request}].try_emplace(
            operation.versions[i], &operation);
      }
    }
    for (const auto& [identity, versions] : answers) {
      for (const auto& [version, operation] : versions) {
        // The write of the version before was the last one, and the same.
        const auto next = versions.find(version + 1);
        if (next != versions.end()) {
          found("I10", "a repeated request wrote once more", operation, next->second);
        }
      }
    }
  }

  void tokens_come_from_grants() {
    for (const auto& operation : history_) {
      if (operation.is_about_lease() || !operation.is_done() || operation.token == 0) continue;
      const auto grant = grants_.find(operation.token);
      if (grant == grants_.end() || grant->second.asked > operation.returned) {
        found("I11", "a token accepted that nobody was granted", &operation);
      }
    }
  }

  const History& history_;
  std::vector<std::string> broken_;
  std::map<std::uint64_t, Grant> grants_;  // By token.
  std::map<std::string, KeyHistory> keys_;
  std::map<std::pair<std::uint64_t, std::string>, int> requests_;  // By token and REQ.
  std::map<std::string, std::vector<const Operation*>> reads_;
};

}  // namespace

std::vector<std::string> broken_invariants(const History& history) {
  return Looking(history).all();
}

}  // namespace fencekv::testing
