// SPDX-License-Identifier: Apache-2.0
/// `fencekv-admin load`: makes a store of a dump (tools/admin/dump.h, layouts 1 and 2).
///
/// Every key comes back with its fence, version, guard, request id and value, and every tombstone.
/// What cannot come back is the time between the dump and now, in which the old store may have
/// handed out tokens and taken writes. So the store begins a new history (core/new_history.h): a
/// new incarnation, counter and floor far above everything the dump knows, and no leases; no lease
/// name is there any more, and a key that is bound to one waits for its next grant.
///
/// Everything in the dump is checked, and it must be whole: its last line counts what is above it,
/// and knows the SHA-256 of it (older ones only count).

#pragma once

#include "engine/rocksdb/file_system.h"
#include "fencekv/result.h"
#include "fencekv/types.h"
#include "tools/admin/output.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace fencekv::admin {

enum class LoadFormat { text, json };

struct LoadOptions {
  std::string dump;  ///< A file; `-` is standard input.
  std::filesystem::path directory;
  LoadFormat format = LoadFormat::text;
};

/// A line of a dump may have so many bytes: the largest value that a server takes, written as text
/// or as base64. Memory is bounded by a small multiple of it.
constexpr std::size_t kDumpLineBytes = std::size_t{136} * 1024 * 1024;

/// Loads the dump into `options.directory`, which is absent or empty: complete, or not at all.
/// Streams: memory does not grow with the dump, only with its longest line. Says what was loaded.
///
/// Errors: invalid, the dump cannot be loaded, the detail names file and line, what is wrong and
/// what to do; or the directory is no place for a store; newer_format, of the dump; in_use;
/// no_space and misconf, the store cannot be written, or the dump cannot be read.
Result<void> load(rocks::FileSystem& files, const LoadOptions& options, Output& output);

}  // namespace fencekv::admin
