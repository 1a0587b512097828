// SPDX-License-Identifier: Apache-2.0
/// Stores that were written by earlier versions open, and hold what they held.

#include "engine/core/record.h"
#include "tests/golden/golden_store.h"
#include "tests/support/fast_directory.h"
#include "tests/support/file_tree.h"
#include "tests/support/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::StartsWith;

constexpr std::chrono::milliseconds kWritten{1'700'000'000'000};

template <class T>
std::string line_of(const Result<T>& result) {
  return result ? "OK" : result.error().line();
}

KeyState key_of(Store& store, std::string_view key) {
  auto keys = store.read_committed({.keys = {std::string(key)}});
  EXPECT_TRUE(keys.has_value()) << line_of(keys);
  return keys ? keys->front() : KeyState{};
}

LeaseState lease_of(Store& store, const std::string& name) {
  auto lease = store.execute(Inspect{.name = name});
  EXPECT_TRUE(lease.has_value()) << line_of(lease);
  return lease ? *lease : LeaseState{};
}

KeyState state(std::optional<std::string> value, std::uint64_t version, std::uint64_t fence,
               std::optional<std::string> guard = {}, std::optional<std::string> request = {}) {
  return {.value = std::move(value),
          .version = version,
          .fence = Token{fence},
          .guard = std::move(guard),
          .request = std::move(request),
          .written = version == 0 ? std::chrono::milliseconds{0} : kWritten};
}

/// All that write_golden_store() wrote, in the boot in which it did.
void expect_golden_content(const std::filesystem::path& directory) {
  const auto clock = std::make_shared<ManualClock>();
  clock->advance(10s);
  Options options;
  options.clock = clock;
  auto opened = open_rocksdb(directory, options);
  ASSERT_TRUE(opened.has_value()) << line_of(opened);
  auto& store = **opened;

  EXPECT_EQ(key_of(store, "plain"), state("value of the second life", 2, 5));
  EXPECT_EQ(key_of(store, "guarded"), state("by a lease", 1, 1, "jobs/first"));
  EXPECT_EQ(key_of(store, "asked"), state("with an id", 1, 1, {}, "request-1"));
  EXPECT_EQ(key_of(store, {"\0\xff binary", 9}), state(std::string("\0\r\n\xff", 4), 1, 1));
  EXPECT_EQ(key_of(store, "empty"), state("", 1, 1));
  EXPECT_EQ(key_of(store, "gone"), state(std::nullopt, 2, 4));
  EXPECT_EQ(key_of(store, "raised only"), state(std::nullopt, 0, 4));
  EXPECT_EQ(key_of(store, "large"), state(std::string(5000, 'x'), 1, 1));
  EXPECT_EQ(key_of(store, "second"), state("life", 1, 2));
  EXPECT_EQ(key_of(store, "never"), KeyState{});

  const auto held = lease_of(store, "jobs/first");
  ASSERT_EQ(held.holders.size(), 1U);
  EXPECT_EQ(held.holders[0].token, Token{1});
  EXPECT_EQ(held.holders[0].remaining, 1h - 10s);
  EXPECT_EQ(held.holders[0].owner, owner_fingerprint("owner of the first"));
  EXPECT_EQ(held.holders[0].client, "embedded");
  EXPECT_EQ(lease_of(store, "jobs/second").holders.at(0).remaining, 1h - 8s);
  EXPECT_EQ(line_of(store.renew("jobs/released", "owner", Token{2}, 1s)), "LEASELOST released");
  EXPECT_EQ(line_of(store.renew("jobs/revoked", "owner", Token{3}, 1s)), "LEASELOST revoked");
  EXPECT_EQ(line_of(store.renew("jobs/expired", "owner", Token{4}, 1s)), "LEASELOST expired");
  EXPECT_TRUE(lease_of(store, "jobs/never").fence.is_none());

  const auto stats = store.stats();
  EXPECT_EQ(stats.newest, Token{5});
  EXPECT_EQ(stats.floor, Token{});
  EXPECT_EQ(stats.live_keys, 7U);
  EXPECT_EQ(stats.tombstones, 2U);
  EXPECT_EQ(stats.lease_names, 5U);
  EXPECT_EQ(stats.epoch, 3U);
  EXPECT_EQ(stats.incarnation.size(), 32U);

  // The fences hold, a retry is recognised, and it goes on from here.
  EXPECT_THAT(line_of(store.set("plain", "late", Token{4})), StartsWith("FENCED 5 4 stale"));
  EXPECT_THAT(line_of(store.set("gone", "revived", Token{3})), StartsWith("FENCED 4 3 stale"));
  const auto retried = store.set("asked", "again", Token{1}, {.request = "request-1"});
  ASSERT_TRUE(retried.has_value()) << line_of(retried);
  EXPECT_EQ(*retried, 1U);
  EXPECT_EQ(key_of(store, "asked").value, "with an id");
  const auto next = store.acquire("jobs/expired", "another", 1s);
  ASSERT_TRUE(next && *next) << line_of(next);
  EXPECT_EQ((*next)->token, Token{6});
  EXPECT_EQ(line_of(store.set("plain", "w", (*next)->token, {.lease = "jobs/expired"})), "OK");
}

/// The kept stores, by their directories.
class Golden : public ::testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path kept() const {
    return std::filesystem::path(FENCEKV_SOURCE_DIR "/tests/golden") / GetParam();
  }
};

TEST_P(Golden, OpensAndHoldsWhatItHeld) {
  const FastDirectory directory;
  copy_tree(kept(), directory.path() / "store");
  expect_golden_content(directory.path() / "store");
}

TEST_P(Golden, OpensInAnotherBoot) {
  const FastDirectory directory;
  copy_tree(kept(), directory.path() / "store");
  const auto clock = std::make_shared<ManualClock>();
  clock->reboot();
  Options options;
  options.clock = clock;
  auto opened = open_rocksdb(directory.path() / "store", options);
  ASSERT_TRUE(opened.has_value()) << line_of(opened);
  EXPECT_EQ(lease_of(**opened, "jobs/first").holders.at(0).remaining, 1h);
  EXPECT_TRUE(lease_of(**opened, "jobs/expired").holders.empty());
}

TEST_P(Golden, IsSmall) {
  std::size_t bytes = 0;
  bool has_table = false;
  for (const auto& [name, content] : tree_of(kept())) {
    bytes += content.size();
    has_table = has_table || name.ends_with(".sst");
  }
  EXPECT_LT(bytes, 100U * 1024);
  EXPECT_TRUE(has_table);
}

INSTANTIATE_TEST_SUITE_P(Formats, Golden, ::testing::Values("format-1"), [](const auto& entry) {
  auto name = entry.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

TEST(GoldenWriter, WritesWhatTheKeptStoresHold) {
  const FastDirectory directory;
  ASSERT_EQ(write_golden_store(directory.path() / "store"), "");
  expect_golden_content(directory.path() / "store");
}

TEST(GoldenWriter, EveryFormatHasItsStore) {
  EXPECT_TRUE(std::filesystem::exists(FENCEKV_SOURCE_DIR "/tests/golden/format-" +
                                      std::to_string(core::kFormat)));
}

}  // namespace
}  // namespace fencekv::testing
