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
/// more than deciding it. So does an event loop that has brought a little. All else that is
/// enqueued without waiting is led by the committer's own thread.
///
/// A command that waits for a lease leaves the queue and is kept aside until the rules answer it:
/// because of a command of somebody else, or because time has passed, for which the own thread
/// wakes up.
///
/// Without an own thread (OwnThread::no), whoever holds the committer does its work by step(): a
/// whole store then runs in one thread, in an order that a seed decides.
///
/// Before each group the storage is asked how much it can still take. Below the soft floor what
/// makes keys grow is refused; below the hard floor the committer looks only, as after a failure,
/// until there is space again.
///
/// When a group's outcome is unknown, its commands are answered INDOUBT, and no write is taken
/// until the backend is settled and claimed again, which the own thread tries with back-off.
/// Reads go on.

#pragma once

#include "engine/core/backend.h"
#include "engine/core/clock_watch.h"
#include "engine/core/group.h"
#include "engine/core/lease.h"
#include "engine/core/read_cache.h"
#include "engine/core/rejection_log.h"
#include "engine/core/rules.h"
#include "fencekv/store.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

namespace fencekv::core {

/// Whether commands that nobody leads are led by a thread of the committer.
enum class OwnThread : std::uint8_t { yes, no };

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
  Result<void> open(OwnThread own_thread = OwnThread::yes);

  /// What the own thread does when it is awake: tries to recover, if writes are not taken, whatever
  /// the back-off; then leads one group, if something is queued or due. False: there was nothing to
  /// do. May be called beside an own thread.
  bool step();

  Ticket enqueue(Command command, Done done, Caller caller);
  /// As Store::enqueue() of many.
  void enqueue(std::vector<Submission>& submissions, std::size_t lead_most);
  Result<Reply> run(Command command, Caller caller, std::stop_token cancel);
  void cancel(Ticket ticket);

  /// Lifts the floor, if it is lower. `floor` is not above the newest token.
  Result<void> lift_floor(Token floor);
  /// As the rule of the same name.
  Result<Reclaimed> reclaim(std::vector<std::string> keys, std::vector<std::string> names);

  std::uint64_t enter(Sessions::OnEvent on_event);
  void leave(std::uint64_t session);

  /// The small records as they are committed.
  Meta meta() const;

  /// What listings need beside a snapshot of the storage, of the same moment.
  struct Listing {
    std::unique_ptr<Snapshot> snapshot;
    Meta meta;
    std::map<std::string, std::size_t> queues;  ///< How many wait, by name.
    std::unique_ptr<const Sessions::View> sessions;
    std::chrono::nanoseconds now{0};  ///< As Moment::since_boot.

    /// How a grant of the snapshot stands at that moment.
    Circumstances circumstances() const {
      return {.floor = meta.allocator.floor,
              .boots = meta.identity->boots,
              .sessions = *sessions,
              .process = meta.process,
              .process_began = meta.process_began,
              .now = now};
    }
  };
  /// The lengths of the first `limit` queues of names after `after`.
  Listing listing(const std::optional<std::string>& after, std::size_t limit);

  std::size_t waiting() const;
  /// To be completed once open() has returned.
  PlaceFilter& places() { return memory_.places; }
  ReadCache& reads() { return reads_; }
  const Sessions& sessions() const { return memory_.sessions; }
  /// Why no writes are taken; nullopt: they are.
  std::optional<std::string> refuses_writes() const;
  /// For how long the storage has had what it was last given; zero: it has nothing.
  std::chrono::milliseconds in_flight() const;
  /// Now, never earlier than any answer that was given.
  Moment moment();

 private:
  struct CancelWait {
    Ticket ticket;
  };
  struct EndSession {
    std::uint64_t session;
  };
  struct LiftFloor {
    Token floor;
  };
  struct Reclaim {
    std::vector<std::string> keys;
    std::vector<std::string> names;
    Reclaimed* reclaimed;  // of the caller, who waits
  };
  using Task = std::variant<Command, CancelWait, EndSession, LiftFloor, Reclaim>;
  struct Operation {
    Task task;
    Done done;
    Caller caller;
    std::size_t bytes = 0;
    Ticket ticket = 0;
  };
  /// What will be one group.
  struct Queued {
    std::vector<Operation> operations;  // never empty
    std::size_t bytes = 0;
  };
  using Lock = std::unique_lock<std::mutex>;
  /// One for each operation; nullopt: it has no answer, or none yet.
  using Decisions = std::vector<Decision>;

  static bool only_looks(const Task& task);
  static bool makes_keys_grow(const Task& task);
  Result<Reply> run_task(Task task, std::size_t bytes, Caller caller,
                         const std::stop_token& cancel);
  void add(Task task);
  bool has_room_locked(std::size_t bytes) const;
  Ticket add_locked(Operation& operation);
  void lead_group(Lock& lock);
  void lead_some(Lock& lock, std::size_t most);
  std::vector<Operation> take_group();
  void change_group(std::vector<Operation>& operations);
  void look_group(std::vector<Operation>& operations);
  void catch_up(Group& group);
  Decision decide_one(Group& group, Operation& operation);
  void decide_again(std::vector<Operation>& operations, Decisions& decisions, const Error& refusal);
  void park(std::vector<Operation>& operations, const Decisions& decisions);
  void publish(const Meta* committed, bool is_up_to_date);
  static void answer(std::vector<Operation>& operations, Decisions decisions);
  void answer_waiting(Ticket ticket, Result<Reply> reply);
  void tell(const std::vector<Group::Happened>& events);
  std::chrono::nanoseconds never_back(std::chrono::nanoseconds read);
  bool is_due() const;
  std::chrono::steady_clock::duration time_to_sleep() const;

  Result<Meta> load_meta();
  Result<void> become_writer();
  bool can_write();
  void suspend(const std::string& reason);
  void suspend_for_space(const Space& space);
  Result<void> try_again();
  void recover(Lock& lock);
  bool work_once(Lock& lock, bool may_recover);
  void work();
  void log(LogLevel level, const std::string& line) const;

  Backend& backend_;
  const Options& options_;
  const Policy policy_;
  RejectionLog& rejections_;
  const std::string boot_id_;
  Memory memory_;                             // the leader's, but for the sessions
  ReadCache reads_;                           // told by the leader of what changes
  std::unordered_map<Ticket, Done> waiting_;  // the leader's; commands that wait for a lease
  std::set<std::string> unsure_;  // the leader's; names that may have changed in a group in doubt
  std::string scarce_;            // the leader's; what is said of the space while it is low
  SpaceLevel space_ = SpaceLevel::enough;  // the leader's
  bool lacks_space_ = false;               // the leader's; suspended for nothing else
  bool look_again_ = false;                // the leader's; the storage has been reopened

  mutable std::mutex mutex_;
  std::condition_variable wake_;  // the own thread: something to lead, recover or end
  std::deque<Queued> queue_;      // guarded by mutex_; the groups as they will be taken
  std::vector<Operation> spare_;  // guarded by mutex_; empty, the memory of a group that is over
  std::size_t queued_ = 0;        // guarded by mutex_; operations in queue_
  std::size_t queued_bytes_ = 0;  // guarded by mutex_
  bool leading_ = false;          // guarded by mutex_; somebody decides or recovers
  bool stopping_ = false;         // guarded by mutex_
  bool more_is_due_ = false;      // written as meta_
  Ticket newest_ticket_ = 0;      // guarded by mutex_
  Meta meta_;                     // written by the leader under mutex_
  std::map<std::string, std::size_t, std::less<>> queues_;  // written as meta_; never 0
  std::size_t waiting_count_ = 0;                           // written as meta_
  std::optional<std::chrono::nanoseconds> next_due_;        // written as meta_
  std::optional<std::chrono::nanoseconds> asleep_until_;    // guarded by mutex_; the own thread
  std::optional<std::string> suspended_;   // written by the leader under mutex_; the reason
  std::chrono::milliseconds back_off_{0};  // guarded by mutex_; while suspended
  std::chrono::steady_clock::time_point retry_at_;  // guarded by mutex_; while suspended

  class Busy;
  /// When the storage was given what it has now, on the steady clock; zero: it has nothing.
  std::atomic<std::chrono::nanoseconds> busy_since_{};
  std::atomic<std::chrono::nanoseconds> last_clock_{};
  ClockWatch clock_watch_;
  std::atomic<bool> clock_stands_ = false;
  std::uint64_t epoch_ = 0;                    // the leader's; 0: never was the writer
  std::uint64_t process_ = 0;                  // the leader's; the first of its epochs
  std::chrono::nanoseconds process_began_{0};  // the leader's; when that was
  std::thread thread_;
};

}  // namespace fencekv::core
