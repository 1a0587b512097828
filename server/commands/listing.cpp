// SPDX-License-Identifier: Apache-2.0

#include "server/commands/listing.h"

#include "server/commands/arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace fencekv::server {

Result<ScanRequest> parse_scan(const Call& call, Listing listing) {
  // One page is read on the thread that serves other connections as well.
  constexpr std::uint64_t kMaxExamine = 10'000;

  const auto options = parse_options(call, 2);
  if (!options) return options.error();
  ScanRequest request;
  if (const auto count = options->get("COUNT")) {
    const auto number = parse_number("count", *count, 1, INT64_MAX);
    if (!number) return number.error();
    request.examine = std::min(*number, kMaxExamine);
  }
  if (const auto pattern = options->get("MATCH")) {
    if (pattern->size() > Glob::kMaxBytes) {
      return Error(Errc::invalid, fmt::format("the pattern has {} bytes, expected at most {}",
                                              pattern->size(), Glob::kMaxBytes));
    }
    request.pattern.emplace(*pattern);
  }
  if (const auto type = options->get("TYPE")) request.strings = same_word(*type, "string");
  auto after = call.server.cursors.position(listing, call.arguments[1]);
  if (!after) return after.error();
  request.after = *std::move(after);
  return request;
}

void write_scan_header(const Call& call, Listing listing, const std::optional<std::string>& next,
                       std::size_t items) {
  auto reply = call.reply();
  reply.array(2);
  reply.number_as_bulk(next ? call.server.cursors.remember(listing, *next) : 0);
  reply.array(items);
}

}  // namespace fencekv::server
