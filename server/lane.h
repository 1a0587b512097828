// SPDX-License-Identifier: Apache-2.0
/// One event loop with one thread at a time, and its way to the store and back.

#pragma once

#include "fencekv/store.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fencekv::server {

/// Who is told, on the thread of its lane, that its answers are there.
class Answered {
 public:
  Answered() = default;
  virtual ~Answered() = default;
  Answered(const Answered&) = delete;
  Answered& operator=(const Answered&) = delete;

  virtual void on_answered() = 0;

 private:
  friend class Lane;
  Answered* next_answered_ = nullptr;
};

/// Sessions of a lane need no locks among themselves. What they ask of the store in one pass of the
/// loop goes there together, and so do the answers on their way back: one lock and one message
/// between threads, however many there are.
///
///     requests of one pass ──► submit() … ──► store ──► tell() … ──► on_answered() of each
///
/// A little of it is committed on this very thread, which is faster than handing it to another one.
/// The disk may then hold the thread up, and what else the loop serves must not wait for that:
/// look() sees it and gives the loop to a new thread; the old one ends when the disk lets it go.
///
/// Thread safety: tell() and look() may be called on any thread; run(), poll(), join() and the
/// destructor belong to the owner; all else to the thread of the loop.
class Lane {
 public:
  /// `store` outlives it. Up to `lead_most` commands are committed by the loop's thread.
  Lane(Store& store, std::size_t lead_most);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  boost::asio::any_io_executor executor() { return context_.get_executor(); }
  /// Where sessions read to; used between two suspensions only.
  std::string& chunk() { return chunk_; }

  /// Gives it to the store soon, in the order of these calls. No exception comes of it later on:
  /// who finds no memory is answered overloaded.
  void submit(Submission submission);

  /// Calls on_answered() of `answered` soon. It must be there until then.
  void tell(Answered& answered);

  /// Serves until release() was called and nothing is left to do, or until another thread has the
  /// loop.
  void run();
  /// Does what is ready on this thread, and waits for nothing: instead of run().
  void poll();
  /// The loop may end.
  void release() { work_.reset(); }
  /// Returns when every thread has ended that look() began. Called after run().
  void join();

  /// Begins a thread for the loop if its own has been in the storage for too long.
  void look();
  /// How often look() wants to be called.
  static constexpr std::chrono::milliseconds kLookInterval{25};

 private:
  /// Ends the superseded thread's part in the loop.
  struct Superseded {};
  class Sentinel final : public Answered {
    void on_answered() override {}
  };

  void hand_over();
  void tell_all();

  Store& store_;
  const std::size_t lead_most_;
  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::string chunk_;
  std::vector<Submission> submissions_;
  std::vector<Submission> spare_;  // empty; memory for submissions_
  Sentinel looks_anyway_;
  std::atomic<Answered*> answered_ = nullptr;  // a list, the newest first
  /// Since when the thread of the loop has been in the store, on the steady clock; zero: it is not.
  std::atomic<std::chrono::nanoseconds> in_store_since_{};
  std::mutex mutex_;
  std::vector<std::thread> successors_;  // guarded by mutex_
};

}  // namespace fencekv::server
