// SPDX-License-Identifier: Apache-2.0
/// Where connections come from.

#pragma once

#include "fencekv/result.h"
#include "server/context.h"
#include "server/session.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

namespace fencekv::server {

/// Chooses the lane of the next connection.
using ChooseLane = std::function<Lane&()>;

/// Listens on `address` (numeric or localhost) and `port`.
/// Errors: invalid, it cannot be listened on.
Result<boost::asio::ip::tcp::acceptor> listen_tcp(const boost::asio::any_io_executor& executor,
                                                  const std::string& address, int port);

/// Listens on the Unix socket `path`, with the mode that the umask leaves. The socket file of a
/// dead server is replaced; anything else that is there is left alone.
/// Errors: invalid, it cannot be listened on, or a living server does.
Result<boost::asio::local::stream_protocol::acceptor> listen_unix(
    const boost::asio::any_io_executor& executor, const std::filesystem::path& path);

/// `HOST:PORT`, `[V6]:PORT`.
std::string to_string(const boost::asio::ip::tcp::endpoint& endpoint);

/// Accept connections until the acceptor is closed, each a session on a lane of its own choice.
/// `context` and the acceptor outlive the coroutine.
boost::asio::awaitable<void> accept_tcp(boost::asio::ip::tcp::acceptor& acceptor,
                                        ChooseLane choose_lane, Context& context);
boost::asio::awaitable<void> accept_unix(boost::asio::local::stream_protocol::acceptor& acceptor,
                                         ChooseLane choose_lane, Context& context);

}  // namespace fencekv::server
