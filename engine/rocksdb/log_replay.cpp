// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/log_replay.h"

#include "engine/rocksdb/record_snapshot.h"

#include <rocksdb/slice.h>
#include <rocksdb/status.h>
#include <rocksdb/write_batch.h>

#include <string_view>
#include <utility>

namespace fencekv::rocks {
namespace {

/// Finds the position record of a group.
class PositionFinder final : public rocksdb::WriteBatch::Handler {
 public:
  rocksdb::Status PutCF(uint32_t /*family*/, const rocksdb::Slice& key,
                        const rocksdb::Slice& value) override {
    const std::string_view place(key.data(), key.size());
    if (place != core::kPositionKey) return rocksdb::Status::OK();
    const auto position = core::decode_position(place, {value.data(), value.size()});
    if (!position) return rocksdb::Status::Corruption(position.error().detail());
    number_ = position->n;
    return rocksdb::Status::OK();
  }
  rocksdb::Status DeleteCF(uint32_t /*family*/, const rocksdb::Slice& /*key*/) override {
    return rocksdb::Status::OK();
  }
  // Nothing else is written by this store, and what it cannot know is RocksDB's to judge.
  rocksdb::Status SingleDeleteCF(uint32_t /*family*/, const rocksdb::Slice& /*key*/) override {
    return rocksdb::Status::OK();
  }
  rocksdb::Status MergeCF(uint32_t /*family*/, const rocksdb::Slice& /*key*/,
                          const rocksdb::Slice& /*value*/) override {
    return rocksdb::Status::OK();
  }
  void LogData(const rocksdb::Slice& /*blob*/) override {}

  /// nullopt: the batch is no group of a running store.
  std::optional<std::uint64_t> number() const { return number_; }

 private:
  std::optional<std::uint64_t> number_;
};

}  // namespace

rocksdb::WalFilter::WalProcessingOption LogReplay::LogRecordFound(unsigned long long /*log_number*/,
                                                                  const std::string& log_name,
                                                                  const rocksdb::WriteBatch& batch,
                                                                  rocksdb::WriteBatch* /*changed*/,
                                                                  bool* is_changed) {
  *is_changed = false;
  if (!newest_) return WalProcessingOption::kStopReplay;

  PositionFinder finder;
  if (!batch.Iterate(&finder).ok()) return WalProcessingOption::kCorruptedRecord;
  const auto number = finder.number();
  // A group that the tables have already is no hole.
  if (!number || *number <= *newest_) return WalProcessingOption::kContinueProcessing;
  if (*number > *newest_ + 1) {
    hole_ = log_name + ": group " + std::to_string(*number) + " follows group " +
            std::to_string(*newest_);
    return WalProcessingOption::kStopReplay;
  }
  if (*number > last_) return WalProcessingOption::kStopReplay;
  newest_ = number;
  return WalProcessingOption::kContinueProcessing;
}

Result<core::PositionRecord> stored_position(rocksdb::DB& database) {
  const auto bytes = read_record(database, {}, core::kPositionKey);
  if (!bytes) return bytes.error();
  if (!*bytes) return core::PositionRecord{};
  return core::decode_position(core::kPositionKey, **bytes);
}

Result<void> check_records(rocksdb::DB& database, const std::filesystem::path& directory,
                           const PositionSlot& noted, const std::string& boot_id) {
  const auto stored = stored_position(database);
  if (!stored) return stored.error();

  std::optional<core::Incarnation> incarnation;
  if (stored->n > 0) {
    const auto bytes = read_record(database, {}, core::kIdentityKey);
    if (!bytes) return bytes.error();
    if (!*bytes) return Error(Errc::corrupt, "record identity is missing");
    const auto identity = core::decode_identity(core::kIdentityKey, **bytes);
    if (!identity) return identity.error();
    incarnation = identity->incarnation;
  }
  return check_history(directory, noted, *stored, incarnation, boot_id);
}

Result<ReplayedDatabase> open_replayed(rocksdb::Options options,
                                       const std::filesystem::path& database,
                                       const std::function<Result<void>(rocksdb::DB&)>& check,
                                       const Log& log) {
  using Mode = rocksdb::WALRecoveryMode;
  const auto path = database.string();
  const auto open = [&](LogReplay replay, Mode mode) -> Result<ReplayedDatabase> {
    ReplayedDatabase opened;
    opened.mode = mode;
    opened.replay = std::make_unique<LogReplay>(std::move(replay));
    options.wal_recovery_mode = mode;
    options.wal_filter = opened.replay.get();
    rocksdb::DB* found = nullptr;
    const auto status = rocksdb::DB::OpenForReadOnly(options, path, &found);
    opened.database.reset(found);
    if (!status.ok()) {
      const auto error = error_of(status);
      return Error(error.code(), path + ": " + error.detail());
    }
    if (const auto& hole = opened.replay->hole(); hole && log) {
      log(LogLevel::warning, "the log has a hole, and what is behind it is left out: " + *hole);
    }
    return opened;
  };
  const auto open_checked = [&](std::uint64_t tables, Mode mode) -> Result<ReplayedDatabase> {
    auto opened = open(LogReplay(tables), mode);
    if (!opened) return opened;
    if (auto checked = check(*opened->database); !checked) return checked.error();
    opened->tables = tables;
    return opened;
  };

  std::uint64_t tables = 0;
  {
    const auto without_log = open(LogReplay::nothing(), Mode::kPointInTimeRecovery);
    if (!without_log) return without_log.error();
    const auto position = stored_position(*without_log->database);
    if (!position) return position.error();
    tables = position->n;
  }
  auto opened = open_checked(tables, Mode::kTolerateCorruptedTailRecords);
  if (opened || opened.error().code() != Errc::corrupt) return opened;
  auto shorter = open_checked(tables, Mode::kPointInTimeRecovery);
  if (!shorter) return opened;
  if (log) {
    log(LogLevel::warning, "the log ends with what was not acknowledged and cannot be read: " +
                               opened.error().detail());
  }
  return shorter;
}

}  // namespace fencekv::rocks
