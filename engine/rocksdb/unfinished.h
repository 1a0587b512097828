// SPDX-License-Identifier: Apache-2.0
/// A directory in the making: complete under its name, or not there at all.
///
/// `/backups/monday` is built as `/backups/.monday.fencekv-unfinished`, and renamed when all of it
/// is durable. Cut short at any step, that name is all that is left; whoever makes something in the
/// same place next removes it.

#pragma once

#include "engine/rocksdb/directory.h"
#include "engine/rocksdb/file_system.h"
#include "fencekv/result.h"

#include <filesystem>
#include <optional>
#include <utility>

namespace fencekv::rocks {

/// Thread safety: none.
class Unfinished {
 public:
  enum class Target {
    absent,           ///< Nothing may be there, not even a link.
    absent_or_empty,  ///< Or an empty directory, which is replaced.
  };

  /// Begins what will be `target`. The directory it is in must be there. `files` must outlive this.
  /// Removes what earlier ones left beside it, but what is being built now.
  ///
  /// Errors: invalid, there is something at `target`, or it cannot be built there; in_use, another
  /// process is building it; no_space.
  static Result<Unfinished> begin(FileSystem& files, const std::filesystem::path& target,
                                  Target allowed);
  Unfinished(Unfinished&& other) noexcept
      : files_(other.files_),
        target_(std::move(other.target_)),
        directory_(std::exchange(other.directory_, std::nullopt)) {}
  Unfinished& operator=(Unfinished&&) = delete;
  /// Removes it, unless it was published.
  ~Unfinished();

  const std::filesystem::path& where() const { return directory_->path(); }
  /// The same, to write a stamp in it.
  const Directory& directory() const { return *directory_; }

  /// Puts it under its name, durably. All in it must be durable, but for the names of its files.
  /// Errors: invalid; no_space. Of what could not be published nothing is left, unless `target` is
  /// there already: then only its name may not be durable.
  Result<void> publish();

 private:
  Unfinished(FileSystem& files, std::filesystem::path target, Directory directory)
      : files_(&files), target_(std::move(target)), directory_(std::move(directory)) {}

  FileSystem* files_;
  std::filesystem::path target_;
  std::optional<Directory> directory_;  // nullopt: published, or moved away
};

}  // namespace fencekv::rocks
