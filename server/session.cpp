// SPDX-License-Identifier: Apache-2.0

#include "server/session.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace fencekv::server {

namespace net = boost::asio;

namespace {

constexpr auto kAsResult = net::as_tuple(net::use_awaitable);

/// Buffers larger than this are given back when they are empty: one large value must not cost its
/// memory for as long as the connection lives.
constexpr std::size_t kKeptBytes = std::size_t{64} * 1024;

/// What a client may send before it has authenticated.
constexpr resp::RequestLimits kTightLimits{.request_bytes = std::size_t{16} * 1024,
                                           .arguments = 16,
                                           .argument_bytes = std::size_t{16} * 1024,
                                           .inline_bytes = std::size_t{16} * 1024};

}  // namespace

Session::Session(Socket socket, std::string peer, std::string local, std::string& chunk,
                 Context& server)
    : server_(server),
      socket_(std::move(socket)),
      chunk_(chunk),
      client_(server.clients.next_id(), std::move(peer), std::move(local)),
      parser_(resp::RequestLimits()),
      round_(socket_.get_executor()) {
  client_.authenticated = !server_.password.is_set();
  apply_limits();
  server_.clients.enter(client_, *this, socket_.get_executor());
}

Session::~Session() {
  server_.clients.leave(client_.id);
}

net::awaitable<void> serve_client(std::unique_ptr<Session> session) {
  co_await session->run();
}

net::awaitable<void> Session::run() {
  try {
    co_await serve();
  } catch (const std::exception& bug) {
    server_.log.error("client {} is closed after an unexpected error: {}", client_.peer,
                      bug.what());
  }
  // The store's threads still answer into the round.
  co_await round_.wait();
}

void Session::hang_up() {
  boost::system::error_code ignored;
  // Not close(): the descriptor stays taken until the session has left.
  socket_.shutdown(Socket::shutdown_both, ignored);
  socket_.cancel(ignored);
  client_.close_after_reply = true;
}

void Session::begin_drain() {
  draining_ = true;
  boost::system::error_code ignored;
  if (reading_) socket_.cancel(ignored);
}

net::awaitable<void> Session::serve() {
  for (;;) {
    const Next next = collect_round();
    if (next == Next::close_at_once) co_return;
    if (round_.has_calls()) {
      client_.clear_deadline();
      round_.start(server_.store, client_.shown());
      co_await round_.wait();
    }
    writes_under_way_ = false;
    server_.counters.commands.fetch_add(round_.requests(), std::memory_order_relaxed);
    round_.finish(out_);
    if (!out_.empty()) {
      const bool sent = co_await send();
      if (!sent) co_return;
    }
    if (next == Next::close || client_.close_after_reply) break;
    if (next == Next::read) {
      const bool received = co_await receive();
      if (!received) co_return;
    }
  }
  co_await linger();
}

/// Takes requests from the parser until it has no more, or the round has had enough.
Session::Next Session::collect_round() {
  while (!round_.is_full()) {
    if (!std::exchange(held_request_, false)) {
      const auto status = parser_.next();
      if (status == resp::RequestParser::Status::need_more) {
        // Counted from the first byte of a command, however many pieces it comes in.
        if (parser_.buffered() == 0) {
          command_deadline_ = MonotonicTime::max();
        } else if (command_deadline_ == MonotonicTime::max()) {
          command_deadline_ = std::chrono::steady_clock::now() + ServerOptions::kCommandTimeout;
        }
        return Next::read;
      }
      if (status != resp::RequestParser::Status::request) {
        resp::ReplyWriter(round_.text(), client_.protocol).error(parser_.error());
        return Next::close;
      }
      command_deadline_ = MonotonicTime::max();
    }

    const bool silent = client_.reply_mode != ReplyMode::on;
    const bool skipped = client_.reply_mode == ReplyMode::skip_next;
    const std::size_t before = round_.text().size();
    Dispatched dispatched =
        dispatch(parser_.request(), client_, server_, writes_under_way_, round_.text());
    switch (dispatched.kind) {
      case Dispatched::Kind::drop:
        if (const auto held_back = server_.web_requests.pass()) {
          server_.log.warn(
              "client {} speaks HTTP and is closed; possibly an attack by way of a "
              "browser ({} more before)",
              client_.peer, *held_back);
        }
        return Next::close_at_once;
      case Dispatched::Kind::later:
        held_request_ = true;
        return Next::run;
      case Dispatched::Kind::store: {
        StoreCall& call = *dispatched.call;
        if (std::holds_alternative<Read>(call.command) && !writes_under_way_) {
          answer_now(std::move(call));
        } else {
          writes_under_way_ = true;
          round_.add(std::move(call), client_.protocol, !silent);
        }
        break;
      }
      case Dispatched::Kind::replied:
        break;
    }
    round_.count_request();
    // CLIENT REPLY ON answers although the mode was off before it.
    if (silent && client_.reply_mode != ReplyMode::on) round_.text().resize(before);
    if (skipped && client_.reply_mode == ReplyMode::skip_next) {
      round_.text().resize(before);
      client_.reply_mode = ReplyMode::on;
    }
    apply_limits();
    if (client_.close_after_reply) return Next::close;
  }
  return Next::run;
}

/// A read that nothing of this client precedes needs no turn in the store's queue.
void Session::answer_now(StoreCall call) {
  resp::ReplyWriter reply(round_.text(), client_.protocol);
  auto states = server_.store.read_committed(std::get<Read>(call.command));
  if (!states) {
    reply.error(states.error().line());
    return;
  }
  Reply answer = *std::move(states);
  call.format(reply, answer);
}

/// Follows the client's authentication, which AUTH, HELLO and RESET change.
void Session::apply_limits() {
  const bool tight = !client_.authenticated;
  if (tight == limits_are_tight_) return;
  limits_are_tight_ = tight;
  parser_.set_limits(tight ? kTightLimits : resp::RequestLimits());
  authentication_deadline_ =
      std::chrono::steady_clock::now() + ServerOptions::kAuthenticationTimeout;
}

/// Waits for bytes and feeds them to the parser. False: the connection is over.
net::awaitable<bool> Session::receive() {
  boost::system::error_code error;
  if (draining_ && (socket_.available(error) == 0 || error)) co_return false;

  if (limits_are_tight_) {
    client_.set_deadline(Wait::authentication,
                         std::min(authentication_deadline_, command_deadline_));
  } else if (command_deadline_ != MonotonicTime::max()) {
    client_.set_deadline(Wait::command, command_deadline_);
  } else if (server_.options.idle_timeout.count() > 0) {
    client_.set_deadline(Wait::idle,
                         std::chrono::steady_clock::now() + server_.options.idle_timeout);
  } else {
    client_.clear_deadline();
  }

  reading_ = true;
  const auto [waited] = co_await socket_.async_wait(Socket::wait_read, kAsResult);
  reading_ = false;
  if (waited && !(draining_ && waited == net::error::operation_aborted)) co_return false;
  if (client_.close_after_reply) co_return false;

  const std::size_t wanted =
      limits_are_tight_ ? std::min(chunk_.size(), kTightLimits.request_bytes) : chunk_.size();
  const std::size_t size = socket_.read_some(net::buffer(chunk_.data(), wanted), error);
  if (error == net::error::would_block || error == net::error::try_again) co_return true;
  if (error) co_return false;
  server_.counters.input_bytes.fetch_add(size, std::memory_order_relaxed);
  parser_.feed(std::string_view(chunk_.data(), size));
  co_return true;
}

/// Writes out_. False: the connection is over.
net::awaitable<bool> Session::send() {
  std::size_t sent = 0;
  while (sent < out_.size()) {
    // A client may be slow; it may not stand still.
    if (limits_are_tight_) {
      client_.set_deadline(Wait::authentication, authentication_deadline_);
    } else {
      client_.set_deadline(Wait::write,
                           std::chrono::steady_clock::now() + ServerOptions::kWriteTimeout);
    }
    const auto rest = net::buffer(out_.data() + sent, out_.size() - sent);
    const auto [error, size] = co_await socket_.async_write_some(rest, kAsResult);
    if (error) co_return false;
    sent += size;
  }
  server_.counters.output_bytes.fetch_add(sent, std::memory_order_relaxed);
  out_.clear();
  if (out_.capacity() > kKeptBytes) out_ = std::string();
  co_return true;
}

/// Lets the client read the last reply: if we closed while bytes of it are still unread here, the
/// kernel would reset the connection, and the reply with it.
net::awaitable<void> Session::linger() {
  constexpr std::chrono::seconds kLinger{1};
  constexpr std::size_t kMaxDiscarded = std::size_t{128} * 1024 * 1024;

  boost::system::error_code error;
  socket_.shutdown(Socket::shutdown_send, error);
  if (draining_) co_return;
  client_.set_deadline(Wait::closing, std::chrono::steady_clock::now() + kLinger);
  for (std::size_t discarded = 0; discarded < kMaxDiscarded;) {
    reading_ = true;
    const auto [waited] = co_await socket_.async_wait(Socket::wait_read, kAsResult);
    reading_ = false;
    if (waited || draining_) co_return;
    const std::size_t size = socket_.read_some(net::buffer(chunk_), error);
    if (error && error != net::error::would_block) co_return;
    discarded += size;
  }
}

}  // namespace fencekv::server
