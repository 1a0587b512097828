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
/// To queue for it instead, for a minute at most, and give up when the program is told to stop:
///
///     auto lease = fencekv::LeaseGuard::acquire(*client, "settlement:123", 60s,
///                                               {.ttl = std::chrono::seconds(30)},
///                                               {.cancel = program_stops});
///
/// A guard tells a program early that it should stop. What protects the result is the token: pass
/// it with every write, for between the last look at a guard and the write any time may pass.

#pragma once

#include "fencekv/client.h"

#include <chrono>
#include <cstdint>
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
  disconnected,  ///< It was bound to a connection, which is gone.
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
  /// How long the lease lasts without a renewal. It is renewed every third of it, together with
  /// others of the same ttl that are due soon. A renewal that has no answer after another third is
  /// given up, which ends the client's connection (see Client): so choose seconds rather than
  /// milliseconds.
  std::chrono::milliseconds ttl{10'000};
  /// Called once if the lease is lost; not if it is released before, nor after its guard is gone.
  /// It may block, may use the client and may destroy the guard; it must not throw. One thread of
  /// the client calls those of all its guards, one after the other, so one that blocks holds up the
  /// next; renewals go on meanwhile. The guard's destructor waits for it, unless that runs in an
  /// on_lost or in a callback of the client.
  std::function<void(const LeaseLoss&)> on_lost{};
  /// For the answer to a release, also the one at the end of the scope.
  std::chrono::milliseconds release_timeout{1'000};

  // What is asked for. See fencekv/command.h.

  LeaseMode mode = LeaseMode::exclusive;  ///< The tokens of the others may not write.
  std::uint64_t permits = 0;              ///< How many at once; with LeaseMode::permit only.
  /// The lease ends with a connection that the guard keeps for it, whatever way that ends; and at
  /// its ttl. When it is gone the guard knows at once: LossReason::disconnected.
  bool bind = false;
  /// If the lease ends otherwise than by a release, nobody gets it for this long after it.
  std::optional<std::chrono::milliseconds> delay{};
  std::optional<std::string> payload{};  ///< A label for people.
};

/// The holder's side of one grant. Another grant is another guard: a token never changes in one.
///
/// The deadline counts on CLOCK_BOOTTIME from before the newest acknowledged request was sent, so
/// it passes here before it passes on the server. A renewal that fails is tried again while there
/// is time; the deadline moves only when one is acknowledged. The lease is lost when the server
/// says so (at once), or at the deadline (whatever the network does).
///
/// Thread safety: all const members and release() may be called concurrently.
/// Threads: a guard has none. All guards of a client are renewed by the client's thread, up to
///     Limits::kKeysPerCommand with one request: thousands of leases cost little more than one.
/// Lifetime: a guard may outlive the Client; it then runs into its deadline (a bound one is lost at
///     once). Its destruction ends the renewals whatever else happens.
class LeaseGuard {
 public:
  /// How an asynchronous acquire ended.
  using Done = std::function<void(Result<std::optional<LeaseGuard>>)>;

  /// Asks once for `name`, as a new random owner. nullopt: it is held or blocked, or the call was
  /// cancelled.
  ///
  /// An answer that got lost is asked for again, as the same owner, until `call.timeout`: if it was
  /// a grant, the same token comes back.
  ///
  /// Blocking: until it is decided, at most for `call.timeout` (zero: ClientOptions::call_timeout).
  ///     Called from a callback of the client it would wait for itself: invalid.
  /// After cancellation, timeout and error: no lease is left behind. A grant that comes all the
  /// same
  ///     is given back as soon as it is known; if the connection is gone too, it ends at its ttl.
  /// Errors: those of Client; overloaded and misconf only if nothing was granted for certain;
  ///     in_doubt, until the timeout it could not be found out (see above);
  ///     expired: the grant arrived after its time was over, and was given back.
  static Result<std::optional<LeaseGuard>> try_acquire(Client& client, std::string_view name,
                                                       LeaseOptions options, CallOptions call = {});

  /// The same, but queues for the lease for up to `wait`: nullopt: not acquired within that time.
  /// If the connection is lost meanwhile it queues again, at the end, for the rest of the time; but
  /// a server that cannot be reached at all is unreachable, at once.
  ///
  /// Nobody knows when a grant was for which somebody waited. So it is renewed once before it is
  /// handed out, and its time counts from before that; lease_lost: it was over by then.
  /// `call.timeout` zero: `wait` and ClientOptions::call_timeout.
  static Result<std::optional<LeaseGuard>> acquire(Client& client, std::string_view name,
                                                   std::chrono::milliseconds wait,
                                                   LeaseOptions options, CallOptions call = {});

  /// The same without waiting. `done` is called exactly once, from the client's thread, with what
  /// acquire() would return; it must not block or throw. A guard that it drops is released without
  /// waiting for the answer. If the client is closed before, it ends as unreachable or in_doubt.
  static void acquire_async(Client& client, std::string_view name, std::chrono::milliseconds wait,
                            LeaseOptions options, Done done, CallOptions call = {});

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

  /// Stops when the lease is lost, and when it is released. A std::stop_callback on it runs on the
  /// client's thread, or on the one that releases: it must not block.
  std::stop_token stop_token() const;
  /// Why the lease was lost; nullopt: it was not, or it was released before.
  std::optional<LossReason> loss() const;

  /// Gives the lease back: when it succeeded, nothing in flight with the token can land any more.
  /// It is not renewed again and not valid() from the moment of the call, whatever the outcome.
  ///
  /// Errors: lease_lost: it was not yours any more, nobody was touched; if the server had said so
  /// before, nothing is sent. After any other error it may be called again. Repeating it after a
  /// success is harmless. From a callback of the client: invalid, and nothing is sent.
  Result<void> release();

 private:
  friend class Acquisition;
  struct State;
  explicit LeaseGuard(std::shared_ptr<State> state);
  std::chrono::nanoseconds remaining_time() const;
  void end() noexcept;

  std::shared_ptr<State> state_;
};

}  // namespace fencekv
