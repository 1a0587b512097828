// SPDX-License-Identifier: Apache-2.0
/// A store that a test can reach, stop and start, whatever it lives on and however it is reached.
/// The same promises are tested on every kind of world (invariant I13).

#pragma once

#include "fencekv/store.h"
#include "tests/support/manual_clock.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fencekv::testing {

/// How long a test waits for what must come.
inline constexpr std::chrono::milliseconds kPatience{20000};

/// The answer of a command that was submitted and may wait.
///
/// Thread safety: all members may be called concurrently.
class Answer {
 public:
  void set(Result<Reply> reply) {
    const std::lock_guard lock(mutex_);
    ++times_;
    if (!reply_) reply_ = std::move(reply);
    changed_.notify_all();
  }

  /// What was answered so far.
  std::optional<Result<Reply>> get() const {
    const std::lock_guard lock(mutex_);
    return reply_;
  }
  bool is_pending() const { return !get(); }
  /// More than one is a fault (I8).
  int times() const {
    const std::lock_guard lock(mutex_);
    return times_;
  }

  /// nullopt: nothing came in time.
  std::optional<Result<Reply>> wait(std::chrono::milliseconds patience = kPatience) const {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return reply_.has_value(); });
    return reply_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<Result<Reply>> reply_;  // guarded by mutex_
  int times_ = 0;                       // guarded by mutex_
};

struct Submitted {
  std::shared_ptr<Answer> answer = std::make_shared<Answer>();
  Ticket ticket = 0;  ///< Where the world can cancel.
};

/// One user of the store: a session, or a connection.
class User {
 public:
  virtual ~User() = default;

  /// Asks, and waits for the answer. Not while a submitted command waits, where commands of one
  /// connection wait for each other.
  virtual Result<Reply> run(Command command) = 0;
  /// Asks, and does not wait. A command that waits when its user ends is answered `LEASELOST
  /// disconnected`, also where nobody is left who could hear that.
  virtual Submitted submit(Command command) = 0;
  /// Ends the wait as if its time were over. Only where the world can cancel.
  virtual void cancel(const Submitted& submitted) = 0;
  /// What was told of what it watches, since the last call.
  virtual std::vector<LeaseEvent> take_events() = 0;
  virtual std::size_t events_so_far() const = 0;
  /// The end of the session or connection, without a goodbye. Twice is once.
  virtual void leave() = 0;

  template <class C>
  Result<typename C::Reply> ask(C command) {
    auto reply = run(Command(std::move(command)));
    if (!reply) return std::move(reply).error();
    return std::get<typename C::Reply>(*std::move(reply));
  }
};

class World {
 public:
  explicit World(Options options) : options_(std::move(options)) {
    if (!options_.clock) options_.clock = clock_;
  }
  virtual ~World() = default;

  /// Asks the store, over whatever stands between.
  virtual Result<Reply> run(Command command) = 0;
  virtual Result<std::vector<LeaseState>> leases() = 0;
  /// The first page of them, of `examine` records: one point in time.
  virtual Result<std::vector<LeaseState>> page_of_leases(std::size_t examine) = 0;
  virtual Result<std::vector<std::string>> keys() = 0;
  virtual std::vector<Rejection> rejections() = 0;

  /// A new user, who stays with the world; it leaves at the next stop at the latest.
  virtual User& add_user(const std::string& name) = 0;
  /// Whether a user can have several commands under way, and cancel them.
  virtual bool can_cancel() const = 0;

  /// Stops the store cleanly and starts it again.
  virtual void restart() = 0;
  /// The process dies and is started again: what was written is there, synced or not.
  virtual void crash() = 0;

  /// The store itself, for what is only looked at.
  virtual Store& store() = 0;

  template <class C>
  Result<typename C::Reply> ask(C command) {
    auto reply = run(Command(std::move(command)));
    if (!reply) return std::move(reply).error();
    return std::get<typename C::Reply>(*std::move(reply));
  }

  ManualClock& clock() { return *clock_; }
  /// For the next restart() or crash().
  Options& options() { return options_; }

 private:
  const std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  Options options_;
};

/// A kind of world, for the name of a test.
struct WorldKind {
  std::string name;
  std::function<std::unique_ptr<World>(Options)> make;
};

inline void PrintTo(const WorldKind& kind, std::ostream* out) {
  *out << kind.name;
}

/// All kinds that this test program was built with.
std::vector<WorldKind> every_world();

std::unique_ptr<World> make_memory_world(Options options);
std::unique_ptr<World> make_rocksdb_world(Options options);
std::unique_ptr<World> make_network_world(Options options);

}  // namespace fencekv::testing
