// SPDX-License-Identifier: Apache-2.0
/// A bad network between clients and a server: a TCP proxy that delays what it passes on, and with
/// it reorders connections, cuts a connection before, within or after a request or a reply,
/// delivers a request after its client was cut off, and delivers requests twice.

#pragma once

#include "tests/support/boot_time.h"
#include "tests/support/raw_client.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <poll.h>
#include <random>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace fencekv::testing {

/// Its client ports stay the same while servers come and go behind it.
///
/// Expects clients that send one request at a time, in one piece, and wait for its reply.
/// Thread safety: all members may be called concurrently, but for start() and the destructor.
class UnreliableProxy {
 public:
  /// Of 1,000 pieces that come through (about one a request, one a reply).
  struct Faults {
    unsigned delayed = 0;  ///< By `longest_delay` at most.
    unsigned cut_request =
        0;  ///< A part of it, or none, reaches the server; the client is cut off.
    unsigned late_request = 0;  ///< The client is cut off; the server gets it, later.
    unsigned repeated = 0;      ///< Delivered, and once more later by another connection.
    unsigned cut_reply = 0;     ///< A part of it, or none, reaches the client.
    std::chrono::milliseconds longest_delay{20};
    std::chrono::milliseconds latest{300};  ///< Of late and repeated requests.
  };

  /// A request that the client did not send: when it was sent, its bytes, and what came back.
  struct Repetition {
    std::chrono::nanoseconds invoked;
    std::chrono::nanoseconds returned;
    std::string request;
    std::optional<resp::Value> reply;
  };

  explicit UnreliableProxy(std::uint64_t seed) : random_(seed) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    ::listen(listener_, 256);
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }

  ~UnreliableProxy() {
    is_stopping_ = true;
    if (accepting_.joinable()) accepting_.join();
    sever();
    ::close(listener_);
  }
  UnreliableProxy(const UnreliableProxy&) = delete;
  UnreliableProxy& operator=(const UnreliableProxy&) = delete;

  /// Where clients connect. They may do so before start(), and then wait.
  std::uint16_t port() const { return port_; }

  /// Begins to accept. From here on there are threads: fork before.
  void start(std::function<void(Repetition)> on_repetition) {
    on_repetition_ = std::move(on_repetition);
    accepting_ = std::thread([this] { accept_all(); });
  }

  /// The server behind it; 0: there is none now, and connections wait.
  void set_upstream(std::uint16_t port) { upstream_ = port; }
  void set_faults(const Faults& faults) {
    const std::lock_guard lock(mutex_);
    faults_ = faults;
  }

  /// Ends every connection, also those that wait to be accepted, and forgets every byte that it
  /// holds. After the return nothing that a client sent before the call is in here any more.
  void sever() {
    std::list<std::thread> ended;
    {
      const std::lock_guard lock(mutex_);
      ++epoch_;
      ended.swap(connections_);
      for (int waiting = accept_one(); waiting >= 0; waiting = accept_one()) ::close(waiting);
    }
    for (auto& connection : ended) connection.join();
  }

  /// What it has done so far.
  /// What happened so far.
  struct Figures {
    std::uint64_t connections = 0;
    std::uint64_t delayed = 0;
    std::uint64_t cut = 0;
    std::uint64_t late = 0;
    std::uint64_t repeated = 0;
  };
  Figures figures() const {
    return {.connections = connections_so_far_,
            .delayed = delayed_,
            .cut = cut_,
            .late = late_,
            .repeated = repeated_};
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// A socket that is closed with its object.
  class Socket {
   public:
    explicit Socket(int descriptor) : descriptor_(descriptor) {}
    ~Socket() { close(); }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    int get() const { return descriptor_; }
    void close() {
      if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    }

   private:
    int descriptor_;
  };

  /// What happens to one piece.
  struct Fate {
    std::chrono::microseconds delay{0};
    bool is_cut = false;
    bool is_late = false;
    bool is_repeated = false;
    std::size_t passed_on = SIZE_MAX;  ///< Bytes, if it is cut.
    std::chrono::microseconds later{0};
  };

  int accept_one() const { return ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC); }

  void accept_all() {
    while (!is_stopping_) {
      pollfd readable{listener_, POLLIN, 0};
      if (upstream_ == 0 || ::poll(&readable, 1, 5) <= 0) {
        if (upstream_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      const std::lock_guard lock(mutex_);
      const int client = accept_one();
      if (client < 0) continue;
      ++connections_so_far_;
      connections_.emplace_back([this, client, epoch = epoch_.load(), port = upstream_.load()] {
        serve(client, port, epoch);
      });
    }
  }

  static int connect_to(std::uint16_t port) {
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return server;
    }
    ::close(server);
    return -1;
  }

  bool is_severed(std::uint64_t epoch) const { return epoch_ != epoch; }

  /// False: severed meanwhile.
  bool rest(std::chrono::microseconds time, std::uint64_t epoch) const {
    const auto until = Clock::now() + time;
    while (Clock::now() < until) {
      if (is_severed(epoch)) return false;
      std::this_thread::sleep_for(
          std::min<Clock::duration>(until - Clock::now(), std::chrono::milliseconds(2)));
    }
    return !is_severed(epoch);
  }

  static bool send_all(int socket, std::string_view bytes) {
    while (!bytes.empty()) {
      const auto size = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(size));
    }
    return true;
  }

  Fate draw(bool is_request, std::size_t size) {
    const std::lock_guard lock(mutex_);
    const auto below = [&](std::uint64_t limit) { return limit == 0 ? 0 : random_() % limit; };
    const auto chance = [&](unsigned of_1000) { return below(1000) < of_1000; };
    const auto us = [&](std::chrono::milliseconds most) {
      return std::chrono::microseconds(
          below(static_cast<std::uint64_t>(std::chrono::microseconds(most).count())));
    };
    Fate fate;
    if (chance(faults_.delayed)) fate.delay = us(faults_.longest_delay);
    fate.is_cut = chance(is_request ? faults_.cut_request : faults_.cut_reply);
    // Half of them at the ends: nothing, or everything.
    if (fate.is_cut) fate.passed_on = below(4) == 0 ? 0 : below(4) == 0 ? size : below(size);
    fate.is_late = is_request && !fate.is_cut && chance(faults_.late_request);
    fate.is_repeated = is_request && !fate.is_cut && chance(faults_.repeated);
    fate.later = us(faults_.latest);
    return fate;
  }

  void serve(int accepted, std::uint16_t port, std::uint64_t epoch) {
    Socket client(accepted);
    Socket server(connect_to(port));
    if (server.get() < 0) return;
    std::array<char, 65536> bytes{};
    while (!is_severed(epoch)) {
      std::array<pollfd, 2> readable{{{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}}};
      if (::poll(readable.data(), readable.size(), 10) <= 0) continue;
      for (std::size_t i = 0; i < readable.size(); ++i) {
        if (readable[i].revents == 0) continue;
        const bool is_request = i == 0;
        const auto size = ::recv(readable[i].fd, bytes.data(), bytes.size(), 0);
        if (size <= 0) return;
        const std::string_view piece(bytes.data(), static_cast<std::size_t>(size));
        if (!pass_on(piece, is_request, client, server, port, epoch)) return;
      }
    }
  }

  /// False: the connection is over.
  bool pass_on(std::string_view piece, bool is_request, Socket& client, const Socket& server,
               std::uint16_t port, std::uint64_t epoch) {
    const auto fate = draw(is_request, piece.size());
    if (fate.delay.count() > 0) {
      ++delayed_;
      if (!rest(fate.delay, epoch)) return false;
    }
    const auto& to = is_request ? server : client;
    if (fate.is_cut) {
      ++cut_;
      send_all(to.get(), piece.substr(0, fate.passed_on));
      return false;
    }
    if (fate.is_repeated) repeat(std::string(piece), fate.later, port, epoch);
    if (!fate.is_late) return send_all(to.get(), piece);

    ++late_;
    client.close();
    if (!rest(fate.later, epoch)) return false;
    send_all(to.get(), piece);
    // Its end must not overtake it: the server may still be reading.
    rest(std::chrono::milliseconds(20), epoch);
    return false;
  }

  void repeat(std::string request, std::chrono::microseconds later, std::uint16_t port,
              std::uint64_t epoch) {
    const std::lock_guard lock(mutex_);
    if (is_severed(epoch)) return;
    ++repeated_;
    connections_.emplace_back([this, request = std::move(request), later, port, epoch]() mutable {
      if (!rest(later, epoch)) return;
      Repetition repetition{.invoked = since_boot(), .returned = {}, .request = {}, .reply = {}};
      {
        RawClient server(port);
        if (!server.connected() || !server.send(request)) return;
        const auto patience = Clock::now() + std::chrono::seconds(2);
        // In short pieces, to be severed in time.
        resp::ReplyParser parser;
        while (!is_severed(epoch) && Clock::now() < patience && !repetition.reply) {
          const auto bytes = server.receive(std::chrono::milliseconds(10));
          parser.feed(bytes);
          if (parser.next() == resp::ReplyParser::Status::reply) repetition.reply = parser.reply();
        }
        repetition.returned = since_boot();
      }
      repetition.request = std::move(request);
      on_repetition_(std::move(repetition));
    });
  }

  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::function<void(Repetition)> on_repetition_;
  std::atomic<std::uint16_t> upstream_ = 0;
  std::atomic<std::uint64_t> epoch_ = 0;
  std::atomic<bool> is_stopping_ = false;
  std::thread accepting_;

  mutable std::mutex mutex_;
  std::mt19937_64 random_;              // guarded by mutex_
  Faults faults_;                       // guarded by mutex_
  std::list<std::thread> connections_;  // guarded by mutex_

  std::atomic<std::uint64_t> connections_so_far_ = 0;
  std::atomic<std::uint64_t> delayed_ = 0;
  std::atomic<std::uint64_t> cut_ = 0;
  std::atomic<std::uint64_t> late_ = 0;
  std::atomic<std::uint64_t> repeated_ = 0;
};

}  // namespace fencekv::testing
