// SPDX-License-Identifier: Apache-2.0
/// The thread of a client: runs everything that has to do with the network.

#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace fencekv {

/// Thread safety: all members may be called concurrently, but stop(). If no thread could be
/// started, is_running() is false and nothing is ever run.
class Loop {
 public:
  /// Its thread blocks all signals.
  Loop();
  ~Loop() { stop(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  bool is_running() const { return thread_.joinable(); }
  bool is_own_thread() const { return std::this_thread::get_id() == thread_id_; }

  /// Runs `task` on the thread, after everything posted before. Never before it returns.
  void post(std::function<void()> task);

  /// Runs `task` on the thread and returns when it is done. Not from the thread itself.
  template <class Task>
  void run(Task task) {
    std::promise<void> done;
    auto is_done = done.get_future();
    post([&] {
      task();
      done.set_value();
    });
    is_done.get();
  }

  boost::asio::io_context& io() { return io_; }

  /// Ends the thread. What was posted and did not run yet never does; it is destroyed with the
  /// loop.
  void stop();

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
  std::thread::id thread_id_;
};

}  // namespace fencekv
