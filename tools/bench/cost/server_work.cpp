// SPDX-License-Identifier: Apache-2.0
#include "server/context.h"
#include "server/lane.h"
#include "server/options.h"
#include "server/resp/reply_parser.h"
#include "server/session.h"
#include "tools/bench/cost/counted.h"
#include "tools/bench/cost/scene.h"
#include "tools/bench/cost/work.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <fmt/format.h>
#include <spdlog/sinks/null_sink.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fencekv::bench {
namespace {

namespace net = boost::asio;

/// One session of the server, as it is, and the other end of its socket. Lane, committer and client
/// take turns in one thread.
class Connection {
 public:
  explicit Connection(Scene& scene)
      : scene_(scene),
        context_(scene.store(), options_, server::Password(), log_, [] {}),
        lane_(scene.store(), kLeadMost) {
    std::array<int, 2> ends{};
    const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    require(::socketpair(AF_UNIX, type, 0, ends.data()) == 0, "there is a pair of sockets");
    client_ = ends[0];
    server::Socket socket(lane_.executor());
    boost::system::error_code error;
    socket.assign(net::generic::stream_protocol(AF_UNIX, 0), ends[1], error);
    if (!error) socket.non_blocking(true, error);
    require(!error, "the session gets its socket");
    require(context_.clients.try_reserve(), "the session is let in");
    auto session =
        std::make_unique<server::Session>(std::move(socket), "bench", "bench", lane_, context_);
    net::co_spawn(lane_.executor(), server::serve_client(std::move(session)), net::detached);
  }

  ~Connection() {
    ::close(client_);
    while (context_.clients.size() > 0) turn();
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Sends `requests` and takes their replies, which have `lines` lines.
  void exchange(std::string_view requests, std::size_t lines) {
    replies_.clear();
    {
      const Uncounted client;
      const auto sent = ::send(client_, requests.data(), requests.size(), MSG_NOSIGNAL);
      require(sent == static_cast<ssize_t>(requests.size()), "the socket takes a group");
    }
    // It takes two, as long as nothing waits for anything but the store.
    constexpr int kTurns = 100;
    for (int turns = 0; turns < kTurns && lines > 0; ++turns) {
      turn();
      lines -= std::min(lines, receive());
    }
  }

  std::string_view replies() const { return replies_; }

 private:
  // As a server under `process`: a group is committed where it has come from.
  static constexpr std::size_t kLeadMost = 128;

  void turn() {
    lane_.poll();
    scene_.drain();
  }

  /// Returns how many lines have come.
  std::size_t receive() {
    const Uncounted client;
    std::size_t lines = 0;
    for (;;) {
      std::array<char, 16384> piece;
      const auto size = ::recv(client_, piece.data(), piece.size(), 0);
      if (size <= 0) return lines;
      const std::string_view text(piece.data(), static_cast<std::size_t>(size));
      lines += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
      replies_ += text;
    }
  }

  Scene& scene_;
  const server::ServerOptions options_;
  spdlog::logger log_{"bench", std::make_shared<spdlog::sinks::null_sink_st>()};
  server::Context context_;
  server::Lane lane_;
  int client_ = -1;
  std::string replies_;
};

void append_request(std::string& out, std::initializer_list<std::string_view> arguments) {
  out += fmt::format("*{}\r\n", arguments.size());
  for (const auto argument : arguments)
    out += fmt::format("${}\r\n{}\r\n", argument.size(), argument);
}

/// A group is what a client sends in one go.
class ServerWork : public Work {
 public:
  ServerWork(const std::filesystem::path& directory, std::size_t group)
      : scene_(directory), group_(group), connection_(scene_) {}

  void prepare() override {
    requests_.clear();
    lines_ = 0;
    begin_group();
    for (std::size_t i = 0; i < group_; ++i) lines_ += append(requests_, i);
  }

  void run() override { connection_.exchange(requests_, lines_); }

  bool is_right() override {
    resp::ReplyParser parser;
    parser.feed(connection_.replies());
    std::size_t right = 0;
    while (parser.next() == resp::ReplyParser::Status::reply) {
      if (is_expected(parser.reply())) ++right;
    }
    return right == group_;
  }

 protected:
  /// Appends the request at that place of the group; returns the lines of its reply.
  virtual std::size_t append(std::string& requests, std::size_t place) = 0;
  virtual bool is_expected(const resp::Value& reply) = 0;
  virtual void begin_group() {}

  Scene& scene() { return scene_; }
  std::uint64_t next_number() { return number_++; }

 private:
  Scene scene_;
  const std::size_t group_;
  Connection connection_;
  std::uint64_t number_ = 0;
  std::string requests_;
  std::size_t lines_ = 0;
};

/// FENCE.SET of a known key, with a token that is accepted or one that is not.
template <bool is_stale>
class ServedWrite final : public ServerWork {
 public:
  using ServerWork::ServerWork;

 private:
  std::size_t append(std::string& requests, std::size_t /*place*/) override {
    const auto token = std::to_string((is_stale ? scene().older() : scene().newer()).number());
    append_request(requests, {"FENCE.SET", known_key(next_number()), token, scene().value()});
    return 1;
  }
  bool is_expected(const resp::Value& reply) override {
    if (is_stale) return reply.is_error() && reply.text.starts_with("FENCED ");
    return reply.kind == resp::Value::Kind::integer;
  }
};

/// GET of a known key.
class ServedRead final : public ServerWork {
 public:
  using ServerWork::ServerWork;

 private:
  std::size_t append(std::string& requests, std::size_t /*place*/) override {
    append_request(requests, {"GET", known_key(next_number())});
    return 2;
  }
  bool is_expected(const resp::Value& reply) override { return reply.text == scene().value(); }
};

/// A group of LEASE.ACQUIRE, and a group of LEASE.RELEASE for what it got, in turn.
class ServedLease final : public ServerWork {
 public:
  using ServerWork::ServerWork;

 private:
  void begin_group() override {
    is_release_ = !is_release_;
    if (is_release_) return;
    names_.clear();
    tokens_.clear();
  }
  std::size_t append(std::string& requests, std::size_t place) override {
    if (is_release_) {
      append_request(requests, {"LEASE.RELEASE", names_[place], kOwner, tokens_[place]});
      return 1;
    }
    names_.push_back(known_key(next_number()));
    const auto ttl = std::to_string(kTtl.count());
    append_request(requests, {"LEASE.ACQUIRE", names_.back(), kOwner, ttl});
    return 4;
  }
  bool is_expected(const resp::Value& reply) override {
    if (is_release_) return reply.text == "OK";
    if (reply.parts.size() != 2) return false;
    tokens_.push_back(reply.parts.front().text);
    return true;
  }

  bool is_release_ = true;
  std::vector<std::string> names_;
  std::vector<std::string> tokens_;
};

template <class Kind>
std::unique_ptr<Work> make(const std::filesystem::path& directory, std::size_t group) {
  return std::make_unique<Kind>(directory, group);
}

}  // namespace

std::vector<WorkKind> server_works() {
  return {{"server/write/1", 1, make<ServedWrite<false>>},
          {"server/write/64", 64, make<ServedWrite<false>>},
          {"server/stale/1", 1, make<ServedWrite<true>>},
          {"server/stale/64", 64, make<ServedWrite<true>>},
          {"server/read/1", 1, make<ServedRead>},
          {"server/read/64", 64, make<ServedRead>},
          {"server/lease/1", 1, make<ServedLease>},
          {"server/lease/64", 64, make<ServedLease>}};
}

}  // namespace fencekv::bench
