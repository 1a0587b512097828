// SPDX-License-Identifier: Apache-2.0
/// How much the disk below a store can still take, before it says no by itself.
///
///     free ── log that must still become a table ──► room ──► enough | low | out
///
/// What stands in RocksDB's log is written a second time when it becomes a table, at the latest by
/// the next opening, and only then is the log's space given back. So as many bytes as the logs have
/// are taken for spent. A level that was reached is left only with a quarter of its floor to spare,
/// so that it does not change with every write.

#pragma once

#include "engine/core/backend.h"
#include "engine/rocksdb/file_system.h"
#include "fencekv/options.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>

namespace fencekv::rocks {

/// The floors as Options have them; nullopt: as fits the disk, 0: none.
struct FloorChoice {
  std::optional<std::uint64_t> soft;
  std::optional<std::uint64_t> hard;
};

/// Thread safety: all members may be called concurrently.
class SpaceWatch {
 public:
  using Log = std::function<void(LogLevel, std::string_view)>;

  /// The disk is asked again after this time, or after so many bytes were written: fewer, the
  /// nearer a floor is.
  static constexpr std::chrono::milliseconds kInterval{250};
  static constexpr std::uint64_t kMostBytes = std::uint64_t{4} * 1024 * 1024;
  static constexpr std::uint64_t kLeastBytes = std::uint64_t{16} * 1024;

  // The floors of a disk of which nothing else is said: so much, and no more than this part of it.
  // The soft one leaves room for both memtables to become tables and for a compaction of the
  // youngest of them; between the two, leases go on.
  static constexpr std::uint64_t kSoftFloor = std::uint64_t{1024} * 1024 * 1024;
  static constexpr std::uint64_t kHardFloor = std::uint64_t{256} * 1024 * 1024;
  static constexpr std::uint64_t kSoftPart = 20;
  static constexpr std::uint64_t kHardPart = 80;

  /// `files` must outlive it. `database` is where the logs are.
  SpaceWatch(FileSystem& files, std::filesystem::path database, FloorChoice floors, Log log)
      : files_(files), database_(std::move(database)), choice_(floors), log_(std::move(log)) {}

  /// So much was written to the log.
  void wrote(std::uint64_t bytes) { unseen_ += bytes; }

  /// What was last found; asks the disk if that is too old and nobody is asking it just now. `now`
  /// is time since any beginning.
  core::Space look(std::chrono::nanoseconds now);

  /// What was last found.
  core::Space last();

  /// Whether much of what is occupied is in the logs, while there is too little room: making a
  /// table of it gives room back, and there is enough to do so. Once true, it is false until the
  /// disk has been asked again.
  bool should_flush();

 private:
  struct Found {
    core::Space space;
    bool may_flush = false;
    std::uint64_t good_for = kMostBytes;  ///< Bytes that may be written before the next look.
  };

  Found ask(SpaceLevel before) const;
  void tell(const core::Space& space, SpaceLevel before) const;

  FileSystem& files_;
  const std::filesystem::path database_;
  const FloorChoice choice_;
  const Log log_;
  std::atomic<std::uint64_t> unseen_ = 0;

  std::mutex asking_;  // held while the disk is asked, which may take as long as the disk likes
  std::mutex mutex_;   // held for moments only
  Found found_;        // guarded by mutex_
  std::optional<std::chrono::nanoseconds> asked_;  // guarded by mutex_
};

}  // namespace fencekv::rocks
