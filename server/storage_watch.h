// SPDX-License-Identifier: Apache-2.0
/// Looks whether the disk below the store still answers, and says whether to count on the store.
///
/// A storage call that does not come back cannot be taken back: the store waits, and so does
/// everyone who writes. After a while that is said (INFO `ready:0`, and the log), so that whoever
/// looks after the server can act; after a longer one the process ends, so that another machine may
/// take over. It ends as in a crash, since a clean stop would wait for the same call.

#pragma once

#include "fencekv/store.h"
#include "server/options.h"

#include <spdlog/logger.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace fencekv::server {

/// Whether the store is to be counted on, as INFO shows it. With a clock that stands still it is
/// not, although it answers: it grants nothing, and nothing that is held ever expires.
inline bool is_ready(const Store& store, const ServerOptions& options) {
  if (store.clock_stands_still()) return false;
  return options.stall_warning.count() == 0 || store.in_flight() < options.stall_warning;
}

/// Thread safety: none; it has a thread of its own.
class StorageWatch {
 public:
  /// `end` is called, from the own thread, once the storage has not answered for
  /// `options.stall_exit`. All must outlive it, but for the store after closing().
  StorageWatch(const Store& store, const ServerOptions& options, spdlog::logger& log,
               std::function<void()> end);
  ~StorageWatch();
  StorageWatch(const StorageWatch&) = delete;
  StorageWatch& operator=(const StorageWatch&) = delete;

  /// The store is being closed from here on, and is not asked any more: its close is one call.
  void closing();

 private:
  void work();

  const ServerOptions& options_;
  spdlog::logger& log_;
  const std::function<void()> end_;
  std::mutex mutex_;
  std::condition_variable stop_;
  const Store* store_;                            // guarded by mutex_; nullptr: it is being closed
  std::chrono::steady_clock::time_point closes_;  // guarded by mutex_; since then
  bool stopping_ = false;                         // guarded by mutex_
  std::thread thread_;
};

}  // namespace fencekv::server
