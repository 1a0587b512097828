// SPDX-License-Identifier: Apache-2.0
/// The wait for the lease.

#pragma once

#include "fencekv/lease_guard.h"
#include "tools/run/kept_lease.h"
#include "tools/run/options.h"

#include <optional>
#include <stop_token>
#include <thread>

namespace fencekv::run {

/// Takes the lease in a thread of its own, so that signals are answered meanwhile.
///
/// The server must answer once at the beginning. From then on it may go and come back: whoever
/// waits to be the next leader does not end because a server is restarted. It asks again, and then
/// stands at the end of the queue.
class Acquisition {
 public:
  using Outcome = Result<std::optional<LeaseGuard>>;

  /// `lost` is rung when a lease that was granted is lost. All must outlive the object.
  Acquisition(Client& client, const RunOptions& options, const Bell& lost);

  /// Readable when it has ended.
  int descriptor() const { return ended_.descriptor(); }

  void cancel() { thread_.request_stop(); }

  /// Waits for the end. nullopt: not granted in time, or cancelled. Once.
  Outcome take();

 private:
  Outcome acquire(const std::stop_token& cancelled);
  Outcome ask(std::chrono::milliseconds wait, const std::stop_token& cancelled);

  Client& client_;
  const RunOptions& options_;
  const Bell& lost_;
  Bell ended_;
  std::optional<Outcome> outcome_;
  std::jthread thread_;
};

}  // namespace fencekv::run
