// SPDX-License-Identifier: Apache-2.0
/// The numbers of RESP's headers.

#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencekv::resp {

template <std::integral Number>
void append_decimal(std::string& out, Number number) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  out.append(digits, end);
}

/// `type`, `number`, CRLF.
template <std::integral Number>
void append_header(std::string& out, char type, Number number) {
  out.push_back(type);
  append_decimal(out, number);
  out.append("\r\n");
}

/// Reads a number as Redis reads lengths: no plus sign, no leading zero, no `-0`, nothing around
/// it.
inline std::optional<std::int64_t> read_decimal(std::string_view text) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty()) return std::nullopt;
  if (digits.front() == '0' && text.size() > 1) return std::nullopt;

  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc{} || stopped != end) return std::nullopt;
  return number;
}

}  // namespace fencekv::resp
