// SPDX-License-Identifier: Apache-2.0
/// Histories of a real server: client processes work under leases through a network that delays,
/// repeats, cuts and reorders, while clients and server are stopped and go on, the server is killed
/// and started anew, and its wall clock jumps. What each client saw is checked as one history.
///
///     FENCEKV_HISTORY_SEED=7 FENCEKV_HISTORY_SECONDS=60 fencekv_history_tests
///     --gtest_filter='Live*'
///
/// A seed gives the same decisions, not the same history: processes, sockets and deadlines run in
/// real time. So the history of a run that failed is kept in a file, and is checked again with
///
///     FENCEKV_HISTORY_FILE=history-7.txt fencekv_history_tests --gtest_filter='Live*'
///
/// FENCEKV_HISTORY_RUNS: how many seeds. A kill is no loss of power: that a real server could lose
/// by one is tested in the simulation, on a disk that forgets what was not synced.

#include "server/resp/request_parser.h"
#include "tests/history/invariants.h"
#include "tests/history/linearizability.h"
#include "tests/history/worker.h"
#include "tests/support/boot_time.h"
#include "tests/support/child_process.h"
#include "tests/support/sanitized.h"
#include "tests/support/seed_from_environment.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/unreliable_proxy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::IsEmpty;

constexpr int kClients = 12;
constexpr int kGroups = 4;

std::vector<std::string> words_of(const std::string& bytes) {
  resp::RequestParser parser{resp::RequestLimits{}};
  parser.feed(bytes);
  if (parser.next() != resp::RequestParser::Status::request) return {};
  return {parser.request().begin(), parser.request().end()};
}

/// The wall clock of a server, if libfaketime is there (Debian: faketime). A library that is loaded
/// before the sanitizers' own does not get along with them.
class WallClock {
 public:
  WallClock() {
    set(0);
    if (kSanitized) return;
    for (const auto* folder : {"x86_64-linux-gnu", "aarch64-linux-gnu"}) {
      const auto path =
          std::filesystem::path("/usr/lib") / folder / "faketime" / "libfaketimeMT.so.1";
      if (std::filesystem::exists(path)) library_ = path.string();
    }
  }

  bool jumps() const { return !library_.empty(); }
  void set(long offset_s) const {
    // Replaced in one step: the server reads it all the time.
    const auto fresh = directory_.path() / "new";
    std::ofstream(fresh) << (offset_s < 0 ? "" : "+") << offset_s << "\n";
    std::filesystem::rename(fresh, file());
  }
  std::vector<std::string> environment() const {
    if (!jumps()) return {};
    return {"LD_PRELOAD=" + library_, "FAKETIME_TIMESTAMP_FILE=" + file().string(),
            "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1"};
  }

 private:
  std::filesystem::path file() const { return directory_.path() / "offset"; }

  TemporaryDirectory directory_;
  std::string library_;
};

/// How far the wall clock of the server at `port` is from ours, as it tells itself.
std::chrono::seconds wall_offset(std::uint16_t port) {
  RawClient client(port);
  client.send(request({"TIME"}));
  const auto reply = client.read();
  EXPECT_TRUE(reply && reply->parts.size() == 2U);
  if (!reply || reply->parts.size() != 2U) return 0s;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::seconds(parse_decimal(reply->parts.front().text).value_or(0)) -
         std::chrono::floor<std::chrono::seconds>(now);
}

/// What happened in one run, or in several.
struct Happened {
  UnreliableProxy::Figures network;
  int kills = 0;
  int ends = 0;  ///< The server was told to end, and did.
  int stops = 0;
  int jumps = 0;

  void add(const Happened& other) {
    network.connections += other.network.connections;
    network.delayed += other.network.delayed;
    network.cut += other.network.cut;
    network.late += other.network.late;
    network.repeated += other.network.repeated;
    kills += other.kills;
    ends += other.ends;
    stops += other.stops;
    jumps += other.jumps;
  }
};

std::ostream& operator<<(std::ostream& out, const Happened& happened) {
  const auto& network = happened.network;
  return out << network.connections << " connections, " << network.delayed << " delays, "
             << network.cut << " cuts, " << network.late << " late, " << network.repeated
             << " repeated, " << happened.kills << " kills, " << happened.ends << " ends, "
             << happened.stops << " stops, " << happened.jumps << " jumps";
}

/// One run: everything that is there, and what happens to it.
class Turmoil {
 public:
  Turmoil(std::uint64_t seed, std::chrono::seconds length)
      : random_(seed),
        proxy_(std::make_unique<UnreliableProxy>(random_())),
        durability_(number(2) == 0 ? "sync" : "process"),
        until_(since_boot() + length) {}

  History run() {
    start_clients();  // Forks, so before there is any thread.
    proxy_->start([this](auto repetition) { record(std::move(repetition)); });
    start_server();
    while (since_boot() < until_ && !::testing::Test::HasFailure()) {
      proxy_->set_faults(some_faults());
      std::this_thread::sleep_for(std::chrono::milliseconds(number(250)));
      something_happens();
    }
    finish();
    return std::move(history_);
  }

  const std::string& durability() const { return durability_; }
  Happened happened() const {
    auto all = happened_;
    all.network = proxy_->figures();
    return all;
  }

 private:
  std::uint64_t number(std::uint64_t below) { return random_() % below; }

  void start_clients() {
    for (int i = 0; i < kClients; ++i) {
      const auto seed = random_();
      clients_.push_back(std::make_unique<ChildProcess>([&, i, seed](int out) {
        Worker({.port = proxy_->port(), .id = i, .groups = kGroups, .until = until_, .out = out},
               seed)
            .run();
        return 0;
      }));
    }
    told_.resize(clients_.size());
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      listeners_.emplace_back([this, i] { told_[i] = clients_[i]->read_all(); });
    }
  }

  void start_server() {
    server_.emplace(ServerProcess::Start{.flags = {"--dir", (directory_.path() / "store").string(),
                                                   "--port", "0", "--durability", durability_},
                                         .environment = clock_.environment()});
    port_ = server_->wait_ready();
    EXPECT_NE(port_, 0) << server_->log();
    proxy_->set_upstream(port_);
  }

  UnreliableProxy::Faults some_faults() {
    if (number(4) == 0) return {};
    const auto permille = [&](unsigned most) { return static_cast<unsigned>(number(most)); };
    return {.delayed = permille(200),
            .cut_request = permille(40),
            .late_request = permille(40),
            .repeated = permille(100),
            .cut_reply = permille(40)};
  }

  void something_happens() {
    switch (number(8)) {
      case 0:
      case 1:
        return end_server(SIGKILL);
      case 2:
        if (number(3) == 0) return end_server(SIGTERM);
        [[fallthrough]];
      case 3:
        return stop(server_->pid(), 300);
      case 4:
      case 5:
      case 6:
        return stop(clients_[number(clients_.size())]->id(), 500);
      default:
        return jump(static_cast<long>(number(20'000'000)) - 10'000'000);
    }
  }

  void jump(long offset_s) {
    clock_.set(offset_s);
    if (clock_.jumps()) ++happened_.jumps;
  }

  void end_server(int signal) {
    const auto before = since_boot();
    proxy_->set_upstream(0);
    server_->signal(signal);
    EXPECT_EQ(server_->wait_exit(), signal == SIGKILL ? 128 + SIGKILL : 0) << server_->log();
    // Nobody has a copy of what was sent before, once the network has forgotten it, too.
    proxy_->sever();
    gone_.emplace_back(before, since_boot());
    ++(signal == SIGKILL ? happened_.kills : happened_.ends);
    start_server();
  }

  /// A process that sleeps, and goes on as if nothing had happened.
  void stop(pid_t process, std::uint64_t at_most_ms) {
    ++happened_.stops;
    ::kill(process, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(number(at_most_ms)));
    ::kill(process, SIGCONT);
  }

  void record(UnreliableProxy::Repetition repetition) {
    auto operation = operation_of(words_of(repetition.request));
    if (!operation) return;  // Only a part of a request came in one piece: it is none.
    operation->client = -1;
    operation->invoked = repetition.invoked;
    if (repetition.reply) {
      take_reply(*operation, *repetition.reply);
      if (!operation->is_unknown()) operation->returned = repetition.returned;
    }
    const std::lock_guard lock(mutex_);
    history_.push_back(*std::move(operation));
  }

  void finish() {
    proxy_->set_faults({});
    for (auto& listener : listeners_) listener.join();
    for (auto& client : clients_) EXPECT_EQ(client->wait(), "exit 0");
    proxy_->sever();
    for (const auto& told : told_) {
      auto some = history_of(told);
      EXPECT_FALSE(some.empty());
      history_.insert(history_.end(), some.begin(), some.end());
    }
    look_at_everything();
    for (auto& operation : history_) {
      if (!operation.is_unknown()) continue;
      const auto gone = std::find_if(gone_.begin(), gone_.end(), [&](const auto& span) {
        return operation.invoked < span.first;
      });
      if (gone != gone_.end()) operation.latest = gone->second;
    }
    server_->signal(SIGTERM);
    EXPECT_EQ(server_->wait_exit(), 0) << server_->log();
  }

  void look_at_everything() {
    RawClient client(port_);
    const auto look = [&](const std::vector<std::string>& words) {
      auto operation = operation_of(words).value();
      operation.invoked = since_boot();
      client.send(request(words));
      const auto reply = client.read();
      ASSERT_TRUE(reply.has_value());
      take_reply(operation, *reply);
      operation.returned = since_boot();
      history_.push_back(std::move(operation));
    };
    for (const auto& key : Worker::keys(kGroups)) look({"FENCE.GET", key});
    for (const auto& lease : Worker::leases(kGroups)) look({"LEASE.INFO", lease});
  }

  std::mt19937_64 random_;
  TemporaryDirectory directory_;
  WallClock clock_;
  std::unique_ptr<UnreliableProxy> proxy_;
  std::string durability_;
  Time until_;

  std::vector<std::unique_ptr<ChildProcess>> clients_;
  std::vector<std::string> told_;
  std::list<std::thread> listeners_;
  std::optional<ServerProcess> server_;
  std::uint16_t port_ = 0;

  std::mutex mutex_;
  History history_;  // guarded by mutex_ while the proxy runs
  std::vector<std::pair<Time, Time>> gone_;
  Happened happened_;  // but for the network, which counts itself
};

/// Returns what is wrong with it; empty: nothing.
std::string judge(const History& history) {
  std::string wrong;
  for (const auto& broken : broken_invariants(history)) {
    if (wrong.size() < 10'000) wrong += broken + "\n";
  }
  const auto verdict = check_linearizability(history);
  if (!verdict.is_linearizable) wrong += verdict.why + "\n";
  std::cout << verdict.components << " components, the largest " << verdict.largest_component
            << ", " << verdict.most_configurations << " configurations at most" << std::endl;
  return wrong;
}

void expect_of_all_kinds(const History& history) {
  std::map<Operation::Kind, int> done;
  int refused = 0;
  int unknown = 0;
  for (const auto& operation : history) {
    if (operation.is_done()) ++done[operation.kind];
    if (operation.outcome == Operation::Outcome::refused) ++refused;
    if (operation.is_unknown()) ++unknown;
  }
  std::cout << history.size() << " operations, " << refused << " refused, " << unknown
            << " unknown; ";
  // A history in which nothing went wrong, or nothing right, would show nothing.
  EXPECT_GE(done.size(), 8U);
  EXPECT_GT(refused, 0);
  EXPECT_GT(unknown, 0);
}

/// A network that loses nothing and a server that nobody kills would show nothing either. Of all
/// runs together: in one, one kind of fault may be missing by chance.
void expect_of_all_kinds(const Happened& happened) {
  EXPECT_GT(happened.network.delayed, 0U);
  EXPECT_GT(happened.network.cut, 0U);
  EXPECT_GT(happened.network.late, 0U);
  EXPECT_GT(happened.network.repeated, 0U);
  EXPECT_GT(happened.kills, 0);
  EXPECT_GT(happened.stops, 0);
  if (WallClock().jumps()) {
    EXPECT_GT(happened.jumps, 0);
  }
}

/// What the jumps of a history rely on.
TEST(LiveHistory, MovesTheWallClockOfItsServer) {
  const WallClock clock;
  if (!clock.jumps()) {
    GTEST_SKIP() << "no libfaketime that fits (Debian: faketime; not under sanitizers): the wall "
                    "clocks of the histories do not jump";
  }
  const TemporaryDirectory directory;
  ServerProcess server({.flags = {"--dir", (directory.path() / "store").string(), "--port", "0"},
                        .environment = clock.environment()});
  const auto port = server.wait_ready();
  ASSERT_NE(port, 0) << server.log();
  for (const long offset_s : {10'000'000L, -10'000'000L, 0L}) {
    clock.set(offset_s);
    const auto off = wall_offset(port) - std::chrono::seconds(offset_s);
    EXPECT_LT(std::chrono::abs(off), 1h) << offset_s;
  }
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait_exit(), 0) << server.log();
}

TEST(LiveHistory, HasAnOrderThatExplainsEveryAnswer) {
  if (const char* kept = std::getenv("FENCEKV_HISTORY_FILE")) {
    std::stringstream text;
    text << std::ifstream(kept).rdbuf();
    const auto history = history_of(text.str());
    ASSERT_FALSE(history.empty()) << kept;
    EXPECT_EQ(judge(history), "");
    return;
  }
  const auto runs = number_from_environment("FENCEKV_HISTORY_RUNS").value_or(5);
  const std::chrono::seconds length(number_from_environment("FENCEKV_HISTORY_SECONDS").value_or(7));
  // In a shorter time each kind of fault may be missing by chance.
  constexpr auto kEnough = 30s;
  const auto seeds = seeds_from_environment("FENCEKV_HISTORY_SEED", runs);
  Happened happened;
  for (const auto seed : seeds) {
    const auto again = "FENCEKV_HISTORY_SEED=" + std::to_string(seed) +
                       " FENCEKV_HISTORY_SECONDS=" + std::to_string(length.count());
    SCOPED_TRACE(again);
    std::cout << again << std::endl;
    Turmoil turmoil(seed, length);
    const auto history = turmoil.run();
    expect_of_all_kinds(history);
    std::cout << turmoil.durability() << ", " << turmoil.happened() << std::endl;
    happened.add(turmoil.happened());
    // Without a server that runs there is little to judge.
    const auto wrong = HasFailure() ? "" : judge(history);
    if (wrong.empty() && !HasFailure()) continue;

    const auto kept = std::filesystem::absolute("history-" + std::to_string(seed) + ".txt");
    std::ofstream(kept) << "# " << again << "\n" << text_of(history);
    FAIL() << wrong << "\nThe history is kept. Check it again with\n  FENCEKV_HISTORY_FILE=" << kept
           << " fencekv_history_tests --gtest_filter='Live*'";
  }
  if (length * seeds.size() >= kEnough) expect_of_all_kinds(happened);
}

}  // namespace
}  // namespace fencekv::testing
