// SPDX-License-Identifier: Apache-2.0
/// Reads everything that is stored and checks it, slowly and all the time: damage is to be found
/// while the newest backup is still from before it.
///
///     files      every block of every table, and the position file
///     records    every one: its checksum, its content, and what can be said of it by itself
///
/// Its thread also looks once a second how the storage is, so that a change is logged and acted
/// upon although nobody uses the store.
///
/// The records are read a page at a time, each page of its own moment, so that no snapshot lives
/// for long.

#pragma once

#include "engine/core/backend.h"
#include "fencekv/options.h"
#include "fencekv/result.h"
#include "fencekv/types.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace fencekv::core {

/// Thread safety: all members may be called concurrently, but the destructor.
class Scrubber {
 public:
  /// Findings that are kept and logged, of one pass. The others are counted.
  static constexpr std::size_t kFindings = 100;

  /// Both must outlive it. `own_thread` is false: only scrub() does anything.
  Scrubber(Backend& backend, const Options& options, bool own_thread);
  /// Gives up what it is about.
  ~Scrubber();
  Scrubber(const Scrubber&) = delete;
  Scrubber& operator=(const Scrubber&) = delete;

  /// One full pass, as fast as the disk is. What is damaged is no error.
  /// Errors: misconf, the storage cannot be read now; unreachable, the store is being closed.
  Result<Scrubbed> scrub();

  struct Last {
    std::chrono::milliseconds ended{0};  ///< Wall clock; zero: no pass was completed yet.
    Scrubbed found;
  };
  Last last() const;

 private:
  enum class Pace { fast, slow };
  class Files;

  Result<Scrubbed> scrub(Pace pace);
  Result<void> scrub_files(Scrubbed& sum, Pace pace);
  Result<void> scrub_records(Scrubbed& sum, Pace pace);
  void found(Scrubbed& sum, const std::string& what) const;
  /// False: the store is being closed.
  bool rest(std::uint64_t bytes, Pace pace);
  void work();

  Backend& backend_;
  const Options& options_;
  std::mutex one_at_a_time_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  Last last_;              // guarded by mutex_
  std::thread thread_;
};

/// What is wrong with a record, in one sentence that names it; nullopt: nothing that can be seen.
/// `newest` is the newest token of the moment that `snapshot` shows.
std::optional<std::string> fault_of_record(Snapshot& snapshot, Token newest, std::string_view place,
                                           std::string_view bytes);

}  // namespace fencekv::core
