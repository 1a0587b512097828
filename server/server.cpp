// SPDX-License-Identifier: Apache-2.0

#include "server/server.h"

#include "server/context.h"
#include "server/lane.h"
#include "server/listener.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fencekv::server {

namespace net = boost::asio;

namespace {

constexpr auto kAsResult = net::as_tuple(net::use_awaitable);

/// How many commands a lane commits by itself. With `process` so many cost less than to wake
/// another thread and to share its lock; beyond, two threads are faster. With `sync` it pays only
/// if nobody else could use the time that the disk takes.
std::size_t lead_most(const Store& store) {
  return store.options().durability == Durability::process ? 256 : 2;
}

/// Everything of a running server. The first thread, which calls run(), also accepts, watches the
/// deadlines and hears the signals; all members but context_ belong to it.
class Server {
 public:
  Server(Store& store, const ServerOptions& options, const Password& password, spdlog::logger& log)
      : options_(options),
        log_(log),
        context_(store, options, password, log, [this] { post_stop(); }),
        lanes_(make_lanes(store, options.io_threads)),
        signals_(first().executor(), SIGTERM, SIGINT) {}

  Result<void> listen(const std::function<void(const std::string&)>& ready);
  void run();

 private:
  static std::vector<std::unique_ptr<Lane>> make_lanes(Store& store, std::size_t count) {
    std::vector<std::unique_ptr<Lane>> lanes;
    for (std::size_t i = 0; i < count; ++i) {
      lanes.push_back(std::make_unique<Lane>(store, lead_most(store)));
    }
    return lanes;
  }
  Lane& first() { return *lanes_.front(); }
  Lane& next_lane();
  void post_stop();
  void stop();
  void force();
  net::awaitable<void> hear_signals();
  net::awaitable<void> watch_deadlines();

  const ServerOptions& options_;
  spdlog::logger& log_;
  Context context_;  // before the lanes: their sessions refer to it until they are destroyed
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::size_t newest_lane_ = 0;
  net::signal_set signals_;
  std::optional<net::ip::tcp::acceptor> tcp_;
  std::optional<net::local::stream_protocol::acceptor> unix_;
  std::optional<MonotonicTime> drain_deadline_;  // set: draining
  bool forced_ = false;
  Throttle overdue_;
};

Result<void> Server::listen(const std::function<void(const std::string&)>& ready) {
  const auto executor = first().executor();
  if (options_.port >= 0) {
    auto acceptor = listen_tcp(executor, options_.bind, options_.port);
    if (!acceptor) return acceptor.error();
    tcp_ = *std::move(acceptor);
    context_.port = tcp_->local_endpoint().port();
  }
  if (!options_.unix_path.empty()) {
    auto acceptor = listen_unix(executor, options_.unix_path);
    if (!acceptor) return acceptor.error();
    unix_ = *std::move(acceptor);
  }

  const auto choose_lane = [this]() -> Lane& { return next_lane(); };
  if (tcp_) {
    net::co_spawn(executor, accept_tcp(*tcp_, choose_lane, context_), net::detached);
    ready(to_string(tcp_->local_endpoint()));
  }
  if (unix_) {
    net::co_spawn(executor, accept_unix(*unix_, choose_lane, context_), net::detached);
    ready("unix:" + options_.unix_path.string());
  }
  return {};
}

void Server::run() {
  net::co_spawn(first().executor(), hear_signals(), net::detached);
  net::co_spawn(first().executor(), watch_deadlines(), net::detached);
  const std::jthread watch([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(Lane::kLookInterval);
      for (const auto& lane : lanes_) lane->look();
    }
  });
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < lanes_.size(); ++i) {
    others.emplace_back([&lane = *lanes_[i]] { lane.run(); });
  }
  first().run();
  others.clear();
  for (const auto& lane : lanes_) lane->join();
}

Lane& Server::next_lane() {
  newest_lane_ = (newest_lane_ + 1) % lanes_.size();
  return *lanes_[newest_lane_];
}

void Server::post_stop() {
  net::post(first().executor(), [this] { stop(); });
}

void Server::stop() {
  if (drain_deadline_) return;
  drain_deadline_ = std::chrono::steady_clock::now() + ServerOptions::kDrainTimeout;
  log_.info("stopping: answering what was received from {} connections", context_.clients.size());
  boost::system::error_code ignored;
  if (tcp_) tcp_->close(ignored);
  if (unix_) {
    unix_->close(ignored);
    ::unlink(options_.unix_path.c_str());
  }
  context_.backups.cancel();
  context_.clients.drain_all();
}

void Server::force() {
  if (forced_) return;
  forced_ = true;
  log_.warn("closing {} connections that have not ended", context_.clients.size());
  context_.clients.hang_up([](const Client&) { return true; });
}

net::awaitable<void> Server::hear_signals() {
  for (;;) {
    const auto [error, signal] = co_await signals_.async_wait(kAsResult);
    if (error) co_return;
    if (drain_deadline_) {
      force();
    } else {
      stop();
    }
  }
}

/// Closes connections that are overdue, and ends run() when the drain is over.
net::awaitable<void> Server::watch_deadlines() {
  constexpr std::chrono::milliseconds kTick{250};
  constexpr std::chrono::milliseconds kDrainTick{10};

  net::steady_timer timer(first().executor());
  const auto log_overdue = [this](const Client& client, Wait wait) {
    if (const auto held_back = overdue_.pass()) {
      log_.info("client {} is closed: {} ({} more before)", client.peer, to_string(wait),
                *held_back);
    }
  };
  for (;;) {
    timer.expires_after(kTick);
    if (drain_deadline_) timer.expires_after(kDrainTick);
    co_await timer.async_wait(kAsResult);
    const auto now = std::chrono::steady_clock::now();
    context_.clients.hang_up_overdue(now, log_overdue);
    if (!drain_deadline_) continue;
    if (context_.clients.size() == 0) break;
    if (now >= *drain_deadline_) force();
  }
  signals_.cancel();
  for (const auto& lane : lanes_) lane->release();
}

}  // namespace

Result<void> serve(Store& store, const ServerOptions& options, const Password& password,
                   spdlog::logger& log, const std::function<void(const std::string&)>& ready) {
  std::optional<Server> server;
  try {
    server.emplace(store, options, password, log);
  } catch (const boost::system::system_error& error) {
    // Each event loop takes a few descriptors.
    return Error(Errc::invalid, std::string("cannot make an event loop: ") + error.what());
  }
  if (auto listening = server->listen(ready); !listening) return listening;
  server->run();
  return {};
}

}  // namespace fencekv::server
