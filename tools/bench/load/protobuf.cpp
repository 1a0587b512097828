// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/load/protobuf.h"

#include <cstddef>

namespace fencekv::bench {

namespace {

// Wire types. The two of fixed width are passed over.
constexpr std::uint32_t kVarint = 0;
constexpr std::uint32_t kFixed64 = 1;
constexpr std::uint32_t kLengthDelimited = 2;
constexpr std::uint32_t kFixed32 = 5;

constexpr unsigned kTypeBits = 3;
constexpr unsigned kVarintBits = 7;
constexpr std::uint64_t kMore = std::uint64_t{1} << kVarintBits;

void append_varint(std::string& out, std::uint64_t number) {
  for (; number >= kMore; number >>= kVarintBits) {
    out += static_cast<char>((number & (kMore - 1)) | kMore);
  }
  out += static_cast<char>(number);
}

}  // namespace

void append_number(std::string& out, std::uint32_t field, std::uint64_t number) {
  append_varint(out, field << kTypeBits | kVarint);
  append_varint(out, number);
}

void append_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  append_varint(out, field << kTypeBits | kLengthDelimited);
  append_varint(out, bytes.size());
  out += bytes;
}

std::optional<std::uint64_t> ProtobufReader::next_varint() {
  constexpr unsigned kMostBits = 64;
  std::uint64_t number = 0;
  std::size_t at = 0;
  for (unsigned shift = 0; shift < kMostBits && at < left_.size(); shift += kVarintBits) {
    const auto byte = static_cast<unsigned char>(left_[at++]);
    number |= (byte & (kMore - 1)) << shift;
    if (byte >= kMore) continue;
    left_.remove_prefix(at);
    return number;
  }
  return std::nullopt;
}

std::optional<ProtobufReader::Field> ProtobufReader::next() {
  const auto tag = next_varint();
  if (!tag) return std::nullopt;
  Field field{.number = static_cast<std::uint32_t>(*tag >> kTypeBits), .value = 0, .bytes = {}};
  std::uint64_t length = 0;
  switch (*tag & ((1U << kTypeBits) - 1)) {
    case kVarint: {
      const auto number = next_varint();
      if (!number) return std::nullopt;
      field.value = *number;
      return field;
    }
    case kLengthDelimited: {
      const auto announced = next_varint();
      if (!announced) return std::nullopt;
      length = *announced;
      break;
    }
    case kFixed64:
      length = sizeof(std::uint64_t);
      break;
    case kFixed32:
      length = sizeof(std::uint32_t);
      break;
    default:
      return std::nullopt;
  }
  if (length > left_.size()) return std::nullopt;
  field.bytes = left_.substr(0, length);
  left_.remove_prefix(length);
  return field;
}

std::uint64_t number_of(std::string_view message, std::uint32_t field) {
  std::uint64_t found = 0;
  ProtobufReader reader(message);
  while (const auto next = reader.next()) {
    if (next->number == field) found = next->value;
  }
  return found;
}

std::string_view bytes_of(std::string_view message, std::uint32_t field) {
  std::string_view found;
  ProtobufReader reader(message);
  while (const auto next = reader.next()) {
    if (next->number == field) found = next->bytes;
  }
  return found;
}

}  // namespace fencekv::bench
