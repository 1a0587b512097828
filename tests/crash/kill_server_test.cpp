// SPDX-License-Identifier: Apache-2.0
/// A real server that is killed at any moment keeps every lease that it granted, of every mode, and
/// every write that it acknowledged to any kind of client, and forgets what ends with a connection.
///
/// FENCEKV_CRASH_SEED chooses the moments (it is printed), FENCEKV_CRASH_KILLS how many there are.
/// For hours: tools/soak/kill.sh. After a kill the page cache survives: that a real server loses
/// nothing by a loss of power either is tested in the simulation (tests/simulation), which runs the
/// same code on a disk that forgets what was not synced.

#include "tests/support/acknowledgement_log.h"
#include "tests/support/raw_client.h"
#include "tests/support/seed_from_environment.h"
#include "tests/support/server_process.h"
#include "tests/support/talking_process.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::StartsWith;

constexpr int kClients = 4;

/// One kind of lease that every client takes and gives back over and over.
struct Kind {
  std::string name;
  bool is_shared_by_all = false;  ///< All clients ask for the same name, else each has its own.
  bool is_bound = false;
  std::vector<std::string> options;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {.name = "exclusive", .options = {"PAYLOAD", "label"}},
      {.name = "shared", .is_shared_by_all = true, .options = {"SHARED"}},
      {.name = "permit",
       .is_shared_by_all = true,
       .options = {"PERMITS", std::to_string(kClients)}},
      {.name = "bound", .is_bound = true, .options = {"BIND"}},
  };
  return all;
}

/// A grant as its client knows it.
struct Granted {
  enum class End { held, releasing, released };

  std::string name;
  std::string owner;
  std::string token;
  bool is_bound = false;
  End end = End::held;
};

/// The token of a reply `[$token, :remaining]`; empty: it is no grant.
std::string token_of(const std::string& reply) {
  if (!reply.starts_with("[$")) return {};
  return reply.substr(2, reply.find(',') - 2);
}

/// Waits until `count` of something have happened.
void expect_reaches(const std::atomic<int>& so_far, int count) {
  const auto patience = std::chrono::steady_clock::now() + 60s;
  while (so_far < count && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_GE(so_far, count) << "nobody is at work";
}

/// Takes and gives back leases until the server is gone. Returns all that was granted.
std::vector<Granted> work(std::uint16_t port, int client, unsigned seed, std::atomic<int>& grants) {
  std::mt19937 random(seed);
  RawClient connection(port);
  std::vector<Granted> told;
  std::array<std::optional<std::size_t>, 4> held;  // by kind: where in `told`
  while (true) {
    const auto which = random() % kinds().size();
    const auto& kind = kinds()[which];
    if (held[which]) {
      auto& grant = told[*held[which]];
      grant.end = Granted::End::releasing;
      const auto reply = connection.ask({"LEASE.RELEASE", grant.name, grant.owner, grant.token});
      if (reply == "closed") return told;
      EXPECT_EQ(reply, "+OK") << grant.name;
      grant.end = Granted::End::released;
      held[which].reset();
      continue;
    }

    Granted grant{.name = kind.name + (kind.is_shared_by_all ? "" : "-" + std::to_string(client)),
                  .owner = std::to_string(client) + "." + std::to_string(random()),
                  .token = {},
                  .is_bound = kind.is_bound};
    std::vector<std::string> words{"LEASE.ACQUIRE", grant.name, grant.owner, "3600000"};
    words.insert(words.end(), kind.options.begin(), kind.options.end());
    const auto reply = connection.ask(words);
    if (reply == "closed") return told;
    grant.token = token_of(reply);
    EXPECT_NE(grant.token, "") << grant.name << ": " << reply;
    held[which] = told.size();
    told.push_back(std::move(grant));
    ++grants;
  }
}

class KilledServer : public ::testing::TestWithParam<const char*> {
 protected:
  void start() {
    server_.emplace(
        ServerProcess::Start{.flags = {"--dir", (directory_.path() / "store").string(), "--port",
                                       "0", "--unix", socket(), "--durability", GetParam()}});
    port_ = server_->wait_ready();
    ASSERT_NE(port_, 0) << server_->log();
  }

  /// The same address in every life.
  std::string socket() const { return (directory_.path() / "socket").string(); }

  void kill() {
    server_->signal(SIGKILL);
    EXPECT_EQ(server_->wait_exit(), 128 + SIGKILL);
  }

  /// All that was granted before the server was killed.
  std::vector<Granted> work_until_killed(std::mt19937& random) {
    // One holds, the others wait for it, and it never ends.
    RawClient holder(port_);
    EXPECT_NE(token_of(holder.ask({"LEASE.ACQUIRE", "queue", "holder", "3600000"})), "");
    std::vector<RawClient> waiters;
    for (int i = 0; i < 3; ++i) {
      waiters.emplace_back(port_);
      waiters.back().send(request(
          {"LEASE.ACQUIRE", "queue", "waiter-" + std::to_string(i), "1000", "WAIT", "3600000"}));
    }

    std::atomic<int> grants = 0;
    std::vector<std::vector<Granted>> told(kClients);
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&, i, seed = static_cast<unsigned>(random())] {
        told[static_cast<std::size_t>(i)] = work(port_, i, seed, grants);
      });
    }
    expect_reaches(grants, kClients);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100'000));
    server_->signal(SIGKILL);
    for (auto& client : clients) client.join();
    EXPECT_EQ(server_->wait_exit(), 128 + SIGKILL);

    std::vector<Granted> all;
    for (auto& some : told) all.insert(all.end(), some.begin(), some.end());
    return all;
  }

  /// Every grant stands as it was told.
  void expect_kept(const std::vector<Granted>& told) {
    RawClient client(port_);
    for (const auto& grant : told) {
      SCOPED_TRACE(grant.name + " of " + grant.owner + " with token " + grant.token);
      const auto renewed =
          client.ask({"LEASE.RENEW", grant.name, grant.owner, grant.token, "3600000"});
      if (grant.is_bound && grant.end != Granted::End::released) {
        // Its connection is gone, with the server and for good; unless it was released before.
        EXPECT_THAT(renewed, AnyOf("-LEASELOST disconnected", "-LEASELOST released"));
      } else if (grant.end == Granted::End::held) {
        EXPECT_EQ(renewed, ":3600000");
      } else if (grant.end == Granted::End::released) {
        EXPECT_THAT(renewed, StartsWith("-LEASELOST "));
      } else {
        // The release was on its way.
        EXPECT_THAT(renewed, AnyOf(":3600000", StartsWith("-LEASELOST ")));
      }
    }
    EXPECT_EQ(client.ask({"LEASE.WAITERS", "queue"}), "[]");
    EXPECT_EQ(client.ask({"LEASE.RENEW", "queue", "holder", queue_token(client), "3600000"}),
              ":3600000");
  }

  static std::string queue_token(RawClient& client) {
    return token_of(client.ask({"LEASE.ACQUIRE", "queue", "holder", "3600000"}));
  }

  /// So that the next life begins with free names.
  void revoke_all() {
    RawClient client(port_);
    for (const auto& kind : kinds()) {
      for (int i = 0; i < kClients; ++i) {
        const auto name = kind.name + (kind.is_shared_by_all ? "" : "-" + std::to_string(i));
        EXPECT_THAT(client.ask({"LEASE.REVOKE", name}),
                    AnyOf(StartsWith("$"), "-LEASELOST unknown"));
      }
    }
    EXPECT_THAT(client.ask({"LEASE.REVOKE", "queue"}), StartsWith("$"));
  }

  TemporaryDirectory directory_;
  std::optional<ServerProcess> server_;
  std::uint16_t port_ = 0;
};

TEST_P(KilledServer, KeepsTheLeasesOfAllModesAndNoTokenComesTwice) {
  const auto seed = seed_from_environment("FENCEKV_CRASH_SEED");
  const auto kills =
      std::max(number_from_environment("FENCEKV_CRASH_KILLS").value_or(20) / 4, std::uint64_t{1});
  std::cout << "FENCEKV_CRASH_SEED=" << seed << std::endl;
  std::mt19937 random(static_cast<unsigned>(seed));

  std::set<std::uint64_t> tokens;
  std::uint64_t newest_before = 0;
  for (std::uint64_t round = 0; round < kills && !HasFailure(); ++round) {
    SCOPED_TRACE("kill " + std::to_string(round));
    start();
    if (HasFatalFailure()) return;
    const auto told = work_until_killed(random);
    ASSERT_GE(told.size(), static_cast<std::size_t>(kClients));
    for (const auto& grant : told) {
      const auto token = std::stoull(grant.token);
      EXPECT_TRUE(tokens.insert(token).second) << token << " came twice";
      EXPECT_GT(token, newest_before) << "an older one than in the life before";
    }

    start();
    if (HasFatalFailure()) return;
    expect_kept(told);
    RawClient client(port_);
    const auto next = token_of(client.ask({"LEASE.ACQUIRE", "next", "owner", "1"}));
    ASSERT_NE(next, "");
    newest_before = std::stoull(next);
    EXPECT_GT(newest_before, *tokens.rbegin());
    tokens.insert(newest_before);
    revoke_all();
    server_->signal(SIGKILL);
    EXPECT_EQ(server_->wait_exit(), 128 + SIGKILL);
  }
  std::cout << tokens.size() << " grants, " << 2 * kills << " kills" << std::endl;
}

/// Writes under leases of its own until the server is gone, as clients/writer_python_redis.py does.
/// Returns what it said.
std::string write_until_gone(const std::string& socket, const std::string& name, unsigned seed,
                             std::atomic<int>& acknowledged) {
  std::mt19937 random(seed);
  RawClient connection(socket);
  std::string said;
  const auto key_of = [&](unsigned i) { return name + "." + std::to_string(i); };
  std::map<std::string, std::int64_t> versions;
  for (unsigned i = 0; i < 6; ++i) {
    connection.send(request({"FENCE.GET", key_of(i)}));
    const auto state = connection.read();
    if (!state) return said;
    versions[key_of(i)] = state->at("version")->integer;
  }
  while (true) {
    const auto owner = name + "-" + std::to_string(random());
    const auto token = token_of(connection.ask({"LEASE.ACQUIRE", name, owner, "3600000"}));
    if (token.empty()) return said;
    said += "grant " + name + " " + owner + " " + token + "\n";
    for (int i = 0; i < 20; ++i) {
      const bool is_pair = random() % 10 < 3;
      const auto key = key_of(random() % 6);
      const bool deletes = !is_pair && random() % 5 == 0;
      const auto value =
          deletes ? "-" : std::string(1 + random() % 300, static_cast<char>('a' + random() % 26));
      std::vector<std::string> keys{key};
      std::vector<std::string> words{"FENCE.SET", key, token, value};
      if (deletes) words = {"FENCE.DEL", key, token};
      if (is_pair) {
        keys = {key_of(0), key_of(1)};
        words = {"FENCE.MSET", token, "2", keys[0], value, keys[1], value};
      }
      words.insert(words.end(), {"LEASE", name});
      std::string told;
      std::string expected;
      for (const auto& written : keys) {
        const auto version = std::to_string(++versions[written]);
        told += " " + written + " " + token + " " + version + " " + value + "\n";
        expected += (expected.empty() ? ":" : ", :") + version;
      }
      const auto lines = [&](const std::string& word) {
        return word + (is_pair ? std::string(told).replace(told.find('\n') + 1, 0, word) : told);
      };
      said += lines("try");
      const auto reply = connection.ask(words);
      if (reply == "closed") return said;
      EXPECT_EQ(reply, is_pair ? "[" + expected + "]" : expected);
      said += lines("ack");
      ++acknowledged;
    }
    said += "releasing " + name + "\n";
    const auto reply = connection.ask({"LEASE.RELEASE", name, owner, token});
    if (reply == "closed") return said;
    EXPECT_EQ(reply, "+OK");
    said += "released " + name + "\n";
  }
}

/// The clients that are there: programs that live longer than the server.
std::map<std::string, std::unique_ptr<TalkingProcess>> start_writers(const std::string& socket,
                                                                     std::mt19937& random) {
  // python3-redis of Debian belongs to this one, whatever else is on PATH.
  const std::string python =
      std::filesystem::exists("/usr/bin/python3") ? "/usr/bin/python3" : "python3";
  const std::string folder = FENCEKV_CRASH_CLIENTS;
  std::map<std::string, std::unique_ptr<TalkingProcess>> writers;
  for (const auto* name : {"python-1", "python-2"}) {
    writers[name] = std::make_unique<TalkingProcess>(std::vector<std::string>{
        python, "-B", folder + "/writer_python_redis.py", socket, name, std::to_string(random())});
  }
  writers["node"] = std::make_unique<TalkingProcess>(
      std::vector<std::string>{"node", folder + "/writer_node_redis.mjs", FENCEKV_NODE_PACKAGES,
                               socket, "node", std::to_string(random())});
  return writers;
}

/// Waits until every writer has had a first acknowledgement, and drops those that are not there.
struct Begun {
  std::map<std::string, std::string> heard;  ///< What those said who take part.
  std::string absent;                        ///< Who does not, and why; empty: all take part.
};
Begun expect_all_begin(std::map<std::string, std::unique_ptr<TalkingProcess>>& writers) {
  Begun begun;
  for (auto writer = writers.begin(); writer != writers.end();) {
    const auto& [name, process] = *writer;
    if (const auto said = process->hear_until("ack ")) {
      begun.heard[name] = *said;
      ++writer;
      continue;
    }
    // It says itself why it does not take part; 127: there is no such program.
    const int code = process->wait();
    EXPECT_THAT(code, AnyOf(77, 127)) << name << ": " << process->rest();
    EXPECT_FALSE(name == "node" && code == 77 &&
                 std::filesystem::exists(FENCEKV_NODE_PACKAGES "/node_modules"))
        << "its packages were installed, and yet: " << process->rest();
    begun.absent +=
        "without " + name + ": " + (code == 127 ? "there is no such program\n" : process->rest());
    writer = writers.erase(writer);
  }
  return begun;
}

/// What was acknowledged is there; what was in flight is there in full or not at all. Whatever is
/// found counts as acknowledged from now on.
void expect_written(RawClient& client, AcknowledgementLog& log) {
  std::map<std::string, std::set<bool>> in_flight_landed;  // By writer: one command at a time.
  for (const auto& key : log.keys()) {
    client.send(request({"FENCE.GET", key}));
    const auto state = client.read();
    ASSERT_TRUE(state.has_value());
    const auto& value = *state->at("value");
    const AcknowledgementLog::Version found{
        .token = std::stoull(state->at("fence")->text),
        .version = static_cast<std::uint64_t>(state->at("version")->integer),
        .value = value.is_null() ? "-" : value.text};
    const auto acknowledged = log.acknowledged.find(key);
    const auto tried = log.tried.find(key);
    const bool landed = tried != log.tried.end() && found == tried->second;
    const bool as_acknowledged =
        acknowledged == log.acknowledged.end()
            ? found == AcknowledgementLog::Version{.token = 0, .version = 0, .value = "-"}
            : found == acknowledged->second;
    EXPECT_TRUE(landed || as_acknowledged)
        << key << " has token " << found.token << ", version " << found.version;
    if (tried != log.tried.end()) in_flight_landed[key.substr(0, key.find('.'))].insert(landed);
    if (found.version > 0) log.acknowledged[key] = found;
  }
  for (const auto& [writer, landed] : in_flight_landed) {
    EXPECT_EQ(landed.size(), 1U) << "half of a write of " << writer;
  }
  log.tried.clear();
}

/// The grants that were not given back stand, and older tokens are refused.
void expect_granted(RawClient& client, AcknowledgementLog& log) {
  for (const auto& [name, grant] : log.grants) {
    SCOPED_TRACE(name + " of " + grant.owner);
    const auto token = std::to_string(grant.token);
    const auto renewed = client.ask({"LEASE.RENEW", name, grant.owner, token, "3600000"});
    switch (grant.end) {
      case AcknowledgementLog::Grant::End::held:
        EXPECT_EQ(renewed, ":3600000");
        break;
      case AcknowledgementLog::Grant::End::releasing:
        EXPECT_THAT(renewed, AnyOf(":3600000", "-LEASELOST released"));
        break;
      case AcknowledgementLog::Grant::End::released:
        // The next acquire may have been granted, and its reply lost.
        EXPECT_THAT(renewed, AnyOf("-LEASELOST released", "-LEASELOST superseded"));
        break;
    }
    EXPECT_THAT(client.ask({"LEASE.REVOKE", name}), StartsWith("$"));
    EXPECT_THAT(client.ask({"FENCE.SET", name + ".0", token, "late", "LEASE", name}),
                StartsWith("-FENCED "));
  }
  log.grants.clear();
}

TEST_P(KilledServer, KeepsWhatItAcknowledgedToAnyClient) {
  const auto seed = seed_from_environment("FENCEKV_CRASH_SEED");
  const auto kills =
      std::max(number_from_environment("FENCEKV_CRASH_KILLS").value_or(50) / 2, std::uint64_t{1});
  std::cout << "FENCEKV_CRASH_SEED=" << seed << std::endl;
  std::mt19937 random(static_cast<unsigned>(seed));

  auto writers = start_writers(socket(), random);
  AcknowledgementLog log;
  std::set<std::uint64_t> tokens;
  std::map<std::string, int> acks_of;
  std::set<std::string> names;  // of the writers, and of their leases
  for (std::uint64_t round = 0; round < kills && !HasFailure(); ++round) {
    SCOPED_TRACE("kill " + std::to_string(round));
    start();
    if (HasFatalFailure()) return;
    if (round > 0) {
      RawClient client(port_);
      expect_written(client, log);
      expect_granted(client, log);
      // Now all names are free, also one of which the only grant in this life was told to nobody.
      for (const auto& name : names) client.ask({"LEASE.REVOKE", name});
      // What is drawn now is newer than all before.
      const auto token = token_of(client.ask({"LEASE.ACQUIRE", "next", "owner", "1"}));
      ASSERT_NE(token, "");
      EXPECT_GT(std::stoull(token), tokens.empty() ? 0 : *tokens.rbegin());
      tokens.insert(std::stoull(token));
    }
    const auto newest_before = tokens.empty() ? 0 : *tokens.rbegin();

    for (auto& [name, writer] : writers) writer->say("go\n");
    std::atomic<int> acknowledged = 0;
    std::array<std::string, 2> said;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < said.size(); ++i) {
      threads.emplace_back([&, i, its_seed = static_cast<unsigned>(random())] {
        said[i] = write_until_gone(socket(), "raw-" + std::to_string(i), its_seed, acknowledged);
      });
    }
    expect_reaches(acknowledged, 2);
    std::map<std::string, std::string> heard;
    if (round == 0) {
      // Once all are at work it may end at any moment.
      auto begun = expect_all_begin(writers);
      std::cout << begun.absent << std::flush;
      heard = std::move(begun.heard);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 150'000));
    kill();
    for (auto& thread : threads) thread.join();
    for (auto& [name, writer] : writers) {
      auto rest = writer->hear_until("gone\n");
      ASSERT_TRUE(rest.has_value()) << name << " does not say that the server is gone";
      heard[name] += *rest;
    }
    for (std::size_t i = 0; i < said.size(); ++i) heard["raw-" + std::to_string(i)] = said[i];
    for (const auto& [name, text] : heard) names.insert(name);

    log.tokens.clear();
    for (const auto& [name, text] : heard) {
      EXPECT_EQ(text.find("wrong"), std::string::npos)
          << name << ": " << text.substr(text.find("wrong"));
      const auto before = log.acks;
      log.hear_all(text);
      acks_of[name.substr(0, name.find('-'))] += log.acks - before;
    }
    for (const auto token : log.tokens) {
      EXPECT_TRUE(tokens.insert(token).second) << token << " came twice";
      EXPECT_GT(token, newest_before) << "an older one than in the life before";
    }
  }
  for (const auto& [kind, acks] : acks_of) {
    EXPECT_GT(acks, 0) << kind;
    std::cout << kind << ": " << acks << " acknowledged; ";
  }
  std::cout << tokens.size() << " grants, " << kills << " kills" << std::endl;
}

// The test above kills the server under whoever is there. That it was under all kinds of clients is
// seen here: where one is missing, this is skipped and says so.
TEST_P(KilledServer, IsKilledUnderEveryKindOfClient) {
  start();
  if (HasFatalFailure()) return;
  std::mt19937 random;
  auto writers = start_writers(socket(), random);
  for (auto& [name, writer] : writers) writer->say("go\n");
  const auto begun = expect_all_begin(writers);
  kill();
  for (auto& [name, writer] : writers) {
    EXPECT_TRUE(writer->hear_until("gone\n")) << name << " does not say that the server is gone";
  }
  if (!begun.absent.empty()) GTEST_SKIP() << begun.absent;
  EXPECT_EQ(writers.size(), 3U);
}

INSTANTIATE_TEST_SUITE_P(Durabilities, KilledServer, ::testing::Values("sync", "process"),
                         [](const auto& entry) { return std::string(entry.param); });

}  // namespace
}  // namespace fencekv::testing
