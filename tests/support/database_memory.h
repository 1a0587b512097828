// SPDX-License-Identifier: Apache-2.0
/// What a database may keep in memory, as it is opened.

#pragma once

#include <rocksdb/cache.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>

#include <cstddef>

namespace fencekv::testing {

struct DatabaseMemory {
  std::size_t memtable = 0;  ///< Bytes of each.
  int memtables = 0;         ///< How many there may be.
  std::size_t block_cache = 0;
};

inline DatabaseMemory memory_of(const rocksdb::Options& options) {
  const auto* table = options.table_factory->GetOptions<rocksdb::BlockBasedTableOptions>();
  return {.memtable = options.write_buffer_size,
          .memtables = options.max_write_buffer_number,
          .block_cache = table == nullptr ? 0 : table->block_cache->GetCapacity()};
}

}  // namespace fencekv::testing
