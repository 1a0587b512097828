// SPDX-License-Identifier: Apache-2.0

#include "server/session.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <poll.h>
#include <string_view>
#include <utility>
#include <variant>

namespace fencekv::server {

namespace net = boost::asio;

namespace {

constexpr auto kAsResult = net::as_tuple(net::use_awaitable);

/// Buffers larger than this are given back when they are empty: one large value must not cost its
/// memory for as long as the connection lives.
/// Swapped for an empty string: one that is assigned an empty string keeps its memory.
constexpr std::size_t kKeptBytes = std::size_t{64} * 1024;

/// What a client may send before it has authenticated.
constexpr resp::RequestLimits kTightLimits{.request_bytes = std::size_t{16} * 1024,
                                           .arguments = 16,
                                           .argument_bytes = std::size_t{16} * 1024,
                                           .inline_bytes = std::size_t{16} * 1024};

/// What is taken in behind a command that waits. As long as it is less, the end of the connection
/// is seen at once.
constexpr std::size_t kBehindWaitBytes = std::size_t{1024} * 1024;
/// How often the end of the connection is looked for when it is more.
constexpr std::chrono::milliseconds kLookAgain{100};

bool may_wait(const Command& command) {
  if (const auto* acquire = std::get_if<Acquire>(&command)) return acquire->wait.count() > 0;
  if (const auto* many = std::get_if<AcquireMany>(&command)) return many->wait.count() > 0;
  if (const auto* await = std::get_if<Await>(&command)) return await->timeout.count() > 0;
  return false;
}

/// Whether the command is a round of its own. Unwatch, because what was told before its reply and
/// what comes after it have to be kept apart.
bool is_alone(const Command& command) {
  return may_wait(command) || std::holds_alternative<Unwatch>(command);
}

std::string too_many_bytes(const BufferBudget& budget) {
  return fmt::format(
      "OVERLOADED requests that have not ended and replies that are not read take more than {} "
      "bytes (max_buffer_bytes); nothing was executed",
      budget.most());
}

void write_push(resp::ReplyWriter& out, const LeaseEvent& event) {
  out.push(4);
  out.bulk("lease");
  out.bulk(to_string(event.change));
  out.bulk(event.name);
  out.number_as_bulk(event.token.number());
}

}  // namespace

Session::Session(Socket socket, std::string peer, std::string local, Lane& lane, Context& server)
    : server_(server),
      socket_(std::move(socket)),
      chunk_(lane.chunk()),
      client_(server.clients.next_id(), std::move(peer), std::move(local)),
      parser_(resp::RequestLimits()),
      round_(lane),
      share_(server.buffers) {
  const auto on_news = [this] {
    boost::system::error_code ignored;
    if (reading_) socket_.cancel(ignored);
    round_.wake();
  };
  events_ = std::make_shared<EventQueue>(socket_.get_executor(), on_news);
  store_session_.emplace(server.store,
                         [queue = events_](const LeaseEvent& event) { queue->add(event); });
  store_session_id_ = store_session_->id();
  client_.authenticated = !server_.password.is_set();
  apply_limits();
  server_.clients.enter(client_, *this, socket_.get_executor());
}

Session::~Session() {
  set_busy(false);
  events_->disconnect();
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
  // Which also ends the wait of a command under way.
  end_store_session();
  co_await stop_looking();
  // The store's threads still answer into the round.
  co_await round_.wait();
}

void Session::hang_up() {
  boost::system::error_code ignored;
  // Not close(): the descriptor stays taken until the session has left.
  socket_.shutdown(Socket::shutdown_both, ignored);
  socket_.cancel(ignored);
  client_.close_after_reply = true;
  hung_up_ = true;
  round_.wake();
}

void Session::begin_drain() {
  draining_ = true;
  boost::system::error_code ignored;
  if (reading_) socket_.cancel(ignored);
  round_.wake();
}

net::awaitable<void> Session::serve() {
  for (;;) {
    const Next next = collect_round();
    if (next == Next::close_at_once) co_return;
    if (round_.has_calls()) {
      client_.clear_deadline();
      round_.start(server_.store, caller(), alone_);
      if (alone_ && !unwatches_) co_await wait_for_lease();
      co_await round_.wait();
    }
    if (alone_) settle_wait();
    if (peer_gone_ || hung_up_) {
      give_back();
      co_return;
    }
    writes_under_way_ = false;
    server_.counters.commands.fetch_add(round_.requests(), std::memory_order_relaxed);
    round_.finish(out_);
    append_events();
    count_buffers();
    if (!out_.empty()) {
      const bool sent = co_await send();
      if (!sent) {
        give_back();
        co_return;
      }
    }
    alone_ = false;
    granted_ = std::nullopt;
    if (next == Next::close || client_.close_after_reply) break;
    if (next == Next::read) {
      const bool received = co_await receive();
      if (!received) co_return;
    }
  }
  end_store_session();
  co_await linger();
}

/// Takes requests from the parser until it has no more, or the round has had enough.
Session::Next Session::collect_round() {
  const std::size_t busy = server_.busy.load(std::memory_order_relaxed);
  while (!round_.is_full(busy)) {
    if (!std::exchange(held_request_, false)) {
      const auto status = parser_.next();
      if (status == resp::RequestParser::Status::need_more) {
        // Counted from the first byte of a command, however many pieces it comes in.
        if (parser_.buffered() == 0) {
          command_deadline_ = MonotonicTime::max();
        } else if (command_deadline_ == MonotonicTime::max()) {
          command_deadline_ = std::chrono::steady_clock::now() + ServerOptions::kCommandTimeout;
        }
        if (parser_.buffered() > BufferShare::kFreeBytes && server_.buffers.is_exceeded()) {
          resp::ReplyWriter(round_.text(), client_.protocol).error(too_many_bytes(server_.buffers));
          return Next::close;
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
        if (is_alone(call.command)) {
          if (round_.requests() > 0) {
            held_request_ = true;
            return Next::run;
          }
          prepare_alone(call.command);
        }
        if (std::holds_alternative<Watch>(call.command)) {
          events_->open();
          client_.watching = true;
        }
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
    // HELLO 2 and RESET.
    if (client_.watching && client_.protocol != resp::Protocol::resp3) end_watches();
    apply_limits();
    if (client_.close_after_reply) return Next::close;
    if (alone_) return Next::run;
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
  const std::size_t before = round_.text().size();
  Reply answer = *std::move(states);
  call.format(reply, answer);
  count_buffers();
  if (round_.text().size() - before <= BufferShare::kFreeBytes) return;
  if (!server_.buffers.is_exceeded()) return;
  // Swapped: shortened, or assigned something short, the string would keep its memory.
  round_.text().substr(0, before).swap(round_.text());
  resp::ReplyWriter(round_.text(), client_.protocol).error(too_many_bytes(server_.buffers));
  count_buffers();
}

void Session::set_busy(bool busy) {
  if (std::exchange(is_busy_, busy) == busy) return;
  if (busy) {
    server_.busy.fetch_add(1, std::memory_order_relaxed);
  } else {
    server_.busy.fetch_sub(1, std::memory_order_relaxed);
  }
}

void Session::count_buffers() {
  share_.set(parser_.buffered() + round_.text().size() + out_.size());
}

/// How many bytes are taken in behind a command that waits.
std::size_t Session::most_behind_wait() const {
  return server_.buffers.is_exceeded() ? BufferShare::kFreeBytes : kBehindWaitBytes;
}

void Session::prepare_alone(const Command& command) {
  alone_ = true;
  cancelled_ = false;
  unwatches_ = std::holds_alternative<Unwatch>(command);
  waited_ = std::nullopt;
  if (const auto* acquire = std::get_if<Acquire>(&command)) {
    waited_ = Waited{{acquire->name}, acquire->owner, server_.store.stats().newest};
  } else if (const auto* many = std::get_if<AcquireMany>(&command)) {
    waited_ = Waited{many->names, many->owner, server_.store.stats().newest};
  }
}

/// The client understands no pushes any more. What its store session is still told is dropped here
/// from now on, whenever the store gets to end it.
void Session::end_watches() {
  client_.watching = false;
  events_->close();
  writes_under_way_ = true;
  round_.add({Unwatch{}, [](resp::ReplyWriter&, Reply&) {}}, client_.protocol, false);
}

/// Returns when the round is answered: the wait is over, or was ended here because nobody is there
/// to be told, or because the server stops.
net::awaitable<void> Session::wait_for_lease() {
  while (!round_.is_answered()) {
    if (std::exchange(something_came_, false)) take_what_came();
    if (!cancelled_ && (peer_gone_ || hung_up_)) {
      cancelled_ = true;
      // In one step with what it holds bound: its own place must not keep others out meanwhile.
      end_store_session();
    } else if (!cancelled_ && draining_) {
      cancelled_ = true;
      round_.cancel(server_.store);
    }
    if (!cancelled_ && events_->has_events()) {
      append_events();
      const bool sent = co_await send();
      client_.clear_deadline();
      if (!sent) peer_gone_ = true;
      continue;
    }
    const MonotonicTime until = cancelled_ ? MonotonicTime::max() : look_at_peer();
    co_await round_.pause(until);
  }
  co_await stop_looking();
}

/// Makes sure that the round is woken when the client sends something or goes. Returns when it has
/// to be asked again.
MonotonicTime Session::look_at_peer() {
  if (looking_) return MonotonicTime::max();
  if (parser_.buffered() >= most_behind_wait()) {
    // Readable it is anyway, so that tells nothing.
    peer_gone_ = peer_has_closed();
    return peer_gone_ ? MonotonicTime::min() : std::chrono::steady_clock::now() + kLookAgain;
  }
  looking_ = true;
  socket_.async_wait(Socket::wait_read, [this](const boost::system::error_code& error) {
    looking_ = false;
    something_came_ = !error;
    round_.wake();
  });
  return MonotonicTime::max();
}

void Session::take_what_came() {
  const std::size_t most = most_behind_wait();
  const std::size_t room = most - std::min(most, parser_.buffered());
  const std::size_t wanted = std::min(chunk_.size(), room);
  if (wanted == 0) return;
  boost::system::error_code error;
  const std::size_t size = socket_.read_some(net::buffer(chunk_.data(), wanted), error);
  if (error == net::error::would_block || error == net::error::try_again) return;
  if (error) {
    peer_gone_ = true;
    return;
  }
  server_.counters.input_bytes.fetch_add(size, std::memory_order_relaxed);
  parser_.feed(std::string_view(chunk_.data(), size));
  count_buffers();
}

/// The handler of look_at_peer() refers to this session.
net::awaitable<void> Session::stop_looking() {
  while (looking_) {
    boost::system::error_code ignored;
    socket_.cancel(ignored);
    co_await net::post(socket_.get_executor(), net::use_awaitable);
  }
}

/// Looks behind what is unread: whether the client has closed, or closed its sending side.
bool Session::peer_has_closed() {
  pollfd peer{socket_.native_handle(), POLLRDHUP, 0};
  return ::poll(&peer, 1, 0) > 0 && (peer.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/// Looks at the answer of a round that may have waited.
void Session::settle_wait() {
  Result<Reply>& answer = round_.newest_answer();
  if (unwatches_) {
    if (!answer) return;
    client_.watching = false;
    events_->close();
    return;
  }
  if (answer && waited_) {
    const auto& grant = std::get<Acquire::Reply>(*answer);
    // The same token as before: it was held already, and is not ours to give back.
    if (grant && grant->token > waited_->newest_before) {
      granted_ = GiveBack{std::move(waited_->names), std::move(waited_->owner), grant->token};
      // A reply to one that has just gone would still be taken by the kernel.
      peer_gone_ = peer_gone_ || peer_has_closed();
    }
  }
  if (cancelled_ && draining_ && answer) {
    const auto* grant = std::get_if<Acquire::Reply>(&*answer);
    const auto* change = std::get_if<Await::Reply>(&*answer);
    if (grant != nullptr && !*grant) {
      answer = Error(Errc::overloaded, "the server is stopping; nothing was acquired");
    } else if (change != nullptr && !*change) {
      answer = Error(Errc::overloaded, "the server is stopping; nothing has changed so far");
    }
  }
}

/// A grant that came after its client had gone would keep those behind it waiting for a ttl.
void Session::give_back() {
  if (!granted_) return;
  // If the store cannot take it now, the grant ends with its time.
  server_.store.submit(
      *std::exchange(granted_, std::nullopt), [](const auto&) {}, caller());
}

/// What is watched and has changed, as far as it is known.
void Session::append_events() {
  if (!client_.watching || !events_->has_events()) return;
  resp::ReplyWriter out(out_, client_.protocol);
  for (const LeaseEvent& event : events_->take()) write_push(out, event);
}

/// Its waits, bound leases and watches end, and nothing is heard of it any more.
void Session::end_store_session() {
  store_session_.reset();
  events_->close();
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
  if (client_.watching && events_->has_events()) co_return true;

  if (limits_are_tight_) {
    client_.set_deadline(Wait::authentication,
                         std::min(authentication_deadline_, command_deadline_));
  } else if (command_deadline_ != MonotonicTime::max()) {
    client_.set_deadline(Wait::command, command_deadline_);
  } else if (server_.options.idle_timeout.count() > 0 && !client_.watching) {
    client_.set_deadline(Wait::idle,
                         std::chrono::steady_clock::now() + server_.options.idle_timeout);
  } else {
    client_.clear_deadline();
  }

  reading_ = true;
  set_busy(false);
  const auto [waited] = co_await socket_.async_wait(Socket::wait_read, kAsResult);
  set_busy(true);
  reading_ = false;
  // Cancelled by hang_up(), begin_drain(), or because there is news.
  if (waited && waited != net::error::operation_aborted) co_return false;
  if (client_.close_after_reply) co_return false;

  const std::size_t wanted =
      limits_are_tight_ ? std::min(chunk_.size(), kTightLimits.request_bytes) : chunk_.size();
  const std::size_t size = socket_.read_some(net::buffer(chunk_.data(), wanted), error);
  if (error == net::error::would_block || error == net::error::try_again) co_return true;
  if (error) co_return false;
  server_.counters.input_bytes.fetch_add(size, std::memory_order_relaxed);
  parser_.feed(std::string_view(chunk_.data(), size));
  count_buffers();
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
  if (out_.capacity() > kKeptBytes) std::string().swap(out_);
  count_buffers();
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
