// SPDX-License-Identifier: Apache-2.0
/// `fencekv-admin dump`: every record of a store, at one point in time.
///
/// JSON lines: first an object with `"dump": "fencekv"` that says what is dumped and where the
/// store's history stands, then one object a record, last one with `"kind": "end"`, counts, and
/// the SHA-256 of all lines before it. A dump without that last line was cut off.
///
/// Numbers that may pass 2^53 (tokens, fences, versions, positions) are strings. Bytes are `"key"`
/// if they are text, else base64 under `"key_base64"`; values `{"text": …}`, `{"base64": …}`, or
/// `{"bytes": n}` if they were left out. No value (`null`) is a tombstone, or a key that was only
/// raised.
///
/// A lease's `mode`, `state` and what follows are those of its newest grant, held or ended;
/// `holders` are all grants that are held, in the order of their tokens. `blocked` is how long
/// nobody new can be granted the name. An owner is shown as its fingerprint.

#pragma once

#include "engine/rocksdb/store_reader.h"
#include "fencekv/result.h"
#include "tools/admin/output.h"

#include <string>

namespace fencekv::admin {

enum class DumpFormat { json, table };
enum class DumpWhat { keys, leases, all };
enum class DumpValues {
  text,    ///< As text where they are text, else as base64.
  base64,  ///< All as base64.
  none,    ///< Only how long they are.
};

struct DumpOptions {
  DumpFormat format = DumpFormat::json;
  DumpWhat what = DumpWhat::all;
  DumpValues values = DumpValues::text;
  std::string prefix;  ///< Of keys and lease names.
};

/// The layout of the JSON lines. A change that old readers would misunderstand raises it.
constexpr int kDumpFormat = 2;

/// What the last line knows of those before it: the first line has this under `"digest"`, the last
/// one the digest itself under this.
constexpr const char* kDigest = "sha256";

/// Streams: memory does not grow with the store. Returns early, without an error, when nobody reads
/// the output any more.
///
/// Errors: corrupt, a record cannot be read, or records are missing; the last line is not written.
Result<void> dump(rocks::StoreReader& reader, const DumpOptions& options, Output& output);

}  // namespace fencekv::admin
