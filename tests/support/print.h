// SPDX-License-Identifier: Apache-2.0
/// How GoogleTest shows fencekv's types when a comparison fails.

#pragma once

#include "fencekv/types.h"

#include <ostream>

namespace fencekv {

inline void PrintTo(Token token, std::ostream* out) {
  *out << token.number();
}

}  // namespace fencekv
