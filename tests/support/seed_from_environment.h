// SPDX-License-Identifier: Apache-2.0
/// Numbers that a person may give a random test, to repeat or to lengthen it.

#pragma once

#include "fencekv/types.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace fencekv::testing {

/// nullopt: the variable is not set. What is no plain decimal number throws: a run with another
/// seed than was asked for would be worse than none.
inline std::optional<std::uint64_t> number_from_environment(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const auto number = parse_decimal(text);
  if (!number) throw std::invalid_argument(std::string(variable) + "=" + text + " is no number");
  return number;
}

/// The seed that was given, or a new one.
inline std::uint64_t seed_from_environment(const char* variable) {
  return number_from_environment(variable).value_or(std::random_device{}());
}

/// The one seed that was given, or `count` new ones.
inline std::vector<std::uint64_t> seeds_from_environment(const char* variable, std::size_t count) {
  if (const auto given = number_from_environment(variable)) return {*given};
  std::random_device fresh;
  std::vector<std::uint64_t> seeds(count);
  for (auto& seed : seeds) seed = fresh();
  return seeds;
}

}  // namespace fencekv::testing
