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

}  // namespace fencekv::core
