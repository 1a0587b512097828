// SPDX-License-Identifier: Apache-2.0
/// A lease that is kept for as long as its guard lives.
///
///     auto lease = fencekv::LeaseGuard::try_acquire(*client, "settlement:123",
///                                                   {.ttl = std::chrono::seconds(30)});
///     if (!lease) return report(lease.error());
///     if (!*lease) return another_time();  // somebody else is at it
///
///     for (auto& row : rows) {
///       if ((*lease)->stop_token().stop_requested()) return stand_down();
///       total += settle(row);
///     }
///     client->set("settlement:123/total", total, (*lease)->token(), {.lease = "settlement:123"});
///
/// A guard tells a program early that it should stop. What protects the result is the token: pass
/// it with every write, for between the last look at a guard and the write any time may pass.

#pragma once

#include "fencekv/client.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

namespace fencekv {

/// How a lease ended that its holder did not release.
enum class LossReason : std::uint8_t {
  expired,       ///< The server says that its time ran out.
  superseded,    ///< The server says that another grant came.
  released,      ///< The server says that somebody with this owner and token released it.
  revoked,       ///< An administrator ended it.
  disconnected,  ///< It was bound to a connection.
  unknown,       ///< The server does not know it: its history was cut (restore, repair).
  deadline,      ///< No renewal was acknowledged in time. What the server says is not known.
};

std::string_view to_string(LossReason reason);

struct LeaseLoss {
  std::string name;
  Token token;
  LossReason reason = LossReason::unknown;
};

struct LeaseOptions {
  /// How long the lease lasts without a renewal. It is renewed every third of it. A renewal that
  /// has no answer after another third is given up, which ends the client's connection (see
  /// Client): so choose seconds rather than milliseconds.
  std::chrono::milliseconds ttl{10'000};
  /// Called once if the lease is lost, from a thread of the guard; not if it is released. It may
  /// block and may destroy the guard; it must not throw. The guard's destructor waits for it.
  std::function<void(const LeaseLoss&)> on_lost{};
  /// For the answer to a release, also the one at the end of the scope.
  std::chrono::milliseconds release_timeout{1'000};
};

/// The holder's side of one grant. Another grant is another guard: a token never changes in one.
///
/// The deadline counts on CLOCK_BOOTTIME from before the newest acknowledged request was sent, so
/// it passes here before it passes on the server. A renewal that fails is tried again while there
/// is time; the deadline moves only when one is acknowledged. The lease is lost when the server
/// says so (at once), or at the deadline (whatever the network does).
///
/// Thread safety: all const members and release() may be called concurrently.
/// Lifetime: a guard may outlive the Client; it then runs into its deadline.
class LeaseGuard {
 public:
  /// Asks once for `name`, as a new random owner. nullopt: another owner holds it.
  ///
  /// Errors: those of Client; after in_doubt nobody may have the name for up to one ttl. expired:
  /// the grant arrived after its time was over, and was given back.
  static Result<std::optional<LeaseGuard>> try_acquire(Client& client, std::string_view name,
                                                       LeaseOptions options, CallOptions call = {});

  /// Releases, unless that is done or the server said that the lease is lost. Takes no longer than
  /// LeaseOptions::release_timeout and a running on_lost; failures are ignored, the lease then ends
  /// by its time.
  ~LeaseGuard();
  LeaseGuard(LeaseGuard&& other) noexcept;
  LeaseGuard& operator=(LeaseGuard&& other) noexcept;

  // None of the following on a guard that was moved from.

  const std::string& name() const;
  /// For every write under this lease. The same for the whole life of the guard.
  Token token() const;

  /// The lease is held: not lost, not released, and the deadline has not passed.
  bool valid() const;
  /// Until the deadline; zero if valid() is false.
  std::chrono::milliseconds remaining() const;

  /// Stops when the lease is lost, and when it is released.
  std::stop_token stop_token() const;
  /// Why the lease was lost; nullopt: it was not, or it was released before.
  std::optional<LossReason> loss() const;

  /// Gives the lease back: when it succeeded, nothing in flight with the token can land any more.
  /// It is not renewed again and not valid() from the moment of the call, whatever the outcome.
  ///
  /// Errors: lease_lost: it was not yours any more, nobody was touched. After any other error it
  /// may be called again. Repeating it after a success is harmless.
  Result<void> release();

 private:
  struct State;
  explicit LeaseGuard(std::shared_ptr<State> state);
  void end() noexcept;

  std::shared_ptr<State> state_;
};

}  // namespace fencekv
