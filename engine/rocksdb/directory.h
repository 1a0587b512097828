// SPDX-License-Identifier: Apache-2.0
/// The directory of a store: who may use it, and whether it is one.
///
///     DIR/lock       taken with flock(2) while a process has the store open
///     DIR/FORMAT     the stamp: which format, in plain text; written last when a store is created,
///                    and anew when a writer opens a store of an older format
///     DIR/CREATING   there only while a store is being created
///     DIR/position   engine/rocksdb/position_file.h
///     DIR/db/        RocksDB's own
///     DIR/repaired/  there only while a repaired store takes the place of the damaged one
///
/// A store whose creation was cut short has CREATING: nobody was ever given an answer from it, so
/// it is made anew. A directory with parts of a store but neither CREATING nor FORMAT is damaged,
/// and never taken for an empty one.

#pragma once

#include "engine/rocksdb/file_system.h"
#include "fencekv/result.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace fencekv::rocks {

class Directory {
 public:
  // `files` must outlive the directory.

  /// Takes the directory for the one writer, creating it (mode 0700) if there is none.
  /// Errors: in_use; no_space; invalid.
  static Result<Directory> take(FileSystem& files, const std::filesystem::path& path);

  /// Shares the directory with other readers, keeping writers out; never creates anything.
  /// Errors: in_use, a writer has it: read it as a live store; invalid.
  static Result<Directory> share(FileSystem& files, const std::filesystem::path& path);

  /// Whether a store is to be created here.
  /// Errors: newer_format; corrupt, the detail says what is missing or damaged; invalid, there is
  /// something else in the directory, or a store was being made for it and is not complete.
  Result<bool> is_new() const;

  /// Where what will be `target` is made until it is complete: a store, or a backup.
  static std::filesystem::path unfinished(const std::filesystem::path& target);

  /// The format that the stamp in `path` names; nullopt: there is no stamp. Needs no lock.
  /// Errors: newer_format; corrupt, it is no stamp.
  static Result<std::optional<std::uint64_t>> format(FileSystem& files,
                                                     const std::filesystem::path& path);

  /// Whether a store is being created in `path`. Needs no lock.
  static Result<bool> is_being_created(FileSystem& files, const std::filesystem::path& path);

  /// Removes what an interrupted creation left, and begins a new one, durably.
  Result<void> begin_creation() const;
  /// The store is complete: from here on a missing file is damage.
  Result<void> finish_creation() const;

  /// Stamps a store of an older format with the one that this build writes, durably. Cut short, it
  /// leaves the old stamp or the new one. To be called before anything is written that older builds
  /// cannot read; what they wrote stays as it is, and is read for ever.
  /// Errors: as format(); no_space and invalid, the stamp could not be written.
  Result<void> bring_stamp_up_to_date() const;

  FileSystem& files() const { return *files_; }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path database() const { return path_ / "db"; }
  std::filesystem::path position() const { return path_ / "position"; }
  std::filesystem::path stamp() const;

  /// Whether anybody but the owner can read or write the directory.
  bool is_open_to_others() const;

 private:
  Directory(FileSystem& files, std::filesystem::path path, std::unique_ptr<FileLock> lock)
      : files_(&files), path_(std::move(path)), lock_(std::move(lock)) {}

  static Result<Directory> lock(FileSystem& files, const std::filesystem::path& path,
                                LockMode mode);
  std::filesystem::path creating() const;

  FileSystem* files_;
  std::filesystem::path path_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace fencekv::rocks
