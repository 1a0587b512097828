// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/database_options.h"

#include "tests/support/noise.h"
#include "tests/support/raw_database.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace fencekv::testing {
namespace {

// Each sync of the log would wait for the whole table otherwise.
TEST(DatabaseOptions, ATableIsSentToTheDiskInParts) {
  const TemporaryDirectory directory;
  RawDatabase database(directory.path() / "database");

  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const auto value = noise(kMiB / 16, 7);
  for (int i = 0; i < 16 * 8; ++i) database.put("k" + std::to_string(i), value);
  database.flush();

  // Eight MiB, of which RocksDB always leaves the last one for the end.
  EXPECT_GE(database.parts_sent(), 4);
}

}  // namespace
}  // namespace fencekv::testing
