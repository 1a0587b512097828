// SPDX-License-Identifier: Apache-2.0
/// `fencekv-admin stat`: where a store stands, in numbers.

#pragma once

#include "engine/rocksdb/store_reader.h"
#include "fencekv/result.h"
#include "tools/admin/output.h"

namespace fencekv::admin {

enum class StatFormat { text, json };

struct StatOptions {
  StatFormat format = StatFormat::text;
  bool leases = false;  ///< Also count what is held.
};

/// Reads the small records only: quick, however large the store is. With StatOptions::leases all
/// lease records, too.
/// Errors: corrupt.
Result<void> stat(rocks::StoreReader& reader, const StatOptions& options, Output& output);

}  // namespace fencekv::admin
