// SPDX-License-Identifier: Apache-2.0
/// Connections that serve one purpose at a time: a command that waits, a bound lease, a watcher.

#pragma once

#include "client/connection.h"
#include "fencekv/client.h"

#include <cstddef>
#include <memory>
#include <set>
#include <vector>

namespace fencekv {

/// Bounded by ClientOptions::max_own_connections.
///
/// Thread safety: none; everything belongs to the loop's thread.
class OwnConnections {
 public:
  /// How many are kept open for the next command that waits.
  static constexpr std::size_t kIdle = 4;

  OwnConnections(Loop& loop, const ClientOptions& options) : loop_(loop), options_(options) {}

  /// A new one. nullptr: too many are in use. Ends with end().
  std::shared_ptr<Connection> open(ConnectionEvents events);
  void end(std::shared_ptr<Connection> connection);  // by value: the caller may own it through it

  /// Sends a command that may wait. Its answer frees the connection; if `keep` is set and it was
  /// granted, the connection stays as it is for good.
  void send(Request request, bool keep);

  /// Ends everything that is pending, as if its timeout had passed.
  void give_up_all();
  /// Ends all of it. Nothing can be sent afterwards.
  void shut();

  std::size_t in_use() const { return in_use_.size(); }

 private:
  void free(const std::shared_ptr<Connection>& connection);

  Loop& loop_;
  const ClientOptions& options_;
  bool closed_ = false;
  std::set<std::shared_ptr<Connection>> in_use_;
  std::vector<std::shared_ptr<Connection>> idle_;
};

}  // namespace fencekv
