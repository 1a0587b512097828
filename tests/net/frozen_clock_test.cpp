// SPDX-License-Identifier: Apache-2.0
/// A server on a machine whose clock stands still (server/PROTOCOL.md, "A clock that stands
/// still"). It runs in this process, since no real clock can be stopped.

#include "server/server.h"
#include "tests/support/freezing_clock.h"
#include "tests/support/raw_client.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// B3: with a clock that had stopped nothing ever expired, and nothing looked wrong.
TEST(FrozenClock, IsToldByInfoAndNothingIsGranted) {
  const auto clock = std::make_shared<FreezingClock>();
  const TemporaryDirectory directory;
  Options store_options;
  store_options.clock = clock;
  auto store = open_memory(store_options);
  server::ServerOptions options;
  options.port = -1;
  options.unix_path = directory.path() / "socket";
  spdlog::logger log("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  std::promise<void> listens;
  std::thread server([&] {
    EXPECT_TRUE(server::serve(*store, options, {}, log,
                              [&listens](const std::string&) { listens.set_value(); }));
  });
  listens.get_future().wait();
  RawClient client(options.unix_path.string());
  const auto granted = client.ask({"LEASE.ACQUIRE", "job", "me", "10000"});
  const auto healthy = AllOf(HasSubstr("ready:1\r\n"), HasSubstr("clock_stands_still:0\r\n"));
  EXPECT_THAT(granted, StartsWith("[$1"));
  EXPECT_THAT(client.ask({"INFO", "fencekv"}), healthy);

  clock->freeze(true);
  clock->advance(5s);
  EXPECT_THAT(client.ask({"INFO", "fencekv"}),
              AllOf(HasSubstr("ready:0\r\n"), HasSubstr("clock_stands_still:1\r\n")));
  EXPECT_THAT(client.ask({"LEASE.ACQUIRE", "another", "me", "10000"}),
              StartsWith("-MISCONF the machine's clock"));
  EXPECT_EQ(client.ask({"FENCE.SET", "key", "1", "v", "LEASE", "job"}), ":1");

  clock->freeze(false);
  EXPECT_THAT(client.ask({"INFO", "fencekv"}), healthy);
  EXPECT_THAT(client.ask({"LEASE.ACQUIRE", "another", "me", "10000"}), StartsWith("[$2"));
  client.ask({"SHUTDOWN"});
  server.join();
}

}  // namespace
}  // namespace fencekv::testing
