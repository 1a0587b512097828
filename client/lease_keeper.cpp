// SPDX-License-Identifier: Apache-2.0
#include "client/lease_keeper.h"

#include "client/boot_clock.h"
#include "client/command_codec.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace fencekv {
namespace {

using namespace std::chrono_literals;

// The longest sleep between two looks at the clock. The timer's clock stops while the machine is
// suspended; CLOCK_BOOTTIME does not.
constexpr std::chrono::nanoseconds kLongestSleep = 200ms;

std::chrono::milliseconds whole_milliseconds(std::chrono::nanoseconds time) {
  return std::max(1ms, std::chrono::duration_cast<std::chrono::milliseconds>(time));
}

/// Runs the listener of a lost lease, unless its guard is gone.
void tell(LossListener& listener, const LeaseLoss& loss) {
  std::function<void(const LeaseLoss&)> on_lost;
  {
    const std::lock_guard lock(listener.mutex);
    if (!listener.on_lost) return;
    on_lost.swap(listener.on_lost);
    listener.telling = true;
  }
  on_lost(loss);
  on_lost = {};
  {
    const std::lock_guard lock(listener.mutex);
    listener.telling = false;
  }
  listener.told.notify_all();
}

}  // namespace

LeaseKeeper::LeaseKeeper(Loop& loop, Connection& shared, CallbackThread& callbacks)
    : loop_(loop), shared_(shared), callbacks_(callbacks), timer_(loop.io()) {}

void LeaseKeeper::keep(const std::shared_ptr<Hold>& hold, Renewal renewal) {
  const auto id = hold->id = ++last_id_;
  {
    const std::lock_guard lock(hold->mutex);
    hold->deadline = renewal.deadline();
  }
  holds_.emplace(id, hold);
  plan_.add(id, renewal);
  if (hold->bound) {
    hold->bound->on_lost = [this, id] { lose(id, LossReason::disconnected); };
  }
  step();
}

void LeaseKeeper::drop(Hold& hold) {
  plan_.remove(hold.id);
  holds_.erase(std::exchange(hold.id, 0));
  if (hold.bound) hold.bound->on_lost = {};
}

void LeaseKeeper::release(const std::shared_ptr<Hold>& hold,
                          std::function<void(Result<void>)> done) {
  // Before it is sent: no renewal follows a release.
  drop(*hold);
  auto on_reply = [hold, done](Result<resp::Value> reply) {
    auto released = reply ? decode<Release>(*std::move(reply))
                          : Result<std::monostate>(std::move(reply).error());
    const bool understood = released || released.error().code() != Errc::protocol;
    const auto outcome = released ? Result<void>() : Result<void>(std::move(released).error());
    if (outcome || outcome.error().code() == Errc::lease_lost) {
      const std::lock_guard lock(hold->mutex);
      if (!hold->settled) hold->settled = outcome;
    }
    done(outcome);
    return understood;
  };
  const auto& [name, owner, token] = hold->grant;
  const auto bytes = encode(Release{name, owner, token});
  const bool sent = shared_.send({.bytes = *bytes,
                                  .changes = true,
                                  .call = {.timeout = hold->options.release_timeout},
                                  .done = std::move(on_reply)});
  if (!sent) done(Error(Errc::unreachable, "not sent: the client was closed"));
}

void LeaseKeeper::disconnect_all() {
  std::vector<RenewalPlan::Id> bound;
  for (const auto& [id, hold] : holds_) {
    if (hold->bound) bound.push_back(id);
  }
  for (const auto id : bound) lose(id, LossReason::disconnected);
}

/// Does what is due, and sets the alarm for what comes next.
void LeaseKeeper::step() {
  auto steps = plan_.next(since_boot());
  for (const auto& [id, reason] : steps.lost) lose(id, reason);
  for (const auto& batch : steps.batches) send(batch);
  arm(steps.next);
}

void LeaseKeeper::arm(std::optional<Renewal::Time> next) {
  timer_.cancel();
  const auto alarm = ++alarm_;
  if (!next) return;
  const auto sleep = std::clamp<std::chrono::nanoseconds>(*next - since_boot(), 0ns, kLongestSleep);
  timer_.expires_after(sleep);
  timer_.async_wait([this, alarm](boost::system::error_code) {
    if (alarm == alarm_) step();
  });
}

void LeaseKeeper::send(const RenewalPlan::Batch& batch) {
  auto renew = std::make_shared<RenewMany>();
  renew->ttl = batch.ttl;
  auto ids = std::make_shared<std::vector<RenewalPlan::Id>>();
  for (const auto id : batch.ids) {
    const auto found = holds_.find(id);
    if (found == holds_.end()) continue;
    const auto hold = found->second;
    {
      const std::lock_guard lock(hold->mutex);
      if (hold->ending) continue;  // its release is on its way here
    }
    renew->grants.push_back(hold->grant);
    ids->push_back(id);
  }
  if (ids->empty()) return;

  auto done = [this, ids](Result<resp::Value> reply) {
    Result<RenewMany::Reply> answers = Error(Errc::protocol, "no answer");
    if (!reply) {
      answers = std::move(reply).error();
    } else if (ids->size() > 1) {
      answers = decode<RenewMany>(*std::move(reply));
    } else if (auto one = decode<Renew>(*std::move(reply));
               one || one.error().code() != Errc::protocol) {
      answers = RenewMany::Reply{std::move(one)};
    }
    const bool fits = answers && answers->size() == ids->size();
    if (answers && !fits) answers = Error(Errc::protocol, "not one answer for each renewal");

    for (std::size_t i = 0; i < ids->size(); ++i) {
      on_answer((*ids)[i],
                fits ? (*answers)[i] : Result<std::chrono::milliseconds>(answers.error()));
    }
    step();
    return fits || answers.error().code() != Errc::protocol;
  };
  const auto& [name, owner, token] = renew->grants.front();
  const auto bytes =
      ids->size() > 1 ? encode(*renew) : encode(Renew{name, owner, token, renew->ttl});
  const bool sent =
      shared_.send({.bytes = *bytes,
                    .changes = true,
                    .call = {.timeout = whole_milliseconds(batch.until - since_boot())},
                    .done = std::move(done)});
  if (sent) return;
  const Error closed(Errc::unreachable, "not sent: the client was closed");
  for (const auto id : *ids) plan_.failed(id, since_boot(), closed);
  // Soon enough, and not from within step().
  loop_.post([this] { step(); });
}

void LeaseKeeper::on_answer(RenewalPlan::Id id, const Result<std::chrono::milliseconds>& answer) {
  const auto found = holds_.find(id);
  if (found == holds_.end()) return;
  const auto& hold = found->second;
  const auto now = since_boot();
  if (!answer) {
    if (answer.error().code() == Errc::lease_lost) {
      const std::lock_guard lock(hold->mutex);
      hold->settled = answer.error();
    }
    return plan_.failed(id, now, answer.error());
  }
  const auto deadline = plan_.acknowledged(id, now, *answer);
  if (!deadline) return;
  const std::lock_guard lock(hold->mutex);
  // One that has passed stays passed: valid() may have said so to somebody.
  if (now < hold->deadline) hold->deadline = *deadline;
}

void LeaseKeeper::lose(RenewalPlan::Id id, LossReason reason) {
  const auto found = holds_.find(id);
  if (found == holds_.end()) return;
  const auto hold = found->second;
  drop(*hold);
  {
    const std::lock_guard lock(hold->mutex);
    if (hold->ending) return;  // giving back is not losing
    hold->loss = reason;
  }
  hold->stop.request_stop();
  const auto listener = hold->listener;
  {
    const std::lock_guard lock(listener->mutex);
    if (!listener->on_lost) return;
  }
  const LeaseLoss loss{hold->grant.name, hold->grant.token, reason};
  if (!callbacks_.post([listener, loss] { tell(*listener, loss); })) tell(*listener, loss);
}

}  // namespace fencekv
