// SPDX-License-Identifier: Apache-2.0
#include "fencekv/command.h"

#include <utility>

namespace fencekv {

Write make_write(std::vector<Write::Entry> entries, Token token, WriteOptions options) {
  return {.entries = std::move(entries),
          .token = token,
          .lease = std::move(options.lease),
          .once = options.once,
          .live = options.live,
          .if_version = options.if_version,
          .request = std::move(options.request)};
}

}  // namespace fencekv
