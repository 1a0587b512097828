// SPDX-License-Identifier: Apache-2.0
/// `fencekv-admin stat`: where a store stands, in numbers.

#pragma once

#include "engine/rocksdb/store_reader.h"
#include "fencekv/result.h"
#include "tools/admin/output.h"

namespace fencekv::admin {

enum class StatFormat { text, json };

/// Reads the small records only: quick, however large the store is.
/// Errors: corrupt.
Result<void> stat(rocks::StoreReader& reader, StatFormat format, Output& output);

}  // namespace fencekv::admin
