// SPDX-License-Identifier: Apache-2.0
/// Histories that are right by construction: an embedded store in memory answers one command after
/// another under a clock that the generator moves; each then gets a time of request before its
/// moment and a time of reply after it, so that the commands of several clients overlap. Replies
/// are lost, commands are lost, delivered late, and twice.

#pragma once

#include "tests/history/operation.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::testing {

struct Generated {
  int operations = 400;
  int groups = 2;  ///< Each a lease, three keys that are written under it, and one that is not.
  int clients = 5;
  int lost_percent = 12;  ///< Outcomes that nobody learns.
};

History generated_history(std::uint64_t seed, const Generated& what);

/// Copies of `history` in which one answer was changed so that it is certainly wrong, with what was
/// done to it. One of each kind for which there is a place.
std::vector<std::pair<std::string, History>> histories_with_one_lie(const History& history,
                                                                    std::uint64_t seed);

}  // namespace fencekv::testing
