// SPDX-License-Identifier: Apache-2.0
/// The fixture of the contract tests: short words for what a test says often.

#pragma once

#include "tests/contract/world.h"
#include "tests/support/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
};

}  // namespace fencekv::testing
