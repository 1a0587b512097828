// SPDX-License-Identifier: Apache-2.0
/// The watch over a storage that does not answer, and the flags about storage.

#include "server/storage_watch.h"

#include "tests/support/freezing_clock.h"
#include "tests/unit/committer_fixture.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace fencekv::server {
namespace {

using namespace std::chrono_literals;

/// Keeps what was logged.
class Lines final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::string all() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    lines_.append(message.payload.data(), message.payload.size()).append("\n");
  }
  void flush_() override {}

 private:
  std::string lines_;  // guarded by mutex_
};

class StorageWatching : public testing::CommitterTest {
 protected:
  bool is_logged(const std::string& words) {
    for (int i = 0; i < 2000; ++i) {
      if (lines_->all().find(words) != std::string::npos) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }

  ServerOptions server_options_;
  const std::shared_ptr<Lines> lines_ = std::make_shared<Lines>();
  const std::shared_ptr<spdlog::logger> log_ = std::make_shared<spdlog::logger>("test", lines_);
  std::atomic<int> ends_ = 0;
};

TEST_F(StorageWatching, SaysOnceThatNothingComesBackAndThatItDoesAgain) {
  server_options_.stall_warning = 50ms;
  server_options_.stall_exit = 0ms;
  StorageWatch watch(store(), server_options_, *log_, [this] { ++ends_; });
  EXPECT_TRUE(is_ready(store(), server_options_));

  collect_a_group();
  EXPECT_TRUE(is_logged("not ready"));
  EXPECT_FALSE(is_ready(store(), server_options_));
  std::this_thread::sleep_for(100ms);
  script_->let_go();
  EXPECT_TRUE(is_logged("the storage answers again, after "));
  ASSERT_TRUE(answers_.wait_for(1));
  for (int i = 0; i < 2000 && !is_ready(store(), server_options_); ++i) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_TRUE(is_ready(store(), server_options_));

  const auto lines = lines_->all();
  EXPECT_EQ(lines.find("not ready"), lines.rfind("not ready"));
  EXPECT_EQ(ends_, 0);
}

TEST_F(StorageWatching, EndsTheProcessAfterTheLongerTime) {
  server_options_.stall_warning = 20ms;
  server_options_.stall_exit = 60ms;
  StorageWatch watch(store(), server_options_, *log_, [this] { ++ends_; });
  collect_a_group();
  EXPECT_TRUE(is_logged("--stall-exit-ms 60"));
  for (int i = 0; i < 2000 && ends_ == 0; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(ends_, 1);
}

TEST_F(StorageWatching, WatchesTheCloseWithoutAskingTheStore) {
  server_options_.stall_exit = 60ms;
  StorageWatch watch(store(), server_options_, *log_, [this] { ++ends_; });
  watch.closing();
  store_.reset();
  EXPECT_TRUE(is_logged("--stall-exit-ms 60"));
}

// B3: nothing ever expired with a clock that stood still, and the service looked healthy.
TEST(Readiness, EndsWhileTheClockStandsStill) {
  const auto clock = std::make_shared<testing::FreezingClock>();
  Options options;
  options.clock = clock;
  const auto store = open_memory(options);
  for (const auto stall_warning : {10'000ms, 0ms}) {
    ServerOptions server_options;
    server_options.stall_warning = stall_warning;
    EXPECT_TRUE(is_ready(*store, server_options));

    clock->freeze(true);
    clock->advance(5s);
    EXPECT_FALSE(is_ready(*store, server_options));

    clock->freeze(false);
    EXPECT_TRUE(is_ready(*store, server_options));
  }
}

std::variant<ServerOptions, EarlyExit> parsed(std::vector<const char*> flags) {
  flags.insert(flags.begin(), {"fencekv-server", "--dir", "/d"});
  return parse_options(static_cast<int>(flags.size()), flags.data());
}

TEST(StorageOptions, HaveDefaultsAndFlags) {
  const auto plain = std::get<ServerOptions>(parsed({}));
  EXPECT_EQ(plain.store.soft_disk_floor, std::nullopt);
  EXPECT_EQ(plain.store.hard_disk_floor, std::nullopt);
  EXPECT_EQ(plain.store.scrub_interval, 24h);
  EXPECT_EQ(plain.store.scrub_bytes_per_second, 8U << 20);
  EXPECT_EQ(plain.stall_warning, 10s);
  EXPECT_EQ(plain.stall_exit, 60s);

  const auto given = std::get<ServerOptions>(
      parsed({"--soft-disk-floor", "5000000000", "--hard-disk-floor", "0", "--scrub-interval-s",
              "60", "--scrub-rate", "1000", "--stall-warning-ms", "0", "--stall-exit-ms", "7"}));
  EXPECT_EQ(given.store.soft_disk_floor, 5'000'000'000U);
  EXPECT_EQ(given.store.hard_disk_floor, 0U);
  EXPECT_EQ(given.store.scrub_interval, 60s);
  EXPECT_EQ(given.store.scrub_bytes_per_second, 1000U);
  EXPECT_EQ(given.stall_warning, 0ms);
  EXPECT_EQ(given.stall_exit, 7ms);

  for (const auto* flag : {"--soft-disk-floor", "--hard-disk-floor", "--scrub-interval-s",
                           "--scrub-rate", "--stall-warning-ms", "--stall-exit-ms"}) {
    const auto refused = parsed({flag, "-1"});
    EXPECT_TRUE(std::holds_alternative<EarlyExit>(refused)) << flag;
  }
}

}  // namespace
}  // namespace fencekv::server
