// SPDX-License-Identifier: Apache-2.0
/// When a lease is renewed, and when it is lost: the rules of LeaseGuard, without clock or network.

#pragma once

#include "fencekv/lease_guard.h"
#include "fencekv/result.h"

#include <chrono>
#include <optional>

namespace fencekv {

/// One grant from its arrival to its loss. All times are on one clock, CLOCK_BOOTTIME in
/// LeaseGuard.
///
/// Once lost it stays lost, whatever is acknowledged later: the program was told to stop.
///
/// Thread safety: none.
class Renewal {
 public:
  using Time = std::chrono::nanoseconds;

  struct Step {
    enum class Kind { wait, renew, lost };
    Kind kind;
    Time until;  ///< wait: until then, or until an answer comes. renew: give up on it then.
  };

  /// A grant of `ttl`, asked for at `sent` and answered with `remaining`.
  Renewal(Time sent, std::chrono::milliseconds ttl, std::chrono::milliseconds remaining);

  /// What to do at `now`. `renew` means: send one now, and report its end by one of the next two.
  Step next(Time now);
  /// The same, but the renewal is sent although it is not due yet.
  Step ask(Time now);
  /// The renewal was acknowledged. It counts from when it was sent.
  void acknowledged(Time now, std::chrono::milliseconds remaining);
  /// The renewal failed. LEASELOST is the server's word; after all else the lease may well be held,
  /// and it is tried again.
  void failed(Time now, const Error& error);

  /// Whether and why the lease is lost at `now`.
  std::optional<LossReason> loss_at(Time now);

  /// When next() has something new to say, if nothing is reported before.
  Time wakes() const;
  /// When it is to be renewed; nullopt: a renewal is under way, or it is lost.
  std::optional<Time> due() const;
  std::chrono::milliseconds ttl() const { return ttl_; }

  Time deadline() const { return deadline_; }
  bool held(Time now) const { return !loss_ && now < deadline_; }
  std::optional<LossReason> loss() const { return loss_; }

 private:
  void pass(Time now);

  std::chrono::milliseconds ttl_;
  Time deadline_;
  Time due_;                   ///< The next renewal.
  std::optional<Time> asked_;  ///< When the renewal that is under way was sent.
  std::optional<LossReason> loss_;
};

/// The reason of a LEASELOST line; unknown for a word that this version does not know.
LossReason loss_reason(const Error& error);

}  // namespace fencekv
