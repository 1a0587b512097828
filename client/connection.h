// SPDX-License-Identifier: Apache-2.0
/// One connection to a server: requests in, replies out, in order.

#pragma once

#include "client/loop.h"
#include "fencekv/client.h"
#include "fencekv/result.h"
#include "server/resp/reply_parser.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

namespace fencekv {

/// What is sent, and who wants to know how it went.
struct Request {
  std::string bytes;
  bool changes = true;  ///< Without an answer: in_doubt if it changes something, else unreachable.
  CallOptions call{};
  /// Called exactly once, from the loop's thread. Returns false if the reply is not one that the
  /// request can have: then the stream cannot be trusted any more.
  std::function<bool(Result<resp::Value>)> done{};
  /// If given: called exactly once after `done`, if the request was sent and `done` did not get its
  /// answer. A request that is given up does not cut its connection
  /// off then, but finishes it: the server is told that nothing more will come, and what it had
  /// sent already is still read. So this gets the reply, if it came all the same; else nullopt, and
  /// `certain` says that the server ended the connection properly, and there will never be one.
  std::function<void(std::optional<resp::Value> reply, bool certain)> late{};
};

/// What a connection tells besides answers, from the loop's thread.
struct ConnectionEvents {
  /// A push arrived.
  std::function<void(resp::Value&&)> on_push{};
  /// A connection that had been of use is gone. Its requests were answered before. The next
  /// request makes a new one.
  std::function<void()> on_lost{};
};

/// Made when there is something to send, and made again when it was lost and there is.
///
/// Thread safety: all members may be called concurrently.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  static std::shared_ptr<Connection> create(Loop& loop, const ClientOptions& options,
                                            ConnectionEvents events = {});
  virtual ~Connection() = default;

  /// Takes a request over. False: the connection was shut, and nothing is called. Never calls
  /// `done` before it returns on the calling thread, so a lock may be held that `done` takes.
  virtual bool send(Request request) = 0;

  /// Ends everything that is pending, as if its timeout had passed. From the loop's thread.
  virtual void give_up_all() = 0;

  /// Ends everything that is pending, and is of no use afterwards; says nothing of it by on_lost.
  /// What was given up before is still heard out. From the loop's thread.
  virtual void shut() = 0;

 protected:
  Connection() = default;
};

}  // namespace fencekv
