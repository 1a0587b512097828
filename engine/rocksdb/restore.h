// SPDX-License-Identifier: Apache-2.0
/// A new store from a backup.

#pragma once

#include "engine/rocksdb/backup.h"
#include "fencekv/result.h"

#include <filesystem>

namespace fencekv::rocks {

struct Restored {
  BackupManifest backup;     ///< What it was made from.
  core::SmallRecords small;  ///< Where it begins: new incarnation, lifted floor.
};

/// Verifies `backup`, all of it, and makes a store of it in `directory`, which is absent or empty:
/// complete or absent. It is a new history (engine/core/new_history.h): the old store may have gone
/// on after the backup. All keys, values, fences and versions are those of the backup.
///
/// Errors: as verify_backup() and Unfinished::begin(); no_space. The backup stays as it is.
Result<Restored> restore(FileSystem& files, const std::filesystem::path& backup,
                         const std::filesystem::path& directory, const Interrupt& interrupt);

}  // namespace fencekv::rocks
