// SPDX-License-Identifier: Apache-2.0
/// What somebody needs to know whose store was found damaged: which file, and what to do.

#pragma once

#include "engine/rocksdb/file_system.h"
#include "fencekv/result.h"

#include <filesystem>

namespace fencekv::rocks {

/// `error` of opening the store in `directory`, as open_rocksdb() tells it: what is corrupt comes
/// with the file, where RocksDB did not name it, and with what the person who reads it can do.
/// Reads the logs; changes nothing.
Error with_advice(FileSystem& files, const std::filesystem::path& directory, const Error& error);

}  // namespace fencekv::rocks
