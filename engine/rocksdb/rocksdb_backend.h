// SPDX-License-Identifier: Apache-2.0
/// A store's records in RocksDB, which owns its directory alone.

#pragma once

#include "engine/core/backend.h"
#include "engine/rocksdb/background_watch.h"
#include "engine/rocksdb/database_options.h"
#include "engine/rocksdb/directory.h"
#include "engine/rocksdb/log_replay.h"
#include "engine/rocksdb/position_file.h"
#include "engine/rocksdb/space_watch.h"

#include <rocksdb/db.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>

namespace fencekv::rocks {

class RocksBackend final : public core::Backend {
 public:
  /// Changes how the database is opened, for tests.
  using Adjust = std::function<void(rocksdb::Options&)>;

  /// Opens the database in `directory`, or creates it if `is_new`. When it can be read but not
  /// written (a full disk), it opens all the same, and claim() answers misconf.
  ///
  /// Errors: corrupt; no_space, a new one could not be created; misconf, it cannot even be read.
  static Result<std::unique_ptr<RocksBackend>> open(
      Directory directory, bool is_new, Durability durability, std::string boot_id, Log log,
      Adjust adjust = {}, FloorChoice floors = {},
      core::DatabaseShares memory = core::shares_of({}).database);
  ~RocksBackend() override;

  Result<core::Claim> claim() override;
  Result<std::optional<std::string>> read(std::string_view place) override;
  std::unique_ptr<core::Snapshot> snapshot() override;
  core::Outcome commit(const core::Batch& batch) override;
  Result<void> reserve(Token until) override;
  Result<void> settle() override;
  core::Space space(std::chrono::nanoseconds now) override;
  std::optional<std::string> failed_behind() override;
  std::optional<std::string> ailment() override;
  void check_integrity(core::IntegrityListener& listener) override;
  Result<Backup> backup(const std::filesystem::path& target, std::chrono::milliseconds taken,
                        const core::Interrupt& interrupt) override;
  void close(Token newest) override;

 private:
  RocksBackend(Directory directory, PositionFile position, bool is_new, Durability durability,
               std::string boot_id, Log log, Adjust adjust, FloorChoice floors,
               core::DatabaseShares memory);

  // Both with open_mutex_ held.
  Result<void> open_database();
  void close_database();

  Result<void> note_first_group(const core::Batch& batch);
  Result<void> note_group(const core::Batch& batch);
  void choose_merging();
  bool is_live(const std::string& table);
  void report(const Error& error) const;

  const Directory directory_;
  PositionFile position_;  // the writer's
  const Durability durability_;
  const std::string boot_id_;
  const Log log_;
  const Adjust adjust_;
  const core::DatabaseShares memory_;
  SpaceWatch space_;
  const std::shared_ptr<BackgroundWatch> background_ = std::make_shared<BackgroundWatch>();

  /// Held shared while the database is read, exclusively while it is closed and reopened.
  std::shared_mutex open_mutex_;
  std::unique_ptr<LogReplay> replay_;      // guarded by open_mutex_; of the database below
  std::unique_ptr<rocksdb::DB> database_;  // guarded by open_mutex_; nullptr: cannot be read
  std::optional<Error> read_only_;         // the writer's; why the database takes no writes

  std::atomic<bool> is_merging_ = true;  // RocksDB merges tables by itself
  std::mutex merging_mutex_;             // held while that changes
  bool lacks_space_ = false;             // guarded by merging_mutex_; as far as merging goes
  bool told_damage_ = false;             // guarded by merging_mutex_

  /// The database is to be closed: whoever holds it open for long shall end.
  std::atomic<bool> is_settling_ = false;

  std::uint64_t process_ = 0;   // the writer's; the first epoch that began here, 0: none yet
  bool is_new_;                 // the writer's; the creation is not finished
  bool is_first_group_ = true;  // the writer's; nothing was committed since claim()
};

}  // namespace fencekv::rocks
