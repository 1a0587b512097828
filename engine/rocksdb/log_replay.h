// SPDX-License-Identifier: Apache-2.0
/// Keeps the replay of RocksDB's log to what is a history: group after group, none left out.
///
/// A power cut may leave a hole in what was never synced. Of two logs the end of the first is lost
/// and the second is whole, or a sector in the middle of one is all zeros, which RocksDB skips
/// without a word; it would apply what comes behind the hole. Every group carries its number, so
/// the hole is seen, and the history ends before it.

#pragma once

#include "engine/core/record.h"
#include "engine/rocksdb/database_options.h"
#include "engine/rocksdb/position_file.h"
#include "fencekv/result.h"

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/wal_filter.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace fencekv::rocks {

/// For rocksdb::Options::wal_filter of one opening; must outlive the database.
class LogReplay final : public rocksdb::WalFilter {
 public:
  /// Replays nothing: what is found then is what the tables hold.
  static LogReplay nothing() { return LogReplay(std::nullopt); }
  /// Replays the groups that follow the one with which the tables end, up to `last`.
  explicit LogReplay(std::optional<std::uint64_t> newest, std::uint64_t last = UINT64_MAX)
      : newest_(newest), last_(last) {}

  /// The log, and the first group in it, that does not follow what is before it; nullopt: all do.
  const std::optional<std::string>& hole() const { return hole_; }

  const char* Name() const override { return "fencekv.LogReplay"; }
  WalProcessingOption LogRecordFound(unsigned long long log_number, const std::string& log_name,
                                     const rocksdb::WriteBatch& batch, rocksdb::WriteBatch* changed,
                                     bool* is_changed) override;

 private:
  std::optional<std::uint64_t> newest_;
  std::uint64_t last_;
  std::optional<std::string> hole_;
};

/// A database that is open for reading, with as much of its log as is a history.
struct ReplayedDatabase {
  std::uint64_t tables = 0;  ///< The newest group that its tables hold.
  /// How RocksDB shall take the end of the log, together with LogReplay(tables).
  rocksdb::WALRecoveryMode mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  std::unique_ptr<LogReplay> replay;  // of the database
  std::unique_ptr<rocksdb::DB> database;
};

/// Opens a database of which nothing may be changed. A log that ends with what cannot be read is
/// fine if `check` finds that what is before it is all that was acknowledged: a power cut may leave
/// a record of which one sector was written and another was not.
///
/// Errors: what RocksDB says, or `check`.
Result<ReplayedDatabase> open_replayed(rocksdb::Options options,
                                       const std::filesystem::path& database,
                                       const std::function<Result<void>(rocksdb::DB&)>& check,
                                       const Log& log);

/// The position record; one of a database without records says group 0. Errors: corrupt; misconf.
Result<core::PositionRecord> stored_position(rocksdb::DB& database);

/// check_history() of what is in `database`, of the store in `directory`.
Result<void> check_records(rocksdb::DB& database, const std::filesystem::path& directory,
                           const PositionSlot& noted, const std::string& boot_id);

}  // namespace fencekv::rocks
