// SPDX-License-Identifier: Apache-2.0
/// The whole server, sockets and threads included, over a store in memory: the bytes of an input
/// come in over several connections. No fault; no more replies than requests, and not fewer unless
/// the connection ends; the end of the sending side ends the connection; and an honest connection
/// is answered all the while.
#include "engine/core/make_store.h"
#include "engine/memory/memory_backend.h"
#include "server/resp/reply_parser.h"
#include "server/resp/request_parser.h"
#include "server/server.h"
#include "tests/fuzz/pieces.h"
#include "tests/support/temporary_directory.h"

#include <spdlog/sinks/null_sink.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using namespace fencekv;
using fencekv::fuzz::require;

constexpr int kPatienceMs = 20'000;
constexpr std::string_view kPassword = "pw";

/// libFuzzer's watch over the time is a signal now and then, which ends system calls.
template <class Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

/// Whether something of `events` happens in time.
bool happens(int socket, short events, short& happened) {
  pollfd ready{socket, events, 0};
  const auto count = uninterrupted([&] { return ::poll(&ready, 1, kPatienceMs); });
  happened = ready.revents;
  return count > 0;
}

class Connection {
 public:
  explicit Connection(const std::string& path, bool may_fail = false)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), address.sun_path);
    const auto connected = uninterrupted([&] {
      return ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    });
    require(connected == 0 || may_fail, "everybody can connect");
    ended_ = connected != 0;
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void send(std::string_view bytes) {
    while (!bytes.empty() && !ended_) {
      short ready = 0;
      require(happens(socket_, POLLOUT | POLLIN, ready), "the server takes bytes or gives some");
      // Replies are read meanwhile: a server that waits for a reader is not stuck.
      if ((ready & POLLIN) != 0 && !receive()) return;
      if ((ready & (POLLERR | POLLHUP)) != 0) return;
      const auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  /// Nothing more will be sent; what was received is answered, and then the connection ends.
  void finish() {
    ::shutdown(socket_, SHUT_WR);
    while (!ended_) {
      short ready = 0;
      require(happens(socket_, POLLIN, ready), "a connection that has ended its side ends");
      receive();
    }
  }

  /// `count` replies, pushes not counted.
  void await(std::size_t count) {
    while (replies_ < count && !ended_) {
      short ready = 0;
      require(happens(socket_, POLLIN, ready), "an honest connection is answered in time");
      receive();
    }
  }

  std::size_t replies() const { return replies_; }
  const std::string& last() const { return last_; }
  bool last_is_error() const { return last_is_error_; }
  bool has_ended() const { return ended_; }

 private:
  bool receive() {
    char bytes[16384];
    const auto size = ::recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (size <= 0) {
      ended_ = true;
      return false;
    }
    parser_.feed(std::string_view(bytes, static_cast<std::size_t>(size)));
    for (;;) {
      const auto status = parser_.next();
      require(status != resp::ReplyParser::Status::protocol_error, "replies follow the protocol");
      if (status == resp::ReplyParser::Status::need_more) return true;
      if (parser_.reply().kind == resp::Value::Kind::push) continue;
      ++replies_;
      last_is_error_ = parser_.reply().is_error();
      last_ = parser_.reply().text;
    }
  }

  const int socket_;
  resp::ReplyParser parser_;
  std::size_t replies_ = 0;
  std::string last_;
  bool last_is_error_ = false;
  bool ended_ = false;
};

/// A server that is started anew after a number of inputs, or when one of them has stopped it. It
/// is never destroyed: when the program ends, libraries that it uses have ended before it.
class Server {
 public:
  Server(const std::string& path, bool is_guarded) : is_guarded_(is_guarded), path_(path) {
    options_.port = -1;
    options_.unix_path = path;
    options_.io_threads = 1;
    // What an input left waiting is not for the next one to wait for.
    options_.store.max_waiting = 100;
    options_.store.reclaim_interval = std::chrono::nanoseconds(0);
  }

  /// Runs, with not too much of former inputs in it.
  const std::string& path() {
    constexpr int kInputs = 500;
    if (has_stopped_ || ++inputs_ > kInputs) stop();
    if (!thread_.joinable()) start();
    return path_;
  }
  bool has_stopped() const { return has_stopped_; }

  /// After an input that may have stopped it: one that listens no more is about to end.
  void settle() {
    if (Connection(path_, true).has_ended()) has_stopped_.wait(false);
  }

 private:
  void start() {
    inputs_ = 0;
    has_stopped_ = false;
    auto store =
        core::make_store(std::make_unique<memory::MemoryBackend>(
                             std::make_shared<memory::MemoryDisk>(), Durability::sync, "boot"),
                         options_.store);
    require(store.has_value(), "a store in memory opens");
    store_ = *std::move(store);
    std::atomic<bool> ready = false;
    thread_ = std::thread([this, &ready] {
      const auto served = server::serve(
          *store_, options_, is_guarded_ ? server::Password(kPassword) : server::Password(), log_,
          [&ready](const std::string&) {
            ready = true;
            ready.notify_all();
          });
      require(served.has_value(), "the socket can be listened on");
      has_stopped_ = true;
      has_stopped_.notify_all();
    });
    ready.wait(false);
  }

  void stop() {
    if (!thread_.joinable()) return;
    if (!has_stopped_) {
      Connection last(path_);
      if (is_guarded_) last.send("*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n");
      last.send("*1\r\n$8\r\nSHUTDOWN\r\n");
      last.finish();
    }
    thread_.join();
    store_.reset();
  }

  const bool is_guarded_;
  const std::string path_;
  server::ServerOptions options_;
  spdlog::logger log_{"fuzz", std::make_shared<spdlog::sinks::null_sink_mt>()};
  std::unique_ptr<Store> store_;
  std::thread thread_;
  std::atomic<bool> has_stopped_ = false;
  int inputs_ = 0;
};

void expect_pong(Server& server, bool is_guarded) {
  Connection honest(server.path());
  if (is_guarded) honest.send("*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n");
  honest.send("*1\r\n$4\r\nPING\r\n");
  honest.await(is_guarded ? 2 : 1);
  require(honest.last() == "PONG", "an honest connection is answered");
}

/// What one connection sends, in its pieces, and what may be expected of it.
struct Script {
  std::vector<std::string> pieces;
  bool ends_rudely = false;  // Without waiting for its replies.
  std::size_t requests = 0;
  bool may_be_short = false;  // There may be fewer replies than requests.
  bool is_rude = false;       // It may end other connections, or the server.

  void understand() {
    resp::RequestParser parser{resp::RequestLimits()};
    for (const auto& piece : pieces) parser.feed(piece);
    while (parser.next() == resp::RequestParser::Status::request) {
      ++requests;
      for (const auto word : parser.request()) note(word);
    }
  }

 private:
  void note(std::string_view word) {
    std::string upper(word);
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const auto has = [&](std::string_view part) { return upper.find(part) != std::string::npos; };
    if (has("SHUTDOWN") || has("KILL")) is_rude = true;
    // They end the connection, switch replies off, or wait until the end.
    for (const auto* ending : {"REPLY", "WAIT", "QUIT", "POST", "HOST:", "HTTP/"}) {
      if (has(ending)) may_be_short = true;
    }
  }
};

/// One piece of some connection's script.
struct Turn {
  std::size_t script;
  std::size_t piece;
};

struct Play {
  std::vector<Script> scripts;
  std::vector<Turn> turns;
};

/// 0xff passes on to the next of three connections, 0xfe ends one in the middle.
Play play_of(std::size_t first, std::string_view bytes) {
  constexpr std::size_t kConnections = 3;
  Play play;
  std::array<std::optional<std::size_t>, kConnections> running;
  for (auto turn = first; !bytes.empty(); ++turn) {
    auto& script = running.at(turn % kConnections);
    if (!script) {
      script = play.scripts.size();
      play.scripts.emplace_back();
    }
    auto& its = play.scripts[*script];
    const auto end = bytes.find_first_of("\xff\xfe");
    play.turns.push_back({*script, its.pieces.size()});
    its.pieces.emplace_back(bytes.substr(0, end));
    if (end == std::string_view::npos) break;
    if (bytes[end] == '\xfe') {
      its.ends_rudely = true;
      script = std::nullopt;
    }
    bytes.remove_prefix(end + 1);
  }
  for (auto& script : play.scripts) script.understand();
  return play;
}

void expect_replies(const Script& script, const Connection& connection) {
  const auto replies = connection.replies();
  require(replies <= script.requests + 1, "no more replies than requests, one for a broken one");
  require(replies >= script.requests || script.may_be_short || connection.last_is_error(),
          "every request is answered");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  std::signal(SIGPIPE, SIG_IGN);
  static const testing::TemporaryDirectory directory;
  static auto& open = *new Server((directory.path() / "open").string(), false);
  static auto& guarded = *new Server((directory.path() / "guarded").string(), true);
  if (size == 0) return 0;

  const bool is_guarded = (bytes[0] & 1U) != 0;
  auto& server = is_guarded ? guarded : open;
  const auto play =
      play_of(bytes[0] >> 1U, std::string_view(reinterpret_cast<const char*>(bytes) + 1, size - 1));
  const bool is_rude = std::any_of(play.scripts.begin(), play.scripts.end(),
                                   [](const auto& script) { return script.is_rude; });

  const auto path = server.path();
  std::vector<std::unique_ptr<Connection>> connections(play.scripts.size());
  for (const auto& turn : play.turns) {
    const auto& script = play.scripts[turn.script];
    auto& connection = connections[turn.script];
    if (!connection) connection = std::make_unique<Connection>(path, is_rude);
    connection->send(script.pieces[turn.piece]);
    if (script.ends_rudely && turn.piece + 1 == script.pieces.size()) connection.reset();
  }
  if (!is_rude) expect_pong(server, is_guarded);
  for (std::size_t i = 0; i < connections.size(); ++i) {
    if (!connections[i]) continue;
    connections[i]->finish();
    if (!is_rude) expect_replies(play.scripts[i], *connections[i]);
  }
  connections.clear();
  if (is_rude) {
    server.settle();
    return 0;
  }
  expect_pong(server, is_guarded);
  require(!server.has_stopped(), "only SHUTDOWN stops the server");
  return 0;
}
