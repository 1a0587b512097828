// SPDX-License-Identifier: Apache-2.0
/// A real server on a disk whose fsync does not come back (server/PROTOCOL.md, "A disk that does
/// not answer").

#include "tests/support/file_tree.h"
#include "tests/support/raw_client.h"
#include "tests/support/sanitized.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class StalledDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) {
      GTEST_SKIP() << "a sanitizer wants to be the first library, and so does the stalling one";
    }
  }
  void TearDown() override { let_go(); }

  std::uint16_t start(std::vector<std::string> more) {
    std::vector<std::string> flags{"--dir", (directory_.path() / "store").string(), "--port", "0"};
    flags.insert(flags.end(), more.begin(), more.end());
    std::vector<std::string> environment{"LD_PRELOAD=" FENCEKV_STALLING_DISK,
                                         "FENCEKV_STALLED=" + stalled_.string()};
    if (!ending_.empty()) environment.push_back("FENCEKV_STALLED_ENDING=" + ending_);
    server_.emplace(ServerProcess::Start{.flags = flags, .environment = environment});
    return server_->wait_ready();
  }
  void stall() { set_content(stalled_, ""); }
  void let_go() { std::filesystem::remove(stalled_); }
  static bool soon(const std::function<bool()>& holds) {
    for (int i = 0; i < 3000 && !holds(); ++i) std::this_thread::sleep_for(10ms);
    return holds();
  }

  const TemporaryDirectory directory_;
  const std::filesystem::path stalled_ = directory_.path() / "stalled";
  std::string ending_;  ///< Only files whose names end so stall; empty: all.
  std::optional<ServerProcess> server_;
};

TEST_F(StalledDisk, ReadinessGoesRedAndGreenAndNothingIsAnsweredInBetween) {
  const auto port = start({"--stall-warning-ms", "200", "--stall-exit-ms", "0"});
  ASSERT_NE(port, 0);
  RawClient writer(port);
  RawClient holder(port);
  RawClient reader(port);
  const auto granted = writer.ask({"LEASE.ACQUIRE", "job", "me", "2000"});
  ASSERT_THAT(granted, HasSubstr("$1"));
  ASSERT_EQ(writer.ask({"FENCE.SET", "key", "1", "before"}), ":1");
  EXPECT_THAT(reader.ask({"INFO", "fencekv"}), HasSubstr("ready:1\r\n"));

  stall();
  writer.send(request({"FENCE.SET", "key", "1", "after"}));
  ASSERT_TRUE(soon([&] {
    return reader.ask({"INFO", "fencekv"}).find("ready:0\r\n") != std::string::npos;
  }));
  holder.send(request({"LEASE.RENEW", "job", "me", "1", "2000"}));
  EXPECT_THAT(reader.ask({"INFO", "fencekv"}), ContainsRegex("storage_in_flight_ms:[1-9]"));
  ASSERT_TRUE(soon([&] {
    return server_->log().find("the storage has not answered for") != std::string::npos;
  }));
  // What is durable can be read; what is not, nobody is told of.
  EXPECT_EQ(reader.ask({"GET", "key"}), "$before");
  std::this_thread::sleep_for(2100ms);
  EXPECT_EQ(writer.read(1ms), std::nullopt);
  EXPECT_EQ(holder.read(1ms), std::nullopt);

  let_go();
  EXPECT_EQ(writer.line(), ":2");
  // Its time was over by then, whatever it was when it was asked.
  EXPECT_EQ(holder.line(), "-LEASELOST expired");
  EXPECT_EQ(reader.ask({"GET", "key"}), "$after");
  EXPECT_TRUE(soon([&] {
    return reader.ask({"INFO", "fencekv"}).find("ready:1\r\n") != std::string::npos;
  }));
  EXPECT_TRUE(soon([&] {
    return server_->log().find("the storage answers again, after") != std::string::npos;
  }));
  EXPECT_FALSE(server_->wait_exit(0ms).has_value());
}

TEST_F(StalledDisk, TheProcessEndsAndWhatWasAcknowledgedIsThere) {
  auto port = start({"--stall-warning-ms", "100", "--stall-exit-ms", "1000"});
  ASSERT_NE(port, 0);
  {
    RawClient client(port);
    ASSERT_THAT(client.ask({"LEASE.ACQUIRE", "job", "me", "60000"}), HasSubstr("$1"));
    ASSERT_EQ(client.ask({"FENCE.SET", "key", "1", "before"}), ":1");
    stall();
    client.send(request({"FENCE.SET", "key", "1", "after"}));
    ASSERT_EQ(server_->wait_exit(), 9);
    EXPECT_THAT(server_->log(),
                ContainsRegex("the storage has not answered for [0-9]+ ms .--stall-exit-ms 1000"));
    EXPECT_FALSE(client.read().has_value());
  }

  let_go();
  port = start({});
  ASSERT_NE(port, 0);
  RawClient client(port);
  EXPECT_THAT(client.ask({"GET", "key"}), ::testing::AnyOf("$before", "$after"));
  EXPECT_THAT(client.ask({"LEASE.RENEW", "job", "me", "1", "60000"}), Not(HasSubstr("-")));
}

TEST_F(StalledDisk, AStopThatDoesNotEndEndsTheProcessToo) {
  const auto port = start({"--stall-warning-ms", "100", "--stall-exit-ms", "1000"});
  ASSERT_NE(port, 0);
  RawClient client(port);
  ASSERT_EQ(client.ask({"PING"}), "+PONG");
  stall();
  server_->signal(SIGTERM);
  EXPECT_EQ(server_->wait_exit(), 9);
}

// Reported of a database (rocksdb 6430): the thread that writes its tables and its manifest hung
// for weeks, unnoticed, and the next start found too little. Here what is acknowledged is in the
// log; and as soon as memory for what is not in tables yet is used up, the writes that hang tell.
TEST_F(StalledDisk, BackgroundWorkThatHangsEndsReadinessToo) {
  ending_ = ".sst";
  auto port = start({"--stall-warning-ms", "2000", "--stall-exit-ms", "0", "--memory-budget",
                     "16777216", "--unguarded-tokens", "any"});
  ASSERT_NE(port, 0);
  RawClient writer(port);
  RawClient reader(port);
  stall();
  const auto is_ready = [&reader] {
    return reader.ask({"INFO", "fencekv"}).find("ready:1\r\n") != std::string::npos;
  };
  // A quarter of the budget is for what is not in tables yet.
  const std::string value(std::size_t{64} * 1024, 'v');
  int acknowledged = 0;
  while (acknowledged < 1000) {
    writer.send(request({"FENCE.SET", "key-" + std::to_string(acknowledged), "1", value}));
    auto reply = writer.read(20ms);
    for (int i = 0; !reply && is_ready(); ++i) {
      ASSERT_LT(i, 1000) << "nothing comes back, and the server says that it is ready";
      reply = writer.read(20ms);
    }
    if (!reply) break;
    ++acknowledged;
  }
  EXPECT_FALSE(is_ready());
  EXPECT_GT(acknowledged, 0);
  EXPECT_LT(acknowledged, 1000) << "tables are written, after all";
  EXPECT_TRUE(soon([&] {
    return server_->log().find("the storage has not answered for") != std::string::npos;
  }));

  // The end that a process comes to by itself after --stall-exit-ms: nothing is lost by it.
  server_->signal(SIGKILL);
  ASSERT_EQ(server_->wait_exit(), 128 + SIGKILL);
  let_go();
  port = start({});
  ASSERT_NE(port, 0) << server_->log();
  RawClient client(port);
  for (int i = 0; i < acknowledged; ++i) {
    EXPECT_EQ(client.ask({"STRLEN", "key-" + std::to_string(i)}), ":65536");
  }
}

/// With one thread for all connections, which is itself in the storage when that stands still.
class StalledLane : public StalledDisk, public ::testing::WithParamInterface<const char*> {};

TEST_P(StalledLane, ServesOthersAsOftenAsTheDiskStandsStill) {
  const auto port = start({"--durability", GetParam(), "--io-threads", "1", "--stall-exit-ms", "0",
                           "--unguarded-tokens", "any"});
  ASSERT_NE(port, 0);
  RawClient writer(port);
  RawClient other(port);
  RawClient reader(port);
  ASSERT_EQ(writer.ask({"FENCE.SET", "key", "1", "0"}), ":1");
  for (int time = 1; time <= 5; ++time) {
    const auto before = "$" + std::to_string(time - 1);
    stall();
    writer.send(request({"FENCE.SET", "key", "1", std::to_string(time)}));
    // The first one is in the storage by now; this one waits for its group.
    EXPECT_THAT(reader.ask({"PING"}), "+PONG");
    other.send(request({"FENCE.SET", "other", "1", std::to_string(time)}));
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(reader.ask({"GET", "key"}), before);
      EXPECT_EQ(RawClient(port).ask({"PING"}), "+PONG");
    }
    EXPECT_EQ(writer.read(1ms), std::nullopt);
    EXPECT_EQ(other.read(1ms), std::nullopt);

    let_go();
    EXPECT_EQ(writer.line(), ":" + std::to_string(time + 1));
    EXPECT_EQ(other.line(), ":" + std::to_string(time));
    EXPECT_EQ(reader.ask({"GET", "key"}), "$" + std::to_string(time));
  }
  server_->signal(SIGTERM);
  EXPECT_EQ(server_->wait_exit(), 0);
}

INSTANTIATE_TEST_SUITE_P(Durabilities, StalledLane, ::testing::Values("process", "sync"),
                         [](const auto& durability) { return std::string(durability.param); });

}  // namespace
}  // namespace fencekv::testing
