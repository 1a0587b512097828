// SPDX-License-Identifier: Apache-2.0
/// fencekv-admin on a store that is in use: all of it at one point in time, and nobody disturbed.
#include "tests/admin/scene.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace fencekv::admin_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kPairs = 8;

std::string first_of(int pair) {
  return "first/" + std::to_string(pair);
}
std::string second_of(int pair) {
  return "second/" + std::to_string(pair);
}

/// Writes pairs of keys, both in one command with the same value, until it is stopped. The value
/// begins with a number that rises, and is `value_bytes` long.
class PairWriters {
 public:
  PairWriters(Store& store, std::size_t value_bytes) : store_(store), value_bytes_(value_bytes) {
    token_ = store.acquire("load", new_owner(), std::chrono::hours(1)).operator*()->token;
    for (int writer = 0; writer < 2; ++writer) {
      threads_.emplace_back([this, writer] { work(writer); });
    }
  }
  ~PairWriters() {
    stopping_ = true;
    for (auto& thread : threads_) thread.join();
  }

  /// The newest number of the pair whose write was acknowledged.
  std::uint64_t acknowledged(int pair) const { return acknowledged_[static_cast<size_t>(pair)]; }
  std::uint64_t failures() const { return failures_; }

 private:
  void work(int writer) {
    for (std::uint64_t number = 1; !stopping_; ++number) {
      for (int pair = writer; pair < kPairs; pair += 2) {
        auto value = std::to_string(number) + " ";
        // Not compressible, so that it fills the store as fast as it can.
        std::uint64_t noise = number * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(pair);
        while (value.size() < value_bytes_) {
          noise = noise * 6364136223846793005ULL + 1442695040888963407ULL;
          value += static_cast<char>('!' + (noise >> 33) % 90);
        }
        const auto written =
            store_.execute(Write{.entries = {{first_of(pair), value}, {second_of(pair), value}},
                                 .token = token_,
                                 .lease = "load"});
        if (!written) ++failures_;
        if (written) acknowledged_[static_cast<std::size_t>(pair)] = number;
      }
    }
  }

  Store& store_;
  const std::size_t value_bytes_;
  Token token_;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::uint64_t> failures_ = 0;
  std::array<std::atomic<std::uint64_t>, kPairs> acknowledged_{};
  std::vector<std::thread> threads_;
};

/// Dumps while pairs are written, `dumps` times, and checks each dump.
void dump_under_load(const Options& options, std::size_t value_bytes, int dumps) {
  const Folder folder;
  const auto directory = folder.path() / "store";
  const auto store = open_store(directory, options);
  ASSERT_TRUE(store);
  PairWriters writers(*store, value_bytes);
  while (writers.acknowledged(kPairs - 1) == 0) std::this_thread::yield();

  std::uint64_t last_position = 0;
  for (int i = 0; i < dumps; ++i) {
    std::array<std::uint64_t, kPairs> before{};
    for (int pair = 0; pair < kPairs; ++pair) {
      before[static_cast<std::size_t>(pair)] = writers.acknowledged(pair);
    }

    const auto ended = run_admin({"dump", "--dir", directory.string()});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto dump = parse_dump(ended.out);

    ASSERT_FALSE(dump.trailer.is_null());
    EXPECT_EQ(dump.header["live"], true);
    const auto position = std::stoull(dump.header["position"].get<std::string>());
    EXPECT_GT(position, last_position);
    last_position = position;
    ASSERT_EQ(dump.keys.size(), 2U * kPairs);
    for (int pair = 0; pair < kPairs; ++pair) {
      const auto& first = dump.keys.at(first_of(pair));
      const auto& second = dump.keys.at(second_of(pair));
      EXPECT_EQ(first["value"], second["value"]);
      EXPECT_EQ(first["version"], second["version"]);
      // What was acknowledged before is there, flushed or not.
      EXPECT_GE(std::stoull(first["value"]["text"].get<std::string>()),
                before[static_cast<std::size_t>(pair)]);
    }
  }
  const auto verified = run_admin({"verify", "--dir", directory.string()});
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  EXPECT_EQ(writers.failures(), 0U);
}

TEST(LiveStore, IsDumpedAtOnePointInTimeUnderSmallWrites) {
  dump_under_load({}, 100, 20);
}

TEST(LiveStore, IsDumpedAtOnePointInTimeWhileTablesComeAndGo) {
  // So much that RocksDB flushes, compacts and deletes files between and during the dumps.
  dump_under_load({.durability = Durability::process}, std::size_t{128} * 1024, 20);
}

}  // namespace
}  // namespace fencekv::admin_test
