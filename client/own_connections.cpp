// SPDX-License-Identifier: Apache-2.0
#include "client/own_connections.h"

#include <utility>

namespace fencekv {

std::shared_ptr<Connection> OwnConnections::open(ConnectionEvents events) {
  if (closed_ || in_use_.size() >= options_.max_own_connections) return nullptr;
  auto connection = Connection::create(loop_, options_, std::move(events));
  in_use_.insert(connection);
  return connection;
}

void OwnConnections::end(std::shared_ptr<Connection> connection) {
  if (in_use_.erase(connection) != 0) connection->shut();
}

void OwnConnections::send(Request request, bool keep) {
  if (closed_) {
    request.done(Error(Errc::unreachable, "not sent: the client was closed"));
    return;
  }
  std::shared_ptr<Connection> connection;
  if (idle_.empty()) {
    connection = open({});
  } else if (in_use_.size() < options_.max_own_connections) {
    // The one used last: it is the least likely to have been closed by the server.
    connection = std::move(idle_.back());
    idle_.pop_back();
    in_use_.insert(connection);
  }
  if (!connection) {
    request.done(Error(Errc::overloaded, "too many connections of their own are in use"));
    return;
  }

  request.done = [this, keep, connection,
                  done = std::move(request.done)](Result<resp::Value> reply) {
    const bool granted = reply && reply->kind == resp::Value::Kind::array;
    if (!keep || !granted) free(connection);
    return done(std::move(reply));
  };
  // Not shut: only shut() does that to what is in use here, and it was not called.
  static_cast<void>(connection->send(std::move(request)));
}

void OwnConnections::free(const std::shared_ptr<Connection>& connection) {
  if (in_use_.erase(connection) == 0) return;
  if (!closed_ && idle_.size() < kIdle) {
    idle_.push_back(connection);
    return;
  }
  // Not now: it is the connection that tells of this.
  loop_.post([connection] { connection->shut(); });
}

void OwnConnections::give_up_all() {
  const auto all = in_use_;
  for (const auto& connection : all) connection->give_up_all();
}

void OwnConnections::shut() {
  closed_ = true;
  // Answers free connections, so the set changes meanwhile.
  const auto all = std::exchange(in_use_, {});
  for (const auto& connection : all) connection->shut();
  for (const auto& connection : std::exchange(idle_, {})) connection->shut();
}

}  // namespace fencekv
