// SPDX-License-Identifier: Apache-2.0
/// A real server whose system keeps it from growing files, from opening files, or from taking
/// memory: it answers an error or ends with a reason, what it acknowledged is there once the limit
/// is gone, and of what it did not acknowledge all or nothing (engine/SEMANTICS.md, 4.4).
///
/// Needs no rights and no mount: the limits are those of setrlimit(2). A disk quota (EDQUOT) cannot
/// be set up without rights; that error is injected where calls of the storage are made to fail.

#include "tests/support/fast_directory.h"
#include "tests/support/noise.h"
#include "tests/support/raw_client.h"
#include "tests/support/sanitized.h"
#include "tests/support/server_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A limit of this process, and of the processes it starts, for as long as the object lives.
class LimitHere {
 public:
  LimitHere(decltype(RLIMIT_AS) what, rlim_t most) : what_(what) {
    EXPECT_EQ(::getrlimit(what_, &before_), 0);
    const rlimit less{std::min(most, before_.rlim_max), before_.rlim_max};
    EXPECT_EQ(::setrlimit(what_, &less), 0);
  }
  ~LimitHere() { ::setrlimit(what_, &before_); }
  LimitHere(const LimitHere&) = delete;
  LimitHere& operator=(const LimitHere&) = delete;

 private:
  const decltype(RLIMIT_AS) what_;
  rlimit before_{};
};

class LimitedServer : public ::testing::Test {
 protected:
  std::string store() const { return (directory_.path() / "store").string(); }

  /// Starts a server; whether it became ready.
  bool start() {
    server_ = std::make_unique<ServerProcess>(
        ServerProcess::Start{.flags = {"--dir", store(), "--port", "0"}});
    port_ = server_->wait_ready();
    return port_ != 0;
  }

  void restart() { ASSERT_TRUE(start()) << server_->log(); }

  /// A limit of the running server; it stays until it is lifted.
  void limit(decltype(RLIMIT_AS) what, rlim_t most) const {
    rlimit now{};
    ASSERT_EQ(::prlimit(server_->pid(), what, nullptr, &now), 0);
    now.rlim_cur = std::min(most, now.rlim_max);
    ASSERT_EQ(::prlimit(server_->pid(), what, &now, nullptr), 0);
  }
  void lift(decltype(RLIMIT_AS) what) const { limit(what, RLIM_INFINITY); }

  /// Whoever ends says why: the server itself, or the loader that could not begin it.
  static const char* last_words(std::optional<int> exit_code) {
    return exit_code == 127 ? "error while loading shared libraries: " : "fencekv-server: ";
  }

  bool is_running() const { return server_->wait_exit(0ms) == std::nullopt; }

  /// Takes the lease that every write names.
  void hold() {
    RawClient client(port_);
    const auto grant = client.ask({"LEASE.ACQUIRE", "lease", "me", "3600000"});
    ASSERT_THAT(grant, StartsWith("[$")) << server_->log();
    token_ = grant.substr(2, grant.find(',') - 2);
  }

  /// Writes one pair of keys, all or nothing, and remembers what was answered.
  std::string write(RawClient& client, std::size_t value_bytes) {
    const auto key = "key-" + std::to_string(next_);
    auto value = noise(value_bytes, static_cast<unsigned>(next_));
    ++next_;
    const auto reply =
        client.ask({"FENCE.MSET", token_, "2", key, value, key + "-twin", value, "LEASE", "lease"});
    if (reply == "[:1, :1]") {
      acknowledged_.emplace(key, std::move(value));
    } else {
      in_doubt_.emplace(key, std::move(value));
    }
    return reply;
  }

  /// The first reply that is not an acknowledgement.
  std::string fill(std::size_t value_bytes, int at_most) {
    RawClient client(port_);
    std::string reply;
    for (int i = 0; i < at_most; ++i) {
      reply = write(client, value_bytes);
      if (reply != "[:1, :1]") return reply;
    }
    return reply;
  }

  /// All that was acknowledged, and of the rest all or nothing.
  void expect_all() {
    RawClient client(port_);
    for (const auto& [key, value] : acknowledged_) {
      ASSERT_TRUE(client.ask({"GET", key}) == "$" + value) << key;
      ASSERT_TRUE(client.ask({"GET", key + "-twin"}) == "$" + value) << key;
    }
    for (const auto& [key, value] : in_doubt_) {
      const auto one = client.ask({"GET", key});
      EXPECT_TRUE(one == "_" || one == "$" + value) << key;
      EXPECT_EQ(client.ask({"GET", key + "-twin"}), one) << "half of " << key;
    }
    EXPECT_THAT(client.ask({"LEASE.INFO", "lease"}), HasSubstr("$fence, $" + token_ + ","));
  }

  /// False: the connection was closed before all that was acknowledged had been read. What was read
  /// is right.
  bool serves_all() {
    RawClient client(port_);
    for (const auto& [key, value] : acknowledged_) {
      const auto got = client.ask({"GET", key});
      if (got == "closed") return false;
      EXPECT_TRUE(got == "$" + value) << key;
    }
    return true;
  }

  /// Polls until a write is acknowledged.
  bool writes_again() {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (std::chrono::steady_clock::now() < deadline) {
      RawClient client(port_);
      if (client.connected() && write(client, 10) == "[:1, :1]") return true;
      std::this_thread::sleep_for(50ms);
    }
    return false;
  }

  void stop() {
    server_->signal(SIGTERM);
    EXPECT_EQ(server_->wait_exit(), 0) << server_->log();
  }

  FastDirectory directory_;
  std::unique_ptr<ServerProcess> server_;
  std::uint16_t port_ = 0;
  std::string token_;
  int next_ = 0;
  std::map<std::string, std::string> acknowledged_;
  std::map<std::string, std::string> in_doubt_;
};

// --- RLIMIT_FSIZE: EFBIG, and a signal that ends whoever does not ignore it -------------------

TEST_F(LimitedServer, ServesReadsAndRecoversWhenFilesMayNotGrow) {
  restart();
  hold();
  ASSERT_EQ(fill(1000, 20), "[:1, :1]");
  // The second limit is so low that the store cannot reopen itself; it may be too late for that
  // once or twice.
  std::string refused;
  for (int i = 0; i < 20 && !refused.starts_with("-MISCONF"); ++i) {
    limit(RLIMIT_FSIZE, rlim_t{128} * 1024);
    const auto failed = fill(4000, 1000);
    ASSERT_THAT(failed, AnyOf(StartsWith("-INDOUBT"), StartsWith("-MISCONF"))) << server_->log();
    limit(RLIMIT_FSIZE, rlim_t{16} * 1024);
    std::this_thread::sleep_for(200ms);
    refused = fill(10, 1);
  }
  EXPECT_THAT(refused, StartsWith("-MISCONF"));
  EXPECT_TRUE(is_running()) << "the signal of a file that is too large";
  expect_all();
  EXPECT_EQ(RawClient(port_).ask({"PING"}), "+PONG");

  lift(RLIMIT_FSIZE);
  EXPECT_TRUE(writes_again()) << server_->log();
  expect_all();
  stop();
  restart();
  expect_all();
  stop();
}

TEST_F(LimitedServer, StartsAndServesReadsWhereFilesMayNotGrow) {
  restart();
  hold();
  ASSERT_EQ(fill(20'000, 30), "[:1, :1]");
  // Its log has to be made a table at the next start.
  server_->signal(SIGKILL);
  ASSERT_EQ(server_->wait_exit(), 128 + SIGKILL);

  for (const rlim_t kib : {16, 64, 256, 700}) {
    SCOPED_TRACE(std::to_string(kib) + " KiB");
    {
      const LimitHere limit(RLIMIT_FSIZE, kib * 1024);
      ASSERT_TRUE(start()) << "exit " << server_->wait_exit().value_or(-1) << ": "
                           << server_->log();
    }
    expect_all();
    const auto reply = fill(10, 1);
    EXPECT_THAT(reply, AnyOf(StartsWith("-MISCONF"), StartsWith("-INDOUBT"), "[:1, :1]"));
    // The log does not even become a table at the lowest one. At others the opening may succeed,
    // and a table that is made behind it fail.
    const auto* said = "the store takes no writes and serves reads only: ";
    if (kib == 16) {
      EXPECT_THAT(reply, StartsWith("-MISCONF"));
      EXPECT_THAT(server_->log(), HasSubstr(said));
    } else if (reply.starts_with("-MISCONF")) {
      EXPECT_THAT(server_->log(),
                  AnyOf(HasSubstr(said), HasSubstr("no writes are taken until the storage has")));
    }
    lift(RLIMIT_FSIZE);
    EXPECT_TRUE(writes_again()) << server_->log();
    expect_all();
    server_->signal(SIGKILL);
    ASSERT_EQ(server_->wait_exit(), 128 + SIGKILL);
  }
  restart();
  expect_all();
  stop();
}

TEST_F(LimitedServer, BeginsNoStoreWhereFilesMayNotGrow) {
  for (const rlim_t bytes : {0, 20, 5000}) {
    SCOPED_TRACE(std::to_string(bytes) + " bytes");
    bool ready = false;
    {
      const LimitHere limit(RLIMIT_FSIZE, bytes);
      ready = start();
    }
    if (ready) {
      stop();
      continue;
    }
    EXPECT_THAT(server_->wait_exit(), AnyOf(2, 7)) << server_->log();
  }
  restart();
  hold();
  EXPECT_EQ(fill(100, 1), "[:1, :1]");
  stop();
}

// --- RLIMIT_NOFILE: no descriptor for the store -----------------------------------------------

TEST_F(LimitedServer, ServesOrEndsWithAReasonWithTooFewDescriptors) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs descriptors of its own, and ends without them";
  restart();
  hold();
  ASSERT_EQ(fill(2000, 50), "[:1, :1]");
  stop();
  int refused = 0;
  int served = 0;
  for (unsigned most = 3; most <= 60; most += most < 30 ? 1 : 6) {
    SCOPED_TRACE(std::to_string(most) + " descriptors");
    server_ = std::make_unique<ServerProcess>(ServerProcess::Start{
        .flags = {"--dir", store(), "--port", "0", "--io-threads", "1"}, .open_files = most});
    port_ = server_->wait_ready();
    if (port_ == 0) {
      ++refused;
      // What cannot be read now is not damaged, and its owner must not be told to repair it.
      const auto code = server_->wait_exit();
      // Below that the program itself cannot be loaded, or its event loop not made.
      EXPECT_THAT(code, AnyOf(2, 6, 127)) << server_->log();
      EXPECT_THAT(server_->log(), HasSubstr(last_words(code)));
      continue;
    }
    ++served;
    // It may have no descriptor for anybody.
    RawClient first(port_);
    first.send(request({"PING"}));
    if (first.line(2s) != "+PONG") {
      EXPECT_THAT(server_->log(), HasSubstr("cannot accept connections"));
      stop();
      continue;
    }
    first.close();
    expect_all();
    const auto reply = fill(100, 1);
    EXPECT_THAT(reply, AnyOf("[:1, :1]", StartsWith("-MISCONF"), StartsWith("-INDOUBT"),
                             StartsWith("-ERR max number of clients")));
    stop();
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(served, 0);
  restart();
  expect_all();
  stop();
}

TEST_F(LimitedServer, LosesNothingWhenItsDescriptorsRunOut) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs descriptors of its own to look at memory";
  restart();
  hold();
  RawClient honest(port_);
  ASSERT_EQ(honest.ask({"PING"}), "+PONG");
  ASSERT_EQ(write(honest, 1000), "[:1, :1]");
  const std::filesystem::directory_iterator open("/proc/" + std::to_string(server_->pid()) + "/fd");
  limit(RLIMIT_NOFILE, static_cast<rlim_t>(std::distance(begin(open), end(open))));
  // More than a log holds: the store needs new files.
  int failed = 0;
  for (int i = 0; i < 50; ++i) {
    const auto reply = write(honest, std::size_t{1} << 20);
    ASSERT_THAT(reply, AnyOf("[:1, :1]", StartsWith("-INDOUBT"), StartsWith("-MISCONF")))
        << server_->log();
    if (reply == "[:1, :1]") continue;
    in_doubt_.erase("key-" + std::to_string(next_ - 1));
    if (++failed == 5) break;
  }
  EXPECT_EQ(honest.ask({"GET", "key-0"}).size(), 1001U) << "reads go on";
  EXPECT_TRUE(is_running());
  lift(RLIMIT_NOFILE);
  EXPECT_TRUE(writes_again()) << server_->log();
  stop();
  restart();
  expect_all();
  stop();
}

// --- RLIMIT_AS: no memory ---------------------------------------------------------------------

TEST_F(LimitedServer, RefusesOrEndsWithoutMemoryAndLosesNothing) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes address space without end";
  restart();
  hold();
  ASSERT_EQ(fill(1000, 20), "[:1, :1]");
  int ended = 0;
  for (const std::size_t mib : {1, 8, 40}) {
    SCOPED_TRACE(std::to_string(mib) + " MiB more");
    std::ifstream statm("/proc/" + std::to_string(server_->pid()) + "/statm");
    std::size_t pages = 0;
    statm >> pages;
    limit(RLIMIT_AS, pages * 4096 + (mib << 20));
    // Each one takes several times its size on its way to the disk.
    for (int i = 0; i < 12 && is_running(); ++i) fill(std::size_t{4} << 20, 1);
    if (is_running()) {
      EXPECT_EQ(RawClient(port_).ask({"PING"}), "+PONG");
      server_->signal(SIGKILL);
      server_->wait_exit();
    } else {
      ++ended;
      EXPECT_EQ(server_->wait_exit(), 8) << server_->log();
      EXPECT_THAT(server_->log(), HasSubstr("out of memory"));
    }
    restart();
    expect_all();
    ASSERT_TRUE(writes_again());
    // So that the store does not grow without end.
    for (auto& [key, value] : acknowledged_) {
      if (value.size() < 1000000) continue;
      ASSERT_EQ(RawClient(port_).ask({"FENCE.SET", key, token_, "", "LEASE", "lease"}), ":2");
      ASSERT_EQ(RawClient(port_).ask({"FENCE.SET", key + "-twin", token_, "", "LEASE", "lease"}),
                ":2");
      value.clear();
    }
    in_doubt_.clear();
  }
  EXPECT_GT(ended, 0) << "the limits were no limits";
  stop();
}

TEST_F(LimitedServer, ServesOrEndsWithAReasonWithLittleMemory) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes address space without end";
  restart();
  hold();
  ASSERT_EQ(fill(2000, 50), "[:1, :1]");
  stop();
  int refused = 0;
  for (std::size_t mib = 40; mib <= 1000; mib += mib < 400 ? 40 : 200) {
    SCOPED_TRACE(std::to_string(mib) + " MiB");
    bool ready = false;
    {
      const LimitHere limit(RLIMIT_AS, mib << 20);
      ready = start();
    }
    if (ready && serves_all()) {
      EXPECT_THAT(fill(100, 1), AnyOf("[:1, :1]", StartsWith("-"), "closed"));
      server_->signal(SIGTERM);
      EXPECT_THAT(server_->wait_exit(), AnyOf(0, 8)) << server_->log();
      continue;
    }
    if (ready) {
      // It has its store, and the memory for a thread that serves it is what was missing.
      EXPECT_EQ(server_->wait_exit(), 8) << server_->log();
      EXPECT_THAT(server_->log(), HasSubstr(last_words(8)));
      continue;
    }
    ++refused;
    // 127: the program itself cannot be loaded.
    const auto code = server_->wait_exit();
    EXPECT_THAT(code, AnyOf(2, 6, 7, 8, 127)) << server_->log();
    EXPECT_THAT(server_->log(), HasSubstr(last_words(code)));
  }
  EXPECT_GT(refused, 0) << "the limits were no limits";
  restart();
  expect_all();
  stop();
}

}  // namespace
}  // namespace fencekv::testing
