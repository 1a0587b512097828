// SPDX-License-Identifier: Apache-2.0
// All state but the inbox belongs to one thread, the loop's. A Link is one connection from
// its first attempt to its end; each handler keeps the link it was started for alive and does
// nothing if that is not the current one any more, so a connection is given up by forgetting it.
//
//   send() ─► inbox_ ─► admit() ─► waiting_ ─► pump() ─► link.in_flight ─► a reply ─► finish()
//                                     │ not sent: unreachable   │ sent: in_doubt, if it changes
//                                     └─ timeout, cancellation, a connection that fails ─┘
#include "client/connection.h"

#include "server/resp/request_writer.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <sys/un.h>
#include <utility>
#include <vector>

namespace fencekv {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using Socket = net::generic::stream_protocol::socket;
using Endpoint = net::generic::stream_protocol::endpoint;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr std::size_t kReadBytes = std::size_t{64} * 1024;
// Requests that go out in one write; more wait, so that a slow peer holds up few of them.
constexpr std::size_t kWriteBytes = std::size_t{256} * 1024;

// Longer timeouts would overflow the clock.
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours{24 * 365};

std::string in_milliseconds(std::chrono::milliseconds time) {
  return std::to_string(time.count()) + " ms";
}

using Late = std::function<void(std::optional<resp::Value>, bool)>;

struct Call {
  Request request;
  SteadyTime deadline;
  std::chrono::milliseconds timeout;
  bool over_limit = false;
  bool sent = false;      ///< At least a part of it may have reached the peer.
  bool finished = false;  ///< `done` was called. It may still stand in a queue, which skips it.
  std::optional<std::stop_callback<std::function<void()>>> on_cancel;
};
using CallPtr = std::shared_ptr<Call>;

struct Link {
  Link(net::io_context& io, std::size_t max_reply_bytes)
      : resolver(io), socket(io), timer(io), parser({.reply_bytes = max_reply_bytes}) {}

  net::ip::tcp::resolver resolver;
  Socket socket;
  net::steady_timer timer;  ///< Of the attempt to connect.
  resp::ReplyParser parser;
  std::array<char, kReadBytes> input;
  std::string output;
  bool ready = false;    ///< The peer has greeted back.
  bool writing = false;  ///< `output` is on its way.
  std::deque<CallPtr> in_flight;
  Late late;  ///< Set once nothing is of interest any more but the answer to one call.
};
using LinkPtr = std::shared_ptr<Link>;

// How long an ended link may take to say what it had said.
constexpr std::chrono::milliseconds kLastWords{2'000};

class LoopConnection final : public Connection {
 public:
  LoopConnection(Loop& loop, ClientOptions options, ConnectionEvents events)
      : loop_(loop),
        io_(loop.io()),
        options_(std::move(options)),
        events_(std::move(events)),
        closed_(!loop.is_running()),
        deadline_timer_(io_),
        backoff_timer_(io_),
        backoff_(options_.first_backoff) {}

  bool send(Request request) override;
  void give_up_all() override;
  void shut() override;

 private:
  std::shared_ptr<LoopConnection> self() {
    return std::static_pointer_cast<LoopConnection>(shared_from_this());
  }

  void admit();
  void finish(const CallPtr& call, Result<resp::Value> outcome);
  void give_up(const CallPtr& call, const std::string& why);
  void arm_deadline();
  void on_deadline();

  void connect();
  void resolve(const LinkPtr& link);
  void connect_to(const LinkPtr& link, std::vector<Endpoint> endpoints);
  void greet(const LinkPtr& link);
  void on_greeting(const LinkPtr& link, resp::Value& reply);
  // By value: the caller's may be link_ itself, which these two forget.
  void on_connect_failure(LinkPtr link, const Error& error);
  void read(const LinkPtr& link);
  void on_bytes(const LinkPtr& link, std::size_t size);
  void write(const LinkPtr& link);
  void pump();
  void on_loss(LinkPtr link, const std::string& why);
  void hear_out(const LinkPtr& link, Late late);
  void on_last_words(const LinkPtr& link, error_code error, std::size_t size);
  void drop_link();

  Loop& loop_;
  net::io_context& io_;
  const ClientOptions options_;

  std::mutex inbox_mutex_;
  std::vector<CallPtr> inbox_;     // guarded by inbox_mutex_
  ConnectionEvents events_;        // of the loop's thread
  bool closed_ = false;            // guarded by inbox_mutex_
  std::size_t pending_calls_ = 0;  // guarded by inbox_mutex_
  std::size_t pending_bytes_ = 0;  // guarded by inbox_mutex_

  // All below belong to the loop's thread.
  std::deque<CallPtr> waiting_;
  std::set<std::pair<SteadyTime, CallPtr>> deadlines_;
  net::steady_timer deadline_timer_;
  std::optional<SteadyTime> armed_;
  LinkPtr link_;
  net::steady_timer backoff_timer_;
  bool backing_off_ = false;
  SteadyTime not_before_{};
  std::chrono::milliseconds backoff_;
  std::minstd_rand random_{std::random_device{}()};
};

// ---- Calls ------------------------------------------------------------------------------------

bool LoopConnection::send(Request request) {
  auto call = std::make_shared<Call>();
  call->timeout =
      std::min(request.call.timeout.count() > 0 ? request.call.timeout : options_.call_timeout,
               kLongestTimeout);
  call->deadline = std::chrono::steady_clock::now() + call->timeout;
  call->request = std::move(request);
  {
    const std::lock_guard lock(inbox_mutex_);
    if (closed_) return false;
    const std::size_t bytes = call->request.bytes.size();
    call->over_limit = pending_calls_ >= options_.max_pending_calls ||
                       bytes > options_.max_pending_bytes - pending_bytes_;
    if (call->over_limit) {
      call->request.bytes = {};
    } else {
      ++pending_calls_;
      pending_bytes_ += bytes;
    }
    inbox_.push_back(std::move(call));
    if (inbox_.size() > 1) return true;  // admit() is on its way
  }
  loop_.post([self = self()] { self->admit(); });
  return true;
}

void LoopConnection::admit() {
  std::vector<CallPtr> arrived;
  {
    const std::lock_guard lock(inbox_mutex_);
    arrived.swap(inbox_);
  }
  for (const auto& call : arrived) {
    if (call->over_limit) {
      finish(call, Error(Errc::overloaded, "too many calls are pending in this client"));
      continue;
    }
    waiting_.push_back(call);
    deadlines_.emplace(call->deadline, call);
    if (!call->request.call.cancel.stop_possible()) continue;

    std::function<void()> cancel = [self = self(), weak = std::weak_ptr(call)] {
      self->loop_.post([self, weak] {
        if (const auto cancelled = weak.lock()) self->give_up(cancelled, "it was cancelled");
      });
    };
    if (call->request.call.cancel.stop_requested()) {
      give_up(call, "it was cancelled");
    } else {
      call->on_cancel.emplace(call->request.call.cancel, std::move(cancel));
    }
  }
  pump();
  arm_deadline();
}

/// Ends `call`. Whoever calls this must expect that the link is gone afterwards.
void LoopConnection::finish(const CallPtr& call, Result<resp::Value> outcome) {
  if (call->finished) return;
  call->finished = true;
  call->on_cancel.reset();
  deadlines_.erase({call->deadline, call});
  if (!call->over_limit) {
    const std::lock_guard lock(inbox_mutex_);
    --pending_calls_;
    pending_bytes_ -= call->request.bytes.size();
  }
  // Moved: what the callback holds on to must not live as long as a queue's memory of the call.
  const auto done = std::exchange(call->request.done, {});
  if (outcome) call->request.late = {};
  call->request.bytes = {};
  if (!done(std::move(outcome)) && link_) {
    on_loss(link_, "the reply to another command was not understood");
  }
}

/// Nobody waits for `call` any more.
void LoopConnection::give_up(const CallPtr& call, const std::string& why) {
  if (call->finished) return;
  if (!call->sent) return finish(call, Error(Errc::unreachable, "not sent: " + why));

  // Its reply may still come, and would be taken for the next command's.
  const auto code = call->request.changes ? Errc::in_doubt : Errc::unreachable;
  auto late = std::exchange(call->request.late, {});
  // With others before it on the link nobody could tell whose the last words are.
  if (late && link_ && link_->in_flight.size() == 1 && link_->in_flight.front() == call) {
    const auto link = std::exchange(link_, nullptr);
    link->in_flight.clear();
    hear_out(link, std::move(late));
    finish(call, Error(code, "no answer: " + why));
    if (events_.on_lost) events_.on_lost();
    return pump();
  }
  finish(call, Error(code, "no answer: " + why));
  if (late) late(std::nullopt, false);
  if (link_) on_loss(link_, "another command on the connection was given up");
}

void LoopConnection::arm_deadline() {
  if (deadlines_.empty()) return;
  const auto earliest = deadlines_.begin()->first;
  // An alarm that comes too early is cheaper than setting it anew for each call.
  if (armed_ && *armed_ <= earliest) return;
  armed_ = earliest;
  deadline_timer_.expires_at(earliest);
  deadline_timer_.async_wait([this, self = self()](error_code error) {
    if (!error) on_deadline();
  });
}

void LoopConnection::on_deadline() {
  armed_.reset();
  const auto now = std::chrono::steady_clock::now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto call = deadlines_.begin()->second;
    give_up(call, "the timeout of " + in_milliseconds(call->timeout) + " passed");
  }
  pump();
  arm_deadline();
}

// ---- The link ---------------------------------------------------------------------------------

void LoopConnection::connect() {
  if (link_ || backing_off_) return;
  if (std::chrono::steady_clock::now() < not_before_) {
    backing_off_ = true;
    backoff_timer_.expires_at(not_before_);
    backoff_timer_.async_wait([this, self = self()](error_code) {
      backing_off_ = false;
      pump();
    });
    return;
  }

  const auto link = link_ = std::make_shared<Link>(io_, options_.max_reply_bytes);
  link->timer.expires_after(std::min(options_.connect_timeout, kLongestTimeout));
  link->timer.async_wait([this, self = self(), link](error_code error) {
    if (error || link != link_ || link->ready) return;
    on_connect_failure(link,
                       Error(Errc::unreachable,
                             "no connection within " + in_milliseconds(options_.connect_timeout)));
  });

  if (options_.unix_path.empty()) return resolve(link);
  // Asio throws for a path that does not fit.
  if (options_.unix_path.size() >= sizeof(sockaddr_un::sun_path)) {
    return on_connect_failure(link, Error(Errc::unreachable, "the socket's path is too long"));
  }
  connect_to(link, {Endpoint(net::local::stream_protocol::endpoint(options_.unix_path))});
}

void LoopConnection::resolve(const LinkPtr& link) {
  // A literal address needs no look-up, which would block its thread for as long as it takes.
  error_code not_literal;
  const auto address = net::ip::make_address(options_.host, not_literal);
  if (!not_literal) {
    return connect_to(link, {Endpoint(net::ip::tcp::endpoint(address, options_.port))});
  }
  link->resolver.async_resolve(
      options_.host, std::to_string(options_.port),
      [this, self = self(), link](error_code error,
                                  const net::ip::tcp::resolver::results_type& found) {
        if (link != link_) return;
        if (error) {
          return on_connect_failure(
              link, Error(Errc::unreachable, escaped(options_.host) + ": " + error.message()));
        }
        std::vector<Endpoint> endpoints;
        for (const auto& entry : found) endpoints.emplace_back(entry.endpoint());
        connect_to(link, std::move(endpoints));
      });
}

void LoopConnection::connect_to(const LinkPtr& link, std::vector<Endpoint> endpoints) {
  net::async_connect(link->socket, endpoints,
                     [this, self = self(), link](error_code error, const Endpoint&) {
                       if (link != link_) return;
                       if (error)
                         return on_connect_failure(link, Error(Errc::unreachable, error.message()));
                       greet(link);
                     });
}

void LoopConnection::greet(const LinkPtr& link) {
  if (options_.unix_path.empty()) {
    error_code ignored;  // Only speed depends on these.
    link->socket.set_option(net::ip::tcp::no_delay(true), ignored);
    link->socket.set_option(net::socket_base::keep_alive(true), ignored);
  }
  std::vector<std::string_view> words{"HELLO", "3"};
  if (options_.password) words.insert(words.end(), {"AUTH", "default", *options_.password});
  if (!options_.name.empty()) words.insert(words.end(), {"SETNAME", options_.name});
  resp::write_request(link->output, words);
  write(link);
  read(link);
}

void LoopConnection::on_greeting(const LinkPtr& link, resp::Value& reply) {
  if (reply.is_error()) {
    auto error = parse_error_line(reply.text);
    if (error.code() == Errc::denied) return on_connect_failure(link, error);
    // Whatever it means for the greeting: the command was not sent.
    return on_connect_failure(
        link, Error(Errc::unreachable, "the server refused the connection: " + reply.text));
  }
  const auto* version = reply.at("proto");
  if (version == nullptr || version->integer != 3) {
    return on_connect_failure(link, Error(Errc::unreachable, "the peer does not speak RESP3"));
  }
  link->ready = true;
  link->timer.cancel();
  backoff_ = options_.first_backoff;
  pump();
}

/// The link never became of use: nothing was sent over it.
void LoopConnection::on_connect_failure(LinkPtr link, const Error& error) {
  if (link != link_) return;
  drop_link();
  std::uniform_int_distribution<std::chrono::milliseconds::rep> jitter(backoff_.count() / 2,
                                                                       backoff_.count());
  not_before_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(jitter(random_));
  backoff_ = std::min(backoff_ * 2, options_.last_backoff);

  std::deque<CallPtr> refused;
  refused.swap(waiting_);
  for (const auto& call : refused) finish(call, error);
}

void LoopConnection::read(const LinkPtr& link) {
  link->socket.async_read_some(net::buffer(link->input),
                               [this, self = self(), link](error_code error, std::size_t size) {
                                 if (link->late) return on_last_words(link, error, size);
                                 if (link != link_) return;
                                 if (error) return on_loss(link, error.message());
                                 on_bytes(link, size);
                               });
}

void LoopConnection::on_bytes(const LinkPtr& link, std::size_t size) {
  link->parser.feed(std::string_view(link->input.data(), size));
  // Each step may end the link.
  while (link == link_) {
    const auto status = link->parser.next();
    if (status == resp::ReplyParser::Status::need_more) return read(link);
    if (status == resp::ReplyParser::Status::protocol_error) {
      return on_loss(link, link->parser.error());
    }
    auto reply = std::move(link->parser.reply());
    if (reply.kind == resp::Value::Kind::push) {
      if (events_.on_push) events_.on_push(std::move(reply));
      continue;
    }
    if (!link->ready) {
      on_greeting(link, reply);
      continue;
    }
    if (link->in_flight.empty()) {
      return on_loss(link, reply.is_error() ? reply.text : "a reply that nobody asked for");
    }
    const auto call = std::move(link->in_flight.front());
    link->in_flight.pop_front();
    finish(call, std::move(reply));
  }
}

void LoopConnection::write(const LinkPtr& link) {
  link->writing = true;
  net::async_write(link->socket, net::buffer(link->output),
                   [this, self = self(), link](error_code error, std::size_t) {
                     if (link != link_) return;
                     if (error) return on_loss(link, error.message());
                     link->writing = false;
                     link->output.clear();
                     pump();
                   });
}

/// Sends what waits, if it can be sent now.
void LoopConnection::pump() {
  while (!waiting_.empty() && waiting_.front()->finished) waiting_.pop_front();
  if (waiting_.empty()) return;
  if (!link_) return connect();
  if (!link_->ready || link_->writing) return;

  auto& output = link_->output;
  while (!waiting_.empty() && output.size() < kWriteBytes) {
    const auto call = std::move(waiting_.front());
    waiting_.pop_front();
    if (call->finished) continue;
    output.append(call->request.bytes);
    call->sent = true;
    link_->in_flight.push_back(call);
  }
  write(link_);
}

/// The link broke. What was sent over it and has no answer stays without one.
void LoopConnection::on_loss(LinkPtr link, const std::string& why) {
  if (link != link_) return;
  if (!link->ready) return on_connect_failure(link, Error(Errc::unreachable, why));
  drop_link();
  std::deque<CallPtr> lost;
  lost.swap(link->in_flight);
  for (const auto& call : lost) {
    if (call->finished) continue;
    const auto late = std::exchange(call->request.late, {});
    const auto code = call->request.changes ? Errc::in_doubt : Errc::unreachable;
    finish(call, Error(code, "no answer: " + why));
    if (late) late(std::nullopt, false);
  }
  if (events_.on_lost) events_.on_lost();
  pump();
}

/// Reads from a link that was given up what the peer had sent before it learned of that. The link
/// belongs to nobody any more: what happens to it does not touch this connection.
void LoopConnection::hear_out(const LinkPtr& link, Late late) {
  error_code ignored;
  link->socket.shutdown(Socket::shutdown_send, ignored);
  link->late = std::move(late);  // the read that is always under way takes over from here
  link->timer.expires_after(kLastWords);
  link->timer.async_wait([link](error_code error) {
    error_code ignored_too;
    if (!error) link->socket.close(ignored_too);
  });
}

void LoopConnection::on_last_words(const LinkPtr& link, error_code error, std::size_t size) {
  const auto end = [&](std::optional<resp::Value> reply, bool certain) {
    error_code ignored;
    link->socket.close(ignored);
    link->timer.cancel();
    std::exchange(link->late, {})(std::move(reply), certain);
  };
  if (error) return end(std::nullopt, error == net::error::eof);
  link->parser.feed(std::string_view(link->input.data(), size));
  for (;;) {
    const auto status = link->parser.next();
    if (status == resp::ReplyParser::Status::need_more) return read(link);
    if (status == resp::ReplyParser::Status::protocol_error) return end(std::nullopt, false);
    auto& reply = link->parser.reply();
    if (reply.kind != resp::Value::Kind::push) return end(std::move(reply), true);
  }
}

void LoopConnection::drop_link() {
  const auto link = std::exchange(link_, nullptr);
  error_code ignored;
  link->socket.close(ignored);
  link->resolver.cancel();
  link->timer.cancel();
}

void LoopConnection::give_up_all() {
  admit();
  std::vector<CallPtr> all(waiting_.begin(), waiting_.end());
  if (link_) all.insert(all.end(), link_->in_flight.begin(), link_->in_flight.end());
  for (const auto& call : all) give_up(call, "the client was closed");
}

void LoopConnection::shut() {
  {
    const std::lock_guard lock(inbox_mutex_);
    if (closed_) return;
    closed_ = true;
  }
  events_ = {};
  admit();
  std::deque<CallPtr> unsent;
  unsent.swap(waiting_);
  for (const auto& call : unsent) give_up(call, "the client was closed");
  if (link_ && link_->ready) {
    for (const auto& call : link_->in_flight) call->request.late = {};
    on_loss(link_, "the client was closed");
  } else if (link_) {
    drop_link();
  }
  deadline_timer_.cancel();
  backoff_timer_.cancel();
}

}  // namespace

std::shared_ptr<Connection> Connection::create(Loop& loop, const ClientOptions& options,
                                               ConnectionEvents events) {
  return std::make_shared<LoopConnection>(loop, options, std::move(events));
}

}  // namespace fencekv
