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
#include <vector>

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

/// What the stores of a format hold.
struct Format {
  int number = 0;
  Token newest;
  std::uint64_t lease_names = 0;
};

constexpr Format kFormat1{.number = 1, .newest = Token{5}, .lease_names = 5};
constexpr Format kFormat2{.number = 2, .newest = Token{16}, .lease_names = 13};

/// What write_content_of_format_2() wrote.
void expect_content_of_format_2(Store& store) {
  const auto readers = lease_of(store, "readers");
  EXPECT_EQ(readers.fence, Token{8});
  EXPECT_EQ(readers.holders, (std::vector<LeaseHolder>{{.owner = owner_fingerprint("reader 1"),
                                                        .token = Token{6},
                                                        .mode = LeaseMode::shared,
                                                        .remaining = 1h - 7s,
                                                        .client = "10.0.0.1:4711"},
                                                       {.owner = owner_fingerprint("reader 2"),
                                                        .token = Token{7},
                                                        .mode = LeaseMode::shared,
                                                        .remaining = 1h - 7s,
                                                        .client = "embedded"}}));
  EXPECT_EQ(line_of(store.renew("readers", "reader 3", Token{8}, 1s)), "LEASELOST released");
  EXPECT_EQ(line_of(store.renew("readers", "reader 1", Token{6}, 1h)), "OK");

  const auto seats = lease_of(store, "seats");
  EXPECT_EQ(seats.mode(), LeaseMode::permit);
  ASSERT_EQ(seats.holders.size(), 2U);
  EXPECT_EQ(seats.holders[0].token, Token{9});
  EXPECT_EQ(seats.holders[1].token, Token{10});
  EXPECT_EQ(seats.holders[1].remaining, 2h - 7s);
  EXPECT_EQ(seats.payload, "host b");

  EXPECT_EQ(line_of(store.renew("bound", "owner", Token{11}, 1s)), "LEASELOST disconnected");
  EXPECT_EQ(line_of(store.renew("bound to the process", "owner", Token{12}, 1s)),
            "LEASELOST disconnected");

  const auto blocked = lease_of(store, "blocked");
  EXPECT_TRUE(blocked.holders.empty());
  EXPECT_EQ(blocked.blocked, 1h - 6s);
  const auto refused = store.acquire("blocked", "owner", 1s);
  EXPECT_TRUE(refused && !*refused) << line_of(refused);

  EXPECT_EQ(lease_of(store, "again").holders.at(0).token, Token{16});
  EXPECT_EQ(line_of(store.renew("again", "owner before", Token{15}, 1s)), "LEASELOST superseded");
  // Nobody can come back with an older token than those that are kept: the floor stays below.
  const auto reclaimed = store.reclaim();
  EXPECT_EQ(line_of(reclaimed), "OK");
  EXPECT_LE(store.stats().floor, Token{1});

  for (const auto* name : {"many/a", "many/b"}) {
    EXPECT_EQ(lease_of(store, name).holders.at(0).token, Token{14}) << name;
  }
}

/// All that write_golden_store() wrote, in the boot in which it did.
void expect_golden_content(const std::filesystem::path& directory, const Format& format) {
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
  EXPECT_EQ(stats.newest, format.newest);
  EXPECT_EQ(stats.floor, Token{});
  EXPECT_EQ(stats.live_keys, 7U);
  EXPECT_EQ(stats.tombstones, 2U);
  EXPECT_EQ(stats.lease_names, format.lease_names);
  EXPECT_EQ(stats.epoch, 3U);
  EXPECT_EQ(stats.incarnation.size(), 32U);

  if (format.number >= 2) expect_content_of_format_2(store);

  // The fences hold, a retry is recognised, and it goes on from here.
  EXPECT_THAT(line_of(store.set("plain", "late", Token{4})), StartsWith("FENCED 5 4 stale"));
  EXPECT_THAT(line_of(store.set("gone", "revived", Token{3})), StartsWith("FENCED 4 3 stale"));
  const auto retried = store.set("asked", "again", Token{1}, {.request = "request-1"});
  ASSERT_TRUE(retried.has_value()) << line_of(retried);
  EXPECT_EQ(*retried, 1U);
  EXPECT_EQ(key_of(store, "asked").value, "with an id");
  const auto next = store.acquire("jobs/expired", "another", 1s);
  ASSERT_TRUE(next && *next) << line_of(next);
  EXPECT_EQ((*next)->token, Token{format.newest.number() + 1});
  EXPECT_EQ(line_of(store.set("plain", "w", (*next)->token, {.lease = "jobs/expired"})), "OK");
}

/// The kept stores, by their directories.
class Golden : public ::testing::TestWithParam<Format> {
 protected:
  static std::filesystem::path kept(int format) {
    return FENCEKV_SOURCE_DIR "/tests/golden/format-" + std::to_string(format);
  }
  std::filesystem::path kept() const { return kept(GetParam().number); }
};

TEST_P(Golden, OpensAndHoldsWhatItHeld) {
  const FastDirectory directory;
  copy_tree(kept(), directory.path() / "store");
  expect_golden_content(directory.path() / "store", GetParam());
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
  if (GetParam().number < 2) return;
  EXPECT_EQ(lease_of(**opened, "readers").holders.at(1).remaining, 1h);
  EXPECT_EQ(lease_of(**opened, "blocked").blocked, 1h);
  EXPECT_TRUE(lease_of(**opened, "bound to the process").holders.empty());
}

TEST_P(Golden, IsStampedWithItsFormatAndThenWithTheNewest) {
  const FastDirectory directory;
  const auto store = directory.path() / "store";
  copy_tree(kept(), store);
  const auto stamp = [&] { return content_of(store / "FORMAT"); };
  const std::string title = "fencekv store\nformat ";
  EXPECT_EQ(stamp(), title + std::to_string(GetParam().number) + "\n");
  EXPECT_EQ(line_of(open_rocksdb(store, {})), "OK");
  EXPECT_EQ(stamp(), title + std::to_string(core::kFormat) + "\n");
}

/// All of it is read, and changed, once more after every lease record was written anew.
TEST_P(Golden, HoldsItAllOnceItsLeasesHaveTheNewestLayout) {
  const FastDirectory directory;
  copy_tree(kept(), directory.path() / "store");
  const auto clock = std::make_shared<ManualClock>();
  clock->advance(10s);
  Options options;
  options.clock = clock;
  {
    auto opened = open_rocksdb(directory.path() / "store", options);
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    auto& store = **opened;
    EXPECT_EQ(line_of(store.renew("jobs/first", "owner of the first", Token{1}, 1h)), "OK");
    EXPECT_EQ(line_of(store.execute(Revoke{.name = "jobs/expired"})), "OK");
  }
  auto opened = open_rocksdb(directory.path() / "store", options);
  ASSERT_TRUE(opened.has_value()) << line_of(opened);
  auto& store = **opened;
  EXPECT_EQ(lease_of(store, "jobs/first").holders.at(0).remaining, 1h);
  EXPECT_EQ(line_of(store.renew("jobs/expired", "owner", Token{4}, 1s)), "LEASELOST revoked");
  EXPECT_EQ(line_of(store.renew("jobs/released", "owner", Token{2}, 1s)), "LEASELOST released");
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

INSTANTIATE_TEST_SUITE_P(Formats, Golden, ::testing::Values(kFormat1, kFormat2),
                         [](const auto& entry) {
                           return "format_" + std::to_string(entry.param.number);
                         });

TEST(GoldenWriter, WritesWhatTheKeptStoresHold) {
  const FastDirectory directory;
  ASSERT_EQ(write_golden_store(directory.path() / "store"), "");
  expect_golden_content(directory.path() / "store", kFormat2);
}

TEST(GoldenWriter, EveryFormatHasItsStore) {
  EXPECT_TRUE(std::filesystem::exists(FENCEKV_SOURCE_DIR "/tests/golden/format-" +
                                      std::to_string(core::kFormat)));
}

}  // namespace
}  // namespace fencekv::testing
