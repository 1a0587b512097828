// SPDX-License-Identifier: Apache-2.0
/// Random commands of several users, clock steps, disconnections, restarts, crashes and reboots
/// under a seed: the store must answer as the model does (invariants I1, I2, I5 to I13).
///
///     FENCEKV_SEED=7 FENCEKV_STEPS=100000 fencekv_model_tests
///
/// Without FENCEKV_SEED each run takes new seeds, and a failure prints its own.

#include "tests/contract/world.h"
#include "tests/model/store_model.h"
#include "tests/support/seed_from_environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using std::chrono::milliseconds;
using Mode = LeaseModel::Mode;

constexpr std::array<const char*, 3> kNames{"x", "y", "z"};
constexpr std::array<const char*, 4> kOwners{"1", "2", "3", "4"};

/// Polls, for what happens in the store's or the server's threads.
bool comes_true(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

/// One random life of a store beside its model.
class Life {
 public:
  /// The protocol has no command that deletes several keys at once.
  Life(World& world, bool can_delete_many, std::uint64_t seed)
      : world_(world), can_delete_many_(can_delete_many), random_(seed) {}

  /// One command or event, and everything that follows from it at once.
  void step() {
    newest_before_ = leases().newest();
    switch (pick(40)) {
      case 0:
        maybe(2) ? restart() : disconnect();
        break;
      case 1:
        disconnect();
        break;
      case 2:
      case 3:
        watch();
        break;
      case 4:
        unwatch();
        break;
      case 5:
      case 6:
      case 7:
      case 8:
      case 9:
        advance();
        break;
      case 10:
      case 11:
      case 12:
      case 13:
      case 14:
      case 15:
      case 16:
      case 17:
        acquire();
        break;
      case 18:
      case 19:
        acquire_many();
        break;
      case 20:
      case 21:
        await();
        break;
      case 22:
      case 23:
        renew();
        break;
      case 24:
      case 25:
        release();
        break;
      case 26:
        renew_many();
        break;
      case 27:
        release_many();
        break;
      case 28:
        revoke();
        break;
      case 29:
        cancel();
        break;
      case 30:
        raise();
        break;
      case 31:
        reset();
        break;
      case 32:
        read();
        break;
      default:
        write();
    }
    settle();
    if (maybe(4)) compare_leases();
    if (::testing::Test::HasFailure()) return;
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

    const auto listed = world_.leases();
    ASSERT_TRUE(listed) << listed.error().line();
    std::vector<std::string> names;
    for (const auto& lease : *listed) {
      names.push_back(lease.name);
      EXPECT_EQ(shown_state(lease), leases().inspect(lease.name));
    }
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, leases().listed());

    compare_leases();
    const auto stats = world_.store().stats();
    EXPECT_EQ(stats.live_keys, live.size());
    EXPECT_EQ(stats.tombstones, tombstones);
    EXPECT_EQ(stats.lease_names, leases().names_granted());
    EXPECT_EQ(stats.waiting, leases().waiting());
    EXPECT_EQ(stats.incarnation, incarnation_.value_or(stats.incarnation));
    incarnation_ = stats.incarnation;
  }

  /// All users leave; every wait has ended once (I8).
  void finish() {
    disconnect_all();
    for (const auto& answer : all_answers_) {
      EXPECT_EQ(answer->times(), 1)
          << "a waiting command was answered " << answer->times() << " times";
    }
  }

  /// What was asked last.
  std::string last() const {
    std::string lines;
    for (const auto& line : last_) lines += "\n  " + line;
    return lines;
  }

 private:
  using Number = LeaseModel::Number;
  struct Waiting {
    std::shared_ptr<Answer> answer;
    Submitted submitted;
    std::size_t user;
    std::string asked;
  };
  struct Visitor {
    User* user = nullptr;
    LeaseModel::User number = 0;  // Of this user; who comes after it gets another.
  };

  LeaseModel& leases() { return model_.leases(); }
  std::uint64_t pick(std::uint64_t below) { return random_() % below; }
  bool maybe(std::uint64_t one_in) { return pick(one_in) == 0; }
  std::string key() { return std::string(1, static_cast<char>('a' + pick(5))); }
  std::string lease() { return kNames.at(pick(kNames.size())); }
  std::string owner() { return kOwners.at(pick(kOwners.size())); }
  milliseconds ttl() { return milliseconds(1 + pick(40)); }

  /// Mostly a token that matters: near the newest, or one that somebody has.
  Token token() {
    const auto newest = leases().newest();
    const auto found = leases().names().find(lease());
    if (maybe(2) && found != leases().names().end() && found->second.fence > 0) {
      const auto& holders = found->second.holders;
      if (maybe(2) && !holders.empty()) return Token{holders.at(pick(holders.size())).token};
      return Token{found->second.fence};
    }
    const auto low = newest > 6 ? newest - 6 : 0;
    return Token{std::max<std::uint64_t>(1, low + pick(8))};
  }

  /// Mostly somebody's.
  Holding holding() {
    Holding holding{lease(), owner(), token()};
    const auto found = leases().names().find(holding.name);
    if (maybe(4) || found == leases().names().end()) return holding;
    const auto& lease = found->second;
    if (!lease.holders.empty()) {
      const auto& holder = lease.holders.at(pick(lease.holders.size()));
      holding.owner = holder.owner;
      holding.token = Token{holder.token};
    } else if (lease.last) {
      holding.owner = lease.last->owner;
      holding.token = Token{lease.last->token};
    }
    return holding;
  }

  // Users.

  bool is_busy(std::size_t user) const {
    return std::any_of(waiting_.begin(), waiting_.end(),
                       [&](const auto& waiting) { return waiting.second.user == user; });
  }

  /// One who can ask: where a wait holds up what comes behind it, one without a wait. nullopt: all
  /// wait.
  std::optional<std::size_t> user() {
    const auto first = pick(users_.size());
    for (std::size_t i = 0; i < users_.size(); ++i) {
      const auto index = (first + i) % users_.size();
      if (!world_.can_cancel() && is_busy(index)) continue;
      auto& visitor = users_.at(index);
      if (visitor.user == nullptr) {
        visitor.number = ++visitors_;
        visitor.user = &world_.add_user("user-" + text(visitor.number));
      }
      return index;
    }
    return std::nullopt;
  }

  void note(const std::string& asked) {
    last_.push_back(asked);
    if (last_.size() > 30) last_.erase(last_.begin());
  }

  void expect(const std::string& asked, const std::string& answered, const std::string& expected) {
    note(asked + " -> " + answered);
    // An ERR is told by its words, which are for people: the model only knows that it is one.
    const auto compared = answered.starts_with("ERR") ? "ERR" : answered;
    EXPECT_EQ(compared, expected) << "asked: " << asked << "\nanswered: " << answered;
  }

  /// The same for an answer that may carry a token which was drawn in this step.
  void expect(const std::string& asked, const Result<Reply>& reply,
              const LeaseModel::Answer& expected) {
    auto answered = LeaseModel::Answer{"OK (none)", 0};
    if (!reply) {
      answered.text = reply.error().line();
      // Words behind these codes are for people, too.
      for (const auto* code : {"ERR", "OVERLOADED"}) {
        if (answered.text.starts_with(code)) answered.text = code;
      }
    } else if (const auto* grant = std::get_if<Acquire::Reply>(&*reply)) {
      if (*grant) answered = {"OK " + text((*grant)->remaining), (*grant)->token.number()};
    } else if (const auto* event = std::get_if<Await::Reply>(&*reply)) {
      if (*event) {
        answered = {"OK " + std::string(to_string((*event)->change)) + " " + (*event)->name,
                    (*event)->token.number()};
      }
    }
    note(asked + " -> " + answered.text + " " + text(answered.token));
    EXPECT_EQ(answered.text, expected.text) << "asked: " << asked;
    if (expected.token > newest_before_) {
      const auto [known, is_new] = drawn_.emplace(expected.token, answered.token);
      EXPECT_EQ(known->second, answered.token) << "two answers of one grant, asked: " << asked;
    } else {
      EXPECT_EQ(answered.token, expected.token) << "asked: " << asked;
    }
  }

  static std::string text(std::uint64_t number) { return std::to_string(number); }
  static std::string text(milliseconds time) { return std::to_string(time.count()); }
  static std::string text(const std::optional<std::string>& maybe) {
    return maybe.value_or("(none)");
  }

  /// Everything that the step brought about: ends of waits, events, tokens.
  void settle() {
    for (const auto& [number, expected] : leases().ended()) {
      const auto found = waiting_.find(number);
      if (found == waiting_.end()) continue;
      const auto reply = found->second.answer->wait();
      ASSERT_TRUE(reply) << "never answered: " << found->second.asked << ", expected "
                         << expected.text;
      expect("end of " + found->second.asked, *reply, expected);
      waiting_.erase(found);
    }
    for (const auto& [number, waiting] : waiting_) {
      EXPECT_TRUE(waiting.answer->is_pending()) << "answered too early: " << waiting.asked;
    }
    EXPECT_TRUE(comes_true([&] { return world_.store().stats().waiting == leases().waiting(); }))
        << "waiting: " << world_.store().stats().waiting << ", expected " << leases().waiting();
    compare_tokens();
    compare_events();
    EXPECT_TRUE(leases().settle(drawn_)) << "tokens of one name against their order";
    drawn_.clear();
    EXPECT_EQ(world_.store().stats().newest.number(), leases().newest());
  }

  /// I1: every grant draws one, each above all before; none is left out but over a crash.
  void compare_tokens() {
    std::set<std::uint64_t> expected;
    std::set<std::uint64_t> actual;
    for (const auto& [provisional, token] : drawn_) {
      expected.insert(provisional);
      actual.insert(token);
    }
    if (expected.empty()) return;
    ASSERT_EQ(actual.size(), expected.size()) << "a token came twice";
    if (is_after_crash_) {
      EXPECT_GE(*actual.begin(), *expected.begin());
      EXPECT_EQ(*actual.rbegin() - *actual.begin(), *expected.rbegin() - *expected.begin());
    } else {
      EXPECT_EQ(actual, expected);
    }
    is_after_crash_ = false;
  }

  void compare_events() {
    for (const auto& visitor : users_) {
      if (visitor.user == nullptr) continue;
      const auto expected = LeaseModel::with_tokens(leases().events(visitor.number), drawn_);
      EXPECT_TRUE(comes_true([&] {
        return visitor.user->events_so_far() >= told_[visitor.number] + expected.size();
      })) << "events did not come: "
          << to_string(expected);
      const auto told = visitor.user->take_events();
      told_[visitor.number] += told.size();
      for (const auto* name : kNames) {
        std::vector<LeaseModel::Event> those;
        std::vector<LeaseModel::Event> these;
        for (const auto& event : expected) {
          if (event.name == name) those.push_back(event);
        }
        for (const auto& event : told) {
          if (event.name != name) continue;
          these.push_back({std::string(to_string(event.change)), event.name, event.token.number()});
        }
        EXPECT_EQ(to_string(normal(these)), to_string(normal(those)));
      }
    }
  }

  std::string owner_of(const std::string& fingerprint) const {
    for (const auto* owner : kOwners) {
      if (owner_fingerprint(owner) == fingerprint) return owner;
    }
    return "stranger " + fingerprint;
  }

  std::string shown_state(const LeaseState& state) const {
    auto line = state.name + " fence " + text(state.fence.number()) + " held by";
    for (const auto& holder : state.holders) {
      EXPECT_FALSE(holder.client.empty());
      line += " [" + owner_of(holder.owner) + " " + text(holder.token.number()) + " " +
              std::string(to_string(holder.mode)) + " " + text(holder.remaining) +
              (holder.bound ? " bound" : "") + "]";
    }
    return line + " waiters " + text(state.waiters) + " blocked " + text(state.blocked) +
           " payload " + text(state.payload);
  }

  void compare_leases() {
    was_crash_ = false;
    for (const std::string name : kNames) {
      const auto state = world_.ask(Inspect{name});
      ASSERT_TRUE(state) << state.error().line();
      EXPECT_EQ(shown_state(*state), leases().inspect(name));

      const auto waiters = world_.ask(ListWaiters{name});
      ASSERT_TRUE(waiters) << waiters.error().line();
      auto line = name + ":";
      for (const auto& waiter : *waiters) {
        EXPECT_FALSE(waiter.client.empty());
        line += " [" + owner_of(waiter.owner) + " " + std::string(to_string(waiter.mode)) + " " +
                text(waiter.waited) + " " + text(waiter.remaining) + "]";
      }
      EXPECT_EQ(line, leases().list_waiters(name));
    }
  }

  // Events.

  void advance() {
    const auto step = milliseconds(pick(30));
    note("advance " + text(step));
    world_.clock().advance(step);
    leases().advance(step.count());
  }

  void disconnect(std::size_t index) {
    auto& visitor = users_.at(index);
    if (visitor.user == nullptr) return;
    note("user-" + text(visitor.number) + " leaves");
    const auto sessions = world_.store().stats().sessions;
    visitor.user->leave();
    EXPECT_TRUE(comes_true([&] { return world_.store().stats().sessions == sessions - 1; }));
    // A server ends the wait when it hears that the connection is gone, and then the session.
    if (!world_.can_cancel()) leases().end_waits(visitor.number);
    leases().disconnect(visitor.number);
    visitor.user = nullptr;
    // Behind the end of the session in the store's queue.
    EXPECT_TRUE(world_.ask(Inspect{"w"}));
  }
  void disconnect() { disconnect(pick(users_.size())); }

  void disconnect_all() {
    for (std::size_t i = 0; i < users_.size(); ++i) {
      newest_before_ = leases().newest();
      disconnect(i);
      settle();
      if (::testing::Test::HasFailure()) return;
    }
    newest_before_ = leases().newest();
  }

  /// Nobody is left. What waited has ended, and nobody asks how.
  void forget_users() {
    for (const auto& [number, waiting] : waiting_) EXPECT_TRUE(waiting.answer->wait());
    waiting_.clear();
    for (auto& visitor : users_) visitor.user = nullptr;
  }

  /// Lets the store notice what is over.
  void look_at(const std::function<bool(const LeaseModel::Name&)>& matters) {
    for (const auto& [name, lease] : leases().names()) {
      if (!matters(lease)) continue;
      EXPECT_TRUE(world_.ask(Inspect{name}));
    }
  }

  void restart() {
    // The store ends what was bound to a process that died when it is looked at, and takes the
    // beginning of the next process for the time of its end: nobody else remembers that.
    if (was_crash_) compare_leases();
    switch (pick(3)) {
      case 0:
        disconnect_all();
        note("restart");
        world_.restart();
        // A clean stop gives the unused tokens of its block back.
        leases().restart();
        break;
      case 1:
        // Whether time was over before the process was cannot be known later.
        look_at([](const LeaseModel::Name& lease) { return lease.last && lease.last->bound; });
        note("crash");
        world_.crash();
        is_after_crash_ = true;
        was_crash_ = true;
        leases().restart();
        break;
      default:
        // The store knows of the time that went by only what it wrote down, so nothing goes by
        // unseen here; a clean stop writes it down too.
        disconnect_all();
        look_at([](const LeaseModel::Name& lease) { return lease.last && lease.last->bound; });
        note("reboot");
        world_.restart();
        world_.clock().reboot();
        world_.crash();
        is_after_crash_ = true;
        leases().reboot();
        break;
    }
    forget_users();
  }

  // Commands about leases.

  template <class C, class Show>
  std::string answer(C command, Show show) {
    const auto reply = world_.ask(std::move(command));
    if (!reply) return reply.error().line();
    return show(*reply);
  }

  /// Asks as that user. `expected` is the model's answer; nothing: it waits.
  void ask_or_wait(std::size_t index, Command command, Number number, const std::string& asked,
                   const std::optional<LeaseModel::Answer>& expected) {
    auto submitted = users_.at(index).user->submit(std::move(command));
    all_answers_.push_back(submitted.answer);
    if (!expected) {
      note(asked + " waits as " + text(number));
      auto answer = submitted.answer;
      waiting_.emplace(number, Waiting{std::move(answer), std::move(submitted), index, asked});
      return;
    }
    const auto reply = submitted.answer->wait();
    ASSERT_TRUE(reply) << "never answered: " << asked << ", expected " << expected->text;
    expect(asked, *reply, *expected);
  }

  milliseconds wait() { return maybe(2) ? milliseconds(0) : milliseconds(1 + pick(60)); }

  void acquire() {
    const auto index = user();
    if (!index) return;
    const auto number = ++numbers_;
    Acquire command{.name = lease(), .owner = owner(), .ttl = ttl(), .wait = wait()};
    if (maybe(3)) command.mode = LeaseMode::shared;
    if (command.mode == LeaseMode::exclusive && maybe(3)) {
      command.mode = LeaseMode::permit;
      command.permits = maybe(8) ? 3 : 2;
    }
    if (maybe(4)) command.bind = true;
    if (maybe(5)) command.delay = milliseconds(pick(20));
    if (maybe(5)) command.payload = "p" + text(pick(100));

    LeaseModel::Ask ask;
    ask.names = {command.name};
    ask.owner = command.owner;
    ask.ttl = command.ttl.count();
    ask.wait = command.wait.count();
    ask.mode = command.mode == LeaseMode::exclusive ? Mode::exclusive
               : command.mode == LeaseMode::shared  ? Mode::shared
                                                    : Mode::permit;
    ask.permits = command.permits;
    ask.bind = command.bind;
    if (command.delay) ask.delay = command.delay->count();
    ask.payload = command.payload;
    ask.user = users_.at(*index).number;

    const auto asked =
        "acquire " + command.name + " " + command.owner + " ttl " + text(command.ttl) + " wait " +
        text(command.wait) + " " + std::string(to_string(command.mode)) + " " +
        text(command.permits) + (command.bind ? " bind" : "") +
        (command.delay ? " delay " + text(*command.delay) : "") +
        (command.payload ? " payload " + *command.payload : "") + " by user-" + text(ask.user);
    const auto expected = leases().acquire(ask, number);
    ask_or_wait(*index, std::move(command), number, asked, expected);
  }

  std::vector<std::string> some_names() {
    std::vector<std::string> names(kNames.begin(), kNames.end());
    std::shuffle(names.begin(), names.end(), random_);
    names.resize(1 + pick(names.size()));
    return names;
  }

  void acquire_many() {
    const auto index = user();
    if (!index) return;
    const auto number = ++numbers_;
    AcquireMany command{.names = some_names(), .owner = owner(), .ttl = ttl(), .wait = wait()};
    LeaseModel::Ask ask;
    ask.names = command.names;
    ask.many = true;
    ask.owner = command.owner;
    ask.ttl = command.ttl.count();
    ask.wait = command.wait.count();
    ask.user = users_.at(*index).number;

    std::string asked = "acquire many";
    for (const auto& name : command.names) asked += " " + name;
    asked += " of " + command.owner + " ttl " + text(command.ttl) + " wait " + text(command.wait) +
             " by user-" + text(ask.user);
    const auto expected = leases().acquire(ask, number);
    ask_or_wait(*index, std::move(command), number, asked, expected);
  }

  void await() {
    const auto index = user();
    if (!index) return;
    const auto number = ++numbers_;
    Await command{.name = lease(), .token = maybe(4) ? Token{} : token(), .timeout = wait()};
    // Which of two names gets the next token is the store's choice, and a crash leaves a gap: of
    // the tokens that are still to come only one that never comes means the same here and there.
    if (command.token > Token{leases().newest()}) command.token = Token{Token::kMax};
    const auto by = users_.at(*index).number;
    const auto asked = "await " + command.name + " " + text(command.token.number()) + " timeout " +
                       text(command.timeout) + " by user-" + text(by);
    const auto expected =
        leases().await(command.name, command.token.number(), command.timeout.count(), by, number);
    ask_or_wait(*index, std::move(command), number, asked, expected);
  }

  void cancel() {
    if (!world_.can_cancel() || waiting_.empty()) return;
    auto chosen = waiting_.begin();
    std::advance(chosen, pick(waiting_.size()));
    note("cancel " + chosen->second.asked);
    users_.at(chosen->second.user).user->cancel(chosen->second.submitted);
    leases().cancel(chosen->first);
  }

  void watch() {
    const auto index = user();
    if (!index) return;
    const auto names = some_names();
    const auto& visitor = users_.at(*index);
    for (const auto& name : names) note("user-" + text(visitor.number) + " watches " + name);
    EXPECT_TRUE(visitor.user->ask(Watch{names}));
    leases().watch(visitor.number, names);
  }

  void unwatch() {
    const auto index = user();
    if (!index) return;
    const auto& visitor = users_.at(*index);
    note("user-" + text(visitor.number) + " unwatches");
    EXPECT_TRUE(visitor.user->ask(Unwatch{}));
    leases().unwatch(visitor.number);
  }

  /// `OK`, with what `show` makes of the value, or the error.
  template <class T, class Show>
  static std::string line_of(const Result<T>& result, Show show) {
    return result ? show(*result) : result.error().line();
  }
  static std::string remaining_line(const Result<milliseconds>& result) {
    return line_of(result, [](milliseconds left) { return "OK " + text(left); });
  }
  static std::string ok_line(const Result<std::monostate>& result) {
    return line_of(result, [](auto) { return std::string("OK"); });
  }

  void renew() {
    const auto grant = holding();
    const auto time = ttl();
    const auto answered =
        remaining_line(world_.ask(Renew{grant.name, grant.owner, grant.token, time}));
    expect("renew " + grant.name + " " + grant.owner + " " + text(grant.token.number()) + " " +
               text(time),
           answered, leases().renew(grant.name, grant.owner, grant.token.number(), time.count()));
    compare_leases();  // I7: it touched only that grant.
  }

  void release() {
    const auto grant = holding();
    const auto answered = ok_line(world_.ask(Release{grant.name, grant.owner, grant.token}));
    expect("release " + grant.name + " " + grant.owner + " " + text(grant.token.number()), answered,
           leases().release(grant.name, grant.owner, grant.token.number()));
  }

  std::vector<Holding> some_holdings() {
    std::vector<Holding> grants;
    for (auto count = 1 + pick(4); count > 0; --count) {
      grants.push_back(holding());
      // One that this very step draws is known to the store only.
      auto& chosen = grants.back().token;
      chosen = std::min(chosen, Token{std::max<std::uint64_t>(1, leases().newest())});
    }
    return grants;
  }

  void renew_many() {
    const auto grants = some_holdings();
    const auto time = ttl();
    const auto reply = world_.ask(RenewMany{grants, time});
    ASSERT_TRUE(reply) << reply.error().line();
    ASSERT_EQ(reply->size(), grants.size());
    for (std::size_t i = 0; i < grants.size(); ++i) {
      const auto& grant = grants[i];
      expect("of many: renew " + grant.name + " " + grant.owner + " " + text(time),
             remaining_line((*reply)[i]),
             leases().renew(grant.name, grant.owner, grant.token.number(), time.count()));
    }
  }

  void release_many() {
    const auto grants = some_holdings();
    const auto reply = world_.ask(ReleaseMany{grants});
    ASSERT_TRUE(reply) << reply.error().line();
    ASSERT_EQ(reply->size(), grants.size());
    for (std::size_t i = 0; i < grants.size(); ++i) {
      const auto& grant = grants[i];
      expect("of many: release " + grant.name + " " + grant.owner, ok_line((*reply)[i]),
             leases().release(grant.name, grant.owner, grant.token.number()));
    }
  }

  void revoke() {
    const auto name = lease();
    const auto answered =
        answer(Revoke{name}, [](Token fence) { return "OK " + text(fence.number()); });
    expect("revoke " + name, answered, leases().revoke(name));
  }

  // Commands about keys.

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
  std::array<Visitor, 4> users_;
  LeaseModel::User visitors_ = 0;
  Number numbers_ = 0;
  std::map<Number, Waiting> waiting_;
  std::map<LeaseModel::User, std::size_t> told_;
  std::vector<std::shared_ptr<Answer>> all_answers_;
  std::uint64_t newest_before_ = 0;
  std::map<std::uint64_t, std::uint64_t> drawn_;  // In this step: the model's, the store's.
  bool is_after_crash_ = false;                   // Since the last grant.
  bool was_crash_ = false;                        // Since the names were looked at.
  std::optional<std::string> incarnation_;
  std::vector<std::string> last_;
};

class ModelTest : public ::testing::TestWithParam<WorldKind> {};

TEST_P(ModelTest, AnswersAsTheModelDoes) {
  const auto given = number_from_environment("FENCEKV_SEED");
  const auto steps = number_from_environment("FENCEKV_STEPS").value_or(400);
  // A world costs more than a step, and a real one most.
  const auto lives = given ? 1 : GetParam().name == "Memory" ? 100 : 6;

  for (int life = 0; life < lives; ++life) {
    const auto seed = given.value_or(std::random_device{}());
    SCOPED_TRACE(GetParam().name + " with FENCEKV_SEED=" + std::to_string(seed));
    const auto world = GetParam().make({});
    Life story(*world, GetParam().name != "Network", seed);
    for (std::uint64_t step = 0; step < steps; ++step) {
      story.step();
      if (step % 50 == 49) story.compare_everything();
      ASSERT_FALSE(HasFailure()) << "at step " << step << ", after:" << story.last();
    }
    story.finish();
    ASSERT_FALSE(HasFailure()) << "at the end, after:" << story.last();
  }
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, ModelTest, ::testing::ValuesIn(every_world()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
