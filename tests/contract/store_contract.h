// SPDX-License-Identifier: Apache-2.0
/// The fixture of the contract tests: short words for what a test says often.

#pragma once

#include "tests/contract/world.h"
#include "tests/support/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#define ASSERT_OK(result) ASSERT_TRUE((result).has_value()) << (result).error().line()
#define EXPECT_OK(result) EXPECT_TRUE((result).has_value()) << (result).error().line()

namespace fencekv::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;
using namespace std::chrono_literals;  // NOLINT: only literals

/// `FENCED 34 33 stale`, or `OK`.
template <class T>
std::string outcome(const Result<T>& result) {
  return result ? "OK" : result.error().line();
}

/// `OK 34` or `(none)`, or the error.
inline std::string granted_line(const Result<Reply>& reply) {
  if (!reply) return reply.error().line();
  if (const auto* grant = std::get_if<Acquire::Reply>(&*reply)) {
    return *grant ? "OK " + std::to_string((*grant)->token.number()) : "(none)";
  }
  const auto& event = std::get<Await::Reply>(*reply);
  if (!event) return "(none)";
  return std::string(to_string(event->change)) + " " + event->name + " " +
         std::to_string(event->token.number());
}

/// `granted 34, released 34`.
inline std::string told_line(const std::vector<LeaseEvent>& events) {
  std::string line;
  for (const auto& event : events) {
    line += (line.empty() ? "" : ", ") + std::string(to_string(event.change)) + " " +
            std::to_string(event.token.number());
  }
  return line;
}

/// A command that waits, with the user who asked.
struct Waiting {
  User* user = nullptr;
  std::shared_ptr<Answer> answer;
  Ticket ticket = 0;
};

class StoreContract : public ::testing::TestWithParam<WorldKind> {
 protected:
  World& world() {
    if (!world_) world_ = GetParam().make(options_);
    return *world_;
  }
  /// For the world that the first use makes.
  Options& options() { return options_; }

  /// A fresh token, of a lease that nobody else uses.
  Token issue(std::string_view name = "issuer") {
    auto grant = world().ask(Acquire{
        .name = std::string(name), .owner = "issuer-" + std::to_string(++issued_), .ttl = 1h});
    if (!grant || !*grant) {
      ADD_FAILURE() << "no token: " << outcome(grant);
      return {};
    }
    const auto token = (*grant)->token;
    EXPECT_OK(world().ask(Revoke{.name = std::string(name)}));
    return token;
  }
  /// The highest of `count` fresh tokens, and the ones just below it.
  std::vector<Token> issue_many(std::size_t count) {
    std::vector<Token> tokens;
    for (std::size_t i = 0; i < count; ++i) tokens.push_back(issue());
    return tokens;
  }

  Token hold(std::string_view name, std::string_view owner, milliseconds ttl = 10s) {
    auto grant =
        world().ask(Acquire{.name = std::string(name), .owner = std::string(owner), .ttl = ttl});
    if (!grant || !*grant) {
      ADD_FAILURE() << name << " is not free for " << owner << ": " << outcome(grant);
      return {};
    }
    return (*grant)->token;
  }
  bool can_take(std::string_view name, std::string_view owner, milliseconds ttl = 10s) {
    const auto grant =
        world().ask(Acquire{.name = std::string(name), .owner = std::string(owner), .ttl = ttl});
    EXPECT_OK(grant);
    return grant && *grant;
  }
  Result<milliseconds> renew(std::string_view name, std::string_view owner, Token token,
                             milliseconds ttl = 10s) {
    return world().ask(
        Renew{.name = std::string(name), .owner = std::string(owner), .token = token, .ttl = ttl});
  }
  Result<std::monostate> release(std::string_view name, std::string_view owner, Token token) {
    return world().ask(
        Release{.name = std::string(name), .owner = std::string(owner), .token = token});
  }
  LeaseState lease(std::string_view name) {
    auto state = world().ask(Inspect{.name = std::string(name)});
    EXPECT_OK(state);
    return state ? *state : LeaseState{};
  }

  static Write set_of(std::string_view key, std::string_view value, Token token,
                      WriteOptions options = {}) {
    return make_write({{.key = std::string(key), .value = std::string(value)}}, token,
                      std::move(options));
  }
  static Write delete_of(std::string_view key, Token token, WriteOptions options = {}) {
    return make_write({{.key = std::string(key), .value = std::nullopt}}, token,
                      std::move(options));
  }
  Result<Write::Reply> set(std::string_view key, std::string_view value, Token token,
                           WriteOptions options = {}) {
    return world().ask(set_of(key, value, token, std::move(options)));
  }
  Result<Write::Reply> remove(std::string_view key, Token token, WriteOptions options = {}) {
    return world().ask(delete_of(key, token, std::move(options)));
  }
  Result<Write::Reply> set_all(std::vector<std::string> keys, std::string_view value, Token token,
                               WriteOptions options = {}) {
    auto write = make_write({}, token, std::move(options));
    for (auto& key : keys) {
      write.entries.push_back({.key = std::move(key), .value = std::string(value)});
    }
    return world().ask(std::move(write));
  }

  // Users, and commands that wait.

  static bool comes_true(const std::function<bool()>& condition,
                         milliseconds patience = kPatience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }

  User& new_user() { return world().add_user("user-" + std::to_string(++users_)); }

  /// As a user of its own; returns once the command waits, or is answered.
  template <class C>
  Waiting queue(C command) {
    return queue(new_user(), std::move(command));
  }
  template <class C>
  Waiting queue(User& user, C command) {
    const auto before = world().store().stats().waiting;
    auto submitted = user.submit(Command(std::move(command)));
    EXPECT_TRUE(comes_true([&] {
      return !submitted.answer->is_pending() || world().store().stats().waiting > before;
    }));
    return {&user, std::move(submitted.answer), submitted.ticket};
  }
  Waiting queue(std::string_view name, std::string_view owner, AcquireOptions options = {}) {
    if (options.wait == milliseconds(0)) options.wait = 1h;
    return queue(make_acquire(name, owner, 10s, std::move(options)));
  }

  /// How the wait ended; fails the test if it does not.
  std::string end_of(const Waiting& waiting) {
    const auto reply = waiting.answer->wait();
    if (!reply) return "it still waits";
    EXPECT_EQ(waiting.answer->times(), 1);
    return granted_line(*reply);
  }
  Token token_of(const Waiting& waiting) {
    const auto reply = waiting.answer->wait();
    if (!reply || !*reply || !std::get<Acquire::Reply>(**reply)) {
      ADD_FAILURE() << "not granted: " << (reply ? granted_line(*reply) : "it still waits");
      return {};
    }
    return std::get<Acquire::Reply>(**reply)->token;
  }
  /// Whether everything that was asked before has left it waiting.
  bool waits(const Waiting& waiting) {
    EXPECT_OK(world().ask(Inspect{.name = "nothing"}));
    return waiting.answer->is_pending();
  }

  /// The user is gone, and the store knows.
  void leave(User& user) {
    const auto before = world().store().stats().sessions;
    user.leave();
    EXPECT_TRUE(comes_true([&] { return world().store().stats().sessions < before; }));
    EXPECT_OK(world().ask(Inspect{.name = "nothing"}));
  }

  Result<Acquire::Reply> acquire(std::string_view name, std::string_view owner,
                                 AcquireOptions options = {}, milliseconds ttl = 10s) {
    return world().ask(make_acquire(name, owner, ttl, std::move(options)));
  }
  /// As acquire(), which has to succeed.
  Token take(std::string_view name, std::string_view owner, AcquireOptions options = {},
             milliseconds ttl = 10s) {
    return granted(name, acquire(name, owner, std::move(options), ttl));
  }
  /// The same by that user.
  Token take(User& user, std::string_view name, std::string_view owner, AcquireOptions options = {},
             milliseconds ttl = 10s) {
    return granted(name, user.ask(make_acquire(name, owner, ttl, std::move(options))));
  }
  Token granted(std::string_view name, const Result<Acquire::Reply>& grant) {
    if (!grant || !*grant) {
      ADD_FAILURE() << name << " was not granted: " << outcome(grant);
      return {};
    }
    return (*grant)->token;
  }
  static bool is_not_acquired(const Result<Acquire::Reply>& grant) { return grant && !*grant; }

  Token revoke(std::string_view name) {
    const auto fence = world().ask(Revoke{.name = std::string(name)});
    EXPECT_OK(fence);
    return fence ? *fence : Token{};
  }
  std::vector<LeaseWaiter> waiters(std::string_view name) {
    auto waiters = world().ask(ListWaiters{.name = std::string(name)});
    EXPECT_OK(waiters);
    return waiters ? *waiters : ListWaiters::Reply{};
  }

  /// What the user is told, once that many events came.
  std::string told(User& user, std::size_t count) {
    events_of_[&user] += count;
    EXPECT_TRUE(comes_true([&] { return user.events_so_far() >= events_of_[&user]; }))
        << "not told " << count << " times";
    EXPECT_OK(world().ask(Inspect{.name = "nothing"}));
    return told_line(user.take_events());
  }

  KeyState state_of(std::string_view key) {
    auto keys = world().ask(Read{.keys = {std::string(key)}});
    EXPECT_OK(keys);
    return keys ? keys->front() : KeyState{};
  }
  std::string value_of(std::string_view key) { return state_of(key).value.value_or("(none)"); }

 private:
  Options options_;
  std::unique_ptr<World> world_;
  int issued_ = 0;
  int users_ = 0;
  std::map<User*, std::size_t> events_of_;
};

}  // namespace fencekv::testing
