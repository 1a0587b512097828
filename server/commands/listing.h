// SPDX-License-Identifier: Apache-2.0
/// What SCAN and LEASE.SCAN share.

#pragma once

#include "fencekv/store.h"
#include "server/commands/command.h"
#include "server/commands/cursor_table.h"
#include "server/commands/glob.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace fencekv::server {

inline constexpr Argument kScanArguments[] = {
    {.name = "cursor", .type = ArgumentType::integer},
    {.name = "pattern", .type = ArgumentType::pattern, .token = "MATCH", .optional = true},
    {.name = "count", .type = ArgumentType::integer, .token = "COUNT", .optional = true},
};

/// SCAN can be asked for a type as well.
inline constexpr Argument kTypedScanArguments[] = {
    kScanArguments[0],
    kScanArguments[1],
    kScanArguments[2],
    {.name = "type", .token = "TYPE", .optional = true},
};

struct ScanRequest {
  std::optional<std::string> after;
  std::size_t examine = 10;
  std::optional<Glob> pattern;
  bool strings = true;  ///< Strings were asked for, the only type there is.
};

/// Errors: invalid: the cursor, the pattern, the count or an option.
Result<ScanRequest> parse_scan(const Call& call, Listing listing);

/// The beginning of the reply: the cursor for `next`, and the header of the list.
void write_scan_header(const Call& call, Listing listing, const std::optional<std::string>& next,
                       std::size_t items);

template <class Item>
struct Selection {
  std::vector<const Item*> items;  ///< Point into the page.
  std::optional<std::string> next;
};

/// The items of `page` that fit the pattern. Stops in the middle of the page when the pattern has
/// cost too much, and lets the next page begin there: no pattern may hold up other clients.
template <class Item, class NameOf>
Selection<Item> select(const Page<Item>& page, const ScanRequest& request, NameOf name_of) {
  constexpr std::size_t kMaxSteps = 4'000'000;
  Selection<Item> selection{{}, page.next};
  std::size_t steps = 0;
  for (const Item& item : page.items) {
    if (!request.pattern || request.pattern->matches(name_of(item), steps)) {
      selection.items.push_back(&item);
    }
    if (steps > kMaxSteps && &item != &page.items.back()) {
      selection.next = name_of(item);
      break;
    }
  }
  return selection;
}

}  // namespace fencekv::server
