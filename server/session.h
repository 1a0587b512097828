// SPDX-License-Identifier: Apache-2.0
/// One connection from its first byte to its end.

#pragma once

#include "server/client.h"
#include "server/context.h"
#include "server/dispatcher.h"
#include "server/resp/request_parser.h"
#include "server/round.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace fencekv::server {

using Socket = boost::asio::generic::stream_protocol::socket;

/// Serves one client: read what is there, run all complete requests of it as one round, write all
/// replies at once, repeat. It reads nothing while a round is under way, so a client that sends
/// without reading its replies is held up by its own connection, not by memory here.
///
/// Threads: everything runs on the executor of the socket, which has one thread.
/// Lifetime: the coroutine serve_client() owns it. It leaves only when no call of the store is
///     under way, whatever happened to the connection.
class Session final : public SessionControl {
 public:
  /// `chunk` is a buffer for reading that all sessions of the executor share: it is only used
  /// between two suspensions.
  Session(Socket socket, std::string peer, std::string local, std::string& chunk, Context& server);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  boost::asio::awaitable<void> run();

  void hang_up() override;
  void begin_drain() override;

 private:
  enum class Next { read, run, close, close_at_once };

  boost::asio::awaitable<void> serve();
  Next collect_round();
  void answer_now(StoreCall call);
  void apply_limits();
  boost::asio::awaitable<bool> receive();
  boost::asio::awaitable<bool> send();
  boost::asio::awaitable<void> linger();

  Context& server_;
  Socket socket_;
  std::string& chunk_;
  Client client_;
  resp::RequestParser parser_;
  Round round_;
  std::string out_;
  bool limits_are_tight_ = false;
  bool held_request_ = false;  // the parser's request() waits for the next round
  bool writes_under_way_ = false;
  bool draining_ = false;
  bool reading_ = false;
  MonotonicTime authentication_deadline_;
  MonotonicTime command_deadline_ = MonotonicTime::max();  // max: no command has begun to arrive
};

/// Runs `session` to its end. No exception leaves it.
boost::asio::awaitable<void> serve_client(std::unique_ptr<Session> session);

}  // namespace fencekv::server
