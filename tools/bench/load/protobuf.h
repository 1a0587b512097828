// SPDX-License-Identifier: Apache-2.0
/// As much of the wire format of Protocol Buffers as a few small messages need.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencekv::bench {

/// A field that holds an integer, a bool or an enumerator.
void append_number(std::string& out, std::uint32_t field, std::uint64_t number);

/// A field that holds bytes, a string or a message.
void append_bytes(std::string& out, std::uint32_t field, std::string_view bytes);

/// The fields of a message, one after the other.
///
/// Thread safety: none; refers to the bytes that it was given.
class ProtobufReader {
 public:
  struct Field {
    std::uint32_t number;
    std::uint64_t value;     ///< Of an integer.
    std::string_view bytes;  ///< Of anything with a length.
  };

  explicit ProtobufReader(std::string_view message) : left_(message) {}

  /// nullopt at the end, and where the bytes are no message.
  std::optional<Field> next();

 private:
  std::optional<std::uint64_t> next_varint();

  std::string_view left_;
};

/// The last field of that number; a field that is absent is as good as a zero or empty one.
std::uint64_t number_of(std::string_view message, std::uint32_t field);
std::string_view bytes_of(std::string_view message, std::uint32_t field);

}  // namespace fencekv::bench
