// SPDX-License-Identifier: Apache-2.0
/// Any sequence of commands, clock steps, disconnections, restarts and crashes on a store in
/// memory: it answers as the model of tests/model does. Where the random lives of the model family
/// follow chances, this follows the branches of the engine.
#include "engine/core/make_store.h"
#include "engine/memory/memory_backend.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/pieces.h"
#include "tests/model/store_model.h"
#include "tests/support/manual_clock.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace fencekv;
using namespace fencekv::testing;
using fencekv::fuzz::Choices;
using fencekv::fuzz::require;
using std::chrono::milliseconds;
using Mode = LeaseModel::Mode;

constexpr std::array<const char*, 3> kNames{"x", "y", "z"};
constexpr std::array<const char*, 3> kOwners{"1", "2", "3"};
constexpr std::size_t kSteps = 200;

std::string text(std::uint64_t number) {
  return std::to_string(number);
}
std::string text(const std::optional<std::string>& maybe) {
  return maybe.value_or("(none)");
}

/// A store in memory, without threads: everything happens in the calls below.
class Place {
 public:
  Place() { start(); }

  template <class C>
  Result<typename C::Reply> ask(C command) {
    return driven_.store->execute(std::move(command));
  }
  Store& store() { return *driven_.store; }
  ManualClock& clock() { return *clock_; }

  /// Until nothing is queued or due.
  void settle() {
    while (driven_.step()) {
    }
  }

  // No session may be left.
  void restart() {
    driven_ = {};
    start();
  }
  void crash() {
    // What was there before the clean stop could write anything.
    auto disk = std::make_shared<memory::MemoryDisk>();
    disk->records = disk_->records;
    disk->reserved = disk_->reserved;
    disk->durability = disk_->durability;
    disk->is_clean = disk_->is_clean;
    disk->boot_id = disk_->boot_id;
    driven_ = {};
    disk_ = std::move(disk);
    start();
  }

 private:
  void start() {
    Options options;
    options.clock = clock_;
    auto opened = core::make_driven_store(
        std::make_unique<memory::MemoryBackend>(disk_, options.durability, clock_->boot_id()),
        options);
    require(opened.has_value(), "a store in memory opens");
    driven_ = *std::move(opened);
  }

  const std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  std::shared_ptr<memory::MemoryDisk> disk_ = std::make_shared<memory::MemoryDisk>();
  core::DrivenStore driven_;
};

/// The answer of a command that may wait.
struct Answer {
  std::optional<Result<Reply>> reply;
  int times = 0;
};

class Life {
 public:
  explicit Life(Choices& choices) : choices_(choices) {}

  void live() {
    for (std::size_t step = 0; step < kSteps && !choices_.is_done(); ++step) {
      newest_before_ = leases().newest();
      act();
      settle();
    }
    compare_keys();
    compare_leases();
    for (auto& user : users_) user.session.reset();
    place_.settle();
    for (const auto& answer : answers_) require(answer->times == 1, "one answer for each wait");
  }

 private:
  struct Visitor {
    std::optional<fencekv::Session> session;
    LeaseModel::User number = 0;
  };
  struct Waiting {
    std::shared_ptr<Answer> answer;
    Ticket ticket;
  };

  LeaseModel& leases() { return model_.leases(); }
  std::size_t pick(std::size_t below) { return choices_.pick(below); }
  std::string name() { return kNames.at(pick(kNames.size())); }
  std::string owner() { return kOwners.at(pick(kOwners.size())); }
  std::string key() { return std::string(1, static_cast<char>('a' + pick(3))); }
  milliseconds ttl() { return milliseconds(1 + pick(40)); }
  milliseconds wait() { return milliseconds(choices_.maybe() ? pick(60) : 0); }

  Token token() {
    const auto newest = leases().newest();
    const auto known = leases().names().find(name());
    if (choices_.maybe() && known != leases().names().end() && known->second.fence > 0) {
      return Token{known->second.fence};
    }
    return Token{std::max<std::uint64_t>(1, newest + 2 - std::min(newest, pick(8)))};
  }

  /// The owner and the token of a grant, and mostly of one that is held.
  Holding holding() {
    Holding holding{name(), owner(), token()};
    const auto found = leases().names().find(holding.name);
    if (found == leases().names().end() || pick(4) == 0) return holding;
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

  [[noreturn]] void differs(const std::string& answered, const std::string& expected) {
    for (const auto& line : story_) std::fprintf(stderr, "  %s\n", line.c_str());
    std::fprintf(stderr, "answered: %s\nexpected: %s\n", answered.c_str(), expected.c_str());
    require(false, "the store answers as the model does");
    std::abort();
  }

  void expect(const std::string& asked, const std::string& answered, const std::string& expected) {
    story_.push_back(asked + " -> " + answered);
    const auto compared = answered.starts_with("ERR") ? "ERR" : answered;
    if (compared != expected) differs(answered, expected);
  }

  void expect_grant(const std::string& asked, const Result<Reply>& reply,
                    const LeaseModel::Answer& expected) {
    LeaseModel::Answer answered{"OK (none)", 0};
    if (!reply) {
      answered.text = reply.error().line();
      for (const auto* code : {"ERR", "OVERLOADED"}) {
        if (answered.text.starts_with(code)) answered.text = code;
      }
    } else if (const auto& grant = std::get<Acquire::Reply>(*reply)) {
      answered = {"OK " + text(static_cast<std::uint64_t>(grant->remaining.count())),
                  grant->token.number()};
    }
    story_.push_back(asked + " -> " + answered.text + " " + text(answered.token));
    if (answered.text != expected.text) differs(answered.text, expected.text);
    if (expected.token > newest_before_) {
      const auto [known, is_new] = drawn_.emplace(expected.token, answered.token);
      require(known->second == answered.token, "two answers of one grant have one token");
    } else if (answered.token != expected.token) {
      differs(text(answered.token), text(expected.token));
    }
  }

  void act() {
    switch (pick(16)) {
      case 0:
        return restart();
      case 1:
        return disconnect(pick(users_.size()));
      case 2:
      case 3:
        return advance();
      case 4:
      case 5:
      case 6:
        return acquire();
      case 7:
        return acquire_many();
      case 8:
        return renew();
      case 9:
        return release();
      case 10:
        return revoke();
      case 11:
        return raise();
      case 12:
        return reset();
      case 13:
        return cancel();
      default:
        return write();
    }
  }

  /// What the step brought about.
  void settle() {
    place_.settle();
    for (const auto& [number, expected] : leases().ended()) {
      const auto found = waiting_.find(number);
      if (found == waiting_.end()) continue;
      const auto& reply = found->second.answer->reply;
      if (!reply) differs("nothing", expected.text);
      expect_grant("end of wait " + text(number), *reply, expected);
      waiting_.erase(found);
    }
    for (const auto& [number, waiting] : waiting_) {
      if (waiting.answer->reply) differs("an end of wait " + text(number), "a wait");
    }
    for (const auto& [provisional, token] : drawn_) {
      require(token > newest_before_ || is_after_crash_, "a new token is above all before");
    }
    require(leases().settle(drawn_), "tokens of one name rise with its grants");
    if (!drawn_.empty()) is_after_crash_ = false;
    drawn_.clear();
  }

  std::size_t user() {
    const auto index = pick(users_.size());
    auto& visitor = users_.at(index);
    if (!visitor.session) {
      visitor.number = ++visitors_;
      visitor.session.emplace(place_.store());
    }
    return index;
  }

  void advance() {
    const auto step = milliseconds(pick(30));
    story_.push_back("advance " + std::to_string(step.count()));
    place_.clock().advance(step);
    leases().advance(step.count());
  }

  void disconnect(std::size_t index) {
    auto& visitor = users_.at(index);
    if (!visitor.session) return;
    story_.push_back("user-" + text(visitor.number) + " leaves");
    visitor.session.reset();
    leases().disconnect(visitor.number);
  }

  void restart() {
    for (std::size_t i = 0; i < users_.size(); ++i) {
      newest_before_ = leases().newest();
      disconnect(i);
      settle();
    }
    newest_before_ = leases().newest();
    // What a crash leaves open can be told only of what somebody looked at before.
    compare_leases();
    if (choices_.maybe()) {
      story_.push_back("crash");
      place_.crash();
      is_after_crash_ = true;
    } else {
      story_.push_back("restart");
      place_.restart();
    }
    leases().restart();
    compare_leases();
  }

  void ask_or_wait(std::size_t index, Command command, LeaseModel::Number number,
                   const std::string& asked, const std::optional<LeaseModel::Answer>& expected) {
    auto answer = std::make_shared<Answer>();
    const auto id = users_.at(index).session->id();
    const auto ticket = place_.store().enqueue(std::move(command),
                                               [answer](Result<Reply> reply) {
                                                 ++answer->times;
                                                 answer->reply.emplace(std::move(reply));
                                               },
                                               {.name = name_, .session = id});
    answers_.push_back(answer);
    place_.settle();
    if (expected) {
      if (!answer->reply) differs("nothing", expected->text);
      return expect_grant(asked, *answer->reply, *expected);
    }
    story_.push_back(asked + " waits as " + text(number));
    waiting_.emplace(number, Waiting{std::move(answer), ticket});
  }

  void acquire() {
    const auto index = user();
    Acquire command{.name = name(), .owner = owner(), .ttl = ttl(), .wait = wait()};
    const auto mode = pick(4);
    if (mode == 1) command.mode = LeaseMode::shared;
    if (mode == 2) {
      command.mode = LeaseMode::permit;
      command.permits = 1 + pick(3);
    }
    command.bind = pick(4) == 0;
    if (pick(4) == 0) command.delay = milliseconds(pick(20));
    if (pick(4) == 0) command.payload = "p" + text(pick(3));

    LeaseModel::Ask ask;
    ask.names = {command.name};
    ask.owner = command.owner;
    ask.ttl = command.ttl.count();
    ask.wait = command.wait.count();
    ask.mode = mode == 1 ? Mode::shared : mode == 2 ? Mode::permit : Mode::exclusive;
    ask.permits = command.permits;
    ask.bind = command.bind;
    if (command.delay) ask.delay = command.delay->count();
    ask.payload = command.payload;
    ask.user = users_.at(index).number;
    const auto asked =
        "acquire " + command.name + " " + command.owner + " ttl " + std::to_string(ask.ttl) +
        " wait " + std::to_string(ask.wait) + " " + to_string(ask.mode) + " " + text(ask.permits) +
        (command.bind ? " bind" : "") + (ask.delay ? " delay " + std::to_string(*ask.delay) : "") +
        " by user-" + text(ask.user);
    const auto number = ++numbers_;
    const auto expected = leases().acquire(ask, number);
    ask_or_wait(index, std::move(command), number, asked, expected);
  }

  void acquire_many() {
    const auto index = user();
    AcquireMany command{.names = {}, .owner = owner(), .ttl = ttl(), .wait = wait()};
    const auto first = pick(kNames.size());
    const auto count = 1 + pick(kNames.size());
    for (std::size_t i = 0; i < count; ++i) {
      command.names.emplace_back(kNames.at((first + i) % kNames.size()));
    }
    LeaseModel::Ask ask;
    ask.names = command.names;
    ask.many = true;
    ask.owner = command.owner;
    ask.ttl = command.ttl.count();
    ask.wait = command.wait.count();
    ask.user = users_.at(index).number;
    auto asked = "acquire many of " + ask.owner + " wait " + std::to_string(ask.wait);
    for (const auto& one : ask.names) asked += " " + one;
    const auto number = ++numbers_;
    const auto expected = leases().acquire(ask, number);
    ask_or_wait(index, std::move(command), number, asked, expected);
  }

  void cancel() {
    if (waiting_.empty()) return;
    auto chosen = waiting_.begin();
    std::advance(chosen, static_cast<std::ptrdiff_t>(pick(waiting_.size())));
    story_.push_back("cancel " + text(chosen->first));
    place_.store().cancel(chosen->second.ticket);
    leases().cancel(chosen->first);
  }

  template <class C, class Show>
  std::string answer(C command, Show show) {
    const auto reply = place_.ask(std::move(command));
    return reply ? show(*reply) : reply.error().line();
  }

  void renew() {
    const auto grant = holding();
    const auto time = ttl();
    const auto answered = answer(Renew{grant.name, grant.owner, grant.token, time},
                                 [](auto left) { return "OK " + std::to_string(left.count()); });
    expect("renew " + grant.name + " " + grant.owner + " " + text(grant.token.number()), answered,
           leases().renew(grant.name, grant.owner, grant.token.number(), time.count()));
  }

  void release() {
    const auto grant = holding();
    const auto answered = answer(Release{grant.name, grant.owner, grant.token},
                                 [](auto) { return std::string("OK"); });
    expect("release " + grant.name + " " + grant.owner + " " + text(grant.token.number()), answered,
           leases().release(grant.name, grant.owner, grant.token.number()));
  }

  void revoke() {
    const auto lease = name();
    const auto answered =
        answer(Revoke{lease}, [](Token fence) { return "OK " + text(fence.number()); });
    expect("revoke " + lease, answered, leases().revoke(lease));
  }

  void raise() {
    const auto where = key();
    const auto with = token();
    const auto under = choices_.maybe() ? std::optional(name()) : std::nullopt;
    const auto answered =
        answer(Raise{where, with, under}, [](Token fence) { return "OK " + text(fence.number()); });
    expect("raise " + where + " " + text(with.number()) + " " + text(under), answered,
           model_.raise(where, with.number(), under));
  }

  void reset() {
    const auto where = key();
    const auto with = token();
    const auto answered = answer(Reset{.key = where, .token = with}, [](const Reset::Reply& reply) {
      return "OK " + text(reply.before.number()) + " " + text(reply.after.number());
    });
    expect("reset " + where + " " + text(with.number()), answered,
           model_.reset(where, with.number()));
  }

  void write() {
    Write command;
    StoreModel::Write expected;
    const auto first = pick(3);
    const auto count = 1 + pick(6) / 4;
    auto asked = std::string("write");
    for (std::size_t i = 0; i < count; ++i) {
      const auto where = std::string(1, static_cast<char>('a' + (first + i) % 3));
      auto value = pick(4) == 0 ? std::nullopt : std::optional("v" + text(pick(256)));
      asked += " " + where + "=" + text(value);
      expected.entries.emplace_back(where, value);
      command.entries.push_back({.key = where, .value = std::move(value)});
    }
    command.token = token();
    if (choices_.maybe()) command.lease = name();
    command.live = pick(4) == 0;
    if (pick(4) == 0) command.request = "r" + text(pick(3));
    const bool has_delete = std::any_of(command.entries.begin(), command.entries.end(),
                                        [](const auto& entry) { return !entry.value.has_value(); });
    if (count == 1 && !has_delete && pick(5) == 0) command.once = true;
    if (count == 1 && pick(4) == 0) command.if_version = pick(6);
    expected.token = command.token.number();
    expected.lease = command.lease;
    expected.live = command.live;
    expected.once = command.once;
    expected.request = command.request;
    expected.if_version = command.if_version;
    asked += " token " + text(expected.token) + " lease " + text(command.lease) +
             (command.live ? " live" : "") + (command.once ? " once" : "");
    const auto answered = answer(std::move(command), [](const Write::Reply& versions) {
      std::string line = "OK";
      for (const auto version : versions) line += " " + text(version);
      return line;
    });
    expect(asked, answered, model_.write(expected));
  }

  void compare_keys() {
    for (const std::string where : {"a", "b", "c"}) {
      const auto answered = answer(Read{.keys = {where}}, [](const Read::Reply& keys) {
        const auto& state = keys.front();
        return "OK " + text(state.value) + " " + text(state.version) + " " +
               text(state.fence.number()) + " " + text(state.guard) + " " + text(state.request);
      });
      expect("read " + where, answered, model_.read(where));
    }
  }

  std::string shown(const LeaseState& state) {
    auto line = state.name + " fence " + text(state.fence.number()) + " held by";
    for (const auto& holder : state.holders) {
      std::string who = "?";
      for (const auto* one : kOwners) {
        if (owner_fingerprint(one) == holder.owner) who = one;
      }
      line += " [" + who + " " + text(holder.token.number()) + " " +
              std::string(to_string(holder.mode)) + " " + std::to_string(holder.remaining.count()) +
              (holder.bound ? " bound" : "") + "]";
    }
    return line + " waiters " + text(state.waiters) + " blocked " +
           std::to_string(state.blocked.count()) + " payload " + text(state.payload);
  }

  void compare_leases() {
    for (const std::string lease : kNames) {
      const auto answered =
          answer(Inspect{lease}, [this](const LeaseState& state) { return shown(state); });
      expect("inspect " + lease, answered, leases().inspect(lease));
    }
  }

  Choices& choices_;
  Place place_;
  const ClientName name_ = std::make_shared<const std::string>("somebody");
  StoreModel model_;
  std::array<Visitor, 3> users_;
  LeaseModel::User visitors_ = 0;
  LeaseModel::Number numbers_ = 0;
  std::map<LeaseModel::Number, Waiting> waiting_;
  std::vector<std::shared_ptr<Answer>> answers_;
  std::uint64_t newest_before_ = 0;
  std::map<std::uint64_t, std::uint64_t> drawn_;  // In this step: the model's, the store's.
  bool is_after_crash_ = false;
  std::vector<std::string> story_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  Choices choices(bytes, size);
  Life(choices).live();
  return 0;
}
