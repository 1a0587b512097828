// SPDX-License-Identifier: Apache-2.0
/// `fencekv-admin backup`, `verify-backup` and `restore`.

#pragma once

#include "engine/rocksdb/file_system.h"
#include "engine/rocksdb/store_reader.h"
#include "fencekv/result.h"
#include "tools/admin/output.h"

#include <filesystem>

namespace fencekv::admin {

/// Makes a backup at `target`, where nothing is: of a stopped store, or of one in use as it is on
/// the disk at this moment. Complete or absent. Says what it holds.
///
/// Errors: corrupt, the store is damaged, or acknowledged writes are missing from it; those of
/// rocks::write_backup().
Result<void> backup(rocks::FileSystem& files, rocks::StoreReader& reader,
                    const std::filesystem::path& target, Output& output);

/// Verifies everything in a backup. Says what it holds.
/// Errors: those of rocks::verify_backup().
Result<void> verify_backup(rocks::FileSystem& files, const std::filesystem::path& directory,
                           Output& output);

/// Makes a store of a backup in `directory`, which is absent or empty: complete or absent. Says
/// where its history begins.
/// Errors: those of rocks::restore().
Result<void> restore(rocks::FileSystem& files, const std::filesystem::path& from,
                     const std::filesystem::path& directory, Output& output);

}  // namespace fencekv::admin
