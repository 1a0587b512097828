// SPDX-License-Identifier: Apache-2.0
/// Which of many leases are renewed when, and together with which: the rules of a client's
/// renewals, without clock or network.

#pragma once

#include "client/renewal.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace fencekv {

/// Many renewals. One request renews up to kBatch leases of the same ttl: those that are due, and
/// with them those that would be soon. So leases that are kept for long end up in the same
/// requests, whenever they were acquired.
///
/// Time: every operation is logarithmic in the number of leases.
/// Thread safety: none.
class RenewalPlan {
 public:
  using Id = std::uint64_t;
  using Time = Renewal::Time;

  /// What one request can hold: the protocol's limit.
  static constexpr std::size_t kBatch = Limits::kKeysPerCommand;

  struct Batch {
    std::chrono::milliseconds ttl;
    Time until;  ///< Give up on the request then.
    std::vector<Id> ids;
  };
  struct Steps {
    std::vector<std::pair<Id, LossReason>> lost;  ///< Not in the plan any more.
    std::vector<Batch> batches;                   ///< Send these now, and report each lease's end.
    std::optional<Time> next;                     ///< Ask again then; nullopt: there are no leases.
  };

  void add(Id id, Renewal renewal);
  void remove(Id id);

  Steps next(Time now);

  /// As of Renewal. Returns the new deadline; nullopt: the lease is not in the plan.
  std::optional<Time> acknowledged(Id id, Time now, std::chrono::milliseconds remaining);
  void failed(Id id, Time now, const Error& error);

  bool empty() const { return renewals_.empty(); }
  std::size_t size() const { return renewals_.size(); }

 private:
  using Agenda = std::set<std::pair<Time, Id>>;

  void enter(Id id, const Renewal& renewal);
  void strike(Id id, const Renewal& renewal);

  std::map<Id, Renewal> renewals_;
  Agenda agenda_;                                    ///< When each has to be looked at next.
  std::map<std::chrono::milliseconds, Agenda> due_;  ///< Those without a renewal under way.
};

}  // namespace fencekv
