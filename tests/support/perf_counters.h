// SPDX-License-Identifier: Apache-2.0
/// What RocksDB counts of its work on the calling thread, as an application would have it count.

#pragma once

#include <rocksdb/perf_context.h>
#include <rocksdb/perf_level.h>

#include <cstdint>

namespace fencekv::testing {

/// While it lives, RocksDB counts at `level`, from zero.
class PerfCounters {
 public:
  explicit PerfCounters(rocksdb::PerfLevel level) {
    rocksdb::SetPerfLevel(level);
    rocksdb::get_perf_context()->Reset();
  }
  ~PerfCounters() { rocksdb::SetPerfLevel(before_); }
  PerfCounters(const PerfCounters&) = delete;
  PerfCounters& operator=(const PerfCounters&) = delete;

  rocksdb::PerfLevel level() const { return rocksdb::GetPerfLevel(); }
  std::uint64_t comparisons() const {
    return rocksdb::get_perf_context()->user_key_comparison_count;
  }

 private:
  const rocksdb::PerfLevel before_ = rocksdb::GetPerfLevel();
};

}  // namespace fencekv::testing
