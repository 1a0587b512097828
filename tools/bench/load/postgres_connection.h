// SPDX-License-Identifier: Apache-2.0
/// A client of PostgreSQL.

#pragma once

#include "tools/bench/load/connection.h"
#include "tools/bench/load/requests.h"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace fencekv::bench {

/// The rest comes from the environment, as libpq has it: PGUSER, PGDATABASE, PGPASSWORD.
struct PostgresServer {
  std::string host;
  std::uint16_t port;
};

/// Prepared statements in libpq's pipeline mode, on the table `bench`, which is made if it is not
/// there. A fenced write is one INSERT … ON CONFLICT … DO UPDATE … WHERE; a lease is a session's
/// advisory lock, of which nothing is durable.
///
/// Each statement is a transaction of its own, ended by a sync of its own, so that it is committed
/// and answered whatever becomes of the others: that is what the batches of the other servers are.
/// They are sent together all the same. With RequestOptions::is_batch_atomic there is one sync, and
/// with it one transaction and one commit, for the whole batch: all of it or nothing, and the
/// cheapest that PostgreSQL can do.
std::unique_ptr<Connection> make_postgres_connection(boost::asio::io_context& context,
                                                     Director& director, Requests& requests,
                                                     Connection::Place place,
                                                     PostgresServer server);

}  // namespace fencekv::bench
