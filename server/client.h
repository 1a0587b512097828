// SPDX-License-Identifier: Apache-2.0
/// One connection as commands see it, and the list of all of them.

#pragma once

#include "fencekv/store.h"
#include "server/resp/reply_writer.h"

#include <boost/asio/any_io_executor.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::server {

struct CommandSpec;

using MonotonicTime = std::chrono::steady_clock::time_point;

enum class ReplyMode : std::uint8_t { on, off, skip_next };

/// Which wait a connection may not exceed.
enum class Wait : std::uint8_t { none, authentication, command, write, idle, closing };

/// For the log: "no AUTH in time" …
std::string_view to_string(Wait wait);

/// The state of one connection. It belongs to the connection's session and is used on its thread,
/// but for the members called shared: those are what CLIENT LIST and the deadlines look at.
class Client {
 public:
  Client(std::uint64_t number, std::string peer_address, std::string local_address);

  const std::uint64_t id;
  const std::string peer;   ///< `1.2.3.4:5`, `[::1]:5` or `unix:PATH`.
  const std::string local;  ///< The address it connected to.
  const MonotonicTime connected = std::chrono::steady_clock::now();

  std::atomic<resp::Protocol> protocol = resp::Protocol::resp2;  ///< Shared.
  bool authenticated = false;
  ReplyMode reply_mode = ReplyMode::on;
  bool close_after_reply = false;
  bool watching = false;  ///< It has asked to be told of changes of leases.

  /// How listings and the log of refusals name this connection: `peer`, or `name@peer`.
  const ClientName& shown() const { return shown_; }

  /// Set by the client itself, checked by the caller. Shared.
  std::string name() const;
  void set_name(std::string_view name);
  void set_library(std::string_view name);
  void set_library_version(std::string_view version);

  /// Says that a command starts.
  void starts(const CommandSpec& command);

  /// Bounds what the session does next.
  void set_deadline(Wait wait, MonotonicTime until);
  void clear_deadline() { set_deadline(Wait::none, MonotonicTime::max()); }
  /// Wait::none if the deadline has not passed. Shared.
  Wait overdue(MonotonicTime now) const;

  /// The line of CLIENT LIST and CLIENT INFO, without a line break. Never shows a secret. Shared.
  std::string describe(MonotonicTime now) const;

 private:
  mutable std::mutex mutex_;
  std::string name_;             // guarded by mutex_
  std::string library_;          // guarded by mutex_
  std::string library_version_;  // guarded by mutex_
  ClientName shown_;             // the session's thread only
  std::atomic<const CommandSpec*> last_command_ = nullptr;
  std::atomic<MonotonicTime::rep> active_;
  std::atomic<MonotonicTime::rep> deadline_;
  std::atomic<Wait> wait_ = Wait::none;
};

/// What others may ask of a session. Called on the session's thread.
class SessionControl {
 public:
  virtual ~SessionControl() = default;

  /// Ends the connection now; what is under way in the store is still waited for.
  virtual void hang_up() = 0;
  /// Answers what was received, then ends.
  virtual void begin_drain() = 0;
};

/// All connections of the server.
///
/// Thread safety: all members may be called concurrently.
/// Lifetime: outlives the executors of the sessions in it.
class Clients {
 public:
  explicit Clients(std::size_t max) : max_(max) {}

  /// Counts a connection in, unless there are `max` already.
  bool try_reserve();
  std::size_t size() const;
  std::uint64_t next_id() { return ++newest_id_; }

  /// A session enters after try_reserve(), and leaves before it ends.
  void enter(Client& client, SessionControl& control, boost::asio::any_io_executor executor);
  void leave(std::uint64_t id);

  /// CLIENT LIST: one line each, in order of their ids, of those that `wanted` picks.
  std::string describe(const std::function<bool(const Client&)>& wanted) const;

  /// Ends those that `wanted` picks; returns how many.
  std::size_t hang_up(const std::function<bool(const Client&)>& wanted);
  /// Ends those whose deadline has passed, and tells `log` of each.
  void hang_up_overdue(MonotonicTime now, const std::function<void(const Client&, Wait)>& log);
  void drain_all();

 private:
  struct Entry {
    Client* client;
    SessionControl* control;
    boost::asio::any_io_executor executor;
  };

  void post_hang_up(const Entry& entry);

  const std::size_t max_;
  std::atomic<std::size_t> reserved_ = 0;
  std::atomic<std::uint64_t> newest_id_ = 0;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Entry> entries_;  // guarded by mutex_
};

}  // namespace fencekv::server
