// SPDX-License-Identifier: Apache-2.0
/// A store behind a server and a client, all in this process: the session, the protocol and the
/// client library are the real ones, only the socket is a Unix socket in a temporary directory.

#include "server/resp/request_writer.h"
#include "server/server.h"
#include "tests/contract/lease_wire.h"
#include "tests/contract/lives.h"
#include "tests/contract/world.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>

#include <cstring>
#include <deque>
#include <fencekv/client.h>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

/// A connection of its own that speaks RESP3, byte for byte, with a thread that reads.
class NetworkUser final : public User {
 public:
  NetworkUser(const std::string& unix_path, const std::string& name)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (unix_path.size() >= sizeof address.sun_path) throw std::runtime_error("path too long");
    std::memcpy(address.sun_path, unix_path.data(), unix_path.size());
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("cannot connect");
    }
    reader_ = std::thread([this] { read(); });
    const auto hello = send({"HELLO", "3", "SETNAME", name}, [](const resp::Value& value) {
      return value.is_error() ? Result<Reply>(parse_error_line(value.text)) : Reply();
    });
    if (const auto greeted = hello->wait(); !greeted || !*greeted) {
      throw std::runtime_error("HELLO 3 was not answered");
    }
  }
  ~NetworkUser() override { leave(); }

  Result<Reply> run(Command command) override {
    auto reply = submit(std::move(command)).answer->wait();
    if (!reply) throw std::runtime_error("no answer came");
    return *std::move(reply);
  }

  Submitted submit(Command command) override {
    auto request = lease_request(command);
    if (!request) throw std::runtime_error("users only ask about leases here");
    return {.answer = send(request->words, std::move(request->decode))};
  }

  void cancel(const Submitted&) override {
    throw std::runtime_error("the protocol has no way to cancel");
  }

  std::vector<LeaseEvent> take_events() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  std::size_t events_so_far() const override {
    const std::lock_guard lock(mutex_);
    return events_so_far_;
  }

  void leave() override {
    if (!reader_.joinable()) return;
    ::shutdown(socket_, SHUT_RDWR);
    reader_.join();
    ::close(socket_);
  }

 private:
  struct Asked {
    std::shared_ptr<Answer> answer;
    std::function<Result<Reply>(const resp::Value&)> decode;
  };

  std::shared_ptr<Answer> send(const std::vector<std::string>& words,
                               std::function<Result<Reply>(const resp::Value&)> decode) {
    std::string bytes;
    const std::vector<std::string_view> views(words.begin(), words.end());
    resp::write_request(bytes, views);

    auto answer = std::make_shared<Answer>();
    {
      const std::lock_guard lock(mutex_);
      if (is_gone_) {
        answer->set(Error::lease_lost("disconnected"));
        return answer;
      }
      asked_.push_back({answer, std::move(decode)});
    }
    for (std::string_view left = bytes; !left.empty();) {
      const auto size = ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL);
      if (size <= 0) break;
      left.remove_prefix(static_cast<std::size_t>(size));
    }
    return answer;
  }

  void read() {
    resp::ReplyParser parser;
    std::vector<char> bytes(64 * 1024);
    for (;;) {
      const auto size = ::recv(socket_, bytes.data(), bytes.size(), 0);
      if (size <= 0) break;
      parser.feed({bytes.data(), static_cast<std::size_t>(size)});
      while (parser.next() == resp::ReplyParser::Status::reply) take(parser.reply());
    }
    const std::lock_guard lock(mutex_);
    is_gone_ = true;
    for (const auto& asked : asked_) asked.answer->set(Error::lease_lost("disconnected"));
    asked_.clear();
  }

  void take(const resp::Value& value) {
    const std::lock_guard lock(mutex_);
    if (value.kind == resp::Value::Kind::push) {
      if (auto event = lease_event(value)) {
        events_.push_back(*std::move(event));
        ++events_so_far_;
      }
      return;
    }
    if (asked_.empty()) return;
    auto asked = std::move(asked_.front());
    asked_.pop_front();
    try {
      asked.answer->set(asked.decode(value));
    } catch (const std::runtime_error& wrong) {
      asked.answer->set(Error(Errc::protocol, wrong.what()));
    }
  }

  const int socket_;
  mutable std::mutex mutex_;
  bool is_gone_ = false;            // guarded by mutex_
  std::deque<Asked> asked_;         // guarded by mutex_
  std::vector<LeaseEvent> events_;  // guarded by mutex_
  std::size_t events_so_far_ = 0;   // guarded by mutex_
  std::thread reader_;
};

/// The engine's commands as the client sends them.
class OverTheNetwork {
 public:
  OverTheNetwork(Client& client, User& raw) : client_(client), raw_(raw) {}

  template <class C>
  Result<Reply> operator()(C& command) {
    // What the store cannot do for a client: nobody may give back what another was granted.
    if constexpr (std::is_same_v<C, GiveBack>) {
      return Error(Errc::invalid, "the protocol has no such command");
    } else if constexpr (std::is_same_v<C, AcquireMany> || std::is_same_v<C, RenewMany> ||
                         std::is_same_v<C, ReleaseMany> || std::is_same_v<C, ListWaiters> ||
                         std::is_same_v<C, Await> || std::is_same_v<C, Watch> ||
                         std::is_same_v<C, Unwatch>) {
      return raw_.run(Command(std::move(command)));
    } else {
      return as_the_client_does(command);
    }
  }

  // The protocol tells the new fence only.
  Result<Reply> operator()(Reset& command) {
    const auto before = client_.get_fenced(command.key);
    if (!before) return before.error();
    const auto after = client_.reset(std::move(command));
    if (!after) return after.error();
    return Reply(Reset::Reply{.before = before->fence, .after = *after});
  }

  // No command tells everything about a key, so it is put together from three.
  Result<Reply> operator()(Read& command) {
    const auto values = client_.get_many(command.keys);
    if (!values) return values.error();

    Read::Reply keys;
    for (std::size_t i = 0; i < command.keys.size(); ++i) {
      auto state = client_.get_fenced(command.keys[i]);
      if (!state) return std::move(state).error();
      auto description = client_.describe(command.keys[i]);
      if (!description) return std::move(description).error();
      if (state->value != (*values)[i] || state->version != description->version ||
          state->fence != description->fence || state->guard != description->guard ||
          state->value.has_value() != description->exists ||
          state->value.value_or("").size() != description->size) {
        throw std::runtime_error("MGET, FENCE.GET and FENCE.INFO differ");
      }
      state->request = std::move(description->request);
      state->written = description->written;
      keys.push_back(*std::move(state));
    }
    return Reply(std::move(keys));
  }

  // A fenced read over the network shows what FENCE.GET shows.
  Result<Reply> operator()(FencedRead& command) {
    auto state = client_.execute(std::move(command));
    if (!state) return std::move(state).error();
    return Reply(*std::move(state));
  }

 private:
  template <class C>
  Result<Reply> as_the_client_does(C& command) {
    auto reply = client_.execute(std::move(command));
    if (!reply) return std::move(reply).error();
    return Reply(*std::move(reply));
  }

  Client& client_;
  User& raw_;
};

class NetworkWorld final : public World {
 public:
  explicit NetworkWorld(Options options) : World(std::move(options)) { start(); }
  ~NetworkWorld() override { stop(); }

  Result<Reply> run(Command command) override {
    return std::visit(OverTheNetwork(*client_, *raw_), command);
  }

  Result<std::vector<LeaseState>> leases() override {
    std::vector<LeaseState> leases;
    std::string cursor = "0";
    do {
      auto page = client_->scan_leases({.cursor = cursor, .match = {}, .count = 2});
      if (!page) return std::move(page).error();
      for (auto& lease : page->leases) leases.push_back(std::move(lease));
      cursor = page->cursor;
    } while (cursor != "0");
    return leases;
  }

  Result<std::vector<LeaseState>> page_of_leases(std::size_t examine) override {
    auto page = client_->scan_leases({.cursor = "0", .match = {}, .count = examine});
    if (!page) return std::move(page).error();
    return std::move(page->leases);
  }

  Result<std::vector<std::string>> keys() override {
    std::vector<std::string> keys;
    std::string cursor = "0";
    do {
      auto page = client_->scan({.cursor = cursor, .match = {}, .count = 2});
      if (!page) return std::move(page).error();
      for (auto& key : page->keys) keys.push_back(std::move(key));
      cursor = page->cursor;
    } while (cursor != "0");
    return keys;
  }

  std::vector<Rejection> rejections() override {
    auto rejections = client_->rejections(1000);
    if (!rejections) throw std::runtime_error(rejections.error().line());
    return *std::move(rejections);
  }

  Store& store() override { return *store_; }

  User& add_user(const std::string& name) override {
    users_.push_back(std::make_unique<NetworkUser>(server_options_.unix_path.string(), name));
    return *users_.back();
  }
  bool can_cancel() const override { return false; }

  void restart() override {
    stop();
    start();
  }

  void crash() override {
    lives_.crash([this] { stop(); }, [this] { start(); });
  }

 private:
  void start() {
    auto opened = open_rocksdb(lives_.directory(), options());
    if (!opened) throw std::runtime_error(opened.error().line());
    store_ = *std::move(opened);

    server_options_.port = -1;
    server_options_.unix_path = lives_.root() / "socket";
    server_options_.io_threads = 1;
    server_options_.store = options();
    std::promise<void> ready;
    auto is_ready = ready.get_future();
    server_ = std::thread([this, &ready] {
      const auto served = server::serve(*store_, server_options_, {}, log_,
                                        [&ready](const std::string&) { ready.set_value(); });
      if (!served) ready.set_exception(std::make_exception_ptr(std::runtime_error("not served")));
    });
    is_ready.get();

    auto connected = Client::connect({.unix_path = server_options_.unix_path.string()});
    if (!connected) throw std::runtime_error(connected.error().line());
    client_.emplace(*std::move(connected));
    raw_.emplace(server_options_.unix_path.string(), "raw");
  }

  void stop() {
    for (const auto& user : users_) user->leave();
    raw_.reset();
    // The connection ends with the server, so the answer does not come: only the end counts.
    static_cast<void>(client_->call({"SHUTDOWN"}));
    server_.join();
    client_.reset();
    store_.reset();
  }

  Lives lives_;
  spdlog::logger log_{"test", std::make_shared<spdlog::sinks::null_sink_mt>()};
  server::ServerOptions server_options_;
  std::unique_ptr<Store> store_;
  std::thread server_;
  std::optional<Client> client_;
  std::optional<NetworkUser> raw_;
  std::vector<std::unique_ptr<NetworkUser>> users_;  // Gone ones, too: a test may still look.
};

}  // namespace

std::unique_ptr<World> make_network_world(Options options) {
  return std::make_unique<NetworkWorld>(std::move(options));
}

}  // namespace fencekv::testing
