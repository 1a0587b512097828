// SPDX-License-Identifier: Apache-2.0
/// Short words for stores on real files, as the crash tests use them.

#pragma once

#include "fencekv/store.h"
#include "tests/support/child_process.h"
#include "tests/support/manual_clock.h"
#include "tests/support/print.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace fencekv::testing {

/// Runs `body`, with its assertions, in a process of its own, and fails if that does: an abort of
/// the process is then one failed test. All work with stores is done so, since a process that ever
/// opened a RocksDB cannot be forked: its background threads would be missing in the child.
///
/// Returns what `body(out)` said.
template <class Body>
std::string in_child(Body body) {
  // The child inherits the failures of before.
  const bool has_failed = ::testing::Test::HasFailure();
  ChildProcess child([&](int out) {
    body(out);
    return !has_failed && ::testing::Test::HasFailure() ? 1 : 0;
  });
  auto said = child.read_all();
  EXPECT_EQ(child.wait(), "exit 0");
  return said;
}

/// `FENCED 34 33 stale`, or `OK`.
template <class T>
std::string line_of(const Result<T>& result) {
  return result ? "OK" : result.error().line();
}

inline Result<KeyState> state_of(Store& store, const std::string& key) {
  auto keys = store.read_committed({.keys = {key}});
  if (!keys) return std::move(keys).error();
  return std::move(keys->front());
}

/// Waits until the store takes writes again by itself.
inline bool recovers(Store& store, std::chrono::seconds patience = std::chrono::seconds(15)) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (store.refuses_writes()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// Walks every listing: the counters of stats() must equal what is there.
inline void expect_counters_equal_a_count(Store& store, std::uint64_t live_keys) {
  std::uint64_t counted = 0;
  std::optional<std::string> after;
  do {
    const auto page = store.list_keys(after, 1000);
    ASSERT_TRUE(page.has_value()) << line_of(page);
    counted += page->items.size();
    after = page->next;
  } while (after);
  EXPECT_EQ(counted, live_keys);
  EXPECT_EQ(store.stats().live_keys, live_keys);
}

}  // namespace fencekv::testing
