// SPDX-License-Identifier: Apache-2.0
/// A store's RocksDB without the store: for tests that need files as RocksDB writes them, or bytes
/// in them that no store would write.

#pragma once

#include "engine/rocksdb/database_options.h"

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/listener.h>
#include <rocksdb/write_batch.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::testing {

/// Throws where RocksDB reports an error.
class RawDatabase {
 public:
  /// Opens the database in `path`, creating it if there is none.
  explicit RawDatabase(const std::filesystem::path& path) {
    auto options = rocks::database_options(rocksdb::Env::Default(), {});
    options.create_if_missing = true;
    options.listeners.push_back(parts_);
    rocksdb::DB* opened = nullptr;
    check(rocksdb::DB::Open(options, path.string(), &opened));
    database_.reset(opened);
  }

  void put(const std::string& place, const std::string& bytes) { put_all({{place, bytes}}); }

  /// In one write.
  void put_all(const std::vector<std::pair<std::string, std::string>>& records) {
    rocksdb::WriteBatch batch;
    for (const auto& [place, bytes] : records) check(batch.Put(place, bytes));
    check(database_->Write({}, &batch));
  }

  void remove(const std::string& place) { check(database_->Delete({}, place)); }

  std::string get(const std::string& place) {
    std::string bytes;
    check(database_->Get({}, place, &bytes));
    return bytes;
  }

  /// Moves everything out of the log into a table.
  void flush() { check(database_->Flush({})); }

  /// How often a part of a file was sent to the disk before the file was complete.
  int parts_sent() const { return parts_->count; }

 private:
  struct Parts final : rocksdb::EventListener {
    bool ShouldBeNotifiedOnFileIO() override { return true; }
    void OnFileRangeSyncFinish(const rocksdb::FileOperationInfo& info) override {
      if (info.status.ok()) ++count;
    }
    std::atomic<int> count = 0;
  };

  static void check(const rocksdb::Status& status) {
    if (!status.ok()) throw std::runtime_error(status.ToString());
  }

  const std::shared_ptr<Parts> parts_ = std::make_shared<Parts>();
  std::unique_ptr<rocksdb::DB> database_;
};

}  // namespace fencekv::testing
