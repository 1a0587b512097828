// SPDX-License-Identifier: Apache-2.0
/// Stored bytes for people and for programs. Keys, values and names may hold any bytes.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencekv::admin {

/// Whether the bytes are UTF-8 without control characters other than tab and line ends.
bool is_text(std::string_view bytes);

std::string base64(std::string_view bytes);
/// The bytes whose base64() is exactly `text`; nullopt: there are none.
std::optional<std::string> unbase64(std::string_view text);

/// One line that a terminal can be shown whatever the bytes are: what is not printable UTF-8
/// becomes `\xHH`, a backslash `\\`. Cut at `max_columns`, which `…` then shows.
std::string shown(std::string_view bytes, std::size_t max_columns = SIZE_MAX);

/// The same for a message whose stored bytes are escaped already: backslashes are left as they are.
std::string message(std::string_view text, std::size_t max_columns = SIZE_MAX);

/// How many columns shown() text takes, counting one for each character.
std::size_t columns(std::string_view text);

/// `1.2 MiB`.
std::string size_words(std::uint64_t bytes);

/// `2026-05-01 12:00:00` in UTC; zero is `-`.
std::string time_words(std::chrono::milliseconds since_1970);

}  // namespace fencekv::admin
