// SPDX-License-Identifier: Apache-2.0
#include "engine/core/known_keys.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <string>

namespace fencekv::core {
namespace {

std::string name_of(std::size_t number) {
  return "a key that does not fit into a short string " + std::to_string(number);
}

/// As a group leaves it.
void use(KnownKeys& keys, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    auto& entry = keys.add(HashedName(name_of(i)));
    entry.record.emplace().value = "a value";
    entry.changed = true;
    entry.lacks_value = true;
  }
}

TEST(KnownKeys, FindsWhatWasAddedAndNothingElse) {
  KnownKeys keys;
  EXPECT_TRUE(keys.empty());
  use(keys, 100);
  EXPECT_FALSE(keys.empty());
  for (std::size_t i = 0; i < 100; ++i) {
    const auto* entry = keys.find(HashedName(name_of(i)));
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->key, name_of(i));
    EXPECT_EQ(entry, keys.all()[i].get());
  }
  EXPECT_EQ(keys.find(HashedName(name_of(100))), nullptr);
  EXPECT_EQ(keys.all().size(), 100U);
}

TEST(KnownKeys, EntriesStayWhereTheyAre) {
  KnownKeys keys;
  auto& first = keys.add(HashedName("first"));
  const auto* record = &first.record.emplace();
  use(keys, 5000);
  EXPECT_EQ(keys.find(HashedName("first")), &first);
  EXPECT_EQ(&*first.record, record);
}

// Below and above what is kept from group to group.
TEST(KnownKeys, TheNextGroupFindsNothingOfTheOneBefore) {
  for (const std::size_t count : {1U, 1024U, 1025U}) {
    KnownKeys keys;
    use(keys, count);
    keys.clear();
    EXPECT_TRUE(keys.empty());
    EXPECT_TRUE(keys.all().empty());
    EXPECT_EQ(keys.find(HashedName(name_of(0))), nullptr);

    // In the place of an old one.
    auto& entry = keys.add(HashedName("another"));
    EXPECT_EQ(entry.key, "another");
    EXPECT_EQ(entry.record, std::nullopt);
    EXPECT_FALSE(entry.changed);
    EXPECT_FALSE(entry.lacks_value);
    EXPECT_EQ(keys.find(HashedName("another")), &entry);
    EXPECT_EQ(keys.find(HashedName(name_of(0))), nullptr);
  }
}

TEST(KnownKeys, LongNamesAreNotKept) {
  KnownKeys keys;
  const std::string name(65'536, 'x');
  const auto& entry = keys.add(HashedName(name));
  keys.clear();
  EXPECT_LT(entry.key.capacity(), 128U);
}

}  // namespace
}  // namespace fencekv::core
