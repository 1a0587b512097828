// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/record_snapshot.h"

#include "engine/rocksdb/counters_off.h"
#include "engine/rocksdb/database_options.h"

#include <utility>

namespace fencekv::rocks {
namespace {

/// A full disk refuses no reads; whatever the storage means by it, it cannot be read now.
Error read_error_of(const rocksdb::Status& status) {
  auto error = error_of(status);
  return error.code() == Errc::no_space ? Error(Errc::misconf, error.detail()) : error;
}

}  // namespace

Result<std::optional<std::string>> read_record(rocksdb::DB& database,
                                               const rocksdb::ReadOptions& options,
                                               std::string_view place) {
  const CountersOff counters_off;
  std::string bytes;
  const auto status = database.Get(options, database.DefaultColumnFamily(),
                                   rocksdb::Slice(place.data(), place.size()), &bytes);
  if (status.ok()) return std::optional(std::move(bytes));
  // "No record" and "could not read the record" are different answers.
  if (status.IsNotFound()) return std::optional<std::string>{};
  return read_error_of(status);
}

Result<void> scan_records(rocksdb::DB& database, const rocksdb::ReadOptions& options,
                          std::string_view from,
                          const std::function<bool(std::string_view, std::string_view)>& visit) {
  const CountersOff counters_off;
  const std::unique_ptr<rocksdb::Iterator> cursor(database.NewIterator(options));
  for (cursor->Seek(rocksdb::Slice(from.data(), from.size())); cursor->Valid(); cursor->Next()) {
    const auto place = cursor->key();
    const auto bytes = cursor->value();
    if (!visit({place.data(), place.size()}, {bytes.data(), bytes.size()})) break;
  }
  if (!cursor->status().ok()) return read_error_of(cursor->status());
  return {};
}

RecordSnapshot::RecordSnapshot(rocksdb::DB& database)
    : database_(database), snapshot_(database.GetSnapshot()) {}

RecordSnapshot::~RecordSnapshot() {
  if (snapshot_ != nullptr) database_.ReleaseSnapshot(snapshot_);
}

Result<std::optional<std::string>> RecordSnapshot::read(std::string_view place) {
  rocksdb::ReadOptions options;
  options.snapshot = snapshot_;
  return read_record(database_, options, place);
}

Result<void> RecordSnapshot::scan(
    std::string_view from, const std::function<bool(std::string_view, std::string_view)>& visit) {
  rocksdb::ReadOptions options;
  options.snapshot = snapshot_;
  // What goes through all records (a scrub, a reclaim, a backup) shall not drive out of the cache
  // what commands are about.
  options.fill_cache = false;
  return scan_records(database_, options, from, visit);
}

}  // namespace fencekv::rocks
