// SPDX-License-Identifier: Apache-2.0
/// Reading records out of a RocksDB, for the writer and for tools.

#pragma once

#include "engine/core/backend.h"

#include <rocksdb/db.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace fencekv::rocks {

Result<std::optional<std::string>> read_record(rocksdb::DB& database,
                                               const rocksdb::ReadOptions& options,
                                               std::string_view place);

/// Visits records from `from` on, as Snapshot::scan().
Result<void> scan_records(
    rocksdb::DB& database, const rocksdb::ReadOptions& options, std::string_view from,
    const std::function<bool(std::string_view place, std::string_view bytes)>& visit);

/// One point in time of a database, which must outlive it.
class RecordSnapshot final : public core::Snapshot {
 public:
  explicit RecordSnapshot(rocksdb::DB& database);
  ~RecordSnapshot() override;
  RecordSnapshot(const RecordSnapshot&) = delete;
  RecordSnapshot& operator=(const RecordSnapshot&) = delete;

  Result<std::optional<std::string>> read(std::string_view place) override;
  Result<void> scan(
      std::string_view from,
      const std::function<bool(std::string_view place, std::string_view bytes)>& visit) override;

 private:
  rocksdb::DB& database_;
  const rocksdb::Snapshot* snapshot_;  // nullptr: the database is at one point in time by itself
};

}  // namespace fencekv::rocks
