// SPDX-License-Identifier: Apache-2.0
/// RocksDB so small that a few hundred writes make it flush and compact, and so that it does the
/// same each time.

#pragma once

#include <rocksdb/options.h>

#include <cstdint>

namespace fencekv::testing {

/// For SimulatedEnv with BackgroundWork::queued. A memtable is full after `entries`.
void make_small(rocksdb::Options& options, std::uint64_t entries);

}  // namespace fencekv::testing
