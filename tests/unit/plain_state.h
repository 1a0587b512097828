// SPDX-License-Identifier: Apache-2.0
/// A state in maps for the rules alone: it can fail at any look, and can stand as no store easily
/// gets it to stand.

#pragma once

#include "engine/core/rules.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::core {

class PlainState : public State {
 public:
  Result<const KeyRecord*> key(std::string_view key) override {
    if (fails("k", key)) return damaged();
    const auto found = keys.find(std::string(key));
    return found == keys.end() ? nullptr : &found->second;
  }
  const KeyRecord& put_key(std::string_view key, KeyRecord record) override {
    ++puts;
    return keys[std::string(key)] = std::move(record);
  }
  Result<const Lease*> lease(std::string_view name) override {
    if (fails("l", name)) return damaged();
    const auto found = leases.find(std::string(name));
    return found == leases.end() ? nullptr : &found->second;
  }
  Lease& change_lease(std::string_view name) override {
    ++puts;
    return leases.at(std::string(name));
  }
  void put_lease(std::string_view name, Lease lease) override {
    ++puts;
    leases.emplace(name, std::move(lease));
  }

  Token newest() const override { return newest_token; }
  Token floor() const override { return floor_token; }
  const Boots& boots() const override { return boots_; }
  std::uint64_t process() const override { return 1; }
  std::chrono::nanoseconds process_began() const override { return std::chrono::seconds(2); }
  std::chrono::nanoseconds fence_retention() const override { return retention; }
  void lift_floor(Token floor) override { floor_token = std::max(floor_token, floor); }
  void erase_key(std::string_view key) override { keys.erase(std::string(key)); }
  void erase_lease(std::string_view name) override { leases.erase(std::string(name)); }
  Result<Token> draw() override {
    if (!may_draw) return Error(Errc::misconf, "tokens cannot be reserved");
    newest_token = Token{newest_token.number() + 1};
    return newest_token;
  }
  bool is_frozen() const override { return frozen; }

  const Sessions& sessions() const override { return open_sessions; }
  Waiters& waiters() override { return waiting; }
  void answer(Ticket ticket, Result<Reply> reply) override {
    answers.emplace_back(ticket, std::move(reply));
  }
  void happened(LeaseEvent event) override { events.push_back(std::move(event)); }
  void unbind(std::uint64_t session, std::string_view name, Token token) override {
    waiting.unbind(session, name, token);
  }
  void refused(std::string_view key, const std::optional<std::string>&, Token,
               const Error&) override {
    refusals.emplace_back(key);
  }

  /// From here on the record at a place, `k` or `l` and its name, cannot be read.
  void damage(const std::string& place) { damaged_.insert(place); }

  std::map<std::string, KeyRecord> keys;
  std::map<std::string, Lease> leases;
  Token newest_token{10};
  Token floor_token;
  std::chrono::nanoseconds retention = std::chrono::hours(24);
  bool may_draw = true;
  bool frozen = false;
  /// Records looked at for the first time. The `fail_at`-th of these fails, once and for good; 0:
  /// none does. What was seen once is known, as in a group.
  int looks = 0;
  int fail_at = 0;
  int puts = 0;
  Sessions open_sessions;
  Waiters waiting;
  std::vector<std::pair<Ticket, Result<Reply>>> answers;
  std::vector<LeaseEvent> events;
  std::vector<std::string> refusals;

 private:
  static Error damaged() { return {Errc::corrupt, "a record is damaged"}; }

  bool fails(const std::string& kind, std::string_view name) {
    const auto place = kind + std::string(name);
    if (damaged_.contains(place)) return true;
    if (seen_.insert(place).second && ++looks == fail_at) damage(place);
    return damaged_.contains(place);
  }

  Boots boots_{0, {{.id = "boot", .opened = std::chrono::seconds(1), .last = {}}}};
  std::set<std::string> seen_;
  std::set<std::string> damaged_;
};

inline GrantRecord grant_of(std::string owner, Token token, GrantEnd end = GrantEnd::open,
                            std::chrono::nanoseconds deadline = std::chrono::hours(2)) {
  GrantRecord grant;
  grant.token = token;
  grant.end = end;
  grant.deadline = {.boot = 0, .at = deadline};
  grant.ttl = std::chrono::seconds(10);
  grant.owner = std::move(owner);
  return grant;
}

}  // namespace fencekv::core
