// SPDX-License-Identifier: Apache-2.0
/// Where a store begins that was made from another one: restored from a backup, loaded from a dump,
/// or repaired after writes may have been lost.
///
/// The old store may have gone on after what is known of it, so tokens that no record knows may be
/// in the hands of its clients. None of them may write here, and none may be handed out again. A
/// new history therefore lifts counter and floor far above everything that is known, which also
/// ends all leases, and gets a new incarnation, so that clients can tell.
///
/// Tokens of an external allocator (UnguardedTokens::any) have no such net: the floor does not
/// apply to them, and only the fences that are known refuse older ones.

#pragma once

#include "engine/core/record.h"
#include "fencekv/types.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace fencekv::core {

struct Put;

/// The records that every store has once.
struct SmallRecords {
  IdentityRecord identity;
  AllocatorRecord allocator;
  PositionRecord position;

  friend bool operator==(const SmallRecords&, const SmallRecords&) = default;
};

/// How far above all known tokens a new history begins: more than a store hands out in the time
/// between a backup and its end. (At a million a second, an hour; a sync store makes a few
/// thousand.)
constexpr std::uint64_t kTokensBetweenHistories = std::uint64_t{1} << 32;

/// The small records of a new history. `old` is what is known of the old one: as much of it as
/// there is, default values for the rest. `highest` is the highest token that may have been handed
/// out, if anything beside `old` knows one: the reservation of the position file, a lease record.
///
/// `old.position` must count what will be in the new store. Near the end of the token space the
/// counter stops there: then the new store hands out none.
SmallRecords new_history(SmallRecords old, Token highest);

/// The small records as they are stored, in the order of their places.
std::vector<Put> puts_of(const SmallRecords& records);

}  // namespace fencekv::core
