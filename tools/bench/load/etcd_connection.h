// SPDX-License-Identifier: Apache-2.0
/// A client of etcd.

#pragma once

#include "tools/bench/load/connection.h"
#include "tools/bench/load/requests.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <memory>

namespace fencekv::bench {

/// Speaks gRPC by itself: HTTP/2 by libnghttp2, and the few messages in etcd_messages.h. A batch is
/// as many streams at the same time as it has requests, sent in one write.
///
/// A lease is a LeaseGrant, a Txn that binds the name to it if nobody has it, and a LeaseRevoke,
/// which deletes it: three requests, each after the answer to the one before, because each name has
/// a time of its own to live. With RequestOptions::shares_lease, a connection has one lease for all
/// its names, as etcd's own recipe for locks has it: a Txn and a DeleteRange.
std::unique_ptr<Connection> make_etcd_connection(boost::asio::io_context& context,
                                                 Director& director, Requests& requests,
                                                 Connection::Place place,
                                                 const boost::asio::ip::tcp::endpoint& server);

}  // namespace fencekv::bench
