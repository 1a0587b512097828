// SPDX-License-Identifier: Apache-2.0
/// Is there one order of all commands, each at one moment between its request and its reply, in
/// which a store as engine/SEMANTICS.md describes it gives exactly the answers that were given?
///
/// The search is just-in-time linearization with memoisation, after J. Wing and C. Gong, "Testing
/// and verifying concurrent objects" (1993), and G. Lowe, "Testing for linearizability" (2017):
/// events are taken in their order, a command is put in place when its reply arrives at the latest,
/// and all configurations that are still possible (a state and the commands that are yet to be put
/// in place) are kept at once, each one once. A history is wrong when none is left.
///
/// - A command whose outcome is unknown may be put in place at any time until Operation::latest, or
///   never. It is forgotten when it cannot change anything any more: fences only rise, so that
///   comes soon. Of two configurations that differ in such commands alone, the one that has more of
///   them left allows for all that the other does, and stands for both.
/// - Acquires and revocations of unknown outcome are not forgotten that way: a copy may take a free
/// name
///   in a year. Where nobody hears of their owners any more they are all alike, and the search does
///   not count how often they came: one that is left may explain that a name was not free, again
///   and again. That is the one place, besides time, where it allows for more than the truth. Set
///   `latest` where copies are known to be gone.
/// - An answer that fits and changes nothing is put in place at once: that can never be wrong.
/// - The version in an answer says which write of its key it was, so almost nothing is left to try.
/// - A history is taken apart into components that cannot influence each other (component.h).
/// - Time: a lease's deadline is an interval, from the earliest moment of its grant to the latest.
/// It
///   may run out when the earliest has passed, and be held until the latest has. That is a little
///   wider than the truth, by the time that a command took: never a false alarm, and holding times
///   that overlap by less are found by broken_invariants().

#pragma once

#include "tests/history/operation.h"

#include <cstddef>
#include <string>
#include <vector>

namespace fencekv::testing {

struct Verdict {
  bool is_linearizable = true;
  std::string why;  ///< If not: the answer that fits nowhere, what was possible, what came before.

  std::size_t components = 0;
  std::size_t largest_component = 0;  ///< In operations.
  std::size_t most_configurations = 0;
};

/// Takes time in proportion to the history, and memory for one component. A search that needs more
/// than `most_configurations` at once is given up, which is no verdict: is_linearizable is false,
/// and `why` says so.
Verdict check_linearizability(const History& history, std::size_t most_configurations = 200'000);

}  // namespace fencekv::testing
