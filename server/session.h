// SPDX-License-Identifier: Apache-2.0
/// One connection from its first byte to its end.

#pragma once

#include "server/buffer_budget.h"
#include "server/client.h"
#include "server/context.h"
#include "server/dispatcher.h"
#include "server/event_queue.h"
#include "server/lane.h"
#include "server/resp/request_parser.h"
#include "server/round.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencekv::server {

using Socket = boost::asio::generic::stream_protocol::socket;

/// Serves one client: read what is there, run all complete requests of it as one round, write all
/// replies at once, repeat. It reads nothing while a round is under way, so a client that sends
/// without reading its replies is held up by its own connection, not by memory here. What all
/// sessions hold together is bounded by BufferBudget.
///
/// A command that may wait for a lease is a round of its own: what came before it is answered
/// before, and what is behind it is run after. While it waits the session goes on reading, but
/// runs nothing: only so it notices that the client has gone, and lets its place in the queue go.
///
/// News of leases that the client watches is sent between replies, and while a command waits.
///
/// Threads: everything runs on the executor of the socket, which has one thread.
/// Lifetime: the coroutine serve_client() owns it. It leaves only when no call of the store is
///     under way, whatever happened to the connection.
class Session final : public SessionControl {
 public:
  /// `lane` is the one of the socket's executor, and outlives the session.
  Session(Socket socket, std::string peer, std::string local, Lane& lane, Context& server);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  boost::asio::awaitable<void> run();

  void hang_up() override;
  void begin_drain() override;

 private:
  enum class Next { read, run, close, close_at_once };

  /// An acquire that may wait, as far as it takes to give its grant back.
  struct Waited {
    std::vector<std::string> names;
    std::string owner;
    Token newest_before;  // a grant of it has a newer token, but if it was held already
  };

  boost::asio::awaitable<void> serve();
  Next collect_round();
  Caller caller() const { return {client_.shown(), store_session_id_}; }
  void prepare_alone(const Command& command);
  void end_watches();
  boost::asio::awaitable<void> wait_for_lease();
  MonotonicTime look_at_peer();
  void take_what_came();
  boost::asio::awaitable<void> stop_looking();
  bool peer_has_closed();
  void settle_wait();
  void give_back();
  void append_events();
  void end_store_session();
  void answer_now(StoreCall call);
  std::size_t most_behind_wait() const;
  void count_buffers();
  void set_busy(bool busy);
  void apply_limits();
  boost::asio::awaitable<bool> receive();
  boost::asio::awaitable<bool> send();
  boost::asio::awaitable<void> linger();

  Context& server_;
  Socket socket_;
  std::string& chunk_;  // of the lane
  Client client_;
  resp::RequestParser parser_;
  Round round_;
  std::string out_;
  BufferShare share_;
  bool limits_are_tight_ = false;
  bool held_request_ = false;  // the parser's request() waits for the next round
  bool writes_under_way_ = false;
  bool draining_ = false;
  bool reading_ = false;
  bool hung_up_ = false;
  bool is_busy_ = false;

  // Of the round with a command that may wait.
  bool alone_ = false;
  bool unwatches_ = false;
  std::optional<Waited> waited_;
  std::optional<GiveBack> granted_;  // its reply is not sent yet
  bool cancelled_ = false;
  bool peer_gone_ = false;
  bool looking_ = false;  // the handler of look_at_peer() will still be called
  bool something_came_ = false;

  std::shared_ptr<EventQueue> events_;
  std::optional<fencekv::Session> store_session_;
  std::uint64_t store_session_id_ = 0;
  MonotonicTime authentication_deadline_;
  MonotonicTime command_deadline_ = MonotonicTime::max();  // max: no command has begun to arrive
};

/// Runs `session` to its end. No exception leaves it.
boost::asio::awaitable<void> serve_client(std::unique_ptr<Session> session);

}  // namespace fencekv::server
