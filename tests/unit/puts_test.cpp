// SPDX-License-Identifier: Apache-2.0
#include "engine/core/backend.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::core {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs pairs_of(const Puts& puts) {
  Pairs pairs;
  for (const auto& put : puts) pairs.emplace_back(put.place, put.bytes);
  return pairs;
}

KeyRecord record_of(std::uint64_t fence, std::string value) {
  KeyRecord record;
  record.fence = Token{fence};
  record.value = std::move(value);
  return record;
}

TEST(Puts, AreWhatWasAddedInItsOrder) {
  Puts puts;
  EXPECT_EQ(pairs_of(puts), Pairs());
  const auto small = record_of(1, "");
  const auto large = record_of(2, std::string(100'000, 'v'));
  EXPECT_EQ(puts.add("k", "a", small), "ka");
  EXPECT_EQ(puts.add("k", "", large), "k");
  puts.add("raw", std::string_view());
  EXPECT_EQ(puts.add("kb", {}, small), "kb");

  const Pairs expected{{"ka", encode("ka", small)},
                       {"k", encode("k", large)},
                       {"raw", ""},
                       {"kb", encode("kb", small)}};
  EXPECT_EQ(pairs_of(puts), expected);
  EXPECT_EQ(puts.size(), 4U);
  EXPECT_EQ(puts.back().place, "kb");
  std::size_t bytes = 0;
  for (const auto& [place, record] : expected) bytes += place.size() + record.size();
  EXPECT_EQ(puts.bytes(), bytes);
}

// The place of a record is part of its checksum, and where the places are moves as they grow.
TEST(Puts, EachRecordIsSealedWithItsOwnPlace) {
  Puts puts;
  for (int i = 0; i < 1000; ++i) puts.add("k", std::to_string(i), record_of(7, std::to_string(i)));
  for (int i = 0; i < 1000; ++i) {
    const auto put = puts[static_cast<std::size_t>(i)];
    EXPECT_EQ(put.place, "k" + std::to_string(i));
    const auto record = decode_key(put.place, put.bytes);
    ASSERT_TRUE(record) << record.error().line();
    EXPECT_EQ(*record, record_of(7, std::to_string(i)));
  }
}

TEST(Puts, ClearedTheyAreAsNew) {
  for (const std::size_t size : {10U, 3'000'000U}) {
    Puts puts;
    puts.add("k", "before", record_of(1, std::string(size, 'v')));
    puts.clear();
    EXPECT_EQ(puts.size(), 0U);
    EXPECT_EQ(puts.bytes(), 0U);
    EXPECT_EQ(puts.add("k", "after", record_of(2, "v")), "kafter");
    EXPECT_EQ(pairs_of(puts), (Pairs{{"kafter", encode("kafter", record_of(2, "v"))}}));
  }
}

TEST(Puts, ACopyStandsOnItsOwn) {
  Puts puts;
  puts.add("k", "a", record_of(1, "v"));
  const auto copy = puts;
  puts.clear();
  puts.add("k", "b", record_of(2, "w"));
  EXPECT_EQ(pairs_of(copy), (Pairs{{"ka", encode("ka", record_of(1, "v"))}}));
}

}  // namespace
}  // namespace fencekv::core
