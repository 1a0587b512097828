// SPDX-License-Identifier: Apache-2.0
/// What RocksDB's background work, which makes tables of the log and merges tables, has met.
///
/// Left to itself RocksDB stops the whole database for all of it. But a merge that meets a damaged
/// table, or finds no space, has changed nothing: what it read is there as before. So the database
/// goes on without merging, and the rest of the store works. All else is as a failed write: the
/// database is closed and opened anew.

#pragma once

#include <rocksdb/listener.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

namespace fencekv::rocks {

/// Thread safety: all members may be called concurrently.
class BackgroundWatch final : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* status) override;

  /// Why the database must be opened anew. Cheap.
  std::optional<std::string> failure() const;
  /// What a merge has read and found damaged. Cheap. Stays: only a repair helps.
  std::optional<std::string> damage() const;
  /// Whether a merge has found no space since the last call.
  bool take_no_space() { return no_space_.exchange(false); }

  /// The database was opened anew.
  void forget_failure();

 private:
  std::atomic<bool> has_failed_ = false;
  std::atomic<bool> is_damaged_ = false;
  std::atomic<bool> no_space_ = false;
  mutable std::mutex mutex_;
  std::string failure_;  // guarded by mutex_
  std::string damage_;   // guarded by mutex_
};

}  // namespace fencekv::rocks
