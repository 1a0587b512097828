// SPDX-License-Identifier: Apache-2.0
/// One client of the server that is measured, whatever it speaks.

#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace fencekv::bench {

using Clock = std::chrono::steady_clock;

/// Says how many requests a connection may send, and is told what came of them.
class Director {
 public:
  virtual ~Director() = default;

  /// How many of at most `at_most` requests may be sent now.
  virtual std::size_t take(std::size_t connection, std::size_t at_most, Clock::time_point now) = 0;
  /// When the next of the taken requests should have been sent: not later than it was.
  virtual Clock::time_point intended_start(std::size_t connection, Clock::time_point now) = 0;
  virtual void on_done(Clock::time_point intended, Clock::time_point now) = 0;
  virtual void on_wrong_reply(std::string_view reply) = 0;
  /// The connection has sent something, or has all replies and nothing to send.
  virtual void on_busy() = 0;
  virtual void on_idle() = 0;
  /// The connection is of no use any more; `lost` requests were not answered.
  virtual void on_broken(std::string_view why, std::size_t lost) = 0;
};

/// Sends batches: requests in one write, then it waits for all their replies.
///
/// Thread safety: none; belongs to its io_context, and outlives its run().
class Connection {
 public:
  struct Place {
    std::size_t index;        ///< Of this connection.
    std::size_t connections;  ///< All of them.
    std::size_t pipeline;     ///< Requests in a batch at most.
  };

  virtual ~Connection() = default;

  /// Blocks until it is connected. False: it was not, and `why` is set.
  virtual bool connect(std::string& why) = 0;

  /// Sends what the director gives, unless a batch is in flight: then it does so after that.
  virtual void begin(Clock::time_point now) = 0;
};

}  // namespace fencekv::bench
