// SPDX-License-Identifier: Apache-2.0
/// A store behind a server and a client, all in this process: the session, the protocol and the
/// client library are the real ones, only the socket is a Unix socket in a temporary directory.

#include "server/server.h"
#include "tests/contract/lives.h"
#include "tests/contract/world.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>

#include <fencekv/client.h>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

/// The engine's commands as the client sends them.
class OverTheNetwork {
 public:
  explicit OverTheNetwork(Client& client) : client_(client) {}

  template <class C>
  Result<Reply> operator()(C& command) {
    auto reply = client_.execute(std::move(command));
    if (!reply) return std::move(reply).error();
    return Reply(*std::move(reply));
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
  Client& client_;
};

class NetworkWorld final : public World {
 public:
  explicit NetworkWorld(Options options) : World(std::move(options)) { start(); }
  ~NetworkWorld() override { stop(); }

  Result<Reply> run(Command command) override {
    return std::visit(OverTheNetwork(*client_), command);
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
  }

  void stop() {
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
};

}  // namespace

std::unique_ptr<World> make_network_world(Options options) {
  return std::make_unique<NetworkWorld>(std::move(options));
}

}  // namespace fencekv::testing
