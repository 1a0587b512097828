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

Acquire make_acquire(std::string_view name, std::string_view owner, std::chrono::milliseconds ttl,
                     AcquireOptions options) {
  return {.name = std::string(name),
          .owner = std::string(owner),
          .ttl = ttl,
          .wait = options.wait,
          .mode = options.mode,
          .permits = options.permits,
          .bind = options.bind,
          .delay = options.delay,
          .payload = std::move(options.payload)};
}

}  // namespace fencekv
