// SPDX-License-Identifier: Apache-2.0
/// Where replies end, without looking into them.

#pragma once

#include <cstddef>
#include <string_view>

namespace fencekv::bench {

enum class Scan { complete, incomplete, broken };

struct ScannedReply {
  Scan state;
  std::size_t bytes;  ///< Of the reply, with everything in it, if complete.
};

/// Looks at the reply at the beginning of `bytes`, RESP2 without nested attributes. Nothing is
/// remembered of one that is incomplete: it is scanned again, by its headers only.
ScannedReply scan_reply(std::string_view bytes);

}  // namespace fencekv::bench
