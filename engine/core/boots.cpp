// SPDX-License-Identifier: Apache-2.0
#include "engine/core/boots.h"

#include <cassert>

namespace fencekv::core {

bool Boots::enter(const std::string& id, std::chrono::nanoseconds now,
                  std::chrono::nanoseconds last) {
  if (!boots_.empty() && boots_.back().id == id) return false;

  if (!boots_.empty()) boots_.back().last = last;
  boots_.push_back({.id = id, .opened = now, .last = {}});
  if (boots_.size() > kRemembered) {
    boots_.erase(boots_.begin());
    ++first_;
  }
  return true;
}

std::optional<std::chrono::nanoseconds> Boots::resolve(Deadline deadline,
                                                       std::chrono::nanoseconds ttl) const {
  assert(!boots_.empty());
  if (deadline.boot < first_) return std::nullopt;

  auto end = deadline.at;
  for (auto i = std::size_t{deadline.boot - first_}; i + 1 < boots_.size(); ++i) {
    if (end <= boots_[i].last) return std::nullopt;
    end = boots_[i + 1].opened + ttl;
  }
  return end;
}

std::optional<std::chrono::nanoseconds> Boots::resolve_delay(Deadline deadline,
                                                             std::chrono::nanoseconds ttl,
                                                             std::chrono::nanoseconds delay) const {
  assert(!boots_.empty());
  if (deadline.boot < first_) return std::nullopt;

  auto end = deadline.at;
  auto boot = std::size_t{deadline.boot - first_};
  while (boot + 1 < boots_.size() && end > boots_[boot].last) end = boots_[++boot].opened + ttl;
  // In this boot the lease ended: what follows is as with a lease that lasts as long as the delay.
  const auto ordinal = first_ + static_cast<std::uint32_t>(boot);
  return resolve({.boot = ordinal, .at = end + delay}, delay);
}

}  // namespace fencekv::core
