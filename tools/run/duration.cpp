// SPDX-License-Identifier: Apache-2.0
#include "tools/run/duration.h"

#include "fencekv/types.h"

#include <array>
#include <cstdint>
#include <utility>

namespace fencekv::run {
namespace {

using std::chrono::milliseconds;

constexpr std::array<std::pair<std::string_view, milliseconds>, 5> kUnits{{
    {"d", std::chrono::hours(24)},
    {"h", std::chrono::hours(1)},
    {"m", std::chrono::minutes(1)},
    {"s", std::chrono::seconds(1)},
    {"ms", milliseconds(1)},
}};

constexpr milliseconds kLongest = std::chrono::hours(24 * 3650);

}  // namespace

std::optional<milliseconds> parse_duration(std::string_view text) {
  const auto digits = text.substr(0, text.find_first_not_of("0123456789"));
  for (const auto& [unit, length] : kUnits) {
    if (text.substr(digits.size()) != unit) continue;
    const auto count =
        parse_decimal(digits, static_cast<std::uint64_t>(kLongest.count() / length.count()));
    if (!count) return std::nullopt;
    return length * static_cast<std::int64_t>(*count);
  }
  return std::nullopt;
}

std::string to_text(milliseconds duration) {
  for (const auto& [unit, length] : kUnits) {
    if (duration.count() != 0 && duration % length == milliseconds::zero()) {
      return std::to_string(duration / length).append(unit);
    }
  }
  return "0s";
}

}  // namespace fencekv::run
