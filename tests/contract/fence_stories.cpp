// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/fence_stories.h"

#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;  // NOLINT: only literals

/// What must work for the story to have a meaning.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error("the story failed: " + result.error().line());
  return *std::move(result);
}

Token take(World& world, std::string_view owner, std::chrono::milliseconds ttl = 1s) {
  const auto grant = must(world.ask(Acquire{"settlement", std::string(owner), ttl}));
  if (!grant) throw std::runtime_error("the lease is not free");
  return grant->token;
}

Write write(std::string_view key, std::string_view value, Token token,
            std::optional<std::string> lease = "settlement") {
  return {.entries = {{.key = std::string(key), .value = std::string(value)}},
          .token = token,
          .lease = std::move(lease)};
}

std::optional<std::string> value(World& world, std::string_view key) {
  return must(world.ask(Read{.keys = {std::string(key)}})).front().value;
}

/// A sleeper whose successor holds the lease.
struct Takeover {
  Token sleeper;
  Token successor;
};

Takeover take_over(World& world) {
  const auto sleeper = take(world, "sleeper");
  world.clock().advance(1s);
  return {.sleeper = sleeper, .successor = take(world, "successor")};
}

bool overwrites_the_result(World& world) {
  const auto [sleeper, successor] = take_over(world);
  must(world.ask(write("result", "right", successor)));
  static_cast<void>(world.ask(write("result", "wrong", sleeper)));
  return value(world, "result") != "right";
}

bool writes_a_key_nobody_touched(World& world) {
  const auto [sleeper, successor] = take_over(world);
  static_cast<void>(world.ask(write("untouched", "wrong", sleeper)));
  return value(world, "untouched").has_value();
}

bool writes_after_its_own_release(World& world) {
  const auto token = take(world, "me");
  must(world.ask(Release{"settlement", "me", token}));
  static_cast<void>(world.ask(write("result", "wrong", token)));
  return value(world, "result").has_value();
}

bool writes_after_a_revocation(World& world) {
  const auto token = take(world, "me");
  must(world.ask(Revoke{"settlement"}));
  static_cast<void>(world.ask(write("result", "wrong", token)));
  return value(world, "result").has_value();
}

bool revives_a_deleted_key(World& world) {
  const auto [sleeper, successor] = take_over(world);
  must(world.ask(write("result", "old", successor)));
  auto removal = write("result", "", successor);
  removal.entries.front().value.reset();
  must(world.ask(std::move(removal)));
  static_cast<void>(world.ask(write("result", "wrong", sleeper)));
  return value(world, "result").has_value();
}

bool deletes_the_result(World& world) {
  const auto [sleeper, successor] = take_over(world);
  must(world.ask(write("result", "right", successor)));
  auto removal = write("result", "", sleeper);
  removal.entries.front().value.reset();
  static_cast<void>(world.ask(std::move(removal)));
  return !value(world, "result").has_value();
}

bool overwrites_without_naming_the_lease(World& world) {
  const auto [sleeper, successor] = take_over(world);
  must(world.ask(write("result", "right", successor, std::nullopt)));
  static_cast<void>(world.ask(write("result", "wrong", sleeper, std::nullopt)));
  return value(world, "result") != "right";
}

bool changes_what_was_read(World& world) {
  const auto [sleeper, successor] = take_over(world);
  must(world.ask(FencedRead{"result", successor, {}}));
  static_cast<void>(world.ask(write("result", "wrong", sleeper, std::nullopt)));
  return value(world, "result").has_value();
}

bool writes_below_a_raised_fence(World& world) {
  const auto [sleeper, successor] = take_over(world);
  must(world.ask(Raise{"result", successor, {}}));
  static_cast<void>(world.ask(write("result", "wrong", sleeper, std::nullopt)));
  return value(world, "result").has_value();
}

bool writes_one_key_of_many(World& world) {
  const auto [sleeper, successor] = take_over(world);
  must(world.ask(write("b", "right", successor, std::nullopt)));
  auto many = write("a", "wrong", sleeper, std::nullopt);
  many.entries.push_back({.key = "b", .value = "wrong"});
  static_cast<void>(world.ask(std::move(many)));
  return value(world, "a").has_value() || value(world, "b") != "right";
}

bool writes_after_a_crash(World& world) {
  const auto [sleeper, successor] = take_over(world);
  must(world.ask(write("result", "right", successor)));
  world.crash();
  static_cast<void>(world.ask(write("result", "wrong", sleeper)));
  static_cast<void>(world.ask(write("untouched", "wrong", sleeper)));
  return value(world, "result") != "right" || value(world, "untouched").has_value();
}

bool passes_a_compare_and_set_that_nobody_disturbed(World& world) {
  const auto sleeper = take(world, "sleeper");
  must(world.ask(write("result", "begun", sleeper)));
  world.clock().advance(1s);
  take(world, "successor");
  auto swap = write("result", "wrong", sleeper);
  swap.if_version = 1;
  static_cast<void>(world.ask(std::move(swap)));
  return value(world, "result") != "begun";
}

bool writes_twice_what_it_may_write_once(World& world) {
  const auto token = take(world, "me");
  auto first = write("result", "right", token);
  first.once = true;
  must(world.ask(std::move(first)));
  auto second = write("result", "wrong", token);
  second.once = true;
  static_cast<void>(world.ask(std::move(second)));
  return value(world, "result") != "right";
}

bool writes_below_a_lifted_floor(World& world) {
  world.options().durability = Durability::process;
  world.restart();
  const auto sleeper = take(world, "sleeper");
  world.clock().reboot();
  world.crash();
  static_cast<void>(world.ask(write("untouched", "wrong", sleeper, std::nullopt)));
  return value(world, "untouched").has_value();
}

}  // namespace

std::vector<FenceStory> fence_stories() {
  return {
      {"OverwritesTheResult", overwrites_the_result},
      {"WritesAKeyNobodyTouched", writes_a_key_nobody_touched},
      {"WritesAfterItsOwnRelease", writes_after_its_own_release},
      {"WritesAfterARevocation", writes_after_a_revocation},
      {"RevivesADeletedKey", revives_a_deleted_key},
      {"DeletesTheResult", deletes_the_result},
      {"OverwritesWithoutNamingTheLease", overwrites_without_naming_the_lease},
      {"ChangesWhatWasRead", changes_what_was_read},
      {"WritesBelowARaisedFence", writes_below_a_raised_fence},
      {"WritesOneKeyOfMany", writes_one_key_of_many},
      {"WritesAfterACrash", writes_after_a_crash},
      {"PassesACompareAndSetThatNobodyDisturbed", passes_a_compare_and_set_that_nobody_disturbed},
      {"WritesTwiceWhatItMayWriteOnce", writes_twice_what_it_may_write_once},
      {"WritesBelowALiftedFloor", writes_below_a_lifted_floor},
  };
}

}  // namespace fencekv::testing
