// SPDX-License-Identifier: Apache-2.0
#include "client/renewal.h"

#include <algorithm>
#include <array>
#include <utility>

namespace fencekv {
namespace {

using namespace std::chrono_literals;

constexpr std::array<std::pair<LossReason, std::string_view>, 7> kReasons{{
    {LossReason::expired, "expired"},
    {LossReason::superseded, "superseded"},
    {LossReason::released, "released"},
    {LossReason::revoked, "revoked"},
    {LossReason::disconnected, "disconnected"},
    {LossReason::unknown, "unknown"},
    {LossReason::deadline, "deadline"},
}};

}  // namespace

std::string_view to_string(LossReason reason) {
  for (const auto& [known, word] : kReasons) {
    if (known == reason) return word;
  }
  return "unknown";
}

LossReason loss_reason(const Error& error) {
  for (const auto& [reason, word] : kReasons) {
    if (word == error.reason() && reason != LossReason::deadline) return reason;
  }
  return LossReason::unknown;
}

Renewal::Renewal(Time sent, std::chrono::milliseconds ttl, std::chrono::milliseconds remaining)
    : ttl_(ttl), deadline_(sent + std::min(ttl, remaining)), due_(sent + Time(ttl) / 3) {}

Renewal::Step Renewal::next(Time now) {
  if (loss_at(now)) return {Step::Kind::lost, now};
  if (asked_) return {Step::Kind::wait, deadline_};
  if (now < due_) return {Step::Kind::wait, std::min(due_, deadline_)};
  return ask(now);
}

Renewal::Step Renewal::ask(Time now) {
  if (loss_at(now)) return {Step::Kind::lost, now};
  if (asked_) return {Step::Kind::wait, deadline_};
  asked_ = now;
  // A request that hangs must leave time for another one over another connection.
  return {Step::Kind::renew, std::min(now + Time(ttl_) / 3, deadline_)};
}

std::optional<LossReason> Renewal::loss_at(Time now) {
  pass(now);
  return loss_;
}

Renewal::Time Renewal::wakes() const {
  if (loss_) return Time::min();
  return asked_ ? deadline_ : std::min(due_, deadline_);
}

std::optional<Renewal::Time> Renewal::due() const {
  if (loss_ || asked_) return std::nullopt;
  return due_;
}

void Renewal::acknowledged(Time now, std::chrono::milliseconds remaining) {
  pass(now);
  if (loss_ || !asked_) return;
  deadline_ = *asked_ + std::min(ttl_, remaining);
  due_ = *asked_ + Time(ttl_) / 3;
  asked_.reset();
}

void Renewal::failed(Time now, const Error& error) {
  pass(now);
  if (loss_ || !asked_) return;
  asked_.reset();
  if (error.code() == Errc::lease_lost) {
    loss_ = loss_reason(error);
    return;
  }
  due_ = now + std::clamp<Time>(Time(ttl_) / 12, 1ms, 1s);
}

void Renewal::pass(Time now) {
  if (!loss_ && now >= deadline_) loss_ = LossReason::deadline;
}

}  // namespace fencekv
