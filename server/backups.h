// SPDX-License-Identifier: Apache-2.0
/// The backups that a server makes, all in one directory: its backup root.

#pragma once

#include "fencekv/store.h"

#include <spdlog/logger.h>

#include <filesystem>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace fencekv::server {

/// Whether it may name a backup: 1 to 64 letters, digits, dots, underscores and hyphens, no dot in
/// front. So it names something in the root, and nothing else.
bool is_backup_name(std::string_view name);

/// Makes one backup at a time, on a thread of its own: no connection waits for it but the one that
/// asked.
///
/// Thread safety: all members may be called concurrently.
/// Lifetime: ends before the store. Its end, and cancel(), end a backup that is being made; nothing
///     is left of it.
class Backups {
 public:
  using Done = std::function<void(Result<Backup>)>;

  /// `root` is empty: there is none. `store` and `log` must outlive this.
  Backups(Store& store, std::filesystem::path root, spdlog::logger& log);
  ~Backups();
  Backups(const Backups&) = delete;
  Backups& operator=(const Backups&) = delete;

  /// Begins the backup ROOT/`name`. If it began, `done` is called once, from any thread.
  ///
  /// Errors, of this and of `done`, as the protocol has them: invalid, there is no root, the name
  /// is none or is taken, or the root cannot be used; overloaded, another one is being made, or the
  /// server stops; corrupt, the store is damaged; misconf, it could not be written.
  Result<void> begin(std::string_view name, Done done);

  /// The complete ones. Errors: invalid.
  Result<std::vector<Backup>> list() const;

  /// No backup is made any more.
  void cancel();

 private:
  void make(const std::string& name, const Done& done);

  Store& store_;
  const std::filesystem::path root_;
  spdlog::logger& log_;
  std::stop_source stop_;
  std::mutex mutex_;
  bool is_busy_ = false;  // guarded by mutex_
  std::thread thread_;    // guarded by mutex_; of the newest backup
};

}  // namespace fencekv::server
