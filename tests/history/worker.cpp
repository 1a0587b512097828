// SPDX-License-Identifier: Apache-2.0
#include "tests/history/worker.h"

#include "tests/support/boot_time.h"
#include "tests/support/child_process.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr std::array kTtls{40ms, 120ms, 400ms};
constexpr std::array kWaits{0ms, 0ms, 100ms, 400ms};
/// A token that is never issued in a test.
constexpr std::uint64_t kForged = 1'000'000'000'000;

std::string text(milliseconds time) {
  return std::to_string(time.count());
}

}  // namespace

bool Worker::is_over() const {
  return since_boot() >= place_.until;
}

void Worker::rest(milliseconds at_most) {
  std::this_thread::sleep_for(
      std::chrono::microseconds(number(static_cast<std::uint64_t>(at_most.count()) * 1000 + 1)));
}

std::string Worker::value() {
  // Some do not fit into one piece of a stream.
  const auto size = chance(5) ? 2000 : 0;
  return "v" + std::to_string(place_.id) + "." + std::to_string(++count_) +
         std::string(static_cast<std::size_t>(size), 'x');
}

std::string Worker::some_group() {
  // Some are fought for, others rest long enough to see a grant expire with nobody waiting.
  const auto groups = static_cast<std::uint64_t>(place_.groups);
  return std::to_string(std::min(number(groups), number(groups)));
}

std::vector<std::string> Worker::keys(int groups) {
  std::vector<std::string> all;
  for (int group = 0; group < groups; ++group) {
    for (int key = 0; key < 3; ++key) {
      all.push_back("k" + std::to_string(group) + "." + std::to_string(key));
    }
    for (const auto* plain : {"p", "q"}) all.push_back(plain + std::to_string(group));
  }
  return all;
}

std::vector<std::string> Worker::leases(int groups) {
  std::vector<std::string> all;
  for (int group = 0; group < groups; ++group) all.push_back("l" + std::to_string(group));
  return all;
}

Operation Worker::ask(const std::vector<std::string>& words) {
  auto operation = operation_of(words).value();
  operation.client = place_.id;
  const auto patience = operation.wait + 10s;
  while (!connection_) {
    connection_.emplace(place_.port);
    if (connection_->connected()) break;
    connection_.reset();
    rest(5ms);
  }
  // Only now: what is invoked before a kill was sent by a connection that the kill ended.
  operation.invoked = since_boot();
  // It looked at the clock, and then was stopped.
  if (chance(1)) rest(300ms);
  connection_->send(request(words));
  const auto reply = connection_->read(patience);
  if (reply) {
    take_reply(operation, *reply);
    if (!operation.is_unknown()) operation.returned = since_boot();
  } else {
    connection_.reset();
    rest(20ms);
  }
  say(place_.out, line_of(operation) + "\n");
  return operation;
}

void Worker::run() {
  while (!is_over()) {
    if (chance(60)) {
      work_under_lease();
    } else if (chance(50)) {
      work_without();
    } else {
      look();
    }
  }
}

void Worker::work_under_lease() {
  const auto lease = "l" + some_group();
  const auto owner = "o" + std::to_string(place_.id) + "." + std::to_string(++count_);
  const auto ttl = kTtls[number(kTtls.size())];
  std::vector<std::string> acquire{"LEASE.ACQUIRE", lease, owner, text(ttl)};
  if (const auto wait = kWaits[number(kWaits.size())]; wait > 0ms) {
    acquire.insert(acquire.end(), {"WAIT", text(wait)});
  }
  auto acquired = ask(acquire);
  for (int i = 0; i < 3 && acquired.is_unknown() && chance(70) && !is_over(); ++i) {
    acquired = ask(acquire);
  }
  if (acquired.told == 0) return;
  const auto token = std::to_string(acquired.told);
  tokens_[lease].push_back(token);

  bool may_go_on = true;
  for (auto left = 1 + number(12); left > 0 && !is_over(); --left) {
    const bool paused = chance(6);
    if (paused) rest(ttl + 100ms);
    // Who slept would best ask first whether it still holds.
    if (chance(paused ? 60 : 15)) {
      const auto renewed = ask({"LEASE.RENEW", lease, owner, token, text(ttl)});
      may_go_on = may_go_on && renewed.outcome != Operation::Outcome::refused;
    } else {
      may_go_on = write(lease, token) && may_go_on;
    }
    // Some go on whatever they are told.
    if (!may_go_on && chance(50)) return;
  }
  if (chance(65)) {
    auto released = ask({"LEASE.RELEASE", lease, owner, token});
    if (released.is_unknown() && chance(70)) released = ask({"LEASE.RELEASE", lease, owner, token});
    if (chance(20)) write(lease, token);
  }
}

bool Worker::write(const std::string& lease, const std::string& token) {
  const auto group = group_of(lease);
  const auto key = "k" + group + "." + std::to_string(number(3));
  std::vector<std::string> words;
  switch (number(10)) {
    case 0:
    case 1:
      words = {"FENCE.MSET", token, "2", "k" + group + ".0", value(), "k" + group + ".1", value()};
      break;
    case 2:
      words = {"FENCE.DEL", key, token};
      break;
    case 3:
      return ask({"FENCE.GET", key, "TOKEN", token, "LEASE", lease}).is_done();
    case 4:
      return ask({"FENCE.RAISE", key, token, "LEASE", lease}).is_done();
    default:
      words = {"FENCE.SET", key, token, value()};
      break;
  }
  // Who names no lease is checked against the guard.
  if (chance(90)) words.insert(words.end(), {"LEASE", lease});
  if (words[0] == "FENCE.SET" && chance(10)) {
    if (chance(30)) {
      words.emplace_back("ONCE");
    } else if (const auto state = ask({"FENCE.GET", key}); state.is_done()) {
      words.insert(words.end(), {"IFVER", std::to_string(*state.seen[0].version)});
    }
  }
  if (words[words.size() - 2] == "LEASE" && chance(10)) words.emplace_back("LIVE");
  const bool has_identity = chance(40);
  if (has_identity) {
    words.insert(words.end(),
                 {"REQ", "r" + std::to_string(place_.id) + "." + std::to_string(++count_)});
  }
  auto written = ask(words);
  for (int i = 0; i < 3 && has_identity && (written.is_unknown() || chance(5)) && !is_over(); ++i) {
    written = ask(words);
  }
  return written.outcome != Operation::Outcome::refused || written.refusal.starts_with("VERSION");
}

void Worker::work_without() {
  const auto lease = "l" + some_group();
  const auto& tokens = tokens_[lease];
  const auto plain = (chance(50) ? "p" : "q") + group_of(lease);
  if (chance(3)) {
    ask({"LEASE.REVOKE", lease});
  } else if (chance(10)) {
    ask({"FENCE.SET", plain, std::to_string(kForged + number(1000)), value()});
  } else if (chance(10)) {
    ask({"FENCE.SET", "k" + group_of(lease) + ".0", std::to_string(kForged), value(), "LEASE",
         lease});
  } else if (tokens.empty()) {
    look();
  } else if (chance(50)) {
    // The keys have no guard: only their own fences protect them, each by itself.
    const auto& token = tokens[tokens.size() - 1 - number(std::min<std::size_t>(tokens.size(), 3))];
    if (chance(60)) {
      ask({"FENCE.SET", plain, token, value()});
    } else {
      const auto group = group_of(lease);
      ask({"FENCE.MSET", token, "2", "p" + group, value(), "q" + group, value()});
    }
  } else {
    write(lease, tokens[number(tokens.size())]);
  }
}

void Worker::look() {
  const auto group = some_group();
  const auto key =
      chance(20) ? (chance(50) ? "p" : "q") + group : "k" + group + "." + std::to_string(number(3));
  switch (number(5)) {
    case 0:
      ask({"LEASE.INFO", "l" + group});
      return;
    case 1:
      if (chance(30)) {
        ask({"MGET", "p" + group, "q" + group});
        return;
      }
      ask({"MGET", "k" + group + ".0", "k" + group + ".1", "k" + group + ".2"});
      return;
    case 2:
      ask({"GET", key});
      return;
    default:
      ask({"FENCE.GET", key});
      return;
  }
}

}  // namespace fencekv::testing
