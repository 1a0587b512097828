// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/database_options.h"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::rocks {
namespace {

constexpr std::size_t kMiB = std::size_t{1024} * 1024;
constexpr int kMemtables = 16;

/// RocksDB's messages go to the store's log. Its own logger would write a file beside the database,
/// and on a full disk the failed write of a log line aborts the process (7.8.3).
class ForwardingLogger final : public rocksdb::Logger {
 public:
  explicit ForwardingLogger(Log log)
      : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL), log_(std::move(log)) {}

  using rocksdb::Logger::Logv;
  void Logv(const rocksdb::InfoLogLevel level, const char* format, va_list arguments) override {
    if (level < GetInfoLogLevel() || level == rocksdb::InfoLogLevel::HEADER_LEVEL) return;
    Logv(format, arguments);
  }
  void Logv(const char* format, va_list arguments) override {
    if (!log_) return;
    std::array<char, 1024> line{};
    std::vsnprintf(line.data(), line.size(), format, arguments);
    std::string_view text(line.data());
    while (text.ends_with('\n')) text.remove_suffix(1);
    log_(LogLevel::warning, "rocksdb: " + std::string(text));
  }

 private:
  const Log log_;
};

/// Keeps RocksDB from repairing itself: after a failed write of the log its own recovery can report
/// success and abort the process at the next write (7.8.3). We stop, close and reopen instead.
class NoSelfRepair final : public rocksdb::EventListener {
 public:
  explicit NoSelfRepair(Log log) : log_(std::move(log)) {}

  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status* status) override {
    if (log_) log_(LogLevel::error, "rocksdb: background error: " + status->ToString());
  }

 private:
  const Log log_;
};

bool has_lz4() {
  const auto supported = rocksdb::GetSupportedCompressions();
  return std::find(supported.begin(), supported.end(), rocksdb::kLZ4Compression) != supported.end();
}

}  // namespace

rocksdb::Options database_options(rocksdb::Env* env, const Log& log, core::DatabaseShares memory) {
  rocksdb::Options options;
  options.env = env;
  options.create_if_missing = false;
  options.info_log = std::make_shared<ForwardingLogger>(log);
  // Explicit, since its default depends on NDEBUG where it is included.
  options.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;

  // Acknowledged groups must not vanish. The default would drop everything behind a damaged byte in
  // silence; this one refuses to open, but for a record torn at the very end.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.track_and_verify_wals_in_manifest = true;
  options.paranoid_checks = true;
  options.max_bgerror_resume_count = 0;
  options.listeners.push_back(std::make_shared<NoSelfRepair>(log));
  // What is replayed from the log is flushed to a table before the store opens. A group that was
  // written and not yet synced when the process died is durable then, before anybody reads it.
  options.avoid_flush_during_recovery = false;

  // Bounds what must be replayed.
  options.max_total_wal_size = 128 * kMiB;
  // A record costs a search of the memtable, whose every step is a cache miss while it is large. So
  // it is small, and flushed together with those before it: the tables are as large as ever, and
  // what was written twice meanwhile is in them once.
  options.min_write_buffer_number_to_merge = 8;
  options.max_write_buffer_number = kMemtables;
  options.write_buffer_size = std::max(memory.memtables / kMemtables, kMiB / 4);
  options.max_background_jobs = 2;
  // A table reaches the disk while it is written. Left to its end, tens of MiB go there at once,
  // and every sync of the log waits behind them: the p99 of writes was three times as long.
  options.bytes_per_sync = kMiB / 4;
  // What is allocated beforehand, up to 4.4 MiB for each of 16 logs, is missing on the disk and
  // stands in no file: on a small one both floors would be passed at once. It was not faster.
  options.allow_fallocate = false;
  options.memtable_whole_key_filtering = true;
  options.memtable_prefix_bloom_size_ratio = 0.1;
  // A group comes in the order of its places. Each record is then searched for from where the one
  // before it went, instead of from the top; for each kind of record by itself.
  options.memtable_insert_with_hint_prefix_extractor.reset(rocksdb::NewFixedPrefixTransform(1));
  options.memtable_protection_bytes_per_key = 8;
  options.compression = has_lz4() ? rocksdb::kLZ4Compression : rocksdb::kNoCompression;

  rocksdb::BlockBasedTableOptions table;
  // What repair reads when RocksDB cannot (salvage.h), and what older and newer ones can read.
  table.format_version = 5;
  table.block_cache = rocksdb::NewLRUCache(memory.block_cache);
  table.cache_index_and_filter_blocks = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

Error error_of(const rocksdb::Status& status) {
  const auto text = status.ToString();
  const auto says = [&text](std::string_view words) {
    return text.find(words) != std::string::npos;
  };
  if (status.IsNoSpace() || says("No space left") || says("Disk quota exceeded")) {
    return {Errc::no_space, text};
  }
  // A file that RocksDB expects and does not find is an IOError to it, and damage to us. One that
  // it cannot read now, for want of descriptors, it may wrap into an InvalidArgument; that is none.
  const bool is_unreadable = status.IsInvalidArgument() && says("IO error");
  if (status.IsCorruption() || status.IsNotFound() ||
      (status.IsInvalidArgument() && !is_unreadable) || says("No such file")) {
    return {Errc::corrupt, text};
  }
  return {Errc::misconf, text};
}

}  // namespace fencekv::rocks
