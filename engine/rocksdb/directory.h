// SPDX-License-Identifier: Apache-2.0
/// The directory of a store: who may use it, and whether it is one.
///
///     DIR/lock       taken with flock(2) while a process has the store open
///     DIR/FORMAT     the stamp: which format, in plain text; written last when a store is created
///     DIR/CREATING   there only while a store is being created
///     DIR/position   engine/rocksdb/position_file.h
///     DIR/db/        RocksDB's own
///
/// A store whose creation was cut short has CREATING: nobody was ever given an answer from it, so
/// it is made anew. A directory with parts of a store but neither CREATING nor FORMAT is damaged,
/// and never taken for an empty one.

#pragma once

#include "engine/rocksdb/file_system.h"
#include "fencekv/result.h"

#include <cstdint>
#include <filesystem>
#include <string>

namespace fencekv::rocks {

class Directory {
 public:
  /// Takes the directory for the one writer, creating it (mode 0700) if there is none.
  /// Errors: in_use; no_space; invalid.
  static Result<Directory> take(const std::filesystem::path& path);

  /// Shares the directory with other readers, keeping writers out; never creates anything.
  /// Errors: in_use, a writer has it: read it as a live store; invalid.
  static Result<Directory> share(const std::filesystem::path& path);

  /// Whether a store is to be created here.
  /// Errors: newer_format; corrupt, the detail says what is missing or damaged; invalid, there is
  /// something else in the directory.
  Result<bool> is_new() const;

  /// Whether `path` has a stamp that this build can read. Needs no lock.
  /// Errors: newer_format; corrupt, it is no stamp.
  static Result<bool> has_stamp(const std::filesystem::path& path);

  /// Whether a store is being created in `path`. Needs no lock.
  static Result<bool> is_being_created(const std::filesystem::path& path);

  /// Removes what an interrupted creation left, and begins a new one, durably.
  Result<void> begin_creation() const;
  /// The store is complete: from here on a missing file is damage.
  Result<void> finish_creation() const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path database() const { return path_ / "db"; }
  std::filesystem::path position() const { return path_ / "position"; }
  std::filesystem::path stamp() const;

  /// Whether anybody but the owner can read or write the directory.
  bool is_open_to_others() const;

 private:
  Directory(std::filesystem::path path, File lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  static Result<Directory> lock(const std::filesystem::path& path, int operation, int flags);
  std::filesystem::path creating() const;

  std::filesystem::path path_;
  File lock_;
};

}  // namespace fencekv::rocks
