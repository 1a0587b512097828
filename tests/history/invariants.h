// SPDX-License-Identifier: Apache-2.0
/// What must be true of every history, looked for one invariant at a time. Less complete than
/// check_linearizability(), but it names the promise that is broken, knows the whole store and not
/// one component, and takes holding times to the nanosecond.
///
/// | | looked for |
/// |---|---|
/// | I1 | a grant after another's reply with a smaller token; one token for two grants |
/// | I2 | two owners who certainly held one name at a time. Certain: from the reply to the grant
/// until the last acknowledged acquire or renew was sent, plus its ttl; not beyond the sending of a
/// release or a revocation, nor of a copy of an acquire or renew with a shorter ttl | | I3 | a
/// write accepted with a token below one that a reply before its request had put on its key or its
/// lease, or with one that was closed; a later version of a key with a smaller token | | I4 | an
/// acknowledged write that a later read does not show | | I5 | a version, a fence or a lease fence
/// that went back | | I6 | the value of a refused write, seen | | I8 | a wait that ended with
/// nothing before its time; a grant to an owner who was told that there is none | | I10 | a
/// repeated request that was answered with another version although nothing came between | | I11 |
/// a token accepted that no grant had been asked for when the write was answered | | I12 | one key
/// of a write of many seen written, and another afterwards not |

#pragma once

#include "tests/history/operation.h"

#include <string>
#include <vector>

namespace fencekv::testing {

/// One text for each broken promise, beginning with the invariant: `I1: …`. Empty: none.
///
/// Expects of a history that each value is written by one command alone (copies of it aside), and
/// that an owner acquires one lease once (retries aside).
std::vector<std::string> broken_invariants(const History& history);

}  // namespace fencekv::testing
