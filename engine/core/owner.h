// SPDX-License-Identifier: Apache-2.0
/// Random identities and the fingerprints that stand for secret ones.

#pragma once

#include "engine/core/record.h"
#include "fencekv/store.h"

#include <string>
#include <string_view>

namespace fencekv::core {

/// 128 bits from the system.
Incarnation new_incarnation();

using fencekv::owner_fingerprint;

}  // namespace fencekv::core
