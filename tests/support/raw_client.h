// SPDX-License-Identifier: Apache-2.0
/// A socket that sends what a test says, byte for byte, and reads replies.

#pragma once

#include "server/resp/reply_parser.h"
#include "server/resp/request_writer.h"

#include <arpa/inet.h>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fencekv::testing {

/// A request as RESP.
inline std::string request(const std::vector<std::string>& words) {
  std::string bytes;
  const std::vector<std::string_view> views(words.begin(), words.end());
  resp::write_request(bytes, views);
  return bytes;
}

/// A reply in one line, for comparisons: `+OK`, `-ERR …`, `:1`, `$text`, `_` for null, `[…, …]` for
/// arrays, `{k: v, …}` for maps, `~[…]` for sets.
inline std::string shown(const resp::Value& value) {
  using Kind = resp::Value::Kind;
  const auto joined = [&](std::string_view open, std::string_view close, bool pairs) {
    std::string text(open);
    for (std::size_t i = 0; i < value.parts.size(); ++i) {
      if (i > 0) text += pairs && i % 2 == 1 ? ": " : ", ";
      text += shown(value.parts[i]);
    }
    return text + std::string(close);
  };
  switch (value.kind) {
    case Kind::simple:
      return "+" + value.text;
    case Kind::error:
      return "-" + value.text;
    case Kind::integer:
      return ":" + std::to_string(value.integer);
    case Kind::bulk:
      return "$" + value.text;
    case Kind::null:
      return "_";
    case Kind::array:
      return joined("[", "]", false);
    case Kind::map:
      return joined("{", "}", true);
    case Kind::set:
      return joined("~[", "]", false);
    case Kind::push:
      return joined(">[", "]", false);
    case Kind::boolean:
      return value.integer != 0 ? "#t" : "#f";
    case Kind::real:
      return "," + value.text;
  }
  return "?";
}

class RawClient {
 public:
  static constexpr std::chrono::milliseconds kPatience{20000};

  explicit RawClient(std::uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }

  explicit RawClient(const std::string& unix_path)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, unix_path.data(), unix_path.size());
    connected_ =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }

  ~RawClient() { close(); }
  RawClient(RawClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), connected_(other.connected_) {}
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  RawClient& operator=(RawClient&&) = delete;

  bool connected() const { return connected_; }

  /// False: the peer has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t size = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(size));
    }
    return true;
  }

  /// Sends as much as fits without waiting; returns how much.
  std::size_t try_send(std::string_view bytes) {
    const ssize_t size = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return size < 0 ? 0 : static_cast<std::size_t>(size);
  }

  /// No more bytes will come from here.
  void finish_sending() { ::shutdown(socket_, SHUT_WR); }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  /// Ends the connection with a reset.
  void reset() {
    const linger hard{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }

  /// The next reply; nullopt: the connection ended, or nothing came in time.
  std::optional<resp::Value> read(std::chrono::milliseconds patience = kPatience) {
    for (;;) {
      switch (parser_.next()) {
        case resp::ReplyParser::Status::reply:
          return std::move(parser_.reply());
        case resp::ReplyParser::Status::protocol_error:
          return std::nullopt;
        case resp::ReplyParser::Status::need_more:
          break;
      }
      const auto bytes = receive(patience);
      if (bytes.empty()) return std::nullopt;
      parser_.feed(bytes);
    }
  }

  /// The next reply as shown() writes it, `closed` if there is none.
  std::string line(std::chrono::milliseconds patience = kPatience) {
    const auto reply = read(patience);
    return reply ? shown(*reply) : "closed";
  }

  /// Sends a request and reads its reply.
  std::string ask(const std::vector<std::string>& words) {
    send(request(words));
    return line();
  }

  /// Whether the peer ends the connection in time, whatever it still sends before.
  bool closes_within(std::chrono::milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < deadline) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd readable{socket_, POLLIN, 0};
      if (::poll(&readable, 1, static_cast<int>(left.count()) + 1) <= 0) return false;
      char bytes[4096];
      if (::recv(socket_, bytes, sizeof bytes, 0) <= 0) return true;
    }
    return false;
  }

  /// What arrives next; empty: the connection ended, or nothing came in time.
  std::string receive(std::chrono::milliseconds patience = kPatience) {
    pollfd readable{socket_, POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(patience.count())) <= 0) return {};
    std::string bytes(64 * 1024, '\0');
    const ssize_t size = ::recv(socket_, bytes.data(), bytes.size(), 0);
    bytes.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return bytes;
  }

 private:
  int socket_;
  bool connected_ = false;
  resp::ReplyParser parser_;
};

}  // namespace fencekv::testing
