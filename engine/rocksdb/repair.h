// SPDX-License-Identifier: Apache-2.0
/// Makes a store of what can be read of a damaged one.
///
///     auto looked = fencekv::rocks::examine(files, "/var/lib/fencekv", boot_id, LockMode::shared);
///     if (!looked) return looked.error();
///     for (const auto& line : looked->damage()) say(line);
///     if (looked->may_have_lost() && !accepted) return refuse();
///     return looked->write_copy("/var/lib/fencekv.repaired");
///
/// Every record that some file still holds, in a place that can be read, and that proves its own
/// checksum, is kept. Of several versions of one the newest counts.
///
/// If it is certain that nothing acknowledged is missing (a damaged CURRENT, stamp, filter, or a
/// record of the log that is in a table, too), the history goes on as it was. Otherwise it is a new
/// one (engine/core/new_history.h): what came back may be older than what was acknowledged, and the
/// floor, lifted above every token that may have been handed out, is what keeps the holders of
/// those tokens from writing over it. Tokens of an external allocator are not refused by a floor.

#pragma once

#include "engine/core/new_history.h"
#include "engine/rocksdb/directory.h"
#include "engine/rocksdb/file_system.h"
#include "engine/rocksdb/position_file.h"
#include "engine/rocksdb/record_tally.h"
#include "fencekv/result.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::rocks {

/// What came of a look at a damaged store. Nothing was changed. Thread safety: none.
class Examined {
 public:
  /// What is wrong, one sentence each, with the name of the file. Empty: the store is sound, and
  /// there is nothing to repair.
  const std::vector<std::string>& damage() const { return damage_; }
  /// What is or may be lost, one sentence each: keys where they are known.
  const std::vector<std::string>& losses() const { return losses_; }
  bool may_have_lost() const { return !losses_.empty(); }

  /// What the repaired store will hold.
  const RecordTally& kept() const { return kept_; }
  /// The small records it will begin with.
  const core::SmallRecords& small() const { return small_; }

  /// Makes the repaired store at `target`, absent or empty; complete or absent.
  /// Errors: as NewStore; corrupt, the damaged store has changed meanwhile.
  Result<void> write_copy(const std::filesystem::path& target) const;

  /// Puts the repaired store in the place of the damaged one, of which nothing is thrown away: its
  /// parts go into a directory beside, which is returned. Needs space for both.
  ///
  /// Cut short at any step, the directory is refused by every opening, and the next examine() ends
  /// what was begun.
  /// Errors: as write_copy(). Only of what was examined with LockMode::exclusive.
  Result<std::filesystem::path> write_in_place() const;

 private:
  friend class Examination;
  Examined(FileSystem& files, std::filesystem::path directory, std::unique_ptr<FileLock> lock)
      : files_(&files), directory_(std::move(directory)), lock_(std::move(lock)) {}

  /// Shows every record that is kept, but the small ones, in the order of their places.
  Result<void> each_record(const std::function<Result<void>(std::string_view place,
                                                            std::string_view bytes)>& visit) const;

  FileSystem* files_;
  std::filesystem::path directory_;
  std::unique_ptr<FileLock> lock_;  // nullptr: the directory has no lock file
  std::vector<std::filesystem::path> tables_;
  std::vector<std::filesystem::path> logs_;
  /// Groups behind this one were never durable.
  std::uint64_t last_group_ = UINT64_MAX;
  /// All tables belong to the database: RocksDB's numbers alone say what is newest.
  bool is_exact_ = false;
  std::vector<std::string> damage_;
  std::vector<std::string> losses_;
  RecordTally kept_;
  core::SmallRecords small_;
  PositionSlot noted_;
};

/// Looks at all that is in `directory`. `boot_id` is the running boot. Others are kept out of it by
/// a lock of this mode; with LockMode::shared nothing at all is written into it.
///
/// Errors: invalid, there is no store, or it was never completed; in_use, a process has it open;
/// newer_format; misconf, the disk cannot be read.
Result<Examined> examine(FileSystem& files, const std::filesystem::path& directory,
                         const std::string& boot_id, LockMode mode);

/// Whether a write_in_place() was cut short that finish_repair() can end. Needs no lock.
Result<bool> is_half_repaired(FileSystem& files, const std::filesystem::path& directory);

/// Ends it. Returns where the parts of the damaged store are. Errors: in_use; as the file system.
Result<std::filesystem::path> finish_repair(FileSystem& files,
                                            const std::filesystem::path& directory);

}  // namespace fencekv::rocks
