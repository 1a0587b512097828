// SPDX-License-Identifier: Apache-2.0
/// Backups: a store at one point in time, in files of its own, with a list of their checksums. The
/// layout is in engine/FORMAT.md.
///
/// The records are read from a snapshot, each proven by its own checksum, and written anew. So a
/// backup shares no file with the store, may be on another disk, and asks nothing of the store but
/// to be read: no flush, no link, no moment in which a command waits. And damage in the store
/// cannot creep into it unseen: a store of which a record cannot be read has no new backup, only
/// the older ones.

#pragma once

#include "engine/core/backend.h"
#include "engine/core/new_history.h"
#include "engine/rocksdb/file_system.h"
#include "fencekv/result.h"
#include "fencekv/store.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::rocks {

/// A file of a backup, as its list names it.
struct BackupFile {
  std::string name;  ///< `FORMAT`, or `db/…`.
  std::uint64_t bytes = 0;
  std::string sha256;  ///< 64 hex digits.

  friend bool operator==(const BackupFile&, const BackupFile&) = default;
};

/// What MANIFEST.backup says.
struct BackupManifest {
  std::uint64_t format = 0;            ///< Of the store in it.
  std::string incarnation;             ///< 32 hex digits: of which history it is.
  std::uint64_t group = 0;             ///< The last group in it.
  Token newest;                        ///< The newest token handed out until then.
  std::uint64_t records = 0;           ///< Keys, leases and all.
  std::chrono::milliseconds taken{0};  ///< Wall clock since 1970. For people.
  std::vector<BackupFile> files;

  std::uint64_t bytes() const;
  /// In short, of the backup in a directory of that name.
  Backup summary(const std::string& name) const;

  friend bool operator==(const BackupManifest&, const BackupManifest&) = default;
};

std::string encode(const BackupManifest& manifest);
/// Errors: corrupt, it is not whole, or not what encode() wrote; newer_format.
Result<BackupManifest> decode_manifest(std::string_view text);

using core::Interrupt;

/// Makes a backup of what `snapshot` shows, at `target`, where nothing is. It is read back and
/// verified before it gets its name: complete or absent.
///
/// Errors: invalid, there is something at `target`, or it cannot be written; in_use, another
/// process makes the same one; corrupt, the store is damaged, the detail names the record;
/// no_space; misconf; what `interrupt` said.
Result<BackupManifest> write_backup(FileSystem& files, core::Snapshot& snapshot,
                                    const std::filesystem::path& target,
                                    std::chrono::milliseconds taken, const Interrupt& interrupt);

/// The list of a backup, itself verified; the files are not looked at.
/// Errors: corrupt, it is missing or damaged; newer_format.
Result<BackupManifest> read_manifest(FileSystem& files, const std::filesystem::path& backup);

struct VerifiedBackup {
  BackupManifest manifest;
  core::SmallRecords small;
};

/// Verifies everything in a backup: each file by its checksum, each record by its own. Reads every
/// byte twice.
///
/// Errors: corrupt, the detail names the file; newer_format; misconf; what `interrupt` said.
Result<VerifiedBackup> verify_backup(FileSystem& files, const std::filesystem::path& backup,
                                     const Interrupt& interrupt);

/// All records of a database that nobody writes, in the order of their places. `visit` ends it with
/// an error. Errors: corrupt; misconf.
Result<void> read_database(
    FileSystem& files, const std::filesystem::path& database,
    const std::function<Result<void>(std::string_view place, std::string_view bytes)>& visit);

}  // namespace fencekv::rocks
