// SPDX-License-Identifier: Apache-2.0
#include "client/loop.h"

#include "client/signals_blocked.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include <cassert>
#include <system_error>

namespace fencekv {

Loop::Loop() : work_(boost::asio::make_work_guard(io_)) {
  try {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { io_.run(); });
    thread_id_ = thread_.get_id();
  } catch (const std::system_error&) {
    // As is_running() says.
  }
}

void Loop::post(std::function<void()> task) {
  boost::asio::post(io_, std::move(task));
}

void Loop::stop() {
  if (!thread_.joinable()) return;
  assert(!is_own_thread() && "a client is not ended from its own callback");
  io_.stop();
  thread_.join();
}

}  // namespace fencekv
