// SPDX-License-Identifier: Apache-2.0
#include "client/callback_thread.h"

#include "client/signals_blocked.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <utility>

namespace fencekv {

// Shared with the thread, which may outlive the object: a task may end what owns it.
struct CallbackThread::State {
  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopping || !tasks.empty(); });
      if (stopping) return;
      auto task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = {};
      lock.lock();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;  // guarded by mutex
  bool stopping = false;                    // guarded by mutex
  std::thread thread;                       // guarded by mutex
};

CallbackThread::CallbackThread() : state_(std::make_shared<State>()) {}

CallbackThread::~CallbackThread() {
  std::deque<std::function<void()>> dropped;  // destroyed without the lock
  std::thread thread;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    dropped.swap(state_->tasks);
    thread.swap(state_->thread);
  }
  state_->changed.notify_all();
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else if (thread.joinable()) {
    thread.join();
  }
}

bool CallbackThread::post(std::function<void()> task) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->thread.joinable()) {
    try {
      const SignalsBlocked blocked;
      state_->thread = std::thread([state = state_] { state->run(); });
    } catch (const std::system_error&) {
      return false;
    }
  }
  state_->tasks.push_back(std::move(task));
  state_->changed.notify_all();
  return true;
}

bool CallbackThread::is_own_thread() const {
  const std::lock_guard lock(state_->mutex);
  return state_->thread.get_id() == std::this_thread::get_id();
}

}  // namespace fencekv
