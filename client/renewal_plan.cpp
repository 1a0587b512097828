// SPDX-License-Identifier: Apache-2.0
#include "client/renewal_plan.h"

#include <algorithm>

namespace fencekv {

void RenewalPlan::enter(Id id, const Renewal& renewal) {
  agenda_.emplace(renewal.wakes(), id);
  if (renewal.due()) due_[renewal.ttl()].emplace(*renewal.due(), id);
}

void RenewalPlan::strike(Id id, const Renewal& renewal) {
  agenda_.erase({renewal.wakes(), id});
  if (!renewal.due()) return;
  const auto same_ttl = due_.find(renewal.ttl());
  same_ttl->second.erase({*renewal.due(), id});
  if (same_ttl->second.empty()) due_.erase(same_ttl);
}

void RenewalPlan::add(Id id, Renewal renewal) {
  remove(id);
  enter(id, renewals_.emplace(id, renewal).first->second);
}

void RenewalPlan::remove(Id id) {
  const auto found = renewals_.find(id);
  if (found == renewals_.end()) return;
  strike(id, found->second);
  renewals_.erase(found);
}

RenewalPlan::Steps RenewalPlan::next(Time now) {
  Steps steps;
  while (!agenda_.empty() && agenda_.begin()->first <= now) {
    const auto id = agenda_.begin()->second;
    auto& renewal = renewals_.at(id);
    strike(id, renewal);  // before it changes
    if (const auto loss = renewal.loss_at(now)) {
      steps.lost.emplace_back(id, *loss);
      renewals_.erase(id);
      continue;
    }
    enter(id, renewal);

    // It is due, and first of its ttl: what comes right after it there goes along.
    const auto ttl = renewal.ttl();
    Batch batch{.ttl = ttl, .until = now + Time(ttl), .ids = {}};
    for (const auto& [due, other] : due_.at(ttl)) {
      if (due > now + Time(ttl) / 6 || batch.ids.size() == kBatch) break;
      batch.ids.push_back(other);
    }
    std::erase_if(batch.ids, [&](Id one) {
      auto& asked = renewals_.at(one);
      strike(one, asked);
      const auto step = asked.ask(now);
      enter(one, asked);
      if (step.kind != Renewal::Step::Kind::renew) return true;  // over: its turn comes
      batch.until = std::min(batch.until, step.until);
      return false;
    });
    if (!batch.ids.empty()) steps.batches.push_back(std::move(batch));
  }
  if (!agenda_.empty()) steps.next = agenda_.begin()->first;
  return steps;
}

std::optional<RenewalPlan::Time> RenewalPlan::acknowledged(Id id, Time now,
                                                           std::chrono::milliseconds remaining) {
  const auto found = renewals_.find(id);
  if (found == renewals_.end()) return std::nullopt;
  strike(id, found->second);
  found->second.acknowledged(now, remaining);
  enter(id, found->second);
  return found->second.deadline();
}

void RenewalPlan::failed(Id id, Time now, const Error& error) {
  const auto found = renewals_.find(id);
  if (found == renewals_.end()) return;
  strike(id, found->second);
  found->second.failed(now, error);
  enter(id, found->second);
}

}  // namespace fencekv
