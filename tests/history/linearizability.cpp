// SPDX-License-Identifier: Apache-2.0
#include "tests/history/linearizability.h"

#include "tests/history/component.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace fencekv::testing {
namespace {

using Index = std::uint32_t;

/// What is possible so far: a state, and the calls that are under way and not in place yet.
struct Configuration {
  State state;
  std::vector<Index> known;    ///< Their answers will come. Sorted.
  std::vector<Index> unknown;  ///< May never happen. Sorted.

  bool awaits(Index call) const {
    return std::binary_search(known.begin(), known.end(), call) ||
           std::binary_search(unknown.begin(), unknown.end(), call);
  }
  void put(Index call) {
    for (auto* calls : {&known, &unknown}) {
      const auto at = std::lower_bound(calls->begin(), calls->end(), call);
      if (at != calls->end() && *at == call) calls->erase(at);
    }
  }
  std::size_t hash() const {
    auto hash = state.hash();
    for (const auto call : known) hash = hash * 1000003 + call;
    return hash;
  }
};

/// Configurations, without those that another one stands for.
class Configurations {
 public:
  /// Returns the one that is to be looked at since it allows for more than before; nullptr: none.
  const Configuration* add(Configuration added) {
    auto& bucket = buckets_[added.hash()];
    for (auto& there : bucket) {
      if (there.known != added.known || !there.state.same_as(added.state)) continue;
      if (includes(there.unknown, added.unknown)) {
        return there.state.widen(added.state) ? &there : nullptr;
      }
      if (includes(added.unknown, there.unknown)) {
        added.state.widen(there.state);
        there = std::move(added);
        return &there;
      }
    }
    ++size_;
    bucket.push_back(std::move(added));
    return &bucket.back();
  }
  std::size_t size() const { return size_; }

  std::vector<Configuration> take() {
    std::vector<Configuration> all;
    all.reserve(size_);
    for (auto& [hash, bucket] : buckets_) {
      for (auto& configuration : bucket) all.push_back(std::move(configuration));
    }
    buckets_.clear();
    return all;
  }

 private:
  static bool includes(const std::vector<Index>& all, const std::vector<Index>& some) {
    return std::includes(all.begin(), all.end(), some.begin(), some.end());
  }

  std::unordered_map<std::size_t, std::vector<Configuration>> buckets_;
  std::size_t size_ = 0;
};

struct Event {
  enum class Kind : std::uint8_t { invoked, ended, out_of_time };

  Time at{0};
  Kind kind = Kind::invoked;
  Index call = 0;

  /// What happens at one moment: requests first, so that they overlap.
  friend auto operator<=>(const Event&, const Event&) = default;
};

class Search {
 public:
  Search(const Component& component, std::size_t limit) : component_(component), limit_(limit) {}

  /// Empty: linearizable. Else why not.
  std::string run() {
    possible_ = {Configuration{.state = component_.initial(), .known = {}, .unknown = {}}};
    for (const auto& event : events()) {
      const auto& call = component_.calls()[event.call];
      now_ = event.at;
      switch (event.kind) {
        case Event::Kind::invoked:
          begin(event.call, call);
          break;
        case Event::Kind::ended:
          if (auto why = end(event.call, call); !why.empty()) return why;
          last_.push_back(event.call);
          break;
        case Event::Kind::out_of_time:
          if (auto why = give_up(event.call); !why.empty()) return why;
          break;
      }
      most_ = std::max(most_, possible_.size());
    }
    return {};
  }
  std::size_t most_configurations() const { return most_; }

 private:
  std::vector<Event> events() const {
    std::vector<Event> all;
    for (Index i = 0; i < component_.calls().size(); ++i) {
      const auto& operation = *component_.calls()[i].operation;
      all.push_back({.at = operation.invoked, .kind = Event::Kind::invoked, .call = i});
      if (!operation.is_unknown()) {
        all.push_back({.at = operation.returned, .kind = Event::Kind::ended, .call = i});
      } else if (operation.latest != kNever) {
        all.push_back({.at = operation.latest, .kind = Event::Kind::out_of_time, .call = i});
      }
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  void begin(Index index, const Call& call) {
    for (auto& configuration : possible_) {
      auto& calls = call.operation->is_unknown() ? configuration.unknown : configuration.known;
      calls.insert(std::lower_bound(calls.begin(), calls.end(), index), index);
      // Only the new one: the others did not fit this state before either.
      settle(configuration, std::vector<Index>{index});
    }
  }

  /// Puts in place at once what fits and changes nothing, and forgets what can change nothing.
  void settle(Configuration& configuration, const std::vector<Index>& which) const {
    for (const auto index : which) {
      const auto& call = component_.calls()[index];
      const bool is_over = call.operation->is_unknown()
                               ? component_.is_spent(call, configuration.state)
                               : component_.run(call, configuration.state, now_).is_idle;
      if (is_over) configuration.put(index);
    }
  }
  void settle(Configuration& configuration) const {
    settle(configuration, std::vector<Index>(configuration.known));
    settle(configuration, std::vector<Index>(configuration.unknown));
  }

  /// A write that takes a version which an answer under way still needs to be free leads nowhere.
  bool is_too_far(const Configuration& after, const Call& call) const {
    if (call.operation->kind != Operation::Kind::write) return false;
    for (const auto index : after.known) {
      const auto& other = component_.calls()[index];
      for (std::size_t i = 0; i < other.keys.size(); ++i) {
        if (std::find(call.keys.begin(), call.keys.end(), other.keys[i]) == call.keys.end())
          continue;
        const auto version = after.state.keys[static_cast<std::size_t>(other.keys[i])].version;
        if (version > Component::bound(other, i)) return true;
      }
    }
    return false;
  }

  /// All ways to put `target` in place now, others that are under way before it.
  /// False: too many.
  bool place(Index target, std::vector<Configuration> from, Configurations& results) const {
    Configurations seen;
    for (auto& configuration : from) seen.add(configuration);
    auto open = std::move(from);
    const auto reach = [&](Configuration next) {
      settle(next);
      if (!next.awaits(target)) {
        results.add(std::move(next));
      } else if (const auto* more = seen.add(std::move(next))) {
        open.push_back(*more);
      }
    };
    while (!open.empty()) {
      if (seen.size() + results.size() > limit_) return false;
      const auto configuration = std::move(open.back());
      open.pop_back();
      std::set<Component::Sort> tried;
      for (const auto* calls : {&configuration.known, &configuration.unknown}) {
        for (const auto index : *calls) {
          const auto& call = component_.calls()[index];
          const auto sort = component_.sort_of(call, configuration.state, now_);
          if (sort && index != target && !tried.insert(*sort).second) continue;
          auto steps = component_.run(call, configuration.state, now_);
          // What did not fit when it began may fit by now: time has passed.
          if (steps.is_idle) steps.next.push_back(configuration.state);
          for (auto& state : steps.next) {
            Configuration next{.state = std::move(state),
                               .known = configuration.known,
                               .unknown = configuration.unknown};
            // Where they may still come at the very end, one that is left stands for all its like:
            // to keep count of them would double what is possible with each.
            const bool may_come_again = sort && call.operation->latest == kNever;
            if (index == target || !may_come_again) next.put(index);
            if (!is_too_far(next, call)) reach(std::move(next));
          }
        }
      }
      for (auto& state : component_.by_itself(configuration.state)) {
        reach({.state = std::move(state),
               .known = configuration.known,
               .unknown = configuration.unknown});
      }
    }
    return true;
  }

  std::string end(Index index, const Call& call) {
    Configurations results;
    std::vector<Configuration> from;
    for (auto& configuration : possible_) {
      if (configuration.awaits(index)) {
        from.push_back(configuration);
      } else {
        results.add(configuration);
      }
    }
    if (from.empty()) return {};
    if (!place(index, std::move(from), results)) return too_many(index);
    if (results.size() == 0) return explain(call);
    possible_ = results.take();
    return {};
  }

  /// A command of unknown outcome happened before now, or never.
  std::string give_up(Index index) {
    Configurations results;
    std::vector<Configuration> from;
    for (auto& configuration : possible_) {
      if (configuration.awaits(index)) from.push_back(configuration);
      configuration.put(index);
      results.add(std::move(configuration));
    }
    if (!place(index, std::move(from), results)) return too_many(index);
    possible_ = results.take();
    return {};
  }

  std::string too_many(Index index) const {
    return "given up, too much is possible, at: " + line_of(*component_.calls()[index].operation);
  }

  std::string explain(const Call& call) const {
    std::string why = "this fits nowhere:\n  " + line_of(*call.operation);
    why += "\nwhat was possible before its reply came (" + std::to_string(possible_.size()) + "):";
    for (std::size_t i = 0; i < std::min<std::size_t>(possible_.size(), 3); ++i) {
      const auto& configuration = possible_[i];
      why += "\n " + component_.describe(configuration.state);
      for (const auto* calls : {&configuration.known, &configuration.unknown}) {
        const auto first = calls->size() > 8 ? calls->size() - 8 : 0;
        for (auto j = first; j < calls->size(); ++j) {
          why += "\n    under way: " + line_of(*component_.calls()[(*calls)[j]].operation);
        }
      }
    }
    why += "\nanswered before:";
    const auto first = last_.size() > 12 ? last_.size() - 12 : 0;
    for (auto i = first; i < last_.size(); ++i) {
      why += "\n  " + line_of(*component_.calls()[last_[i]].operation);
    }
    return why;
  }

  const Component& component_;
  std::size_t limit_;
  Time now_{0};
  std::vector<Configuration> possible_;
  std::vector<Index> last_;
  std::size_t most_ = 0;
};

/// Names that operations name together are in one set.
class Sets {
 public:
  std::size_t find(const std::string& name) {
    const auto [at, is_new] = numbers_.try_emplace(name, parents_.size());
    if (is_new) parents_.push_back(parents_.size());
    return root(at->second);
  }
  void join(const std::string& one, const std::string& other) { parents_[find(one)] = find(other); }

 private:
  std::size_t root(std::size_t i) {
    while (parents_[i] != i) i = parents_[i] = parents_[parents_[i]];
    return i;
  }

  std::map<std::string, std::size_t> numbers_;
  std::vector<std::size_t> parents_;
};

std::vector<std::string> names_of(const Operation& operation) {
  std::vector<std::string> names;
  for (const auto& entry : operation.entries) names.push_back("key " + entry.key);
  if (!operation.lease.empty()) names.push_back("lease " + operation.lease);
  for (const auto& seen : operation.seen) {
    if (seen.guard) names.push_back("lease " + *seen.guard);
  }
  return names;
}

}  // namespace

Verdict check_linearizability(const History& history, std::size_t most_configurations) {
  Sets sets;
  for (const auto& operation : history) {
    const auto names = names_of(operation);
    for (const auto& name : names) sets.join(name, names.front());
  }
  std::map<std::size_t, std::vector<const Operation*>> components;
  for (const auto& operation : history) {
    const auto names = names_of(operation);
    if (!names.empty()) components[sets.find(names.front())].push_back(&operation);
  }

  Verdict verdict;
  verdict.components = components.size();
  for (const auto& [root, operations] : components) {
    verdict.largest_component = std::max(verdict.largest_component, operations.size());
    const Component component(operations);
    Search search(component, most_configurations);
    verdict.why = search.run();
    verdict.most_configurations =
        std::max(verdict.most_configurations, search.most_configurations());
    if (!verdict.why.empty()) {
      verdict.is_linearizable = false;
      break;
    }
  }
  return verdict;
}

}  // namespace fencekv::testing
