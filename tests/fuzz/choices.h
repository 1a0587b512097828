// SPDX-License-Identifier: Apache-2.0
/// How a fuzz input makes decisions: one byte after the other, zeros once they are used up.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fencekv::fuzz {

class Choices {
 public:
  Choices(const std::uint8_t* bytes, std::size_t size)
      : rest_(reinterpret_cast<const char*>(bytes), size) {}

  bool is_done() const { return rest_.empty(); }

  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto first = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return first;
  }
  /// 0 to below - 1; at most 256 different ones.
  std::size_t pick(std::size_t below) { return byte() % below; }
  bool maybe() { return (byte() & 1U) != 0; }

  std::uint64_t number() {
    std::uint64_t all = 0;
    for (int i = 0; i < 8; ++i) all = all << 8U | byte();
    return all;
  }
  /// Up to `most` bytes as they stand in the input.
  std::string_view text(std::size_t most) {
    const auto front = rest_.substr(0, std::min<std::size_t>(most, byte_length()));
    rest_.remove_prefix(front.size());
    return front;
  }
  std::optional<std::string> maybe_text(std::size_t most) {
    return maybe() ? std::optional<std::string>(text(most)) : std::nullopt;
  }

  std::string_view rest() { return std::exchange(rest_, {}); }

 private:
  std::size_t byte_length() { return byte(); }

  std::string_view rest_;
};

}  // namespace fencekv::fuzz
