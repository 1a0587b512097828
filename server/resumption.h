// SPDX-License-Identifier: Apache-2.0
/// A place where a coroutine waits for other code of its own thread.

#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <cassert>
#include <optional>
#include <utility>

namespace fencekv::server {

/// What a timer that never ends and is cancelled would do, without the timer's queue and without a
/// turn of the event loop: resume() continues the coroutine at once, inside of the call.
///
/// Thread safety: none; one coroutine waits at a time, and its thread resumes it. A coroutine that
/// owns this and is never resumed is never destroyed.
class Resumption {
 public:
  boost::asio::awaitable<void> suspend() {
    return boost::asio::async_initiate<const Token&, void()>(
        [this](Handler handler) {
          assert(!waiting_);
          waiting_.emplace(std::move(handler));
        },
        boost::asio::use_awaitable);
  }

  bool is_suspended() const { return waiting_.has_value(); }

  /// Returns when the coroutine waits for something else, or has ended: this may be gone then.
  void resume() {
    assert(waiting_);
    Handler handler = *std::move(waiting_);
    waiting_.reset();
    std::move(handler)();
  }

 private:
  using Token = boost::asio::use_awaitable_t<>;
  using Handler = boost::asio::async_result<Token, void()>::handler_type;

  std::optional<Handler> waiting_;
};

}  // namespace fencekv::server
