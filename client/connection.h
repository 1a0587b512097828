// SPDX-License-Identifier: Apache-2.0
/// One connection to a server: requests in, replies out, in order.

#pragma once

#include "fencekv/client.h"
#include "fencekv/result.h"
#include "server/resp/reply_parser.h"

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

namespace fencekv {

/// What is sent, and who wants to know how it went.
struct Request {
  std::string bytes;
  bool changes = true;  ///< Without an answer: in_doubt if it changes something, else unreachable.
  CallOptions call{};
  /// Called exactly once, from the connection's thread. Returns false if the reply is not one that
  /// the request can have: then the stream cannot be trusted any more.
  std::function<bool(Result<resp::Value>)> done;
};

/// Thread safety: all members may be called concurrently, close() once.
class Connection {
 public:
  explicit Connection(ClientOptions options);
  ~Connection();

  /// Takes a request over. False: the connection was closed, and `done` is not called. Never calls
  /// `done` before it returns on the calling thread, so a lock may be held that `done` takes.
  bool send(Request request);

  /// Runs `task` on the connection's thread. False: the connection was closed.
  bool post(std::function<void()> task);

  /// The calling thread is the one that calls `done`.
  bool is_own_thread() const;

  /// Ends everything that is pending, and waits for the thread.
  void close();

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace fencekv
