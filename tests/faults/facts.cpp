// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/facts.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;  // NOLINT: only literals

constexpr std::size_t kPage = 1000;

Write write_of(const std::vector<std::string>& keys, const std::optional<std::string>& value,
               Token token, const WriteOptions& options = {}) {
  std::vector<Write::Entry> entries;
  for (const auto& key : keys) entries.push_back({.key = key, .value = value});
  return make_write(std::move(entries), token, options);
}

/// All of a listing, in its pages.
template <class Item, class List>
Result<std::vector<Item>> all_of(List list) {
  std::vector<Item> items;
  std::optional<std::string> after;
  do {
    auto page = list(after);
    if (!page) return page.error();
    items.insert(items.end(), page->items.begin(), page->items.end());
    after = page->next;
  } while (after);
  return items;
}

}  // namespace

Facts::State Facts::seen(const KeyState& state) {
  return {.value = state.value,
          .fence = state.fence.number(),
          .version = state.version,
          .guard = state.guard,
          .request = state.request};
}

std::vector<Facts::Holder> Facts::holders_of(const LeaseState& state) {
  std::vector<Holder> holders;
  for (const auto& holder : state.holders) {
    holders.push_back({.owner = holder.owner, .token = holder.token, .mode = holder.mode});
  }
  return holders;
}

std::string Facts::shown(const State& state) {
  return "(" + state.value.value_or("no value") + ", fence " + std::to_string(state.fence) +
         ", version " + std::to_string(state.version) + ", guard " +
         state.guard.value_or("(none)") + ", request " + state.request.value_or("(none)") + ")";
}

std::string Facts::shown(const std::vector<Holder>& holders) {
  std::string text = "(";
  for (const auto& holder : holders) {
    text += (text.size() > 1 ? ", " : "") + holder.owner + " with " +
            std::to_string(holder.token.number()) + " " + std::string(to_string(holder.mode));
  }
  return text + ")";
}

void Facts::may_fail(const std::string& what, const Error& error) {
  // Nothing else is true of a disk that fails: not "stale", not "no lease".
  const bool may_be = error.code() == Errc::in_doubt || error.code() == Errc::misconf;
  if (!may_be) say(what + " was answered " + error.line());
}

Facts::State Facts::after(const State& before, const Write& write,
                          const std::optional<std::string>& value, std::uint64_t version) {
  return {.value = value,
          .fence = write.token.number(),
          .version = version,
          .guard = write.lease ? write.lease : before.guard,
          .request = write.request};
}

void Facts::wrote(const Write& write, const Result<Write::Reply>& reply) {
  const auto& entries = write.entries;
  if (!reply) may_fail("a write of " + entries.front().key, reply.error());
  if (!reply && reply.error().code() != Errc::in_doubt) return;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto& may_be = keys_[entries[i].key].may_be;
    const auto& value = entries[i].value;
    if (!reply) {
      // What it would be had any of those before it landed.
      std::vector<State> more;
      for (const auto& state : may_be)
        more.push_back(after(state, write, value, state.version + 1));
      may_be.insert(may_be.end(), more.begin(), more.end());
      continue;
    }
    may_be = {after(may_be.front(), write, value, (*reply)[i])};
  }
  if (reply) ++acknowledged_;
}

void Facts::set(Store& store, const std::string& key, const std::string& value, Token token,
                const WriteOptions& options) {
  const auto write = write_of({key}, value, token, options);
  wrote(write, store.execute(write));
}

void Facts::remove(Store& store, const std::string& key, Token token) {
  const auto write = write_of({key}, std::nullopt, token);
  wrote(write, store.execute(write));
}

void Facts::set_both(Store& store, const std::string& first, const std::string& second,
                     const std::string& value, Token token) {
  const auto write = write_of({first, second}, value, token);
  const auto reply = store.execute(write);
  wrote(write, reply);
  if (!reply && reply.error().code() == Errc::in_doubt) pairs_.push_back({first, second, value});
}

bool Facts::may_be_taken(const std::string& name, const std::string& owner,
                         const AcquireOptions& options) const {
  const auto found = leases_.find(name);
  if (found == leases_.end()) return false;
  const auto& lease = found->second;
  if (!lease.is_sure || lease.is_blocked) return true;
  const auto& holders = lease.holders;
  const auto fingerprint = owner_fingerprint(owner);
  const bool is_mine = std::any_of(holders.begin(), holders.end(),
                                   [&](const auto& holder) { return holder.owner == fingerprint; });
  if (holders.empty() || is_mine) return false;
  const bool is_of_one_mode = holders.front().mode == options.mode;
  if (options.mode == LeaseMode::shared) return !is_of_one_mode;
  if (options.mode == LeaseMode::permit) {
    return !is_of_one_mode || holders.size() >= options.permits;
  }
  return true;
}

void Facts::granted(const std::string& name, Token token, const std::string& owner,
                    const AcquireOptions& options) {
  auto& lease = leases_[name];
  const auto fingerprint = owner_fingerprint(owner);
  const auto same = std::find_if(lease.holders.begin(), lease.holders.end(),
                                 [&](const auto& holder) { return holder.owner == fingerprint; });
  const bool is_same = lease.is_sure && same != lease.holders.end();
  if (is_same ? token != same->token : token <= highest_ && lease.is_sure) {
    say("token " + std::to_string(token.number()) + " of " + name + " came after " +
        std::to_string(highest_.number()));
  }
  highest_ = std::max(highest_, token);
  lease.token = std::max(lease.token, token);
  lease.is_blocked = false;
  lease.payload = options.payload || !is_same ? options.payload : lease.payload;
  lease.delay = options.delay.value_or(is_same ? lease.delay : 0ms);
  if (is_same) return;
  // One that excludes all others makes an end of every doubt; who else shares it may be in doubt.
  if (options.mode == LeaseMode::exclusive) {
    lease.holders.clear();
    lease.is_sure = true;
  }
  lease.holders.push_back({.owner = fingerprint, .token = token, .mode = options.mode});
}

void Facts::acquire(Store& store, const std::string& name, const std::string& owner,
                    const AcquireOptions& options, std::chrono::milliseconds ttl) {
  const auto grant = store.acquire(name, owner, ttl, options);
  if (!grant) {
    may_fail("an acquisition of " + name, grant.error());
    if (grant.error().code() == Errc::in_doubt) leases_[name].is_sure = false;
    return;
  }
  ++acknowledged_;
  if (*grant) {
    granted(name, (*grant)->token, owner, options);
  } else if (!may_be_taken(name, owner, options)) {
    say(name + " was not granted to " + owner + ", and nobody held it");
  }
}

void Facts::acquire_together(Store& store, const std::vector<std::string>& names,
                             const std::string& owner) {
  const auto grant = store.execute(AcquireMany{.names = names, .owner = owner, .ttl = kTtl});
  if (!grant) {
    may_fail("an acquisition of " + names.front() + " and others", grant.error());
    if (grant.error().code() != Errc::in_doubt) return;
    for (const auto& name : names) leases_[name].is_sure = false;
    together_.push_back(names);
    return;
  }
  ++acknowledged_;
  if (!*grant) return say(names.front() + " and others were not granted to " + owner);
  // They share their token: for the first of them it is new.
  const auto before = highest_;
  for (const auto& name : names) {
    highest_ = before;
    granted(name, (*grant)->token, owner, {});
  }
}

void Facts::release(Store& store, const std::string& name, const std::string& owner) {
  const auto held = leases_.find(name);
  if (held == leases_.end()) return;
  auto& lease = held->second;
  const auto fingerprint = owner_fingerprint(owner);
  const auto mine = std::find_if(lease.holders.begin(), lease.holders.end(),
                                 [&](const auto& holder) { return holder.owner == fingerprint; });
  const auto token = mine == lease.holders.end() ? lease.token : mine->token;
  const auto released = store.release(name, owner, token);
  if (released) {
    ++acknowledged_;
    if (mine != lease.holders.end()) lease.holders.erase(mine);
    return;
  }
  // Of an acquisition in doubt, another token may be the one that is held.
  if (!lease.is_sure && released.error().code() == Errc::lease_lost) return;
  may_fail("a release of " + name, released.error());
  if (released.error().code() == Errc::in_doubt) lease.is_sure = false;
}

void Facts::revoke(Store& store, const std::string& name) {
  const auto revoked = store.execute(Revoke{.name = name});
  auto& lease = leases_[name];
  if (!revoked) {
    may_fail("a revocation of " + name, revoked.error());
    if (revoked.error().code() == Errc::in_doubt) lease.is_sure = false;
    return;
  }
  ++acknowledged_;
  lease.is_blocked = !lease.holders.empty() && lease.delay > 0ms;
  lease.holders.clear();
}

void Facts::look(Store& store) {
  look_at_keys(store, false);
}

void Facts::look_at_damaged(Store& store) {
  look_at_keys(store, true);
  look_at_leases(store, true);
  check_listed_keys(store, true);
  check_listed_leases(store, true);
  check_counts(store);
  const auto next = store.acquire("a name that is free", "me", 1ms);
  if (next && *next && (*next)->token <= highest_) {
    say("token " + std::to_string((*next)->token.number()) + " came again");
  }
}

void Facts::look_at_keys(Store& store, bool may_be_damaged) {
  for (const auto& [key, known] : keys_) {
    const auto found = store.read_committed({.keys = {key}});
    if (!found) {
      if (may_be_damaged && found.error().code() == Errc::corrupt) continue;
      may_fail("a read of " + key, found.error());
      continue;
    }
    const auto state = seen(found->front());
    const auto& may_be = known.may_be;
    if (std::find(may_be.begin(), may_be.end(), state) == may_be.end()) {
      say(key + " was read as " + shown(state) + ", and is " + shown(may_be.front()));
    }
  }
}

void Facts::check_lease(const LeaseState& state, const Lease& lease) {
  const auto& name = state.name;
  if (state.fence != lease.token) {
    say("the fence of " + name + " is " + std::to_string(state.fence.number()) + ", granted was " +
        std::to_string(lease.token.number()));
  }
  if (holders_of(state) != lease.holders) {
    say(name + " is held by " + shown(holders_of(state)) + ", granted was it to " +
        shown(lease.holders));
  }
  // A label is that of who holds it.
  const auto label = lease.holders.empty() ? std::nullopt : lease.payload;
  if (state.payload != label) {
    say("the label of " + name + " is " + state.payload.value_or("(none)") + ", given was " +
        label.value_or("(none)"));
  }
  if ((state.blocked > 0ms) != lease.is_blocked) {
    say(name + (lease.is_blocked ? " is free, and was revoked with a delay" : " is blocked"));
  }
}

void Facts::look_at_leases(Store& store, bool may_be_damaged) {
  for (const auto& [name, lease] : leases_) {
    if (lease.token == Token() || !lease.is_sure) continue;
    const auto state = store.execute(Inspect{.name = name});
    if (state) {
      check_lease(*state, lease);
    } else if (!may_be_damaged || state.error().code() != Errc::corrupt) {
      say(name + " cannot be read: " + state.error().line());
    }
  }
}

void Facts::check_listed_keys(Store& store, bool may_be_damaged) {
  const auto listed =
      all_of<std::string>([&](const auto& after) { return store.list_keys(after, kPage); });
  if (!listed) {
    if (may_be_damaged && listed.error().code() == Errc::corrupt) return;
    return say("keys cannot be listed: " + listed.error().line());
  }
  const std::set<std::string> found(listed->begin(), listed->end());
  for (const auto& [key, known] : keys_) {
    const bool is_live = known.may_be.front().value.has_value();
    if (found.contains(key) == is_live) continue;
    say(key + (is_live ? " is in no listing" : " is listed, and has no value"));
  }
  if (listed->size() != live_keys()) {
    say(std::to_string(listed->size()) + " keys are listed, " + std::to_string(live_keys()) +
        " have a value");
  }
}

void Facts::check_listed_leases(Store& store, bool may_be_damaged) {
  const auto listed =
      all_of<LeaseState>([&](const auto& after) { return store.list_leases(after, kPage); });
  if (!listed) {
    if (may_be_damaged && listed.error().code() == Errc::corrupt) return;
    return say("leases cannot be listed: " + listed.error().line());
  }
  std::set<std::string> expected;
  for (const auto& [name, lease] : leases_) {
    if (!lease.holders.empty()) expected.insert(name);
  }
  for (const auto& state : *listed) {
    if (expected.erase(state.name) == 0) {
      say(state.name + " is listed, and nobody holds it");
    } else {
      check_lease(state, leases_.at(state.name));
    }
  }
  for (const auto& name : expected) say(name + " is held, and in no listing");
}

void Facts::check_counts(Store& store) {
  const auto stats = store.stats();
  const auto check = [&](const char* what, std::uint64_t counted, std::uint64_t expected) {
    if (counted == expected) return;
    say(std::to_string(counted) + " " + what + " are counted, there are " +
        std::to_string(expected));
  };
  check("keys with a value", stats.live_keys, live_keys());
  check("tombstones", stats.tombstones, tombstones());
  check("lease names", stats.lease_names, leases_.size());
}

std::vector<std::string> Facts::dump_lines() const {
  const auto quoted = [](const std::string& text) { return "\"" + text + "\""; };
  std::vector<std::string> lines;
  for (const auto& [key, known] : keys_) {
    const auto& state = known.may_be.front();
    const auto fence = quoted(std::to_string(state.fence));
    auto line = R"({"kind":"key","key":)" + quoted(key) + R"(,"fence":)" + fence +
                R"(,"version":)" + quoted(std::to_string(state.version)) + R"(,"written_by":)" +
                fence + R"(,"written":0,)";
    if (state.guard) line += R"("guard":)" + quoted(*state.guard) + ",";
    if (state.request) line += R"("request":)" + quoted(*state.request) + ",";
    line += R"("value":)" + (state.value ? R"({"text":)" + quoted(*state.value) + "}" : "null");
    lines.push_back(line + "}");
  }
  return lines;
}

std::uint64_t Facts::live_keys() const {
  return static_cast<std::uint64_t>(std::count_if(keys_.begin(), keys_.end(), [](const auto& key) {
    return key.second.may_be.front().value.has_value();
  }));
}

std::uint64_t Facts::tombstones() const {
  return keys_.size() - live_keys();
}

void Facts::check_keys(Store& store) {
  for (auto& [key, known] : keys_) {
    const auto found = store.read_committed({.keys = {key}});
    if (!found) {
      say(key + " cannot be read: " + found.error().line());
      continue;
    }
    const auto state = seen(found->front());
    auto& may_be = known.may_be;
    if (std::find(may_be.begin(), may_be.end(), state) == may_be.end()) {
      std::string expected;
      for (const auto& one : may_be) expected += " " + shown(one);
      say(key + " is " + shown(state) + ", expected one of" + expected);
      continue;
    }
    // From here on it is certain.
    may_be = {state};
    if (state.fence == 0) continue;
    const auto stale = store.set(key, "zombie", Token{state.fence - 1}, {.lease = state.guard});
    const bool is_refused =
        !stale && (stale.error().code() == Errc::fenced || stale.error().code() == Errc::invalid);
    if (!is_refused) say("a stale write of " + key + " was not refused");
  }
}

void Facts::check_pairs(Store& store) {
  for (const auto& pair : pairs_) {
    const auto first = store.get(pair.first);
    const auto second = store.get(pair.second);
    if (first && second && (*first == pair.value) != (*second == pair.value)) {
      say(pair.first + " and " + pair.second + " were written by half");
    }
  }
}

void Facts::check_together(Store& store) {
  for (const auto& names : together_) {
    std::set<Token> tokens;
    for (const auto& name : names) {
      const auto state = store.execute(Inspect{.name = name});
      if (state) tokens.insert(state->fence);
    }
    if (tokens.size() > 1) say(names.front() + " and others were granted by half");
  }
}

/// A fresh name and owner, and a token above every other.
void Facts::check_next_token(Store& store) {
  const auto name = "after " + std::to_string(highest_.number());
  const auto next = store.acquire(name, name, 1ms);
  if (!next || !*next) {
    say("nothing is granted: " + (next ? "nil" : next.error().line()));
  } else if ((*next)->token <= highest_) {
    say("token " + std::to_string((*next)->token.number()) + " came again");
  } else {
    highest_ = (*next)->token;
  }
}

void Facts::check(Store& store) {
  check_keys(store);
  check_pairs(store);
  check_listed_keys(store, false);
  look_at_leases(store, false);
  check_together(store);
  check_next_token(store);
}

void Facts::check_restored(Store& store) {
  check_keys(store);
  check_listed_keys(store, false);
  for (const auto& [name, lease] : leases_) {
    const auto state = store.execute(Inspect{.name = name});
    if (!state || !state->holders.empty()) say(name + " is held in a new history");
  }
  check_next_token(store);
}

}  // namespace fencekv::testing
