// SPDX-License-Identifier: Apache-2.0
/// Clients that flood, dribble, vanish, never read, send garbage or reset, against the real server:
/// its memory stays bounded, an honest client is answered all the while, and afterwards the store
/// is unharmed: every record is there, and fencekv-admin finds nothing wrong.
///
/// What else is known to have broken servers of this kind is in tests/net/server_test.cpp;
/// tests/README.md says which test stands for which report.

#include "tests/support/raw_client.h"
#include "tests/support/sanitized.h"
#include "tests/support/seed_from_environment.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <vector>

namespace fencekv::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::string_view kPassword = "canary-password-1f7c";

/// Runs a program to its end: what it prints, and its exit code, 128 + signal if one ended it.
struct Ran {
  int code = -1;
  std::string output;
};
Ran run_program(const std::string& program, const std::vector<std::string>& words) {
  int out[2];
  EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(out[1], STDERR_FILENO);
    std::vector<const char*> argv = {program.c_str()};
    for (const auto& word : words) argv.push_back(word.c_str());
    argv.push_back(nullptr);
    ::execv(program.c_str(), const_cast<char**>(argv.data()));
    ::_exit(127);
  }
  ::close(out[1]);
  Ran ran;
  char bytes[4096];
  for (ssize_t size; (size = ::read(out[0], bytes, sizeof bytes)) > 0;) {
    ran.output.append(bytes, static_cast<std::size_t>(size));
  }
  ::close(out[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

/// How many connections a test may hold, both ends counted apart.
std::size_t affordable(std::size_t wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const auto spare = static_cast<std::size_t>(limit.rlim_cur) - 300;
  return std::min(wanted, spare);
}

class Hostile : public ::testing::Test {
 protected:
  /// Starts a server whose store holds what an honest client wrote.
  void start(std::vector<std::string> more = {}) {
    std::vector<std::string> flags = {"--dir", store(), "--port", "0"};
    flags.insert(flags.end(), more.begin(), more.end());
    server_ = std::make_unique<ServerProcess>(ServerProcess::Start{.flags = std::move(flags)});
    port_ = server_->wait_ready();
    ASSERT_NE(port_, 0) << server_->log();
    auto client = honest();
    const auto grant = client.ask({"LEASE.ACQUIRE", "job", "me", "604800000"});
    ASSERT_EQ(grant, "[$1, :604800000]");
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(client.ask({"FENCE.SET", "honest-" + std::to_string(i), "1",
                            "value-" + std::to_string(i), "LEASE", "job"}),
                ":1");
    }
  }
  void start_guarded() {
    std::ofstream(path("password")) << kPassword << "\n";
    ::chmod(path("password").c_str(), 0600);
    guarded_ = true;
    start({"--password-file", path("password")});
  }

  RawClient connect() const { return RawClient(port_); }
  RawClient honest() const {
    auto client = connect();
    if (guarded_) client.ask({"AUTH", std::string(kPassword)});
    return client;
  }

  /// The server lives and answers, all that was written is there, it stops cleanly, and the store
  /// verifies.
  void TearDown() override {
    if (!server_) return;
    auto client = honest();
    EXPECT_EQ(client.ask({"PING"}), "+PONG") << server_->log();
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(client.ask({"GET", "honest-" + std::to_string(i)}), "$value-" + std::to_string(i));
    }
    EXPECT_EQ(client.ask({"FENCE.SET", "after", "1", "v", "LEASE", "job"}), ":1");
    server_->signal(SIGTERM);
    EXPECT_EQ(server_->wait_exit(60s), 0) << server_->log();
    const auto verified = run_program(FENCEKV_ADMIN_PATH, {"verify", store()});
    EXPECT_EQ(verified.code, 0) << verified.output;
    EXPECT_THAT(server_->log(), Not(HasSubstr("unexpected error")));
  }

  /// No more memory than `most` above `before`. A sanitizer keeps what was given back, so there
  /// this says nothing.
  void expect_grown_less(std::size_t before, std::size_t most, const std::string& story) {
    const auto now = server_->memory();
    const auto grown = now > before ? now - before : 0;
    std::cout << story << ": the server has grown by " << grown / 1024 << " KiB\n";
    if (kSanitized) return;
    EXPECT_LT(grown, most) << story;
  }

  /// How many connections the server has, this one counted.
  static std::size_t connections(RawClient& client) {
    const auto list = client.ask({"CLIENT", "LIST"});
    return static_cast<std::size_t>(std::count(list.begin(), list.end(), '\n'));
  }
  static bool is_alone(RawClient& client) {
    const auto deadline = Clock::now() + 60s;
    while (connections(client) > 1) {
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(50ms);
    }
    return true;
  }

  std::string store() const { return path("store"); }
  std::string path(std::string_view name) const { return (directory_.path() / name).string(); }

  TemporaryDirectory directory_;
  std::unique_ptr<ServerProcess> server_;
  std::uint16_t port_ = 0;
  bool guarded_ = false;
};

/// An honest client that asks all the while, with a connection that is there and with new ones.
class Witness {
 public:
  explicit Witness(std::uint16_t port, std::string password = "")
      : port_(port), password_(std::move(password)), thread_([this] { run(); }) {}
  ~Witness() { stop(); }

  /// Everything was answered, and within `most`.
  void expect_served(std::chrono::milliseconds most) {
    stop();
    std::cout << "the witness asked " << asked_ << " times and waited "
              << std::chrono::duration_cast<std::chrono::milliseconds>(longest_).count()
              << " ms at most\n";
    EXPECT_EQ(wrong_, "");
    EXPECT_GT(asked_, 0);
    EXPECT_LT(longest_, most);
  }

 private:
  void stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
  }
  RawClient connect() const {
    RawClient client(port_);
    if (!password_.empty()) client.ask({"AUTH", password_});
    return client;
  }
  void ask(RawClient& client) {
    const auto begin = Clock::now();
    client.send(request({"GET", "honest-7"}));
    const auto reply = client.line(120s);
    longest_ = std::max(longest_, Clock::now() - begin);
    ++asked_;
    if (reply != "$value-7") wrong_ = reply;
  }
  void run() {
    auto constant = connect();
    do {
      ask(constant);
      auto fresh = connect();
      ask(fresh);
      std::this_thread::sleep_for(5ms);
    } while (!done_);
  }

  const std::uint16_t port_;
  const std::string password_;
  std::atomic<bool> done_ = false;
  int asked_ = 0;
  Clock::duration longest_{0};
  std::string wrong_;
  std::thread thread_;
};

// ---- Garbage -------------------------------------------------------------------------------

TEST_F(Hostile, BinaryFilesInsteadOfRequestsCloseTheirOwnConnectionOnly) {
  start();
  const std::vector<std::string> heads = {
      std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16),
      "\x7f"
      "ELF\x02\x01\x01",
      "PK\x03\x04",
      "\xff\xd8\xff\xe0"
      "JFIF",
      "GIF89a",
      "%PDF-1.7\n",
      "\x1f\x8b\x08",
      std::string("\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", 11),  // a TLS greeting
      "SSH-2.0-OpenSSH_9.2\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      std::string("\0\0\0\x08\x04\xd2\x16\x2f", 8),  // PostgreSQL asks for TLS
      std::string("\x80\0\0\x01", 4),                // memcached, binary
      std::string("\0\0\0\x85\xffSMB", 8),
      "<?xml version=\"1.0\"?>\n",
      "\xef\xbb\xbf{\"json\": [1]}\n",
      std::string("R\0E\0S\0P\0", 8),
      "*",
      "$",
      "*3\r\n",
      "*1\r\n$",
      "%2\r\n",
      ">1\r\n",
      "\"",
      "'",
      "\\x",
      "\r",
      "\n",
      "\t ",
      std::string(1, '\0'),
      "\xff\xff\xff\xff",
  };
  std::mt19937 random(7);
  Witness witness(port_);
  std::size_t sent = 0;
  for (std::size_t i = 0; i < 120; ++i) {
    std::string bytes = heads[i % heads.size()];
    const auto size = std::size_t{1} << random() % 18;
    for (std::size_t j = 0; j < size; ++j) bytes += static_cast<char>(random());
    auto client = connect();
    client.send(bytes);
    client.finish_sending();
    EXPECT_TRUE(client.closes_within(30s)) << "file " << i;
    ++sent;
  }
  std::cout << sent << " files\n";
  witness.expect_served(30s);
}

TEST_F(Hostile, EveryCommandWithEveryKindOfLineEnd) {
  start();
  auto client = honest();
  client.send(request({"COMMAND"}));
  const auto table = client.read(30s);
  ASSERT_TRUE(table);
  std::vector<std::string> names;
  for (const auto& row : table->parts) names.push_back(row.parts.front().text);
  ASSERT_GT(names.size(), 40U);
  for (const auto& name : names) {
    if (name == "shutdown") continue;
    for (const std::string end : {"\n", "\r", "\r\r\n", "\n\r", "\r\n\r", ""}) {
      const auto length = std::to_string(name.size());
      for (const std::string& bytes :
           {name + end, name + " a b" + end, "*1" + end + "$" + length + end + name + end,
            "*2\r\n$" + length + "\r\n" + name + end + "$1\r\na" + end}) {
        auto rude = connect();
        rude.send(bytes);
        rude.finish_sending();
        ASSERT_TRUE(rude.closes_within(30s)) << name;
      }
    }
  }
}

TEST_F(Hostile, KeysOfEveryCommandWithAnyNumberOfArguments) {
  start();
  auto client = honest();
  client.send(request({"COMMAND"}));
  const auto table = client.read(30s);
  ASSERT_TRUE(table);
  for (const auto& row : table->parts) {
    const auto& name = row.parts.front().text;
    for (const std::string filler : {"", "1", "-1", "9223372036854775807", "x"}) {
      std::vector<std::string> words = {"COMMAND", "GETKEYS", name};
      for (int arguments = 0; arguments < 6; ++arguments) {
        client.send(request(words) + request({"ECHO", name}));
        const auto reply = client.line();
        ASSERT_TRUE(reply.starts_with("[") || reply.starts_with("-ERR")) << name << ": " << reply;
        ASSERT_EQ(client.line(), "$" + name) << "one reply for " << words.size() << " words";
        words.push_back(filler);
      }
    }
  }
}

// ---- Memory --------------------------------------------------------------------------------

TEST_F(Hostile, HugeHeadersOfStrangersReserveNothing) {
  start_guarded();
  const auto count = affordable(1000);
  {
    // What a connection takes at all is there before.
    std::vector<RawClient> silent;
    for (std::size_t i = 0; i < count; ++i) silent.push_back(connect());
    auto client = honest();
    ASSERT_EQ(client.ask({"PING"}), "+PONG");
  }
  auto before = server_->memory();
  Witness witness(port_, std::string(kPassword));
  std::vector<RawClient> strangers;
  for (std::size_t i = 0; i < count; ++i) {
    strangers.push_back(connect());
    strangers.back().send(i % 2 == 0 ? "*1000000\r\n" : "*2\r\n$4\r\nAUTH\r\n$500000000\r\n");
  }
  for (auto& stranger : strangers) {
    EXPECT_THAT(stranger.line(), AnyOf(StartsWith("-ERR Protocol error"), StartsWith("-TOOBIG")));
    EXPECT_EQ(stranger.line(), "closed");
  }
  expect_grown_less(before, count * 4096 + 4 * kMiB, std::to_string(count) + " huge headers");

  // A header that is allowed reserves nothing either, before its bytes are there.
  strangers.clear();
  before = server_->memory();
  for (std::size_t i = 0; i < count; ++i) {
    strangers.push_back(connect());
    strangers.back().send("*2\r\n$4\r\nAUTH\r\n$16000\r\n");
  }
  auto client = honest();
  ASSERT_EQ(client.ask({"PING"}), "+PONG");
  expect_grown_less(before, count * 4096 + 4 * kMiB, std::to_string(count) + " headers");
  witness.expect_served(30s);
}

TEST_F(Hostile, AStrangerIsCutOffAfter16KiB) {
  start_guarded();
  constexpr std::size_t kMost = std::size_t{16} * 1024;
  // Nothing is wrong with it but its size: no argument is long, and there are not too many.
  const auto words_of = [](std::size_t request_bytes) {
    std::vector<std::string> words(16, std::string(1000, 'x'));
    words.front() = "GET";
    words.back().append(request_bytes - request(words).size(), 'x');
    EXPECT_EQ(request(words).size(), request_bytes);
    return words;
  };

  auto stranger = connect();
  EXPECT_THAT(stranger.ask(words_of(kMost)), StartsWith("-NOAUTH "));
  EXPECT_THAT(stranger.ask(words_of(kMost + 1)),
              StartsWith("-TOOBIG request of more than 16384 bytes"));
  EXPECT_TRUE(stranger.closes_within(30s));

  // Whoever goes on sending is not taken in either.
  auto endless = connect();
  endless.send("*16\r\n");
  const std::string argument = "$2000\r\n" + std::string(2000, 'x') + "\r\n";
  for (std::size_t sent = 0; sent < 2 * kMiB && endless.send(argument);) sent += argument.size();
  EXPECT_TRUE(endless.closes_within(30s));

  // A line without an end.
  auto inline_stranger = connect();
  inline_stranger.send(std::string(kMost - 100, 'x') + "\r\n");
  EXPECT_THAT(inline_stranger.line(), StartsWith("-NOAUTH "));
  inline_stranger.send(std::string(kMost + 1, 'x'));
  EXPECT_EQ(inline_stranger.line(), "-ERR Protocol error: too big inline request");
  EXPECT_TRUE(inline_stranger.closes_within(30s));

  // The bound is one for strangers.
  auto client = honest();
  EXPECT_THAT(client.ask(words_of(kMost + 1)), StartsWith("-ERR wrong number of arguments"));
  EXPECT_EQ(client.ask({"PING"}), "+PONG");
}

TEST_F(Hostile, PipelinesThatNobodyReadsAreHeldUpByTheirOwnConnections) {
  start();
  auto client = honest();
  ASSERT_EQ(client.ask({"FENCE.SET", "big", "1", std::string(kMiB, 'v'), "LEASE", "job"}), ":1");
  const auto before = server_->memory();
  Witness witness(port_);
  std::string flood;
  for (int i = 0; i < 200; ++i) flood += request({"GET", "big"});
  std::vector<RawClient> deaf;
  for (int i = 0; i < 100; ++i) {
    deaf.push_back(connect());
    deaf.back().try_send(flood);
  }
  // 20 GiB were asked for.
  std::this_thread::sleep_for(3s);
  expect_grown_less(before, 400 * kMiB, "100 connections that read nothing");
  witness.expect_served(30s);
  for (auto& one : deaf) one.reset();
  EXPECT_TRUE(is_alone(client));
}

TEST_F(Hostile, FloodsOfSmallRequestsKeepNobodyOut) {
  start();
  const auto before = server_->memory();
  auto client = honest();
  // How much was done for others shows how fair the server is, whatever the machine does.
  const auto done_for_all = [&]() -> long {
    client.send(request({"INFO", "stats"}));
    const auto stats = client.line(120s);
    constexpr std::string_view kName = "total_commands_processed:";
    const auto at = stats.find(kName);
    EXPECT_NE(at, std::string::npos) << stats;
    return at == std::string::npos ? 0 : std::stol(stats.substr(at + kName.size()));
  };
  const auto count = affordable(200);
  std::string flood;
  for (int i = 0; i < 1000; ++i) flood += request({"GET", "honest-1"});
  std::vector<RawClient> crowd;
  for (std::size_t i = 0; i < count; ++i) crowd.push_back(connect());
  std::size_t sent = 0;
  // Half a million requests, from each of them as long as its connection takes any.
  const auto end = Clock::now() + 10s;
  for (std::size_t i = 0; Clock::now() < end && sent < 15 * kMiB; ++i) {
    sent += crowd[i % count].try_send(flood);
  }
  long most = 0;
  for (int i = 0; i < 5; ++i) {
    const auto asked = done_for_all();
    most = std::max(most, done_for_all() - asked);
  }
  std::cout << count << " connections sent " << sent / kMiB
            << " MiB and read nothing; an honest one waited for " << most
            << " requests of theirs at most\n";
  EXPECT_LT(most, 120'000) << "a few rounds of each, and not all that they have sent";
  // What was received of a pipeline and what of its replies could not be sent.
  expect_grown_less(before, count * 256 * 1024 + 64 * kMiB, "the flood");
  for (auto& one : crowd) one.reset();
  EXPECT_TRUE(is_alone(client));
}

TEST_F(Hostile, LargeRequestsThatNeverEndAreBoundedTogether) {
  start({"--max-buffer-bytes", std::to_string(64 * kMiB)});
  const auto before = server_->memory();
  std::vector<RawClient> greedy;
  {
    Witness witness(port_);
    // 640 MiB, if all of it were kept.
    for (int i = 0; i < 80; ++i) {
      greedy.push_back(connect());
      greedy.back().send("*5\r\n$9\r\nFENCE.SET\r\n$1\r\ng\r\n$1\r\n1\r\n$16000000\r\n" +
                         std::string(8 * kMiB, 'x'));
    }
    expect_grown_less(before, 256 * kMiB, "80 half requests");
    witness.expect_served(30s);
  }
  int refused = 0;
  for (auto& one : greedy) {
    const auto line = one.line(10ms);
    if (line.starts_with("-OVERLOADED")) ++refused;
  }
  EXPECT_GT(refused, 40) << "8 of them fit";
  greedy.clear();
  auto client = honest();
  EXPECT_TRUE(is_alone(client));
  EXPECT_EQ(client.ask({"FENCE.SET", "large", "1", std::string(8 * kMiB, 'x'), "LEASE", "job"}),
            ":1")
      << "what others took is given back";
}

TEST_F(Hostile, LargeRepliesThatNobodyReadsAreBoundedTogether) {
  start({"--max-buffer-bytes", std::to_string(64 * kMiB)});
  auto client = honest();
  const std::string big(16'000'000, 'v');
  ASSERT_EQ(client.ask({"FENCE.SET", "big", "1", big, "LEASE", "job"}), ":1");
  ASSERT_TRUE(client.ask({"GET", "big"}) == "$" + big);
  const auto before = server_->memory();
  std::vector<RawClient> deaf;
  {
    Witness witness(port_);
    for (int i = 0; i < 60; ++i) {
      deaf.push_back(connect());
      deaf.back().send(request({"GET", "big"}));
    }
    // Until the server has seen them all.
    const auto deadline = Clock::now() + 30s;
    while (connections(client) < 60 && Clock::now() < deadline) std::this_thread::sleep_for(10ms);
    std::string reply;
    while (!reply.starts_with("-OVERLOADED") && Clock::now() < deadline) {
      reply = client.ask({"GET", "big"}).substr(0, 100);
    }
    EXPECT_THAT(reply, StartsWith("-OVERLOADED"));
    expect_grown_less(before, 300 * kMiB, "60 replies of 15 MiB that nobody reads");
    EXPECT_THAT(client.ask({"FENCE.SET", "small", "1", "v", "LEASE", "job"}), StartsWith(":"));
    witness.expect_served(30s);
  }
  for (auto& one : deaf) one.reset();
  EXPECT_TRUE(is_alone(client));
  EXPECT_TRUE(client.ask({"GET", "big"}) == "$" + big) << "what others took is given back";
}

// ---- Slow and silent -----------------------------------------------------------------------

TEST_F(Hostile, SilentAndDribblingConnectionsKeepNobodyOut) {
  start();
  const auto before = server_->memory();
  const auto count = affordable(5000);
  std::vector<RawClient> crowd;
  for (std::size_t i = 0; i < count; ++i) {
    crowd.push_back(connect());
    ASSERT_TRUE(crowd.back().connected()) << i;
  }
  Witness witness(port_);
  const std::string trickle = "*2\r\n$4\r\nECHO\r\n$1000\r\n" + std::string(1000, 'x');
  const auto end = Clock::now() + 5s;
  std::size_t rounds = 0;
  for (; Clock::now() < end; ++rounds) {
    // Every other one says nothing at all.
    for (std::size_t i = 0; i < count; i += 2) {
      crowd[i].try_send(std::string_view(trickle).substr(rounds % trickle.size(), 1));
    }
  }
  std::cout << count << " connections, " << rounds << " bytes each\n";
  expect_grown_less(before, count * 32 * 1024 + 16 * kMiB, "the crowd");
  witness.expect_served(30s);
}

// ---- Gone ----------------------------------------------------------------------------------

TEST_F(Hostile, AStormOfResetsKeepsNobodyOut) {
  start();
  std::atomic<bool> done = false;
  std::atomic<int> resets = 0;
  std::vector<std::thread> rude;
  for (int i = 0; i < 4; ++i) {
    rude.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      while (!done) {
        auto client = connect();
        // At once, with a request on its way, or with half of one.
        if (random() % 3 == 1) client.try_send(request({"GET", "honest-1"}));
        if (random() % 3 == 2) client.try_send("*2\r\n$3\r\nGE");
        client.reset();
        ++resets;
      }
    });
  }
  {
    Witness witness(port_);
    std::this_thread::sleep_for(5s);
    witness.expect_served(30s);
  }
  done = true;
  for (auto& thread : rude) thread.join();
  std::cout << resets << " connections were reset\n";
  auto client = honest();
  EXPECT_TRUE(is_alone(client));
}

TEST_F(Hostile, WhoVanishesInTheMiddleOfAnythingLeavesNothingBehind) {
  start();
  auto client = honest();
  std::vector<std::string> batch = {"FENCE.MSET", "1", "1000"};
  for (int i = 0; i < 1000; ++i) {
    batch.insert(batch.end(), {"many-" + std::to_string(i), std::string(100, 'v')});
  }
  batch.insert(batch.end(), {"LEASE", "job"});
  ASSERT_THAT(client.ask(batch), StartsWith("[:1"));
  std::vector<std::string> all = {"MGET"};
  for (int i = 0; i < 1000; ++i) all.push_back("many-" + std::to_string(i));
  const std::vector<std::string> stories = {
      request({"SCAN", "0", "COUNT", "10000"}),
      request({"INFO"}),
      request({"COMMAND"}),
      request(all),
      request({"LEASE.SCAN", "0"}),
      request({"HELLO", "3"}) + request({"LEASE.WATCH", "job", "vanishing"}) +
          request({"LEASE.ACQUIRE", "vanishing", "x", "50", "BIND"}),
      request({"LEASE.ACQUIRE", "job", "waiter", "1000", "WAIT", "60000"}),
      request({"LEASE.WAIT", "job", "1", "60000"}),
      request({"LEASE.MACQUIRE", "2", "vanishing", "job", "w", "1000", "WAIT", "60000"}),
      request(batch),
      request({"FENCE.REJECTIONS", "COUNT", "1000"}),
  };
  const auto seed = seed_from_environment("FENCEKV_SEED");
  std::cout << "FENCEKV_SEED=" << seed << std::endl;
  std::mt19937 random(static_cast<unsigned>(seed));
  for (int i = 0; i < 400; ++i) {
    auto gone = connect();
    const auto& story = stories[random() % stories.size()];
    const auto size = random() % 4 == 0 ? random() % story.size() : story.size();
    gone.send(std::string_view(story).substr(0, size));
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    if (random() % 3 == 0) gone.receive(1ms);
    random() % 2 == 0 ? gone.reset() : gone.close();
  }
  EXPECT_TRUE(is_alone(client));
  EXPECT_EQ(client.ask({"LEASE.WAITERS", "job"}), "[]");
  EXPECT_EQ(client.ask({"LEASE.WAITERS", "vanishing"}), "[]");
  EXPECT_EQ(client.ask({"GET", "many-999"}), "$" + std::string(100, 'v'));
}

TEST_F(Hostile, NoReplyGoesToAnotherQuestion) {
  start();
  constexpr int kThreads = 8;
  constexpr int kRounds = kSanitized ? 20 : 100;
  constexpr int kPipeline = 200;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([&, t] {
      auto client = connect();
      for (int round = 0; round < kRounds; ++round) {
        std::string pipeline;
        for (int i = 0; i < kPipeline; ++i) {
          pipeline += request({"ECHO", std::to_string(t) + "-" + std::to_string(round * 1000 + i)});
          if (i % 10 == 0) pipeline += request({"GET", "honest-" + std::to_string(i % 50)});
          if (i % 50 == 0) pipeline += request({"FENCE.SET", "w", "1", "x", "LEASE", "job"});
        }
        client.send(pipeline);
        for (int i = 0; i < kPipeline; ++i) {
          const auto nonce = std::to_string(t) + "-" + std::to_string(round * 1000 + i);
          if (client.line() != "$" + nonce) ++wrong;
          if (i % 10 == 0 && client.line() != "$value-" + std::to_string(i % 50)) ++wrong;
          if (i % 50 == 0 && !client.line().starts_with(":")) ++wrong;
        }
      }
    });
  }
  for (auto& thread : clients) thread.join();
  std::cout << kThreads * kRounds * kPipeline << " questions\n";
  EXPECT_EQ(wrong, 0);
}

// ---- Around the server ---------------------------------------------------------------------

TEST_F(Hostile, NothingListensButWhatWasAskedFor) {
  start();
  const auto process = std::filesystem::path("/proc/" + std::to_string(server_->pid()));
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator(process / "fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  ASSERT_FALSE(sockets.empty());
  int listening = 0;
  for (const std::string kind : {"udp", "udp6", "raw", "raw6", "tcp", "tcp6"}) {
    std::ifstream file(process / "net" / kind);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::vector<std::string> columns{std::istream_iterator<std::string>(words), {}};
      if (columns.size() < 10 || !sockets.contains(columns[9])) continue;
      EXPECT_THAT(kind, StartsWith("tcp")) << "no datagrams: " << line;
      constexpr std::string_view kListens = "0A";
      if (columns[3] == kListens) ++listening;
    }
  }
  EXPECT_EQ(listening, 1);
}

TEST_F(Hostile, PlantedLinksAreNotFollowed) {
  const auto precious = path("precious");
  std::ofstream(precious) << "keep me";
  const auto keeps = [&] {
    std::ifstream file(precious);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return text == "keep me";
  };
  for (const std::string name :
       {"lock", "position", "FORMAT", "CREATING", "FORMAT.new", "CREATING.new"}) {
    SCOPED_TRACE(name);
    const auto directory = path("planted-" + name);
    std::filesystem::create_directory(directory);
    std::filesystem::create_symlink(precious, directory + "/" + name);
    ServerProcess process({.flags = {"--dir", directory, "--port", "0"}});
    const auto port = process.wait_ready();
    EXPECT_TRUE(keeps());
    if (port != 0) {
      process.signal(SIGTERM);
      EXPECT_EQ(process.wait_exit(), 0) << process.log();
    } else {
      EXPECT_THAT(process.wait_exit(), AnyOf(2, 4)) << process.log();
    }
    EXPECT_TRUE(keeps());
  }
  // And in a store that is there.
  start();
  auto client = honest();
  server_->signal(SIGTERM);
  ASSERT_EQ(server_->wait_exit(), 0);
  for (const std::string name : {"FORMAT.new", "CREATING.new"}) {
    std::filesystem::create_symlink(precious, store() + "/" + name);
  }
  server_ = std::make_unique<ServerProcess>(
      ServerProcess::Start{.flags = {"--dir", store(), "--port", "0"}});
  port_ = server_->wait_ready();
  EXPECT_NE(port_, 0) << server_->log();
  EXPECT_TRUE(keeps());
}

TEST_F(Hostile, ADirectoryThatOthersCanUseIsReported) {
  std::filesystem::create_directory(store());
  ASSERT_EQ(::chmod(store().c_str(), 0777), 0);
  start();
  EXPECT_THAT(server_->log(), HasSubstr(store()));
  ServerProcess fresh({.flags = {"--dir", path("fresh"), "--port", "0"}});
  ASSERT_NE(fresh.wait_ready(), 0);
  struct stat state {};
  ASSERT_EQ(::stat(path("fresh").c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0700U);
  EXPECT_EQ(fresh.log().find("others"), std::string::npos);
}

TEST_F(Hostile, ProgramsTakeLongAndStrangeArguments) {
  const std::string path_of_10_kib(10'000, 'p');
  const std::string deep = [] {
    std::string path;
    for (int i = 0; i < 2000; ++i) path += "d/../";
    return path;
  }();
  const std::string bytes = "\x01\xff\xfe % s %n {} \\";
  for (const auto& word : {path_of_10_kib, deep, bytes, std::string(), std::string(100'000, '-')}) {
    for (const auto& words : std::vector<std::vector<std::string>>{
             {"dump", word}, {"verify", word}, {"stat", word}, {word}, {word, word, word}}) {
      const auto ran = run_program(FENCEKV_ADMIN_PATH, words);
      EXPECT_THAT(ran.code, Lt(126)) << ran.output.substr(0, 500);
      EXPECT_NE(ran.code, 0);
    }
    for (const auto& words :
         std::vector<std::vector<std::string>>{{"--dir", word, "--check-config", "--port", word},
                                               {"--config", word},
                                               {"--dir=x", "--unix", word, "--bind", word},
                                               {"--dir", word, "--password-file", word, word}}) {
      const auto ran = run_program(FENCEKV_SERVER_PATH, words);
      EXPECT_EQ(ran.code, 2) << ran.output.substr(0, 500);
    }
  }
}

}  // namespace
}  // namespace fencekv::testing
