// SPDX-License-Identifier: Apache-2.0
#include "fencekv/types.h"

namespace fencekv {

std::optional<std::uint64_t> parse_decimal(std::string_view text, std::uint64_t max) {
  if (text.empty()) return std::nullopt;
  if (text.size() > 1 && text.front() == '0') return std::nullopt;

  std::uint64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (number > (max - digit) / 10 || digit > max) return std::nullopt;
    number = number * 10 + digit;
  }
  return number;
}

std::string_view to_string(LeaseMode mode) {
  switch (mode) {
    case LeaseMode::exclusive:
      return "exclusive";
    case LeaseMode::shared:
      return "shared";
    case LeaseMode::permit:
      return "permit";
  }
  return "unknown";
}

std::string_view to_string(LeaseChange change) {
  switch (change) {
    case LeaseChange::granted:
      return "granted";
    case LeaseChange::released:
      return "released";
    case LeaseChange::expired:
      return "expired";
    case LeaseChange::revoked:
      return "revoked";
    case LeaseChange::disconnected:
      return "disconnected";
    case LeaseChange::missed:
      return "missed";
  }
  return "unknown";
}

std::string_view to_string(SpaceLevel level) {
  switch (level) {
    case SpaceLevel::enough:
      return "enough";
    case SpaceLevel::low:
      return "low";
    case SpaceLevel::out:
      return "out";
  }
  return "unknown";
}

}  // namespace fencekv
