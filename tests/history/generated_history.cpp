// SPDX-License-Identifier: Apache-2.0
#include "tests/history/generated_history.h"

#include "fencekv/store.h"
#include "tests/support/manual_clock.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

Operation::Seen seen_of(const KeyState& state) {
  return {.value = state.value,
          .version = state.version,
          .fence = state.fence.number(),
          .guard = state.guard};
}

/// Runs `operation` in the store and takes down the answer.
void run(Store& store, Operation& operation) {
  const auto lease = operation.lease.empty() ? std::nullopt : std::optional(operation.lease);
  const auto take = [&](auto result, auto use) {
    if (!result) return take_refusal(operation, result.error().line());
    operation.outcome = Outcome::done;
    use(*result);
  };
  const auto& key = operation.entries.empty() ? operation.owner : operation.entries[0].key;
  switch (operation.kind) {
    case Kind::write: {
      Write write;
      for (const auto& entry : operation.entries) write.entries.push_back({entry.key, entry.value});
      write.token = Token(operation.token);
      write.lease = lease;
      write.once = operation.once;
      write.live = operation.live;
      write.if_version = operation.if_version;
      if (!operation.request.empty()) write.request = operation.request;
      return take(store.execute(std::move(write)),
                  [&](const Write::Reply& versions) { operation.versions = versions; });
    }
    case Kind::raise:
      return take(store.execute(Raise{.key = key, .token = Token(operation.token), .lease = lease}),
                  [&](Token fence) { operation.told = fence.number(); });
    case Kind::fenced_read:
      return take(
          store.execute(FencedRead{.key = key, .token = Token(operation.token), .lease = lease}),
          [&](const KeyState& state) { operation.seen = {seen_of(state)}; });
    case Kind::read: {
      Read read;
      for (const auto& entry : operation.entries) read.keys.push_back(entry.key);
      return take(store.execute(std::move(read)), [&](const Read::Reply& states) {
        for (const auto& state : states) operation.seen.push_back(seen_of(state));
      });
    }
    case Kind::acquire:
      return take(store.acquire(operation.lease, operation.owner, operation.ttl),
                  [&](const std::optional<Grant>& grant) {
                    if (!grant) return;
                    operation.told = grant->token.number();
                    operation.remaining = grant->remaining;
                  });
    case Kind::renew:
      return take(
          store.renew(operation.lease, operation.owner, Token(operation.token), operation.ttl),
          [&](std::chrono::milliseconds remaining) { operation.remaining = remaining; });
    case Kind::release: {
      const auto released = store.release(operation.lease, operation.owner, Token(operation.token));
      if (!released) return take_refusal(operation, released.error().line());
      operation.outcome = Outcome::done;
      return;
    }
    case Kind::revoke:
      return take(store.execute(Revoke{.name = operation.lease}),
                  [&](Token fence) { operation.told = fence.number(); });
    case Kind::inspect:
      return take(store.execute(Inspect{.name = operation.lease}), [&](const LeaseState& state) {
        operation.told = state.fence.number();
        if (state.holders.empty()) return;
        operation.holder = state.holders.back().token.number();
        operation.remaining = state.holders.back().remaining;
      });
  }
}

/// Nobody learnt what came of it.
void forget_answer(Operation& operation) {
  Operation asked;
  asked.kind = operation.kind;
  asked.client = operation.client;
  asked.invoked = operation.invoked;
  asked.entries = operation.entries;
  asked.token = operation.token;
  asked.lease = operation.lease;
  asked.owner = operation.owner;
  asked.ttl = operation.ttl;
  asked.wait = operation.wait;
  asked.once = operation.once;
  asked.live = operation.live;
  asked.if_version = operation.if_version;
  asked.request = operation.request;
  operation = std::move(asked);
}

class Generator {
 public:
  Generator(std::uint64_t seed, const Generated& what)
      : what_(what),
        random_(seed),
        clock_(std::make_shared<ManualClock>()),
        store_(open_memory({.clock = clock_})),
        clients_(static_cast<std::size_t>(what.clients)) {}

  History run_all() {
    for (int i = 0; i < what_.operations; ++i) {
      clock_->advance(chance(3) ? std::chrono::milliseconds(number(40)) : some_time());
      deliver_late_ones();
      step();
    }
    return std::move(history_);
  }

 private:
  struct Client {
    Time free_at{0};
    int group = 0;
    std::string owner;                  // Of the acquire that is wanted or was granted.
    std::uint64_t token = 0;            // 0: not held, as far as it knows.
    std::vector<std::uint64_t> tokens;  // All that it was ever told: a sleeper's.
    std::optional<Operation> again;     // A request to repeat.
  };
  struct Late {
    Time due;
    std::size_t operation;
  };

  std::uint64_t number(std::uint64_t below) { return random_() % below; }
  bool chance(std::uint64_t percent) { return number(100) < percent; }
  Time some_time() { return std::chrono::microseconds(number(2000)); }
  Time now() const { return clock_->since_boot(); }

  void deliver_late_ones() {
    for (std::size_t i = 0; i < late_.size();) {
      if (late_[i].due > now()) {
        ++i;
        continue;
      }
      auto& operation = history_[late_[i].operation];
      auto copy = operation;
      run(*store_, copy);
      if (chance(50)) operation.latest = now() + some_time();
      late_.erase(late_.begin() + static_cast<long>(i));
    }
  }

  void step() {
    const auto who = number(clients_.size());
    auto& client = clients_[who];
    if (client.free_at > now()) clock_->advance(client.free_at - now());
    auto operation = next_of(client);
    operation.client = static_cast<int>(who);
    operation.invoked = std::max(client.free_at, now() - some_time());

    const bool is_lost = chance(static_cast<std::uint64_t>(what_.lost_percent));
    const auto fate = number(3);
    if (is_lost && fate == 0) {
      late_.push_back({.due = now() + 10 * some_time(), .operation = history_.size()});
    } else if (!is_lost || fate == 1) {
      run(*store_, operation);
    }
    if (is_lost) {
      forget_answer(operation);
      if (fate != 0 && chance(30)) operation.latest = now() + some_time();
      if (operation.kind == Kind::write && !operation.request.empty()) client.again = operation;
      client.free_at = now() + some_time();
    } else {
      operation.returned = now() + some_time();
      client.free_at = operation.returned;
      learn(client, operation);
    }
    history_.push_back(operation);
    if (chance(3)) {
      // The network delivers it once more, later.
      auto copy = operation;
      copy.client = -1;
      copy.invoked = now();
      forget_answer(copy);
      late_.push_back({.due = now() + 10 * some_time(), .operation = history_.size()});
      history_.push_back(std::move(copy));
    }
  }

  void learn(Client& client, const Operation& operation) {
    if (operation.kind == Kind::acquire && operation.told != 0) {
      client.token = operation.told;
      client.tokens.push_back(operation.told);
    } else if (operation.kind == Kind::acquire) {
      client.owner.clear();
    } else if (operation.kind == Kind::release ||
               (operation.kind == Kind::renew && operation.outcome == Outcome::refused)) {
      client.token = 0;
      client.owner.clear();
    }
  }

  Operation next_of(Client& client) {
    if (client.again) {
      auto again = *std::exchange(client.again, std::nullopt);
      again.latest = kNever;
      return again;
    }
    Operation operation;
    const auto group = std::to_string(client.group);
    operation.lease = "l" + group;
    if (client.token == 0 && chance(50)) {
      // An owner who does not know whether it got it may ask again.
      if (client.owner.empty() || chance(30)) {
        client.group = static_cast<int>(number(static_cast<std::uint64_t>(what_.groups)));
        client.owner = "o" + std::to_string(++owners_);
      }
      operation.kind = Kind::acquire;
      operation.lease = "l" + std::to_string(client.group);
      operation.owner = client.owner;
      operation.ttl = std::chrono::milliseconds(5 + number(30));
      return operation;
    }
    if (chance(15)) {
      operation.kind = Kind::inspect;
      return operation;
    }
    if (chance(2)) {
      operation.kind = Kind::revoke;
      return operation;
    }
    if (client.token != 0 && chance(20)) {
      operation.kind = chance(60) ? Kind::renew : Kind::release;
      operation.owner = chance(95) ? client.owner : "stranger";
      operation.token = client.token;
      if (operation.kind == Kind::renew) operation.ttl = std::chrono::milliseconds(5 + number(30));
      return operation;
    }
    return about_keys(client, std::move(operation), "k" + group + ".");
  }

  Operation about_keys(const Client& client, Operation operation, const std::string& keys) {
    operation.token = client.token;
    if (operation.token == 0 || chance(10)) {
      operation.token = client.tokens.empty() ? 0 : client.tokens[number(client.tokens.size())];
    }
    const auto key = keys + std::to_string(number(3));
    const bool is_plain = chance(15);  // A key without a guard.
    const auto one_key = is_plain ? "p" + keys : key;
    if (is_plain || chance(10)) operation.lease.clear();
    if (operation.token == 0 || chance(25)) {
      operation.kind = Kind::read;
      operation.token = 0;
      operation.lease.clear();
      operation.entries = {{.key = one_key}};
      if (!is_plain && chance(40)) operation.entries = {{.key = keys + "0"}, {.key = keys + "1"}};
      return operation;
    }
    if (chance(15)) {
      operation.kind = chance(50) ? Kind::raise : Kind::fenced_read;
      operation.entries = {{.key = one_key}};
      return operation;
    }
    operation.kind = Kind::write;
    const auto value = [&] {
      return chance(15) ? std::nullopt : std::optional("v" + std::to_string(++values_));
    };
    if (!is_plain && chance(25)) {
      operation.entries = {{.key = keys + "0", .value = value().value_or("v")},
                           {.key = keys + "1", .value = value().value_or("w")}};
      for (auto& entry : operation.entries) *entry.value += "." + std::to_string(++values_);
    } else {
      operation.entries = {{.key = one_key, .value = value()}};
      operation.once = operation.entries[0].value && chance(5);
      if (chance(10)) operation.if_version = number(20);
    }
    operation.live = !operation.lease.empty() && chance(10);
    if (chance(30)) operation.request = "r" + std::to_string(++requests_);
    return operation;
  }

  Generated what_;
  std::mt19937_64 random_;
  std::shared_ptr<ManualClock> clock_;
  std::unique_ptr<Store> store_;
  std::vector<Client> clients_;
  std::vector<Late> late_;
  History history_;
  std::uint64_t owners_ = 0;
  std::uint64_t values_ = 0;
  std::uint64_t requests_ = 0;
};

/// Which operations could be changed in one way, and how.
struct Lie {
  std::string what;
  std::function<bool(const History&, const Operation&)> fits;
  std::function<void(History&, std::size_t)> tell;
};

bool is_seen(const History& history, const Operation& write) {
  return std::any_of(history.begin(), history.end(), [&](const Operation& read) {
    for (std::size_t i = 0; i < read.seen.size(); ++i) {
      if (read.entries[i].key == write.entries[0].key && write.entries[0].value &&
          read.seen[i].value == write.entries[0].value) {
        return true;
      }
    }
    return false;
  });
}

/// Some write that was acknowledged before `read` was asked wrote the version that it shows.
bool shows_what_was_acknowledged(const History& history, const Operation& read) {
  return std::any_of(history.begin(), history.end(), [&](const Operation& write) {
    return write.kind == Kind::write && write.is_done() && write.returned < read.invoked &&
           write.entries.size() == 1 && write.entries[0].key == read.entries[0].key &&
           write.versions[0] == read.seen[0].version;
  });
}

std::vector<Lie> lies() {
  const auto is_write = [](const Operation& operation) {
    return operation.kind == Kind::write && operation.is_done();
  };
  return {
      {"a version is missing", [=](const History&, const Operation& it) { return is_write(it); },
       [](History& history, std::size_t i) { history[i].versions[0] += 100; }},
      {"a write is missing",
       [=](const History& history, const Operation& it) {
         return is_write(it) && it.request.empty() && is_seen(history, it);
       },
       [](History& history, std::size_t i) {
         // Copies of it, too: they wrote the same value.
         const auto value = history[i].entries[0].value;
         std::erase_if(history, [&](const Operation& other) {
           return other.kind == Kind::write && other.entries[0].value == value;
         });
       }},
      {"a read shows the version before",
       [](const History& history, const Operation& it) {
         return it.kind == Kind::read && it.is_done() && it.entries.size() == 1 &&
                *it.seen[0].version > 1 && shows_what_was_acknowledged(history, it);
       },
       [](History& history, std::size_t i) { *history[i].seen[0].version -= 1; }},
      {"a read shows another value",
       [](const History& history, const Operation& it) {
         return it.kind == Kind::read && it.is_done() && it.entries.size() == 1 &&
                shows_what_was_acknowledged(history, it);
       },
       [](History& history, std::size_t i) { history[i].seen[0].value = "nobody's"; }},
      {"a fenced write was accepted",
       [](const History&, const Operation& it) {
         return it.kind == Kind::write && it.refusal.starts_with("FENCED") && it.request.empty();
       },
       [](History& history, std::size_t i) {
         history[i].outcome = Outcome::done;
         history[i].refusal.clear();
         history[i].versions.assign(history[i].entries.size(), 1);
       }},
      {"a grant with the token before",
       [](const History& history, const Operation& it) {
         return it.kind == Kind::acquire && it.told > 1 &&
                std::any_of(history.begin(), history.end(), [&](const Operation& other) {
                  return other.kind == Kind::acquire && other.told + 1 == it.told &&
                         other.owner != it.owner;
                });
       },
       [](History& history, std::size_t i) { history[i].told -= 1; }},
      {"a grant while another holds",
       [](const History& history, const Operation& it) {
         if (it.kind != Kind::acquire || !it.is_done() || it.told != 0) return false;
         // With a token above that of a later grant, so that no lost revocation can explain it.
         return std::any_of(history.begin(), history.end(), [&](const Operation& later) {
           return later.kind == Kind::acquire && later.lease == it.lease && later.told != 0 &&
                  later.invoked > it.returned;
         });
       },
       [](History& history, std::size_t i) {
         std::uint64_t newest = 0;
         for (const auto& operation : history) newest = std::max(newest, operation.told);
         history[i].told = newest + 1;  // Above all that came later.
       }},
      {"a fence was lower",
       [](const History& history, const Operation& it) {
         return it.kind == Kind::read && it.is_done() && it.entries.size() == 1 &&
                it.seen[0].fence > 0 && shows_what_was_acknowledged(history, it);
       },
       [](History& history, std::size_t i) { history[i].seen[0].fence = 0; }},
  };
}

}  // namespace

History generated_history(std::uint64_t seed, const Generated& what) {
  return Generator(seed, what).run_all();
}

std::vector<std::pair<std::string, History>> histories_with_one_lie(const History& history,
                                                                    std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::pair<std::string, History>> wrong;
  for (const auto& lie : lies()) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < history.size(); ++i) {
      if (lie.fits(history, history[i])) places.push_back(i);
    }
    if (places.empty()) continue;
    auto changed = history;
    lie.tell(changed, places[random() % places.size()]);
    wrong.emplace_back(lie.what, std::move(changed));
  }
  return wrong;
}

}  // namespace fencekv::testing
