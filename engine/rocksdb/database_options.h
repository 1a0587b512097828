// SPDX-License-Identifier: Apache-2.0
/// How the RocksDB below a store is opened, and how its answers become ours. Each setting that
/// differs from RocksDB's default says why.

#pragma once

#include "engine/core/memory_shares.h"
#include "fencekv/options.h"
#include "fencekv/result.h"

#include <rocksdb/options.h>
#include <rocksdb/status.h>

#include <functional>
#include <string_view>

namespace fencekv::rocks {

using Log = std::function<void(LogLevel, std::string_view)>;

/// For the writer; tools that only read change it further. Without `memory`, as a store by default.
rocksdb::Options database_options(rocksdb::Env* env, const Log& log,
                                  core::DatabaseShares memory = core::shares_of({}).database);

/// The one place where a RocksDB status becomes an Error: no_space for a full disk, corrupt for
/// what is damaged or missing, misconf for everything else.
Error error_of(const rocksdb::Status& status);

}  // namespace fencekv::rocks
