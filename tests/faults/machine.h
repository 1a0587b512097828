// SPDX-License-Identifier: Apache-2.0
/// A machine with a simulated disk, a store on it, and what was asked of it.

#pragma once

#include "engine/core/make_store.h"
#include "tests/faults/facts.h"
#include "tests/support/manual_clock.h"
#include "tests/support/simulated_disk.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <utility>

namespace fencekv::testing {

/// Where it is on the disk.
constexpr const char* kStore = "/store";

/// Thread safety: none.
class Machine {
 public:
  explicit Machine(std::shared_ptr<SimulatedDisk> disk) : disk_(std::move(disk)) {}

  SimulatedDisk& disk() { return *disk_; }
  Facts& facts() { return facts_; }

  Result<core::DrivenStore> open_at(const std::filesystem::path& path);

  /// Opens the store, if it can be. Errors of opening are the caller's to judge.
  std::optional<Error> open();
  bool is_open() const { return driven_.store != nullptr; }
  Store& store() { return *driven_.store; }
  /// Some background work of RocksDB, then what is due in the store.
  void step();
  /// So much time goes by, and what is overdue then is seen to.
  void advance(std::chrono::milliseconds time);
  void close();

  /// Tables are written after so many entries.
  void flush_after(std::uint64_t entries) { flush_after_ = entries; }

  /// The same machine with a copy of its disk, switched off.
  std::unique_ptr<Machine> copy() const;
  /// What a power cut leaves of it.
  std::unique_ptr<Machine> after_power_loss(std::mt19937_64& random) const;

 private:
  std::unique_ptr<Machine> with_disk(std::shared_ptr<SimulatedDisk> disk) const;

  std::shared_ptr<SimulatedDisk> disk_;
  Facts facts_;
  std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  std::uint64_t flush_after_ = 1000;
  core::DrivenStore driven_;
};

/// Fails the test if it cannot be opened.
void must_open(Machine& machine);

/// A store with a few keys, each kind of record, tables and a log: keys with and without a guard
/// and a request, and deleted ones; leases that one holds, readers, some with permits, and one
/// together with another; one that was released, one revoked with a delay, and one that is over.
/// It is left open.
void prepare_store(Machine& machine);

}  // namespace fencekv::testing
