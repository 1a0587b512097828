// SPDX-License-Identifier: Apache-2.0
/// The one place where everything that changes a store is serialised.
///
///     enqueue ──► queue ──► group: decide, decide, decide … ──► one batch ──► all answers
///
/// Whoever leads takes a group off the queue, lets the rules decide each command on what the
/// commands before it left, hands the backend one batch, and answers every command once the batch
/// is as durable as promised. One group at a time; meanwhile the next one collects in the queue,
/// so concurrent writers share an fsync.
///
/// A blocking caller that finds no leader leads itself: handing a command to another thread costs
/// more than deciding it. Commands enqueued without waiting are led by the committer's own thread.
///
/// When a group's outcome is unknown, its commands are answered INDOUBT, and no write is taken
/// until the backend is settled and claimed again, which the own thread tries with back-off.
/// Reads go on.

#pragma once

#include "engine/core/backend.h"
#include "engine/core/group.h"
#include "engine/core/rejection_log.h"
#include "engine/core/rules.h"
#include "fencekv/store.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace fencekv::core {

/// Thread safety: all members may be called concurrently, but open() and the destructor.
class Committer {
 public:
  using Done = std::function<void(Result<Reply>)>;

  /// `backend` and `rejections` must outlive the committer. `options.clock` is set.
  Committer(Backend& backend, const Options& options, RejectionLog& rejections);
  /// Answers what is queued, then ends the writer's time cleanly.
  ~Committer();
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  /// Becomes the writer and starts the own thread. Called once, first. A backend that can be read
  /// but takes no writes now is no error. Errors: corrupt; misconf, nothing can be read either.
  Result<void> open();

  void enqueue(Command command, Done done, ClientName client);
  Result<Reply> run(Command command, ClientName client);

  /// The small records as they are committed.
  Meta meta() const;
  /// Why no writes are taken; nullopt: they are.
  std::optional<std::string> refuses_writes() const;
  /// Now, never earlier than any answer that was given.
  Moment moment();

 private:
  struct Operation {
    Command command;
    Done done;
    ClientName client;
    std::size_t bytes;
  };
  using Lock = std::unique_lock<std::mutex>;
  using Replies = std::vector<Result<Reply>>;

  bool enqueue_locked(Operation& operation);
  void lead_group(Lock& lock);
  std::vector<Operation> take_group();
  Replies decide_group(std::vector<Operation>& operations);
  Replies decide_suspended(std::vector<Operation>& operations);
  Result<Reply> decide_one(Group& group, Operation& operation);

  Result<Meta> load_meta();
  Result<void> become_writer();
  void suspend(const std::string& reason);
  void recover(Lock& lock);
  void work();
  void log(LogLevel level, const std::string& line) const;

  Backend& backend_;
  const Options& options_;
  const Policy policy_;
  RejectionLog& rejections_;
  const std::string boot_id_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;           // the own thread: something to lead, recover or end
  std::deque<Operation> queue_;            // guarded by mutex_
  std::size_t queued_bytes_ = 0;           // guarded by mutex_
  bool leading_ = false;                   // guarded by mutex_; somebody decides or recovers
  bool stopping_ = false;                  // guarded by mutex_
  Meta meta_;                              // written by the leader under mutex_
  std::optional<std::string> suspended_;   // written by the leader under mutex_; the reason
  std::chrono::milliseconds back_off_{0};  // guarded by mutex_; while suspended
  std::chrono::steady_clock::time_point retry_at_;  // guarded by mutex_; while suspended

  std::atomic<std::chrono::nanoseconds> last_clock_{};
  std::uint64_t epoch_ = 0;  // the leader's; 0: never was the writer
  std::thread thread_;
};

}  // namespace fencekv::core
