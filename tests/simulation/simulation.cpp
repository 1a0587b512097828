// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulation.h"

#include "engine/rocksdb/directory.h"
#include "engine/rocksdb/rocksdb_backend.h"
#include "tests/simulation/small_database.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <set>
#include <variant>

namespace fencekv::testing {
namespace {

using std::chrono::milliseconds;
using Mode = LeaseModel::Mode;

constexpr const char* kPath = "/machine/store";
constexpr std::array<const char*, 3> kNames{"x", "y", "z"};
constexpr std::array<const char*, 4> kOwners{"1", "2", "3", "4"};
constexpr std::array<const char*, 5> kKeys{"a", "b", "c", "d", "e"};
/// On a disk that fails, a flush is tried again and again.
constexpr std::size_t kBackgroundJobs = 20;
/// What ended longer ago is of no interest to the store's own clearing up.
constexpr milliseconds kRetention{50};

std::string text(std::uint64_t number) {
  return std::to_string(number);
}
std::string text(milliseconds time) {
  return std::to_string(time.count());
}
std::string text(const std::optional<std::string>& maybe) {
  return maybe.value_or("(none)");
}

std::string line_of(const KeyState& state) {
  return "OK " + text(state.value) + " " + text(state.version) + " " + text(state.fence.number()) +
         " " + text(state.guard) + " " + text(state.request);
}

/// What an ERR or an OVERLOADED says is for people.
std::string line_of(const Error& error) {
  for (const auto* code : {"ERR", "OVERLOADED", "INDOUBT", "MISCONF"}) {
    if (error.line().starts_with(code)) return code;
  }
  return error.line();
}

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

/// An answer as the model gives it.
LeaseModel::Answer text_of(const Result<Reply>& reply) {
  if (!reply) return {line_of(reply.error()), 0};
  struct Show {
    LeaseModel::Answer operator()(const Write::Reply& versions) const {
      std::string line = "OK";
      for (const auto version : versions) line += " " + text(version);
      return {line, 0};
    }
    LeaseModel::Answer operator()(Token fence) const { return {"OK " + text(fence.number()), 0}; }
    LeaseModel::Answer operator()(const KeyState& state) const { return {line_of(state), 0}; }
    LeaseModel::Answer operator()(const Reset::Reply& reset) const {
      return {"OK " + text(reset.before.number()) + " " + text(reset.after.number()), 0};
    }
    LeaseModel::Answer operator()(const Read::Reply& keys) const {
      std::string line;
      for (const auto& key : keys) line += (line.empty() ? "" : " | ") + line_of(key);
      return {line, 0};
    }
    LeaseModel::Answer operator()(const Acquire::Reply& grant) const {
      if (!grant) return {"OK (none)", 0};
      return {"OK " + text(grant->remaining), grant->token.number()};
    }
    LeaseModel::Answer operator()(milliseconds left) const { return {"OK " + text(left), 0}; }
    LeaseModel::Answer operator()(const RenewMany::Reply& many) const {
      std::string line;
      for (const auto& one : many) {
        line += (line.empty() ? "" : " | ") +
                (one ? "OK " + text(*one) : std::string(line_of(one.error())));
      }
      return {line, 0};
    }
    LeaseModel::Answer operator()(const ReleaseMany::Reply& many) const {
      std::string line;
      for (const auto& one : many) {
        line += (line.empty() ? "" : " | ") + (one ? "OK" : std::string(line_of(one.error())));
      }
      return {line, 0};
    }
    LeaseModel::Answer operator()(std::monostate) const { return {"OK", 0}; }
    LeaseModel::Answer operator()(const LeaseState& state) const { return {state.name, 0}; }
    LeaseModel::Answer operator()(const ListWaiters::Reply& waiters) const {
      return {text(waiters.size()), 0};
    }
    LeaseModel::Answer operator()(const Await::Reply& event) const {
      if (!event) return {"OK (none)", 0};
      return {"OK " + std::string(to_string(event->change)) + " " + event->name,
              event->token.number()};
    }
  };
  return std::visit(Show{}, *reply);
}

bool is_not_done(const Result<Reply>& reply) {
  return !reply &&
         (reply.error().code() == Errc::in_doubt || reply.error().code() == Errc::misconf);
}

std::string owner_of(const std::string& fingerprint) {
  for (const auto* owner : kOwners) {
    if (owner_fingerprint(owner) == fingerprint) return owner;
  }
  return "stranger " + fingerprint;
}

/// What must be on the disk, and not only said: keys, and leases but for what time does to them.
std::string content_of(const StoreModel& model) {
  std::string line;
  for (const auto& [name, key] : model.keys()) {
    line += name + text(key.fence) + "," + text(key.version) + "," + text(key.guard) + "," +
            text(key.request) + "," + text(key.value) + ";";
  }
  return line;
}

}  // namespace

SimulationCounts& SimulationCounts::operator+=(const SimulationCounts& other) {
  commands += other.commands;
  groups += other.groups;
  process_crashes += other.process_crashes;
  power_losses += other.power_losses;
  crashes_while_opening += other.crashes_while_opening;
  clean_stops += other.clean_stops;
  write_errors += other.write_errors;
  floors_lifted += other.floors_lifted;
  disk_calls += other.disk_calls;
  return *this;
}

Simulation::Simulation(std::uint64_t seed)
    : random_(seed), disk_random_(seed ^ 0x9e3779b97f4a7c15U) {}

Simulation::~Simulation() {
  disk_->inodes().set_hook({});
  forget_visitors();
  store_.store.reset();
}

bool Simulation::check(bool holds, const std::string& what) {
  if (!holds && !failure_) {
    std::string lines;
    for (const auto& line : last_) lines += "\n  " + line;
    failure_ = what + "\nafter:" + lines;
  }
  return holds;
}

void Simulation::note(const std::string& line) {
  for (const char c : line) trace_ = (trace_ ^ static_cast<unsigned char>(c)) * 1099511628211U;
  last_.push_back(line);
  if (last_.size() > 40) last_.erase(last_.begin());
}

std::optional<std::string> Simulation::run(std::uint64_t rounds) {
  check(disk_->make_directory("/machine").has_value(), "no root directory");
  check(disk_->sync_directory("/").has_value(), "no durable root directory");
  open_somehow();
  for (std::uint64_t i = 0; i < rounds && !failure_; ++i) round();
  if (!failure_) {
    leave_all();
    for (const auto& pending : all_) {
      if (!check(pending->answers == 1, "a waiting command was answered " +
                                            text(static_cast<std::uint64_t>(pending->answers)) +
                                            " times: " + pending->words)) {
        break;
      }
    }
  }
  if (!failure_ && !handle_crash()) compare_everything();
  counts_.disk_calls += disk_->inodes().calls();
  return failure_;
}

void Simulation::round() {
  newest_before_ = leases().newest();
  const auto what = pick(100);
  if (what < 62) {
    burst();
  } else if (what < 76) {
    advance();
  } else if (what < 79) {
    cancel();
  } else if (what < 83) {
    watch();
  } else if (what < 86) {
    leave(pick(visitors_.size()));
  } else if (what < 90) {
    work_in_background();
  } else if (what < 91) {
    reclaim();
  } else if (what < 93) {
    stop_and_start();
  } else if (what < 95) {
    fail_writes();
  } else {
    arm(pick(4) == 0 ? 200 : 30);
  }
  if (failure_ || handle_crash()) return;
  if (maybe(8)) compare_everything();
  handle_crash();
}

// --- Choices ------------------------------------------------------------------------------------

std::string Simulation::key() {
  return kKeys.at(pick(kKeys.size()));
}
std::string Simulation::lease() {
  return kNames.at(pick(kNames.size()));
}
std::string Simulation::owner() {
  return kOwners.at(pick(kOwners.size()));
}
milliseconds Simulation::ttl() {
  return milliseconds(1 + pick(40));
}
milliseconds Simulation::wait() {
  return maybe(2) ? milliseconds(0) : milliseconds(1 + pick(60));
}

/// Mostly a token that matters: near the newest, or one that somebody has.
Token Simulation::token() {
  const auto newest = leases().newest();
  const auto found = leases().names().find(lease());
  if (!maybe(3) && found != leases().names().end() && found->second.fence > 0) {
    const auto& holders = found->second.holders;
    if (maybe(2) && !holders.empty()) return Token{holders.at(pick(holders.size())).token};
    return Token{found->second.fence};
  }
  const auto low = newest > 6 ? newest - 6 : 0;
  return Token{std::max<std::uint64_t>(1, low + pick(8))};
}

/// Mostly somebody's.
Holding Simulation::holding() {
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

std::vector<std::string> Simulation::some_names() {
  std::vector<std::string> names(kNames.begin(), kNames.end());
  for (std::size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[pick(i)]);
  names.resize(1 + pick(names.size()));
  return names;
}

// --- Commands -----------------------------------------------------------------------------------

Simulation::Asked Simulation::any_command(Kind kind, LeaseModel::User user) {
  switch (pick(24)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
      return acquire(kind, user);
    case 6:
    case 7:
      return acquire_many(kind, user);
    case 8:
      return kind == Kind::any ? await(user) : renew();
    case 9:
    case 10:
      return renew();
    case 11:
    case 12:
      return release();
    case 13:
      return maybe(2) ? renew_many() : release_many();
    case 14:
      return revoke();
    case 15:
    case 16:
      return raise();
    case 17:
      return maybe(2) ? reset() : read();
    default:
      return write();
  }
}

Simulation::Asked Simulation::acquire(Kind kind, LeaseModel::User user) {
  Acquire command{.name = lease(), .owner = owner(), .ttl = ttl(), .wait = wait()};
  if (kind == Kind::without_wait) command.wait = milliseconds(0);
  if (maybe(3)) command.mode = LeaseMode::shared;
  if (command.mode == LeaseMode::exclusive && maybe(3)) {
    command.mode = LeaseMode::permit;
    command.permits = maybe(8) ? 3 : 2;
  }
  // Whether the time of a bound grant was over when its process ended can be known from the disk
  // only if somebody asked before; where a delay counts from then depends on it. So either.
  const bool can_bind = command.name == "y";
  if (can_bind && kind == Kind::any && maybe(3)) command.bind = true;
  if (!can_bind && maybe(5)) command.delay = milliseconds(pick(20));
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
  ask.user = user;

  const auto words = "acquire " + command.name + " " + command.owner + " ttl " + text(command.ttl) +
                     " wait " + text(command.wait) + " " + std::string(to_string(command.mode)) +
                     " " + text(command.permits) + (command.bind ? " bind" : "") +
                     (command.delay ? " delay " + text(*command.delay) : "") +
                     (command.payload ? " payload " + *command.payload : "") + " by user-" +
                     text(user);
  return {std::move(command), words,
          [ask](StoreModel& model, Number number) { return model.leases().acquire(ask, number); }};
}

Simulation::Asked Simulation::acquire_many(Kind kind, LeaseModel::User user) {
  AcquireMany command{.names = some_names(), .owner = owner(), .ttl = ttl(), .wait = wait()};
  if (kind == Kind::without_wait) command.wait = milliseconds(0);
  LeaseModel::Ask ask;
  ask.names = command.names;
  ask.many = true;
  ask.owner = command.owner;
  ask.ttl = command.ttl.count();
  ask.wait = command.wait.count();
  ask.user = user;
  std::string words = "acquire many";
  for (const auto& name : command.names) words += " " + name;
  words += " of " + command.owner + " ttl " + text(command.ttl) + " wait " + text(command.wait) +
           " by user-" + text(user);
  return {std::move(command), words,
          [ask](StoreModel& model, Number number) { return model.leases().acquire(ask, number); }};
}

Simulation::Asked Simulation::await(LeaseModel::User user) {
  Await command{.name = lease(), .token = maybe(4) ? Token{} : token(), .timeout = wait()};
  // Which token comes next is not always known: of those to come, one that never comes.
  if (command.token > Token{leases().newest()}) command.token = Token{Token::kMax};
  const auto words = "await " + command.name + " " + text(command.token.number()) + " timeout " +
                     text(command.timeout) + " by user-" + text(user);
  return {command, words, [command, user](StoreModel& model, Number number) {
            return model.leases().await(command.name, command.token.number(),
                                        command.timeout.count(), user, number);
          }};
}

Simulation::Asked Simulation::renew() {
  const auto grant = holding();
  const auto time = ttl();
  return {Renew{grant.name, grant.owner, grant.token, time},
          "renew " + grant.name + " " + grant.owner + " " + text(grant.token.number()) + " " +
              text(time),
          [grant, time](StoreModel& model, Number) {
            return Text{
                model.leases().renew(grant.name, grant.owner, grant.token.number(), time.count()),
                0};
          }};
}

Simulation::Asked Simulation::release() {
  const auto grant = holding();
  return {Release{grant.name, grant.owner, grant.token},
          "release " + grant.name + " " + grant.owner + " " + text(grant.token.number()),
          [grant](StoreModel& model, Number) {
            return Text{model.leases().release(grant.name, grant.owner, grant.token.number()), 0};
          }};
}

Simulation::Asked Simulation::renew_many() {
  std::vector<Holding> grants;
  std::string words = "renew many";
  for (auto count = 1 + pick(3); count > 0; --count) {
    grants.push_back(holding());
    words += " " + grants.back().name + " " + grants.back().owner + " " +
             text(grants.back().token.number());
  }
  const auto time = ttl();
  return {RenewMany{grants, time}, words, [grants, time](StoreModel& model, Number) {
            std::string line;
            for (const auto& grant : grants) {
              line +=
                  (line.empty() ? "" : " | ") +
                  model.leases().renew(grant.name, grant.owner, grant.token.number(), time.count());
            }
            return Text{line, 0};
          }};
}

Simulation::Asked Simulation::release_many() {
  // Two at most: what each sets free may draw a token of its own.
  std::vector<Holding> grants{holding(), holding()};
  std::string words = "release many";
  for (const auto& grant : grants) {
    words += " " + grant.name + " " + grant.owner + " " + text(grant.token.number());
  }
  // One that the very step draws is known to the store only.
  for (auto& grant : grants) {
    grant.token = std::min(grant.token, Token{std::max<std::uint64_t>(1, leases().newest())});
  }
  return {ReleaseMany{grants}, words, [grants](StoreModel& model, Number) {
            std::string line;
            for (const auto& grant : grants) {
              line += (line.empty() ? "" : " | ") +
                      model.leases().release(grant.name, grant.owner, grant.token.number());
            }
            return Text{line, 0};
          }};
}

Simulation::Asked Simulation::revoke() {
  const auto name = lease();
  return {Revoke{name}, "revoke " + name, [name](StoreModel& model, Number) {
            return Text{model.leases().revoke(name), 0};
          }};
}

Simulation::Asked Simulation::raise() {
  const auto name = key();
  const auto with = token();
  const auto under = maybe(2) ? std::optional(lease()) : std::nullopt;
  const auto words = name + " " + text(with.number()) + " " + text(under);
  if (maybe(2)) {
    return {Raise{name, with, under}, "raise " + words, [=](StoreModel& model, Number) {
              return Text{model.raise(name, with.number(), under), 0};
            }};
  }
  return {FencedRead{name, with, under}, "fenced read " + words, [=](StoreModel& model, Number) {
            const auto line = model.raise(name, with.number(), under);
            return Text{line.starts_with("OK") ? model.read(name) : line, 0};
          }};
}

Simulation::Asked Simulation::reset() {
  Reset command{.key = key(), .token = token()};
  std::optional<std::string> guard;
  if (maybe(3)) {
    command.guard = Reset::Guard::clear;
    guard = "";
  } else if (maybe(3)) {
    command.guard = Reset::Guard::set;
    command.guard_name = lease();
    guard = command.guard_name;
  }
  return {command, "reset " + command.key + " " + text(command.token.number()) + " " + text(guard),
          [command, guard](StoreModel& model, Number) {
            return Text{model.reset(command.key, command.token.number(), guard), 0};
          }};
}

Simulation::Asked Simulation::read() {
  const auto first = key();
  const auto second = key();
  return {Read{.keys = {first, second}}, "read " + first + " " + second,
          [=](StoreModel& model, Number) {
            return Text{model.read(first) + " | " + model.read(second), 0};
          }};
}

Simulation::Asked Simulation::write() {
  Write command;
  StoreModel::Write expected;
  const auto count = maybe(4) ? 1 + pick(3) : 1;
  while (command.entries.size() < count) {
    const auto name = key();
    const auto is_there = std::any_of(command.entries.begin(), command.entries.end(),
                                      [&](const auto& entry) { return entry.key == name; });
    if (is_there) continue;
    // Some longer than a sector, so that the log of a group has several.
    auto value = maybe(4) ? std::nullopt : std::optional("v" + text(pick(1000)));
    if (value && maybe(6)) value->append(pick(6000), 'l');
    expected.entries.emplace_back(name, value);
    command.entries.push_back({.key = name, .value = std::move(value)});
  }
  command.token = token();
  if (maybe(2)) command.lease = lease();
  if (maybe(4)) command.live = true;
  if (maybe(4)) command.request = "r" + text(pick(3));
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

  std::string words = "write";
  for (const auto& entry : command.entries) {
    words += " " + entry.key + "=" + text(entry.value).substr(0, 8);
  }
  words += " token " + text(command.token.number()) + " lease " + text(command.lease) + " live " +
           text(std::uint64_t{command.live}) + " once " + text(std::uint64_t{command.once}) +
           " request " + text(command.request);
  return {std::move(command), words, [expected](StoreModel& model, Number) {
            return Text{model.write(expected), 0};
          }};
}

// --- A life -------------------------------------------------------------------------------------

/// Somebody who is there.
std::size_t Simulation::visitor() {
  const auto index = pick(visitors_.size());
  auto& visitor = visitors_.at(index);
  if (visitor.session == nullptr) {
    visitor.number = ++users_;
    visitor.told = std::make_shared<std::vector<LeaseModel::Event>>();
    visitor.session =
        std::make_unique<Session>(*store_.store, [told = visitor.told](const LeaseEvent& event) {
          told->push_back({std::string(to_string(event.change)), event.name, event.token.number()});
        });
  }
  return index;
}

std::shared_ptr<Simulation::Pending> Simulation::submit(const Asked& asked, std::uint64_t session) {
  ++counts_.commands;
  auto pending = std::make_shared<Pending>();
  pending->words = asked.words;
  pending->ticket = store_.store->enqueue(asked.command,
                                          [this, pending](Result<Reply> reply) {
                                            ++pending->answers;
                                            if (image_ == nullptr) answered_before_image_ = true;
                                            if (!pending->reply) pending->reply = std::move(reply);
                                          },
                                          {.name = nullptr, .session = session});
  all_.push_back(pending);
  return pending;
}

/// Several commands, which the store decides in one group.
void Simulation::burst() {
  struct Sent {
    std::shared_ptr<Pending> pending;
    std::optional<Text> expected;
    Number number;
  };
  std::vector<Sent> burst;
  const auto content = content_of(model_);
  bool must_commit = false;
  for (auto count = 1 + (maybe(3) ? 0 : pick(6)); count > 0; --count) {
    const auto index = visitor();
    const auto& visitor = visitors_.at(index);
    const auto number = ++numbers_;
    const auto asked = any_command(Kind::any, visitor.number);
    const auto before = leases().newest();
    auto expected = asked.apply(model_, number);
    burst.push_back({submit(asked, visitor.session->id()), std::move(expected), number});
    if (!burst.back().expected) waiting_.emplace(number, burst.back().pending);
    must_commit = must_commit || leases().newest() > before;
    // The store's order of tokens drawn at once, and the first one after a crash, are its own.
    const auto drawn = leases().newest() - newest_before_;
    if (drawn > 1 || (drawn > 0 && gap_possible_)) break;
  }
  must_commit = must_commit || content != content_of(model_);

  const auto groups = groups_;
  step_until_idle();
  for (const auto& sent : burst) {
    if (!sent.expected) {
      if (!sent.pending->reply) note(sent.pending->words + " waits");
      continue;
    }
    if (!check(sent.pending->reply.has_value(), "never answered: " + sent.pending->words)) return;
    compare(sent.pending->words, *sent.pending->reply, *sent.expected);
  }
  settle();
  check(!must_commit || groups_ > groups, "answered, and nothing was committed");
}

void Simulation::advance() {
  const auto step = milliseconds(pick(30));
  note("advance " + text(step));
  clock_->advance(step);
  leases().advance(step.count());
  step_until_idle();
  settle();
}

void Simulation::cancel() {
  if (waiting_.empty()) return;
  auto chosen = waiting_.begin();
  std::advance(chosen, pick(waiting_.size()));
  note("cancel " + chosen->second->words);
  store_.store->cancel(chosen->second->ticket);
  leases().cancel(chosen->first);
  step_until_idle();
  settle();
}

void Simulation::watch() {
  const auto index = visitor();
  const auto& visitor = visitors_.at(index);
  Asked asked{Unwatch{}, "user-" + text(visitor.number) + " unwatches", {}};
  if (maybe(3)) {
    leases().unwatch(visitor.number);
  } else {
    const auto names = some_names();
    asked = {Watch{names}, "user-" + text(visitor.number) + " watches " + names.front() + " …", {}};
    leases().watch(visitor.number, names);
  }
  const auto pending = submit(asked, visitor.session->id());
  step_until_idle();
  if (!check(pending->reply.has_value(), "never answered: " + asked.words)) return;
  compare(asked.words, *pending->reply, {"OK", 0});
  settle();
}

void Simulation::leave(std::size_t index) {
  auto& visitor = visitors_.at(index);
  if (visitor.session == nullptr) return;
  newest_before_ = leases().newest();
  note("user-" + text(visitor.number) + " leaves");
  visitor.session.reset();
  leases().disconnect(visitor.number);
  step_until_idle();
  settle();
}

void Simulation::leave_all() {
  for (std::size_t i = 0; i < visitors_.size() && !failure_; ++i) leave(i);
  newest_before_ = leases().newest();
}

void Simulation::work_in_background() {
  note("background");
  disk_->run_background(maybe(3) ? 1 : kBackgroundJobs);
}

void Simulation::reclaim() {
  // What waits for a name keeps it, which is the store's business.
  if (leases().waiting() > 0) return;
  const auto reclaimed = store_.store->reclaim();
  if (!check(reclaimed.has_value(), "reclaim: " + (reclaimed ? "" : reclaimed.error().line()))) {
    return;
  }
  const auto floor = reclaimed->floor.number();
  note("reclaim: floor " + text(floor));
  check(floor >= leases().floor(), "the floor went down");
  check(floor <= std::max(leases().newest(), leases().floor()),
        "the floor is above the newest token");
  for (const auto& [name, lease] : leases().names()) {
    for (const auto& holder : lease.holders) {
      check(holder.token >= floor, "the floor is above the held token " + text(holder.token));
    }
  }
  // Each step is a group of its own.
  const auto add = [&](bool has_changed) {
    if (!has_changed) return;
    ++groups_;
    keep(groups_ - epoch_, epoch_, model_);
  };
  const bool is_lifted = floor > leases().floor();
  if (is_lifted) leases().lift_floor(floor, leases().newest());
  add(is_lifted);
  const auto tombstones = model_.reclaim();
  check(tombstones == reclaimed->tombstones, "other tombstones were taken away");
  add(tombstones > 0);
  const auto names = leases().reclaim();
  check(names == reclaimed->lease_names,
        "other lease names were taken away: " + text(reclaimed->lease_names) + ", expected " +
            text(names));
  add(names > 0);
  settle();
}

/// The disk fails, once or for good; what was asked is there in full or not at all.
void Simulation::fail_writes() {
  leave_all();
  if (failure_ || image_ || leases().newest() == 0) return;
  // Every end that is due is noticed now, and makes no group of its own later.
  compare_everything();
  if (failure_ || image_) return;
  constexpr std::array kNumbers{EIO, ENOSPC, EDQUOT};
  failure_number_ = kNumbers.at(pick(kNumbers.size()));
  fail_for_good_ = maybe(2);
  fail_from_ = disk_->inodes().calls() + 1 + pick(12);
  note("calls will fail" + std::string(fail_for_good_ ? " for good" : ""));

  for (auto left = 2 + pick(4); left > 0 && !failure_ && !image_; --left) {
    if (maybe(4)) disk_->run_background(kBackgroundJobs);
    if (!store_.store->refuses_writes()) {
      std::vector<Asked> asked;
      for (auto count = 1 + pick(3); count > 0; --count) {
        asked.push_back(any_command(Kind::without_wait, 0));
      }
      burst_in_danger(std::move(asked));
      continue;
    }
    if (left == 1) fail_from_ = 0;
    look_while_suspended();
    store_.step();
    if (!store_.store->refuses_writes()) settle_doubt();
  }
  fail_from_ = 0;
  // What failed in the background shows at the next write.
  for (int i = 0; i < 10 && !failure_; ++i) {
    if (!store_.store->refuses_writes()) {
      const auto groups = groups_;
      burst_in_danger({reset()});
      if (groups_ > groups) break;
    }
    store_.step();
    if (!store_.store->refuses_writes()) settle_doubt();
  }
  const auto why = store_.store->refuses_writes();
  check(!why, "the disk works again, and the store does not: " + why.value_or(""));
  if (!failure_ && !image_) compare_everything();
}

void Simulation::burst_in_danger(std::vector<Asked> commands) {
  std::vector<std::pair<Asked, std::shared_ptr<Pending>>> burst;
  auto after = model_;
  newest_before_ = leases().newest();
  answered_before_image_ = false;
  for (auto& asked : commands) {
    auto tried = after;
    asked.apply(tried, ++numbers_);
    // Which token it is after a gap only an answer can tell.
    if (gap_possible_ && tried.leases().newest() > newest_before_) continue;
    after = std::move(tried);
    auto pending = submit(asked, 0);
    burst.emplace_back(std::move(asked), std::move(pending));
    if (after.leases().newest() > newest_before_) break;
  }
  if (burst.empty()) return;
  store_.step();

  bool is_in_doubt = false;
  for (const auto& [asked, pending] : burst) {
    if (!check(pending->reply.has_value(), "never answered: " + asked.words)) return;
    const auto& reply = *pending->reply;
    is_in_doubt = is_in_doubt || (!reply && reply.error().code() == Errc::in_doubt);
  }
  if (is_in_doubt) ++counts_.write_errors;
  bool shows_doubt = false;
  auto without_grant = model_;
  for (const auto& [asked, pending] : burst) {
    const auto number = ++numbers_;
    if (is_in_doubt) {
      note(asked.words + " -> " + text_of(*pending->reply).text);
      if (is_not_done(*pending->reply)) {
        auto tried = without_grant;
        asked.apply(tried, number);
        if (tried.leases().newest() == newest_before_) without_grant = std::move(tried);
        continue;
      }
      // A read: what is committed. When only the position file failed, that is the new state, which
      // must stay then.
      auto looked = model_;
      auto expected = *asked.apply(looked, number);
      if (text_of(*pending->reply) != expected) {
        looked = after;
        expected = *asked.apply(looked, number);
        shows_doubt = true;
      }
      compare(asked.words, *pending->reply, expected);
    } else if (is_not_done(*pending->reply)) {
      note(asked.words + " -> " + text_of(*pending->reply).text);
    } else {
      compare(asked.words, *pending->reply, *asked.apply(model_, number));
    }
  }
  if (is_in_doubt) {
    const auto content = groups_ - epoch_ + 1;
    doubt_ = Doubt{std::move(after), std::move(without_grant)};
    keep(content, epoch_, doubt_->after);
    if (shows_doubt && image_ == nullptr) acknowledge(content);
    return;
  }
  settle();
}

/// Reads go on, and show nothing that may still be undone.
void Simulation::look_while_suspended() {
  Asked asked{Read{.keys = {kKeys.begin(), kKeys.end()}}, "read all while suspended", {}};
  const auto pending = submit(asked, 0);
  const auto groups = store_.store->stats().groups;
  const auto epoch = store_.store->stats().epoch;
  // One that nobody takes, for the store may recover in this very step.
  Write never{.entries = {{.key = "a", .value = "never"}}, .token = Token{Token::kMax}};
  const auto refused = submit({std::move(never), "write while suspended", {}}, 0);
  store_.step();
  if (!check(pending->reply.has_value(), "never answered: " + asked.words)) return;
  const auto is_recovered = store_.store->stats().epoch != epoch;
  if (is_recovered) {
    settle_doubt();
  } else {
    check(refused->reply && is_not_done(*refused->reply),
          "a write is taken while suspended: " + text_of(*refused->reply).text);
    check(store_.store->stats().groups == groups, "a group landed while suspended");
  }
  const auto lines = [](StoreModel& model) {
    std::string line;
    for (const auto* name : kKeys) line += (line.empty() ? "" : " | ") + model.read(name);
    return line;
  };
  const auto answered = text_of(*pending->reply).text;
  note(asked.words + " -> " + answered);
  if (answered == lines(model_)) return;
  const bool is_after = doubt_ && answered == lines(doubt_->after);
  check(is_after, "reads while suspended differ: " + answered + "\nexpected " + lines(model_));
  // What was shown is as good as acknowledged.
  if (is_after && image_ == nullptr) acknowledge(groups_ - epoch_ + 1);
}

/// The store has reopened itself: did the group in doubt land?
void Simulation::settle_doubt() {
  const auto stats = store_.store->stats();
  const auto before = groups_ - epoch_;
  const auto now = stats.groups - stats.epoch;
  if (stats.epoch == epoch_) {
    // It never was in doubt.
    doubt_.reset();
    return;
  }
  note("reopened in place: " + text(now - before) + " landed");
  check(now == before || (doubt_ && now == before + 1),
        "content " + text(now) + " after reopening in place, before it was " + text(before));
  if (doubt_ && now == before + 1) {
    const bool has_grant = stats.newest.number() > leases().newest();
    model_ = has_grant ? std::move(doubt_->after) : std::move(doubt_->without_grant);
  }
  if (image_ == nullptr) contents_.erase(contents_.lower_bound({now + 1, 0}), contents_.end());
  keep(now, stats.epoch, model_);
  doubt_.reset();
  groups_ = stats.groups;
  epoch_ = stats.epoch;
  gap_possible_ = true;
  if (image_ == nullptr) acknowledge(groups_ - epoch_);
  // The first group of an epoch is synced.
  if (image_ == nullptr) durable_ = acknowledged_;
  newest_before_ = leases().newest();
}

// --- Beside the model ---------------------------------------------------------------------------

void Simulation::step_until_idle() {
  answered_before_image_ = false;
  for (int i = 0; store_.step(); ++i) {
    if (!check(i < 1000, "the store is never done")) return;
  }
  check(!store_.store->refuses_writes(),
        "no writes are taken: " + store_.store->refuses_writes().value_or(""));
}

void Simulation::compare(const std::string& words, const Result<Reply>& reply,
                         const Text& expected) {
  const auto answered = text_of(reply);
  note(words + " -> " + answered.text + " " + text(answered.token));
  check(answered.text == expected.text,
        "asked: " + words + "\nanswered: " + answered.text + "\nexpected: " + expected.text);
  if (expected.token > newest_before_) {
    const auto [known, is_new] = drawn_.emplace(expected.token, answered.token);
    check(known->second == answered.token, "two answers of one grant: " + words);
  } else {
    check(answered.token == expected.token, "asked: " + words + "\nanswered: token " +
                                                text(answered.token) +
                                                "\nexpected: " + text(expected.token));
  }
}

/// Everything that a round brought about: ends of waits, events, tokens.
void Simulation::settle() {
  for (const auto& [number, expected] : leases().ended()) {
    const auto found = waiting_.find(number);
    if (found == waiting_.end()) continue;
    const auto& pending = *found->second;
    if (!check(pending.reply.has_value(),
               "never answered: " + pending.words + ", expected " + expected.text)) {
      return;
    }
    compare("end of " + pending.words, *pending.reply, expected);
    waiting_.erase(found);
  }
  for (const auto& [number, pending] : waiting_) {
    check(!pending->reply, "answered too early: " + pending->words);
  }
  const auto stats = store_.store->stats();
  check(stats.waiting == leases().waiting(),
        "waiting: " + text(stats.waiting) + ", expected " + text(leases().waiting()));
  compare_tokens();
  compare_events();
  check(leases().settle(drawn_), "tokens of one name against their order");
  drawn_.clear();
  check(stats.newest.number() == leases().newest(),
        "newest token " + text(stats.newest.number()) + ", expected " + text(leases().newest()));
  remember_content();
  if (image_ == nullptr || answered_before_image_) acknowledge(groups_ - epoch_);
  answered_before_image_ = false;
  newest_before_ = leases().newest();
}

/// I1: every grant draws one, each above all before; none is left out but over a crash.
void Simulation::compare_tokens() {
  std::set<std::uint64_t> expected;
  std::set<std::uint64_t> actual;
  for (const auto& [provisional, token] : drawn_) {
    expected.insert(provisional);
    actual.insert(token);
  }
  if (expected.empty()) return;
  if (!check(actual.size() == expected.size(), "a token came twice")) return;
  check(*actual.begin() > newest_seen_, "token " + text(*actual.begin()) + " is not above " +
                                            text(newest_seen_) + ", which was seen before");
  if (gap_possible_) {
    check(*actual.begin() >= *expected.begin() &&
              *actual.rbegin() - *actual.begin() == *expected.rbegin() - *expected.begin(),
          "tokens are not drawn one after the other");
  } else {
    check(actual == expected, "tokens are not drawn one after the other");
  }
  gap_possible_ = false;
}

void Simulation::compare_events() {
  for (const auto& visitor : visitors_) {
    if (visitor.session == nullptr) continue;
    const auto expected = LeaseModel::with_tokens(leases().events(visitor.number), drawn_);
    for (const auto* name : kNames) {
      std::vector<LeaseModel::Event> those;
      std::vector<LeaseModel::Event> these;
      for (const auto& event : expected) {
        if (event.name == name) those.push_back(event);
      }
      for (const auto& event : *visitor.told) {
        if (event.name == name) these.push_back(event);
      }
      check(normal(these) == normal(those), "events of user-" + text(visitor.number) + ": " +
                                                to_string(these) + ", expected " +
                                                to_string(those));
    }
    visitor.told->clear();
  }
}

std::string Simulation::shown(const LeaseState& state) {
  auto line = state.name + " fence " + text(state.fence.number()) + " held by";
  for (const auto& holder : state.holders) {
    line += " [" + owner_of(holder.owner) + " " + text(holder.token.number()) + " " +
            std::string(to_string(holder.mode)) + " " + text(holder.remaining) +
            (holder.bound ? " bound" : "") + "]";
  }
  return line + " waiters " + text(state.waiters) + " blocked " + text(state.blocked) +
         " payload " + text(state.payload);
}

/// Listings and numbers equal the model at one point in time.
void Simulation::compare_everything() {
  auto& store = *store_.store;
  std::vector<std::string> live;
  std::uint64_t tombstones = 0;
  for (const auto& [name, key] : model_.keys()) {
    if (key.value) live.push_back(name);
    if (!key.value) ++tombstones;
  }
  const auto keys = store.list_keys(std::nullopt, 1000);
  if (!check(keys.has_value(), "cannot list the keys")) return;
  check(keys->items == live, "live keys " + joined(keys->items) + ", expected " + joined(live));
  for (const auto* name : kKeys) {
    const auto state = store.execute(Read{.keys = {name}});
    if (!check(state.has_value(), "cannot read a key")) return;
    const auto line = line_of(state->front());
    note(std::string(name) + ": " + line);
    check(line == model_.read(name),
          "key " + std::string(name) + " is " + line + "\nexpected " + model_.read(name));
  }

  std::vector<std::string> names;
  const auto listed = store.list_leases(std::nullopt, 1000);
  if (!check(listed.has_value(), "cannot list the leases")) return;
  for (const auto& lease : listed->items) names.push_back(lease.name);
  check(names == leases().listed(), "other leases are listed");
  for (const std::string name : kNames) {
    const auto state = store.execute(Inspect{name});
    if (!check(state.has_value(), "cannot inspect a lease")) return;
    note(shown(*state));
    check(shown(*state) == leases().inspect(name),
          "lease " + shown(*state) + "\nexpected " + leases().inspect(name));
    const auto waiters = store.execute(ListWaiters{name});
    if (!check(waiters.has_value(), "cannot list waiters")) return;
    auto line = name + ":";
    for (const auto& waiter : *waiters) {
      line += " [" + owner_of(waiter.owner) + " " + std::string(to_string(waiter.mode)) + " " +
              text(waiter.waited) + " " + text(waiter.remaining) + "]";
    }
    check(line == leases().list_waiters(name),
          "waiters " + line + "\nexpected " + leases().list_waiters(name));
  }

  const auto stats = store.stats();
  check(stats.live_keys == live.size(), "the number of live keys differs");
  check(stats.tombstones == tombstones, "the number of tombstones differs");
  check(stats.lease_names == leases().names_granted(), "the number of lease names differs");
  check(stats.floor.number() == leases().floor(), "the floor differs");
  check(stats.newest.number() == leases().newest(), "the newest token differs");
  check(stats.incarnation == incarnation_.value_or(stats.incarnation), "another incarnation");
  incarnation_ = stats.incarnation;
  step_until_idle();
  remember_content();
  if (image_ == nullptr) acknowledge(groups_ - epoch_);
}

/// `model` is what may be found on the disk with so much content, written last in that epoch.
void Simulation::keep(std::uint64_t content, std::uint64_t epoch, const StoreModel& model) {
  contents_.insert_or_assign({content, epoch}, Content{model, boot_, clock_->since_boot()});
}

const Simulation::Content* Simulation::find(std::uint64_t content, std::uint64_t epoch) const {
  // An opening that failed may have landed: then it was at the time of the next that succeeded.
  auto known = contents_.lower_bound({content, epoch});
  if (known == contents_.end() || known->first.first != content) {
    if (known == contents_.begin()) return nullptr;
    --known;
  }
  return known->first.first == content ? &known->second : nullptr;
}

/// The model is what the newest group left.
void Simulation::remember_content() {
  const auto stats = store_.store->stats();
  check(stats.epoch == epoch_, "another epoch, and nothing was reopened");
  check(stats.groups >= groups_, "the number of groups went back");
  counts_.groups += stats.groups - groups_;
  for (; groups_ < stats.groups; ++groups_) {
    keep(groups_ + 1 - epoch_, epoch_, model_);
  }
}

/// What was answered is there for ever, as far as the durability promises.
void Simulation::acknowledge(std::uint64_t content) {
  acknowledged_ = content;
  newest_seen_ = std::max(newest_seen_, leases().newest());
  if (durability_ == Durability::sync) durable_ = acknowledged_;
  contents_.erase(contents_.begin(), contents_.lower_bound({std::min(acknowledged_, durable_), 0}));
}

// --- Ends and beginnings ------------------------------------------------------------------------

/// A crash at one of the next calls of the disk.
void Simulation::arm(std::uint64_t within) {
  crash_ = maybe(2) ? Crash::process : Crash::power;
  crash_at_ = disk_->inodes().calls() + 1 + pick(within);
  note(crash_ == Crash::process ? "process will crash" : "power will be lost");
}

std::optional<DiskFailure> Simulation::before_call(const DiskCall& call) {
  if (crash_at_ != 0 && call.number >= crash_at_ && image_ == nullptr) {
    crash_at_ = 0;
    note("crash before " + std::string(to_string(call.operation)) + " " + std::string(call.path));
    image_ = crash_ == Crash::process ? disk_->after_process_crash()
                                      : disk_->after_power_loss(disk_random_);
  }
  if (fail_from_ == 0 || call.number < fail_from_ || !is_change(call.operation)) return {};
  if (!fail_for_good_) fail_from_ = 0;
  note("failed " + std::string(to_string(call.operation)) + " " + std::string(call.path));
  return DiskFailure{.number = failure_number_,
                     .written = call.bytes.empty() ? 0 : pick(call.bytes.size())};
}

void Simulation::forget_visitors() {
  for (auto& visitor : visitors_) visitor = {};
  waiting_.clear();
  // They ended with their process; nobody hears how.
  all_.clear();
}

/// Goes on from the image, if there is one.
bool Simulation::handle_crash() {
  if (image_ == nullptr || failure_) return false;
  end_store();
  open_somehow();
  return true;
}

/// The running store's answers do not count any more; it ends on its own disk.
void Simulation::end_store() {
  disk_->inodes().set_hook({});
  fail_from_ = 0;
  doubt_.reset();
  forget_visitors();
  store_.store.reset();
  store_.step = {};
  counts_.disk_calls += disk_->inodes().calls();
  disk_ = std::exchange(image_, nullptr);
  gap_possible_ = true;
  if (crash_ == Crash::process) {
    ++counts_.process_crashes;
    if (maybe(2)) clock_->advance(milliseconds(pick(40)));
  } else {
    ++counts_.power_losses;
    lose_power();
  }
}

void Simulation::lose_power() {
  power_lost_ = true;
  ++boot_;
  clock_->reboot(std::chrono::seconds(1 + pick(100)));
}

void Simulation::stop_and_start() {
  leave_all();
  if (failure_ || image_) return;
  note("stop");
  must_lift_ = false;
  keep(groups_ + 1 - epoch_, epoch_, model_);
  if (maybe(3)) arm(12);
  all_.clear();
  store_.store.reset();
  store_.step = {};
  crash_at_ = 0;
  if (image_ != nullptr) {
    end_store();
  } else {
    ++counts_.clean_stops;
    counts_.disk_calls += disk_->inodes().calls();
    acknowledged_ = groups_ + 1 - epoch_;
    durable_ = acknowledged_;
    may_lift_ = false;
    gap_possible_ = false;
    if (maybe(3)) {
      note("power is lost while stopped");
      disk_ = disk_->after_power_loss(disk_random_);
      lose_power();
    } else {
      clock_->advance(milliseconds(pick(40)));
    }
  }
  open_somehow();
}

std::optional<Error> Simulation::open_store() {
  disk_->inodes().set_hook([this](const DiskCall& call) { return before_call(call); });
  Options options;
  options.durability = durability_;
  options.clock = clock_;
  options.fence_retention = kRetention;
  options.log = [this](LogLevel level, std::string_view line) {
    // Only for who reads a failure: texts of RocksDB are no part of the trace.
    if (level >= LogLevel::warning) last_.push_back("log: " + std::string(line));
  };
  auto taken = rocks::Directory::take(*disk_, kPath);
  if (!taken) return taken.error();
  const auto is_new = taken->is_new();
  if (!is_new) return is_new.error();
  was_new_ = *is_new;
  const auto adjust = [this](rocksdb::Options& database) { make_small(database, flush_after_); };
  auto backend = rocks::RocksBackend::open(*std::move(taken), *is_new, durability_,
                                           clock_->boot_id(), options.log, adjust);
  if (!backend) return backend.error();
  auto store = core::make_driven_store(*std::move(backend), options);
  if (!store) return store.error();
  store_ = *std::move(store);
  return std::nullopt;
}

/// Opens what is there, as often as it takes: it may crash meanwhile.
void Simulation::open_somehow() {
  const auto floor = leases().floor();
  std::optional<std::pair<std::uint64_t, Content>> first_group;
  while (!failure_) {
    durability_ = maybe(3) ? Durability::process : Durability::sync;
    flush_after_ = 10 + pick(60);
    if (durability_ == Durability::process) may_lift_ = true;
    if (durability_ == Durability::sync) must_lift_ = false;
    note("open, durability " + std::string(durability_ == Durability::sync ? "sync" : "process"));

    if (maybe(4)) arm(60);
    const auto error = open_store();
    if (!check(!error, "the store does not open: " + (error ? error->line() : ""))) return;
    crash_at_ = 0;

    // Its opening was a group of its own.
    const auto stats = store_.store->stats();
    const auto content = stats.groups - stats.epoch;
    note("found epoch " + text(stats.epoch - 1) + " group " + text(stats.groups - 1));
    check(!was_new_ || (stats.epoch == 1 && stats.groups == 1), "a new store is not empty");
    check(!was_new_ || !exists_, "the store is gone");
    check(content >= (power_lost_ ? durable_ : acknowledged_),
          "content " + text(content) + " was found, " + text(acknowledged_) +
              " was acknowledged, durable up to " + text(durable_));
    Content base{StoreModel(), boot_, clock_->since_boot()};
    if (first_group && first_group->first == stats.epoch - 1) {
      base = std::move(first_group->second);
    } else if (!was_new_) {
      const auto* known = find(content, stats.epoch - 1);
      if (!check(known != nullptr, "nobody knows content " + text(content))) return;
      base = *known;
    }
    auto opened = base.model;
    if (base.boot != boot_) {
      opened.leases().reboot();
    } else {
      const auto down = clock_->since_boot() - base.at;
      opened.leases().restart_after(std::chrono::duration_cast<milliseconds>(down).count());
    }
    opened.leases().settle({});

    const auto lifted = stats.floor.number();
    if (lifted != opened.leases().floor()) {
      ++counts_.floors_lifted;
      note("floor lifted to " + text(lifted));
      check(power_lost_ && may_lift_, "the floor was lifted, and nothing can have been lost");
      check(lifted > opened.leases().floor(), "the floor went down");
      check(lifted > newest_seen_, "the floor " + text(lifted) + " is not above token " +
                                       text(newest_seen_) + ", which was seen");
      opened.leases().lift_floor(lifted, stats.newest.number());
    }
    // Above all that anybody was told; it may have been there already.
    const bool is_lifted = lifted > floor || lifted > newest_seen_;
    check(is_lifted || !must_lift_ || !power_lost_, "the floor was not lifted");
    check(is_lifted || content >= acknowledged_, "acknowledged writes are lost");
    check(stats.newest.number() == opened.leases().newest(),
          "newest token " + text(stats.newest.number()) + " after opening, expected " +
              text(opened.leases().newest()));
    if (failure_) return;

    if (image_ != nullptr) {
      ++counts_.crashes_while_opening;
      first_group.emplace(stats.epoch, Content{opened, boot_, clock_->since_boot()});
      if (content < acknowledged_) acknowledged_ = content;
      end_store();
      continue;
    }

    model_ = std::move(opened);
    groups_ = stats.groups;
    epoch_ = stats.epoch;
    contents_.clear();
    keep(content, epoch_, model_);
    exists_ = true;
    power_lost_ = false;
    may_lift_ = must_lift_ = durability_ == Durability::process;
    durable_ = content;
    acknowledge(groups_ - epoch_);
    newest_before_ = leases().newest();
    drawn_.clear();
    learn_ends();
    compare_everything();
    return;
  }
}

/// How a grant ended that was bound, and whose time was over, when its process ended: what was
/// noticed and written down before, only the store knows.
void Simulation::learn_ends() {
  for (const std::string name : kNames) {
    const auto found = leases().names().find(name);
    if (found == leases().names().end() || !found->second.last) continue;
    const auto fence = found->second.fence;
    const auto& last = *found->second.last;
    const auto event =
        store_.store->execute(Await{.name = name, .token = Token{fence}, .timeout = {}});
    if (!check(event && *event, "nothing is known of the end of " + name)) return;
    const std::string how(to_string((*event)->change));
    note(name + " " + text(fence) + " has " + how);
    const bool may_differ = fence < leases().floor() || last.bound;
    const bool is_end = how == "expired" || how == "disconnected" || how == "revoked";
    check(how == last.ended || (may_differ && is_end && last.ended != "released"),
          "grant " + text(fence) + " of " + name + " has " + how + ", expected " + last.ended);
    leases().learn_end(name, how);
  }
}

}  // namespace fencekv::testing
