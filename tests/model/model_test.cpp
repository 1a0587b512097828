// SPDX-License-Identifier: Apache-2.0
/// Random commands, clock steps, restarts, crashes and reboots under a seed: the store must answer
/// as the model does (invariants I1, I2, I5 to I7, I9 to I13, as far as this version has them).
///
///     FENCEKV_SEED=7 FENCEKV_STEPS=100000 fencekv_model_tests
///
/// Without FENCEKV_SEED each run takes new seeds, and a failure prints its own.

#include "tests/contract/world.h"
#include "tests/model/store_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace fencekv::testing {
namespace {

using std::chrono::milliseconds;

std::optional<std::uint64_t> number_from_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : parse_decimal(text);
}

std::string text(const std::optional<std::string>& maybe) {
  return maybe.value_or("(none)");
}

/// One random life of a store beside its model.
class Life {
 public:
  /// The protocol has no command that deletes several keys at once.
  Life(World& world, bool can_delete_many, std::uint64_t seed)
      : world_(world), can_delete_many_(can_delete_many), random_(seed) {}

  /// One command or event. Returns what was asked and answered, or nothing if it was an event.
  void step() {
    switch (pick(20)) {
      case 0:
        return restart();
      case 1:
      case 2:
        return advance();
      case 3:
      case 4:
      case 5:
        return acquire();
      case 6:
        return renew();
      case 7:
        return release();
      case 8:
        return revoke();
      case 9:
        return inspect();
      case 10:
        return raise();
      case 11:
        return reset();
      case 12:
        return read();
      default:
        return write();
    }
  }

  /// Listings and numbers equal the model at one point in time.
  void compare_everything() {
    std::vector<std::string> live;
    std::uint64_t tombstones = 0;
    for (const auto& [name, key] : model_.keys()) {
      if (key.value) live.push_back(name);
      if (!key.value) ++tombstones;
    }
    auto keys = world_.keys();
    ASSERT_TRUE(keys) << keys.error().line();
    std::sort(keys->begin(), keys->end());
    EXPECT_EQ(*keys, live);

    std::vector<std::string> held;
    for (const auto& [name, lease] : model_.leases()) {
      if (model_.is_held(lease)) held.push_back(name);
    }
    const auto leases = world_.leases();
    ASSERT_TRUE(leases) << leases.error().line();
    std::vector<std::string> listed;
    for (const auto& lease : *leases) {
      listed.push_back(lease.name);
      ASSERT_EQ(lease.holders.size(), 1);
      EXPECT_GT(lease.holders[0].remaining, milliseconds(0));
    }
    std::sort(listed.begin(), listed.end());
    EXPECT_EQ(listed, held);

    const auto stats = world_.store().stats();
    EXPECT_EQ(stats.live_keys, live.size());
    EXPECT_EQ(stats.tombstones, tombstones);
    EXPECT_EQ(stats.lease_names, model_.leases().size());
    EXPECT_EQ(stats.newest.number(), model_.newest());
    EXPECT_EQ(stats.incarnation, incarnation_.value_or(stats.incarnation));
    incarnation_ = stats.incarnation;
  }

  const std::string& last() const { return last_; }

 private:
  std::uint64_t pick(std::uint64_t below) { return random_() % below; }
  bool maybe(std::uint64_t one_in) { return pick(one_in) == 0; }
  std::string key() { return std::string(1, static_cast<char>('a' + pick(5))); }
  std::string lease() { return std::string(1, static_cast<char>('x' + pick(3))); }
  std::string owner() { return std::string(1, static_cast<char>('1' + pick(3))); }
  milliseconds ttl() { return milliseconds(1 + pick(40)); }

  /// Mostly a token that matters: near the newest, or one that somebody has.
  Token token() {
    const auto newest = model_.newest();
    if (maybe(2) && !model_.leases().empty()) {
      const auto found = model_.leases().find(lease());
      if (found != model_.leases().end()) return Token{found->second.fence};
    }
    const auto low = newest > 6 ? newest - 6 : 0;
    return Token{std::max<std::uint64_t>(1, low + pick(8))};
  }

  void expect(const std::string& asked, const std::string& answered, const std::string& expected) {
    last_ = asked;
    // An ERR is told by its words, which are for people: the model only knows that it is one.
    const auto compared = answered.starts_with("ERR") ? "ERR" : answered;
    EXPECT_EQ(compared, expected) << "asked: " << asked << "\nanswered: " << answered;
  }

  template <class C, class Show>
  std::string answer(C command, Show show) {
    const auto reply = world_.ask(std::move(command));
    if (!reply) return reply.error().line();
    return show(*reply);
  }

  void advance() {
    const auto step = milliseconds(pick(30));
    world_.clock().advance(step);
    model_.advance(step.count());
  }

  void restart() {
    switch (pick(3)) {
      case 0:
        world_.restart();
        // A clean stop gives the unused tokens of its block back.
        break;
      case 1:
        world_.crash();
        skip_block();
        break;
      default:
        // The store knows of the time that went by only what it wrote down, so nothing goes by
        // unseen here; a clean stop writes it down too.
        world_.restart();
        world_.clock().reboot();
        world_.crash();
        skip_block();
        model_.reboot();
        break;
    }
  }

  /// A crash leaves a gap: the next grant tells how far.
  void skip_block() { skipped_ = true; }

  void acquire() {
    const auto name = lease();
    const auto by = owner();
    const auto time = ttl();
    const auto reply = world_.ask(Acquire{name, by, time});
    ASSERT_TRUE(reply) << reply.error().line();
    if (skipped_ && *reply && (*reply)->token.number() > model_.newest()) {
      // Strictly growing is all that is promised of it.
      model_.skip_to((*reply)->token.number() - 1);
      skipped_ = false;
    }
    const auto answered = !*reply ? std::string("OK (none)")
                                  : "OK " + std::to_string((*reply)->token.number()) + " " +
                                        std::to_string((*reply)->remaining.count());
    expect("acquire " + name + " " + by, answered, model_.acquire(name, by, time.count()));
  }

  void renew() {
    const auto name = lease();
    const auto by = owner();
    const auto with = token();
    const auto time = ttl();
    const auto answered = answer(Renew{name, by, with, time}, [](milliseconds remaining) {
      return "OK " + std::to_string(remaining.count());
    });
    expect("renew " + name + " " + by, answered,
           model_.renew(name, by, with.number(), time.count()));
  }

  void release() {
    const auto name = lease();
    const auto by = owner();
    const auto with = token();
    const auto answered = answer(Release{name, by, with}, [](auto) { return std::string("OK"); });
    expect("release " + name + " " + by, answered, model_.release(name, by, with.number()));
  }

  void revoke() {
    const auto name = lease();
    const auto answered =
        answer(Revoke{name}, [](Token fence) { return "OK " + std::to_string(fence.number()); });
    expect("revoke " + name, answered, model_.revoke(name));
  }

  void inspect() {
    const auto name = lease();
    const auto answered = answer(Inspect{name}, [](const LeaseState& state) {
      const auto fence = "OK " + std::to_string(state.fence.number());
      if (state.holders.empty()) return fence + " free";
      return fence + " held " + std::to_string(state.holders[0].remaining.count());
    });
    expect("inspect " + name, answered, model_.inspect(name));
  }

  void raise() {
    const auto name = key();
    const auto with = token();
    const auto under = maybe(2) ? std::optional(lease()) : std::nullopt;
    const auto show = [](Token fence) { return "OK " + std::to_string(fence.number()); };
    const auto expected = model_.raise(name, with.number(), under);
    const auto asked = "raise " + name + " " + std::to_string(with.number()) + " " + text(under);
    if (maybe(2)) {
      expect(asked, answer(Raise{name, with, under}, show), expected);
    } else {
      const auto fence_of = [&](const KeyState& state) { return show(state.fence); };
      expect(asked, answer(FencedRead{name, with, under}, fence_of), expected);
    }
  }

  void reset() {
    const auto name = key();
    const auto with = token();
    const auto answered = answer(Reset{.key = name, .token = with}, [](const Reset::Reply& reply) {
      return "OK " + std::to_string(reply.before.number()) + " " +
             std::to_string(reply.after.number());
    });
    expect("reset " + name, answered, model_.reset(name, with.number()));
  }

  void read() {
    const auto name = key();
    const auto answered = answer(Read{.keys = {name}}, [](const Read::Reply& keys) {
      const auto& state = keys.front();
      return "OK " + text(state.value) + " " + std::to_string(state.version) + " " +
             std::to_string(state.fence.number()) + " " + text(state.guard) + " " +
             text(state.request);
    });
    expect("read " + name, answered, model_.read(name));
  }

  void write() {
    Write command;
    StoreModel::Write expected;
    const auto count = maybe(4) ? 1 + pick(3) : 1;
    while (command.entries.size() < count) {
      const auto name = key();
      const auto is_there = std::any_of(command.entries.begin(), command.entries.end(),
                                        [&](const auto& entry) { return entry.key == name; });
      if (is_there) continue;
      auto value = maybe(4) && (count == 1 || can_delete_many_)
                       ? std::nullopt
                       : std::optional("v" + std::to_string(pick(1000)));
      expected.entries.emplace_back(name, value);
      command.entries.push_back({.key = name, .value = std::move(value)});
    }
    command.token = token();
    if (maybe(2)) command.lease = lease();
    if (maybe(4)) command.live = true;
    if (maybe(4)) command.request = "r" + std::to_string(pick(3));
    const bool has_delete = std::any_of(command.entries.begin(), command.entries.end(),
                                        [](const auto& entry) { return !entry.value.has_value(); });
    if (count == 1 && !has_delete && maybe(5)) command.once = true;
    if (count == 1 && maybe(4)) command.if_version = pick(6);
    expected.token = command.token.number();
    expected.lease = command.lease;
    expected.live = command.live;
    expected.once = command.once;
    expected.request = command.request;
    expected.if_version = command.if_version;

    std::string asked = "write";
    for (const auto& entry : command.entries) asked += " " + entry.key + "=" + text(entry.value);
    asked += " token " + std::to_string(command.token.number()) + " lease " + text(command.lease) +
             " live " + std::to_string(command.live) + " once " + std::to_string(command.once) +
             " request " + text(command.request);
    const auto answered = answer(std::move(command), [](const Write::Reply& versions) {
      std::string line = "OK";
      for (const auto version : versions) line += " " + std::to_string(version);
      return line;
    });
    expect(asked, answered, model_.write(expected));
  }

  World& world_;
  const bool can_delete_many_;
  StoreModel model_;
  std::mt19937_64 random_;
  bool skipped_ = false;
  std::optional<std::string> incarnation_;
  std::string last_;
};

class ModelTest : public ::testing::TestWithParam<WorldKind> {};

TEST_P(ModelTest, AnswersAsTheModelDoes) {
  const auto given = number_from_environment("FENCEKV_SEED");
  const auto steps = number_from_environment("FENCEKV_STEPS").value_or(400);
  // A world costs more than a step, and a real one most.
  const auto lives = given ? 1 : GetParam().name == "Memory" ? 200 : 6;

  for (int life = 0; life < lives; ++life) {
    const auto seed = given.value_or(std::random_device{}());
    SCOPED_TRACE(GetParam().name + " with FENCEKV_SEED=" + std::to_string(seed));
    const auto world = GetParam().make({});
    Life story(*world, GetParam().name != "Network", seed);
    for (std::uint64_t step = 0; step < steps; ++step) {
      story.step();
      if (step % 50 == 49) story.compare_everything();
      ASSERT_FALSE(HasFailure()) << "at step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, ModelTest, ::testing::ValuesIn(every_world()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
