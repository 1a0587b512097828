// SPDX-License-Identifier: Apache-2.0
/// The thread for what a program does when a lease is lost. That may take long, so it cannot run
/// where the other leases are renewed.

#pragma once

#include <functional>
#include <memory>
#include <thread>

namespace fencekv {

/// Started by the first task. Runs one at a time, in order.
///
/// Thread safety: all members may be called concurrently.
class CallbackThread {
 public:
  CallbackThread();
  /// Waits for the task that runs, unless that is what ends the object; drops the others.
  ~CallbackThread();
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;

  /// False: no thread could be started.
  bool post(std::function<void()> task);
  bool is_own_thread() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fencekv
