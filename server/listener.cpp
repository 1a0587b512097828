// SPDX-License-Identifier: Apache-2.0

#include "server/listener.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace fencekv::server {

namespace net = boost::asio;
using Tcp = net::ip::tcp;
using Unix = net::local::stream_protocol;

namespace {

constexpr auto kAsResult = net::as_tuple(net::use_awaitable);
constexpr int kBacklog = 1024;

Error cannot_listen(std::string_view where, std::string_view why) {
  return Error(Errc::invalid, fmt::format("cannot listen on {}: {}", where, why));
}

/// Says no to a connection without waiting for it.
template <class AnySocket>
void refuse(AnySocket& socket) {
  constexpr std::string_view kLine = "-ERR max number of clients reached\r\n";
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(net::buffer(kLine), ignored);
  socket.close(ignored);
}

/// The accept loop that both kinds of socket share. `name_of(socket)` gives peer and local address.
template <class Acceptor, class NameOf>
net::awaitable<void> accept_all(Acceptor& acceptor, ChooseLane choose_lane, Context& context,
                                NameOf name_of) {
  constexpr std::chrono::milliseconds kBreath{100};
  Throttle exhausted;
  net::steady_timer breath(acceptor.get_executor());

  while (acceptor.is_open()) {
    Lane& lane = choose_lane();
    auto [error, socket] = co_await acceptor.async_accept(lane.executor(), kAsResult);
    if (error == net::error::operation_aborted || error == net::error::bad_descriptor) co_return;
    if (error == net::error::no_descriptors || error == net::error::no_memory ||
        error == net::error::no_buffer_space ||
        error == boost::system::errc::too_many_files_open_in_system) {
      // The connection stays in the kernel's queue; asking again at once would only spin.
      if (const auto held_back = exhausted.pass()) {
        context.log.error("cannot accept connections: {} ({} more before)", error.message(),
                          *held_back);
      }
      breath.expires_after(kBreath);
      co_await breath.async_wait(kAsResult);
      continue;
    }
    // Anything else is about the one connection that went away while it was accepted.
    if (error) continue;

    if (!context.clients.try_reserve()) {
      context.counters.refused_connections.fetch_add(1, std::memory_order_relaxed);
      if (const auto held_back = context.refused_connections.pass()) {
        context.log.warn("connection refused: {} are open ({} more refused before)",
                         context.options.max_connections, *held_back);
      }
      refuse(socket);
      continue;
    }
    context.counters.connections.fetch_add(1, std::memory_order_relaxed);
    auto [peer, local] = name_of(socket);
    boost::system::error_code ignored;
    socket.non_blocking(true, ignored);
    auto session = std::make_unique<Session>(Socket(std::move(socket)), std::move(peer),
                                             std::move(local), lane, context);
    // Detached, and yet owned: context.clients counts it, and the server waits for that count.
    net::co_spawn(lane.executor(), serve_client(std::move(session)), net::detached);
  }
}

/// A peer that lost its power says nothing. Without probes its connection would stay for ever, and
/// with the kernel's own times for two hours: too long for one that waits or holds a bound lease.
void keep_alive(Tcp::socket& socket) {
  constexpr std::chrono::seconds kQuiet{30};
  constexpr std::chrono::seconds kBetweenProbes{10};
  constexpr int kProbes = 3;
  const auto set = [&](int level, int option, auto value) {
    const int number = static_cast<int>(value);
    ::setsockopt(socket.native_handle(), level, option, &number, sizeof number);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kQuiet.count());
  set(IPPROTO_TCP, TCP_KEEPINTVL, kBetweenProbes.count());
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

struct Addresses {
  std::string peer;
  std::string local;
};

}  // namespace

std::string to_string(const Tcp::endpoint& endpoint) {
  return endpoint.address().is_v6()
             ? fmt::format("[{}]:{}", endpoint.address().to_string(), endpoint.port())
             : fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

Result<Tcp::acceptor> listen_tcp(const net::any_io_executor& executor, const std::string& address,
                                 int port) {
  const std::string where = fmt::format("{}:{}", address, port);
  boost::system::error_code error;
  const auto parsed =
      net::ip::make_address(address == "localhost" ? std::string("127.0.0.1") : address, error);
  if (error) return cannot_listen(where, error.message());

  const Tcp::endpoint endpoint(parsed, static_cast<net::ip::port_type>(port));
  Tcp::acceptor acceptor(executor);
  acceptor.open(endpoint.protocol(), error);
  // Otherwise a restart would have to wait for the connections of the previous run to time out.
  if (!error) acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error && parsed.is_v6()) acceptor.set_option(net::ip::v6_only(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(kBacklog, error);
  if (error) return cannot_listen(where, error.message());
  return acceptor;
}

Result<Unix::acceptor> listen_unix(const net::any_io_executor& executor,
                                   const std::filesystem::path& path) {
  const std::string where = fmt::format("unix:{}", path.string());
  const Unix::endpoint endpoint(path.string());
  boost::system::error_code error;

  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) return cannot_listen(where, "the file is no socket");
    Unix::socket probe(executor);
    probe.connect(endpoint, error);
    if (!error) return cannot_listen(where, "another server listens there");
    if (error != net::error::connection_refused) return cannot_listen(where, error.message());
    ::unlink(path.c_str());
  }

  error = {};
  Unix::acceptor acceptor(executor);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(kBacklog, error);
  if (error) return cannot_listen(where, error.message());
  return acceptor;
}

net::awaitable<void> accept_tcp(Tcp::acceptor& acceptor, ChooseLane choose_lane, Context& context) {
  const auto name_of = [](Tcp::socket& socket) {
    boost::system::error_code ignored;
    // Replies are written whole; waiting to fill a packet would only delay them.
    socket.set_option(Tcp::no_delay(true), ignored);
    keep_alive(socket);
    return Addresses{to_string(socket.remote_endpoint(ignored)),
                     to_string(socket.local_endpoint(ignored))};
  };
  co_await accept_all(acceptor, std::move(choose_lane), context, name_of);
}

net::awaitable<void> accept_unix(Unix::acceptor& acceptor, ChooseLane choose_lane,
                                 Context& context) {
  const auto name_of = [&context](Unix::socket&) {
    const std::string name = fmt::format("unix:{}", context.options.unix_path.string());
    return Addresses{name, name};
  };
  co_await accept_all(acceptor, std::move(choose_lane), context, name_of);
}

}  // namespace fencekv::server
