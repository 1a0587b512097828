// SPDX-License-Identifier: Apache-2.0
/// A client that speaks RESP.

#pragma once

#include "tools/bench/load/connection.h"
#include "tools/bench/load/requests.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::bench {

/// Tells replies from each other by their headers, and compares them with the beginning that they
/// must have.
///
/// Callbacks on a plain socket and executor, because what the client costs is taken from the server
/// on the same machine.
class RespConnection final : public Connection {
 public:
  RespConnection(boost::asio::io_context& context, Director& director, Requests& requests,
                 Place place, const boost::asio::ip::tcp::endpoint& server);

  bool connect(std::string& why) override;
  void begin(Clock::time_point now) override;

 private:
  // Not any_io_executor: it costs an indirection and an allocation for each operation.
  using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp,
                                                  boost::asio::io_context::executor_type>;

  struct InFlight {
    Requests::Expected expected;
    Clock::time_point intended;
    std::uint64_t lease;
    bool is_acquisition;
  };

  bool is_busy() const { return !in_flight_.empty(); }
  bool fill(Clock::time_point now);
  void send();
  void receive();
  void on_received(std::size_t bytes);
  void on_reply(const InFlight& request, std::string_view reply, Clock::time_point now);
  void on_batch_done(Clock::time_point now);
  void give_up(std::string_view why);

  Director& director_;
  Requests& requests_;
  const Place place_;
  const boost::asio::ip::tcp::endpoint server_;
  Socket socket_;
  bool is_broken_ = false;

  std::string out_;
  std::vector<InFlight> in_flight_;
  std::size_t answered_ = 0;  // of in_flight_
  // The second half of cycles whose first half is in flight.
  std::string next_out_;
  std::vector<InFlight> next_in_flight_;

  std::vector<char> in_;
  std::size_t filled_ = 0;  // of in_
};

}  // namespace fencekv::bench
