// SPDX-License-Identifier: Apache-2.0
#include "engine/core/new_history.h"

#include "engine/core/backend.h"
#include "engine/core/owner.h"

#include <algorithm>
#include <utility>

namespace fencekv::core {

SmallRecords new_history(SmallRecords old, Token highest) {
  auto& allocator = old.allocator;
  const auto known = std::max({highest, allocator.newest, allocator.floor}).number();
  const auto room = Token::kMax - std::min(known, Token::kMax);
  allocator.newest = Token{Token::kMax - room + std::min(room, kTokensBetweenHistories)};
  allocator.floor = Token{std::min(allocator.newest.number() + 1, Token::kMax)};

  old.identity.incarnation = new_incarnation();
  // A store that has no group yet would be taken for one that has no history.
  ++old.position.n;
  old.position.epoch = std::max<std::uint64_t>(old.position.epoch, 1);
  return old;
}

std::vector<Put> puts_of(const SmallRecords& records) {
  std::vector<Put> puts;
  const auto add = [&puts](std::string_view place, const auto& record) {
    puts.push_back({.place = std::string(place), .bytes = encode(place, record)});
  };
  add(kAllocatorKey, records.allocator);
  add(kIdentityKey, records.identity);
  add(kPositionKey, records.position);
  return puts;
}

}  // namespace fencekv::core
