// SPDX-License-Identifier: Apache-2.0
/// Fixed-width little-endian integers and length-prefixed strings, the alphabet of every record
/// and of the position file.

#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencekv::core {

/// Writes to the end of `bytes`, which outlives it.
class ByteAppender {
 public:
  explicit ByteAppender(std::string& bytes) : bytes_(bytes) {}

  template <std::unsigned_integral Integer>
  void integer(Integer number) {
    // All at once: to grow a string byte by byte costs more than all else in a record.
    std::array<char, sizeof(Integer)> little_endian;
    for (char& byte : little_endian) {
      byte = static_cast<char>(number & 0xff);
      if constexpr (sizeof(Integer) > 1) number >>= 8;
    }
    bytes_.append(little_endian.data(), little_endian.size());
  }

  /// 4 bytes of length, then the bytes.
  void string(std::string_view text) {
    integer(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
  }

  void raw(std::string_view text) { bytes_ += text; }

 private:
  std::string& bytes_;
};

/// The same, to bytes of its own.
class ByteWriter {
 public:
  template <std::unsigned_integral Integer>
  void integer(Integer number) {
    ByteAppender(bytes_).integer(number);
  }
  void string(std::string_view text) { ByteAppender(bytes_).string(text); }
  void raw(std::string_view text) { bytes_ += text; }
  void reserve(std::size_t size) { bytes_.reserve(size); }

  std::string take() && { return std::move(bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads what they wrote. A read beyond the end makes the reader fail for good; check
/// is_done() once, after the last read.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <std::unsigned_integral Integer>
  Integer integer() {
    const auto raw_bytes = raw(sizeof(Integer));
    Integer number = 0;
    for (std::size_t i = raw_bytes.size(); i > 0; --i) {
      if constexpr (sizeof(Integer) > 1) number = static_cast<Integer>(number << 8);
      number = static_cast<Integer>(number | static_cast<unsigned char>(raw_bytes[i - 1]));
    }
    return number;
  }

  std::string_view string() { return raw(integer<std::uint32_t>()); }

  std::string_view raw(std::size_t size) {
    if (failed_ || size > rest_.size()) {
      failed_ = true;
      return {};
    }
    const auto front = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return front;
  }

  bool has_failed() const { return failed_; }
  /// Everything was there, and nothing is left over.
  bool is_done() const { return !failed_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace fencekv::core
