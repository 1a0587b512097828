// SPDX-License-Identifier: Apache-2.0
/// A server that does what a test tells it, down to the byte: delays, silence, broken connections.

#pragma once

#include "server/resp/request_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv::testing {

using Words = std::vector<std::string>;

/// The greeting that a client accepts.
inline constexpr std::string_view kHello = "%1\r\n$5\r\nproto\r\n:3\r\n";

/// The server's side of one connection. Blocking; belongs to the thread of its script.
class FakeSession {
 public:
  explicit FakeSession(boost::asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}

  /// The next request; nullopt: the peer has closed, or close() was called.
  std::optional<Words> read() {
    for (;;) {
      if (parser_.next() == resp::RequestParser::Status::request) {
        return Words(parser_.request().begin(), parser_.request().end());
      }
      char bytes[64 * 1024];
      boost::system::error_code error;
      const auto size = socket_.read_some(boost::asio::buffer(bytes), error);
      if (error) return std::nullopt;
      parser_.feed({bytes, size});
    }
  }

  /// Bytes, whatever they mean. False: the peer has closed.
  bool read_bytes(std::size_t size) {
    std::string bytes(size, '\0');
    boost::system::error_code error;
    boost::asio::read(socket_, boost::asio::buffer(bytes), error);
    return !error;
  }

  void write(std::string_view bytes) {
    boost::system::error_code ignored;
    boost::asio::write(socket_, boost::asio::buffer(bytes), ignored);
  }

  /// Answers the client's HELLO. Returns its words.
  Words greet() {
    auto hello = read().value_or(Words{});
    write(kHello);
    return hello;
  }

  /// Waits until the peer has closed.
  void await_close() {
    while (read()) {
    }
  }

  /// Ends the connection in both directions, from any thread.
  void close() { ::shutdown(socket_.native_handle(), SHUT_RDWR); }

 private:
  boost::asio::ip::tcp::socket socket_;
  resp::RequestParser parser_{{}};
};

/// Listens on a free port of 127.0.0.1; plays `script` for each connection, in a thread of its own.
/// The connection ends with its script.
class FakeServer {
 public:
  /// `number` counts connections from 0.
  using Script = std::function<void(FakeSession&, int number)>;

  explicit FakeServer(Script script)
      : script_(std::move(script)),
        acceptor_(io_, {boost::asio::ip::address_v4::loopback(), 0}),
        port_(acceptor_.local_endpoint().port()),
        thread_([this] { accept(); }) {}

  ~FakeServer() {
    stopping_ = true;
    ::shutdown(acceptor_.native_handle(), SHUT_RDWR);
    thread_.join();
    {
      const std::lock_guard lock(mutex_);
      for (auto& one : connections_) one.session->close();
    }
    for (auto& one : connections_) one.thread.join();
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::uint16_t port() const { return port_; }
  /// How many clients have connected so far.
  int connections() const { return accepted_; }

 private:
  struct Running {
    std::shared_ptr<FakeSession> session;
    std::thread thread;
  };

  void accept() {
    while (!stopping_) {
      boost::system::error_code error;
      boost::asio::ip::tcp::socket socket(io_);
      acceptor_.accept(socket, error);
      if (error) return;
      const int number = accepted_++;
      auto session = std::make_shared<FakeSession>(std::move(socket));
      const std::lock_guard lock(mutex_);
      connections_.push_back({session, std::thread([this, session, number] {
                                script_(*session, number);
                                session->close();
                              })});
    }
  }

  Script script_;
  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::uint16_t port_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> accepted_ = 0;
  std::mutex mutex_;
  std::list<Running> connections_;  // guarded by mutex_ while thread_ runs
  std::thread thread_;
};

}  // namespace fencekv::testing
