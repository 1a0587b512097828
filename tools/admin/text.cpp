// SPDX-License-Identifier: Apache-2.0
#include "tools/admin/text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <ctime>

namespace fencekv::admin {
namespace {

/// One character of UTF-8; length 0: the bytes do not begin with one.
struct Character {
  std::size_t length = 0;
  char32_t code = 0;
};

Character first_character(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes.front());
  if (lead < 0x80) return {.length = 1, .code = lead};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes.size() < length) return {};

  char32_t code = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(bytes[i]);
    if ((next & 0xC0) != 0x80) return {};
    code = code << 6 | (next & 0x3FU);
  }
  // Written longer than needed, a surrogate, or beyond Unicode: not UTF-8.
  constexpr std::array<char32_t, 5> kSmallest{0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || (code >= 0xD800 && code <= 0xDFFF) || code > 0x10FFFF) return {};
  return {.length = length, .code = code};
}

bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F);
}

/// Characters that move or hide what stands beside them.
bool is_deceptive(char32_t code) {
  return (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF || code == 0x061C;
}

enum class Backslash { doubled, kept };

std::string one_line(std::string_view bytes, std::size_t max_columns, Backslash backslash) {
  std::string line;
  std::size_t used = 0;
  while (!bytes.empty()) {
    const auto [length, code] = first_character(bytes);
    std::string piece;
    if (code == '\\' && backslash == Backslash::doubled) {
      piece = "\\\\";
    } else if (length > 0 && !is_control(code) && !is_deceptive(code)) {
      piece = bytes.substr(0, length);
    } else {
      for (const char byte : bytes.substr(0, std::max(length, std::size_t{1}))) {
        piece += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
      }
    }
    const auto width = columns(piece);
    const auto rest = bytes.substr(std::max(length, std::size_t{1}));
    // The last column is kept for the sign that something is missing.
    if (width > max_columns - used || (width == max_columns - used && !rest.empty())) {
      return line + "…";
    }
    line += piece;
    used += width;
    bytes = rest;
  }
  return line;
}

}  // namespace

bool is_text(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto [length, code] = first_character(bytes);
    const bool is_blank = code == '\t' || code == '\n' || code == '\r';
    if (length == 0 || (is_control(code) && !is_blank)) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string base64(std::string_view bytes) {
  // A multiple of 3, so that the pieces can be put one behind the other.
  constexpr std::size_t kPiece = std::size_t{3} << 20;
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  std::string encoded;
  while (!bytes.empty()) {
    const auto piece = bytes.substr(0, kPiece);
    encoded.resize((piece.size() + 2) / 3 * 4 + 1);  // OpenSSL adds a zero byte
    const auto size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                                      reinterpret_cast<const unsigned char*>(piece.data()),
                                      static_cast<int>(piece.size()));
    text.append(encoded, 0, static_cast<std::size_t>(size));
    bytes.remove_prefix(piece.size());
  }
  return text;
}

std::optional<std::string> unbase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  // A multiple of 4, as above.
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  std::string bytes;
  std::string decoded;
  for (auto left = text; !left.empty(); left.remove_prefix(std::min(kPiece, left.size()))) {
    const auto piece = left.substr(0, kPiece);
    decoded.resize(piece.size() / 4 * 3);
    const auto size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(decoded.data()),
                                      reinterpret_cast<const unsigned char*>(piece.data()),
                                      static_cast<int>(piece.size()));
    if (size < 0) return std::nullopt;
    bytes.append(decoded, 0, static_cast<std::size_t>(size));
  }
  // OpenSSL gives a zero byte for each `=` at the end.
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  bytes.resize(bytes.size() - std::min(padding, bytes.size()));
  // It also passes over blanks, and bits that mean nothing.
  if (base64(bytes) != text) return std::nullopt;
  return bytes;
}

std::string shown(std::string_view bytes, std::size_t max_columns) {
  return one_line(bytes, max_columns, Backslash::doubled);
}

std::string message(std::string_view text, std::size_t max_columns) {
  return one_line(text, max_columns, Backslash::kept);
}

std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string size_words(std::uint64_t bytes) {
  constexpr std::array kUnits{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  auto size = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (size >= 1024 && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::string time_words(std::chrono::milliseconds since_1970) {
  constexpr std::chrono::milliseconds kYear10000{253402300800000};
  if (since_1970.count() == 0) return "-";
  // A damaged record may say anything.
  if (since_1970.count() < 0 || since_1970 >= kYear10000) {
    return fmt::format("{} ms", since_1970.count());
  }
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_1970);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}",
                     fmt::gmtime(static_cast<std::time_t>(seconds.count())));
}

}  // namespace fencekv::admin
