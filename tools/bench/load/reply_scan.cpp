// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/load/reply_scan.h"

#include <charconv>
#include <cstdint>
#include <system_error>

namespace fencekv::bench {

namespace {

constexpr ScannedReply kIncomplete{Scan::incomplete, 0};
constexpr ScannedReply kBroken{Scan::broken, 0};

}  // namespace

ScannedReply scan_reply(std::string_view bytes) {
  std::size_t at = 0;
  for (std::uint64_t awaited = 1; awaited > 0; --awaited) {
    const std::size_t end = bytes.find('\n', at);
    if (end == std::string_view::npos) return kIncomplete;
    if (end < at + 2 || bytes[end - 1] != '\r') return kBroken;
    const char type = bytes[at];
    if (type == '+' || type == '-' || type == ':') {
      at = end + 1;
      continue;
    }
    if (type != '$' && type != '*') return kBroken;

    std::int64_t count = 0;
    const char* const last = bytes.data() + end - 1;
    const auto [stopped, failure] = std::from_chars(bytes.data() + at + 1, last, count);
    if (failure != std::errc() || stopped != last) return kBroken;
    at = end + 1;
    if (count < 0) continue;
    if (type == '*') {
      awaited += static_cast<std::uint64_t>(count);
      continue;
    }
    if (bytes.size() - at < static_cast<std::uint64_t>(count) + 2) return kIncomplete;
    at += static_cast<std::size_t>(count) + 2;
  }
  return {Scan::complete, at};
}

}  // namespace fencekv::bench
