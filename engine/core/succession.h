// SPDX-License-Identifier: Apache-2.0
/// What follows from what at a lease name: time ends grants, an ended grant lets the next one in
/// the queue in, and each change is told to those who look out for it.
///
/// Of one reading of the clock: first what is over ends, grants and waits alike, then the queues
/// are served. A waiter of several names stands in all their queues, so serving one name may let
/// another one move: names that changed are looked at until nothing follows any more. That ends,
/// since each round grants or answers somebody.

#pragma once

#include "engine/core/lease.h"
#include "engine/core/rules.h"
#include "engine/core/waiters.h"

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace fencekv::core {

class Succession {
 public:
  Succession(State& state, const Moment& moment)
      : state_(state), now_(moment.since_boot), may_grant_anything_(!moment.stands_still) {}

  /// The lease as it stands now, after everything that follows from the time that has passed.
  Result<const Lease*> visit(std::string_view name);

  /// Ends waits whose time is over.
  void end_waits();
  /// Ends one wait: its time is over, or there is a reason. Of no effect if it has ended.
  void end_wait(Ticket ticket, const std::optional<Error>& reason = {});

  /// Says that something changed at `name`; settle() does what follows.
  void touch(std::string_view name) { touched_.emplace(name); }
  void settle();

  /// Ends a grant that is held.
  void end(std::string_view name, const GrantRecord& grant, GrantEnd how);

  // Acquires, in grants.cpp.

  /// What an acquire gets at once; nullopt: it has to wait. Its names were visited.
  Decision decide(const Demand& demand);

  Circumstances circumstances() const {
    return {.floor = state_.floor(),
            .boots = state_.boots(),
            .sessions = state_.sessions(),
            .process = state_.process(),
            .process_began = state_.process_began(),
            .now = now_};
  }
  GrantEnd standing_of(const GrantRecord& grant) const { return standing(grant, circumstances()); }

  /// What one who waits for a change after `token` would be told now; nullopt: nothing yet.
  std::optional<LeaseEvent> news(std::string_view name, const Lease* lease, Token token) const;

 private:
  void settle_name(const std::string& name);
  Result<const Lease*> end_overdue(std::string_view name);
  /// A lease that was looked at before: that cannot fail any more.
  const Lease* known(std::string_view name) const;
  Result<void> look_at(const Demand& demand);
  bool is_over(const GrantRecord& grant) const;
  bool is_overdue(const Lease& lease) const;
  void remember(Lease& lease, Token token);
  bool serve(const Waiters::Waiter& waiter);
  void answer_others_of(const Demand& held);
  Result<Reply> answer_to_holder(const Demand& demand);
  void tell_lookouts(std::string_view name, const Lease* lease);
  void set_timer(std::string_view name, const Lease* lease);
  void happened(LeaseChange change, std::string_view name, Token token);

  bool may_grant(const Demand& demand, std::optional<Ticket> place) const;
  bool is_free(std::string_view name, const Demand& demand) const;
  Decision hold_again(const Demand& demand);
  Result<Reply> change_mode(const Demand& demand, GrantRecord held);
  Result<Reply> grant(const Demand& demand);
  GrantRecord fresh_grant(const Demand& demand, Token token) const;
  void hold_longer(std::string_view name, const Demand& demand, Token token);
  const GrantRecord* held_by(const Lease& lease, std::string_view owner) const;
  std::optional<LeaseMode> held_mode(const Lease& lease) const;
  std::size_t count_holders(const Lease& lease) const;
  Result<void> check_permits(const Demand& demand) const;

  State& state_;
  const std::chrono::nanoseconds now_;
  const bool may_grant_anything_;
  std::set<std::string, std::less<>> touched_;
};

}  // namespace fencekv::core
