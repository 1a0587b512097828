// SPDX-License-Identifier: Apache-2.0
/// What the lease benchmark measures, one function a section. Each runs in a process of its own, so
/// that the memory of one does not count for the next, prints its rows, and returns whether what it
/// did came out right: a figure of a run that went wrong is worth nothing.

#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>

namespace fencekv::bench {

struct Settings {
  std::size_t leases = 100'000;           ///< Live leases of the large store.
  std::size_t few = 1'000;                ///< Live leases of the small one.
  std::size_t operations = 10'000;        ///< Of each kind in one run.
  std::size_t rounds = 3;                 ///< Runs, large and small in turn.
  std::size_t waiters = 10'000;           ///< On one name.
  std::size_t names = 100'000;            ///< That come and go.
  std::chrono::milliseconds quiet{2000};  ///< How long others are watched before a storm.
  std::chrono::milliseconds storm{1000};  ///< Within which all of the leases expire.
  /// Stores are made below it, and removed again. The disk under it is what `sync` measures.
  std::filesystem::path directory;
  std::filesystem::path keep;  ///< Where the store of the churn is left; empty: nowhere.
};

/// Acquire, renew, release, and the taking over of expired leases, in a small and a large store.
bool measure_cost(const Settings& settings);
/// Opening a store with many leases, after a clean stop and after a kill; memory a lease.
bool measure_opening(const Settings& settings);
/// What other commands notice when many leases expire within a short time.
bool measure_storm(const Settings& settings);
/// Many waiters on one name, and how late an expiry is noticed by the one who waits.
bool measure_waiting(const Settings& settings);
/// One renewal of 1,000 leases against 1,000 renewals of one.
bool measure_many(const Settings& settings);
/// Names that are acquired and released once, and what stays of them on disk.
bool measure_churn(const Settings& settings);
/// Taking them away once nobody can come back with their tokens.
bool measure_reclaiming(const Settings& settings);

}  // namespace fencekv::bench
