// SPDX-License-Identifier: Apache-2.0
/// What fencekv-run is asked to do.

#pragma once

#include "fencekv/types.h"
#include "tools/run/environment.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace fencekv::run {

struct RunOptions {
  std::string lease;
  std::chrono::milliseconds ttl{10'000};
  /// How long to wait for the lease; nullopt: as long as it takes; zero: not at all.
  std::optional<std::chrono::milliseconds> wait{};
  LeaseMode mode = LeaseMode::exclusive;
  std::uint64_t permits = 0;  ///< With LeaseMode::permit.
  std::optional<std::chrono::milliseconds> delay{};
  std::optional<std::string> payload{};
  std::chrono::milliseconds grace{0};

  Address address{};
  std::string password_file{};

  std::vector<std::string> command;
};

/// The program ends here, before it did anything.
struct EarlyExit {
  int code = 0;
  std::string out{};  ///< For standard output.
  std::string err{};  ///< For standard error.
};

/// Everything behind the first `--` is the command, word by word.
std::variant<RunOptions, EarlyExit> parse_options(const std::vector<std::string>& arguments);

}  // namespace fencekv::run
