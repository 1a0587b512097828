// SPDX-License-Identifier: Apache-2.0
/// RocksDB without its counters of this thread.

#pragma once

#include <rocksdb/perf_level.h>

namespace fencekv::rocks {

/// While it lives, RocksDB does not count what it does on this thread. By default it counts every
/// comparison of two keys in thread-local memory, for a perf_context that nobody reads here: about
/// an eighth of the instructions of a write.
///
/// The level is the thread's, not the database's: it belongs to the application that embeds the
/// store, which may be measuring a RocksDB of its own, and gets it back.
class CountersOff {
 public:
  CountersOff() { rocksdb::SetPerfLevel(rocksdb::PerfLevel::kDisable); }
  ~CountersOff() { rocksdb::SetPerfLevel(before_); }
  CountersOff(const CountersOff&) = delete;
  CountersOff& operator=(const CountersOff&) = delete;

 private:
  const rocksdb::PerfLevel before_ = rocksdb::GetPerfLevel();
};

}  // namespace fencekv::rocks
