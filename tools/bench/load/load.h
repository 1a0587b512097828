// SPDX-License-Identifier: Apache-2.0
/// A run of load against a server, and what it showed.

#pragma once

#include "tools/bench/load/histogram.h"
#include "tools/bench/load/requests.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>

namespace fencekv::bench {

/// What was answered within a piece of the run.
struct Window {
  double begin_seconds;  ///< Since the end of the warm-up.
  double seconds;
  Histogram latency;
};

struct LoadOptions {
  RequestOptions requests;
  std::string host = "127.0.0.1";  ///< A numeric address.
  std::uint16_t port = 0;
  std::size_t connections = 50;
  std::size_t pipeline = 1;
  /// Requests a second over all connections, each at its moment whether the one before was answered
  /// or not; 0: a closed loop, in which a connection sends when it has all its replies.
  double rate = 0;
  std::chrono::duration<double> duration{0};  ///< Not counting the warm-up. 0: until `operations`.
  std::uint64_t operations = 0;               ///< 0: until `duration` is over.
  std::chrono::duration<double> warm_up{0};   ///< Load that is not counted, before.
  std::chrono::seconds patience{30};          ///< Without any reply for so long, the run fails.
  pid_t server = 0;                           ///< Whose cost is wanted; 0: nobody's.
  /// Called after each `window` of the load that counts; a last one that is not whole is left out.
  std::chrono::duration<double> window{0};  ///< 0: there are none.
  std::function<void(const Window&)> on_window;
  std::string file;  ///< Target::disk: what is made and appended to.
};

struct LoadReport {
  std::uint64_t operations = 0;  ///< Answered as they must be.
  std::uint64_t errors = 0;      ///< Answered otherwise, or not at all.
  std::uint64_t unsent = 0;      ///< Due in the open loop, and not sent when the time was over.
  std::string first_error;       ///< Bytes of a reply, or why a connection broke.
  double seconds = 0;
  double own_processor_seconds = 0;
  std::optional<double> server_processor_seconds;
  std::optional<std::uint64_t> server_written_bytes;
  /// Closed loop: from the batch's write to the reply. Open loop: from when the request should have
  /// been sent, so that one stall is seen by all requests that it delayed.
  Histogram latency;
};

/// Runs the load. What is wrong with the server or the replies is in the report.
LoadReport run_load(const LoadOptions& options);

}  // namespace fencekv::bench
