// SPDX-License-Identifier: Apache-2.0
/// A read-only door to a store's directory, for tools: all of it at one point in time, while a
/// server is using it or not. Nothing is written into the directory, and a running server does not
/// notice.
///
/// A stopped store is opened in place, under a shared lock that keeps writers out meanwhile: a
/// server that starts gets "in use". Of a live one, the files of one moment are opened through
/// links in a temporary directory. They are held open, so the server may go on deleting them.
///
///     auto reader = fencekv::rocks::StoreReader::open("/var/lib/fencekv", {});
///     if (!reader) return report(reader.error());
///     auto meta = (*reader)->meta();
///     if (!meta) return report(meta.error());
///     auto scanned = (*reader)->records().scan("k", visit);

#pragma once

#include "engine/core/backend.h"
#include "engine/core/lease.h"
#include "engine/core/record.h"
#include "engine/rocksdb/directory.h"
#include "engine/rocksdb/position_file.h"
#include "fencekv/options.h"
#include "fencekv/result.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace fencekv::rocks {

/// The small records of a store.
struct StoredMeta {
  core::IdentityRecord identity;
  core::AllocatorRecord allocator;
  core::PositionRecord position;
};

/// What the position file says, and how much of it can be read.
struct NotedPosition {
  /// The newest valid slot; an error (corrupt) if the file is missing or no slot is valid.
  Result<PositionSlot> newest;
  /// Tokens up to this one may have been handed out. Read after the records, so it covers them.
  Token reserved;
  /// 2, but for a slot whose last write was torn or that was damaged.
  int valid_slots = 0;
};

/// Bytes in the files of a store.
struct SizesOnDisk {
  std::uint64_t tables = 0;    ///< RocksDB's table files.
  std::uint64_t logs = 0;      ///< Its write-ahead logs.
  std::uint64_t other = 0;     ///< Its manifest and settings.
  std::uint64_t position = 0;  ///< The position file.

  std::uint64_t total() const { return tables + logs + other + position; }
};

/// How a grant stands, in words.
struct GrantStanding {
  /// `held`, `expired`, `released`, `revoked`, `disconnected`; `floor`: the floor was lifted above
  /// it, as if it had never been.
  std::string_view state;
  /// Of a held one. After a reboot that no server has seen yet, what it would have if one started
  /// now: its whole ttl.
  std::optional<std::chrono::milliseconds> remaining;
};

/// Thread safety: none.
class StoreReader {
 public:
  using Log = std::function<void(LogLevel, std::string_view)>;

  /// Errors: corrupt, the detail names the file; newer_format; in_use, a server is creating the
  /// store right now, or changes it faster than it can be opened; invalid, there is no store in
  /// `directory`, or it cannot be opened (permissions); misconf, the storage cannot be read.
  static Result<std::unique_ptr<StoreReader>> open(const std::filesystem::path& directory,
                                                   const Log& log);
  ~StoreReader();
  StoreReader(const StoreReader&) = delete;
  StoreReader& operator=(const StoreReader&) = delete;

  /// Whether a server (or an embedded store) was using the directory when it was opened.
  bool is_live() const { return is_live_; }
  const std::filesystem::path& directory() const { return directory_; }
  /// What the stamp says. A writer that opened it since may have raised it.
  std::uint64_t format() const { return format_; }

  /// All records. Block checksums are verified as they are read. Scanning is streaming: what was
  /// read is not kept.
  core::Snapshot& records();

  /// Never ahead of records() in a sound store: it was read first.
  const NotedPosition& noted() const { return noted_; }

  /// Decodes the small records. Errors: corrupt, one is missing or damaged.
  Result<StoredMeta> meta();

  /// Errors: corrupt, the records and the position file do not belong together, or acknowledged
  /// groups are missing from the records and nothing explains it. A server refuses to start then.
  Result<void> check_position(const StoredMeta& meta) const;

  /// Whether acknowledged groups may be missing, as Durability::process allows after a power cut:
  /// the next start lifts the floor.
  bool may_have_lost() const;

  /// Whether the position file was last written in the running boot of the machine.
  bool is_same_boot() const;

  /// The lease `name` with its further grants.
  /// Errors: corrupt, a grant is damaged, or there are not as many as `record` counts.
  Result<core::Lease> lease(std::string_view name, core::LeaseRecord record);

  // By one reading of the clock, taken at the opening.

  /// A bound grant of a process that has ended is `disconnected`, although nobody noticed yet.
  GrantStanding standing(const StoredMeta& meta, const core::GrantRecord& grant) const;

  /// How long nobody new can be granted the name, by a DELAY; zero: not at all.
  std::chrono::milliseconds blocked(const StoredMeta& meta, const core::Lease& lease) const;

  /// The sizes as they are now.
  SizesOnDisk sizes() const;

  struct TablesChecked {
    std::uint64_t files = 0;
    std::uint64_t bytes = 0;
  };

  /// Verifies the checksums of all blocks of all table files, also of blocks that no scan reads.
  /// `problem` is called for each damaged file, `progress` with the bytes checked so far and the
  /// bytes in all. A file that a live store has deleted meanwhile is left out: what it held was
  /// verified by whoever scanned records().
  TablesChecked check_tables(const std::function<void(const Error&)>& problem,
                             const std::function<void(std::uint64_t, std::uint64_t)>& progress);

 private:
  class Records;

  StoreReader(std::filesystem::path directory, std::optional<Directory> shared,
              std::uint64_t format, NotedPosition noted, std::unique_ptr<Records> records);

  static Result<std::unique_ptr<StoreReader>> open_stopped(Directory directory, const Log& log);
  static Result<std::unique_ptr<StoreReader>> open_live(const std::filesystem::path& directory,
                                                        const Log& log);

  /// The boots as a server would have them that started now.
  core::Boots boots(const StoredMeta& meta) const;
  core::GrantEnd end_of(const core::GrantRecord& grant, const StoredMeta& meta,
                        const core::Boots& boots) const;

  const std::filesystem::path directory_;
  const std::optional<Directory> shared_;  // holds the lock; nullopt: live
  const bool is_live_;
  const std::uint64_t format_;
  const NotedPosition noted_;
  const std::unique_ptr<Records> records_;
  const std::shared_ptr<Clock> clock_;
  const std::chrono::nanoseconds now_;  // since_boot()
};

}  // namespace fencekv::rocks
