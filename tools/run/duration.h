// SPDX-License-Identifier: Apache-2.0
/// Durations as people write them: `500ms`, `10s`, `5m`, `2h`, `1d`.

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace fencekv::run {

/// A plain decimal and a unit. nullopt for everything else, and for what is longer than ten years:
/// a number without a unit would be taken for seconds by some and for milliseconds by others.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// In the longest unit that fits: `90s`, `1500ms`, `2h`.
std::string to_text(std::chrono::milliseconds duration);

}  // namespace fencekv::run
