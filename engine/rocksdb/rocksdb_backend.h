// SPDX-License-Identifier: Apache-2.0
/// A store's records in RocksDB, which owns its directory alone.

#pragma once

#include "engine/core/backend.h"
#include "engine/rocksdb/database_options.h"
#include "engine/rocksdb/directory.h"
#include "engine/rocksdb/position_file.h"

#include <rocksdb/db.h>

#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>

namespace fencekv::rocks {

class RocksBackend final : public core::Backend {
 public:
  /// Opens the database in `directory`, or creates it if `is_new`. When it can be read but not
  /// written (a full disk), it opens all the same, and claim() answers misconf.
  ///
  /// Errors: corrupt; no_space, a new one could not be created; misconf, it cannot even be read.
  static Result<std::unique_ptr<RocksBackend>> open(Directory directory, bool is_new,
                                                    Durability durability, std::string boot_id,
                                                    Log log);
  ~RocksBackend() override;

  Result<core::Claim> claim() override;
  Result<std::optional<std::string>> read(std::string_view place) override;
  std::unique_ptr<core::Snapshot> snapshot() override;
  core::Outcome commit(const core::Batch& batch) override;
  Result<void> reserve(Token until) override;
  Result<void> settle() override;
  void close(Token newest) override;

 private:
  RocksBackend(Directory directory, PositionFile position, bool is_new, Durability durability,
               std::string boot_id, Log log);

  // Both with open_mutex_ held.
  Result<void> open_database();
  void close_database();

  /// check_history() of what is in `database`.
  Result<void> check_records(rocksdb::DB& database) const;
  Result<void> note_first_group(const core::Batch& batch);
  Result<void> note_group(const core::Batch& batch);
  void report(const Error& error) const;

  const Directory directory_;
  PositionFile position_;  // the writer's
  const Durability durability_;
  const std::string boot_id_;
  const Log log_;

  /// Held shared while the database is read, exclusively while it is closed and reopened.
  std::shared_mutex open_mutex_;
  std::unique_ptr<rocksdb::DB> database_;  // guarded by open_mutex_; nullptr: cannot be read
  std::optional<Error> read_only_;         // the writer's; why the database takes no writes

  bool is_new_;                 // the writer's; the creation is not finished
  bool is_first_group_ = true;  // the writer's; nothing was committed since claim()
};

}  // namespace fencekv::rocks
