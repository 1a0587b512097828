// SPDX-License-Identifier: Apache-2.0
#include "engine/core/record.h"

#include "engine/core/byte_codec.h"

#include <xxhash.h>

#include <utility>

namespace fencekv::core {
namespace {

// The first byte of every record: its kind and layout. Never reused for another layout.
constexpr std::uint8_t kKeyLayout = 0x11;
constexpr std::uint8_t kLeaseLayout = 0x21;
constexpr std::uint8_t kPositionLayout = 0x31;
constexpr std::uint8_t kAllocatorLayout = 0x32;
constexpr std::uint8_t kIdentityLayout = 0x33;

// Which optional parts of a key record are present.
constexpr std::uint8_t kHasGuard = 1;
constexpr std::uint8_t kHasRequest = 2;
constexpr std::uint8_t kHasValue = 4;

constexpr std::size_t kChecksumBytes = 8;

/// XXH3-64 over the place, seeded, then over the bytes, seeded with the first: two records cannot
/// be swapped, and bytes cannot move between place and record.
std::uint64_t checksum(std::string_view place, std::string_view bytes) {
  constexpr XXH64_hash_t kSeed = 0x66656e63656b7631;  // "fencekv1"
  const auto place_hash = XXH3_64bits_withSeed(place.data(), place.size(), kSeed);
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), place_hash);
}

std::string sealed(std::string_view place, ByteWriter writer) {
  writer.integer(checksum(place, writer.bytes()));
  return std::move(writer).take();
}

Error damaged(std::string_view place, std::string_view what) {
  return {Errc::corrupt, "record " + escaped(place) + ": " + std::string(what)};
}

/// The bytes of a record without layout and checksum, both verified.
Result<std::string_view> unsealed(std::string_view place, std::string_view bytes,
                                  std::uint8_t layout) {
  if (bytes.size() < 1 + kChecksumBytes) return damaged(place, "too short");

  const auto body = bytes.substr(0, bytes.size() - kChecksumBytes);
  ByteReader tail(bytes.substr(body.size()));
  if (tail.integer<std::uint64_t>() != checksum(place, body)) {
    return damaged(place, "checksum does not match");
  }
  if (static_cast<std::uint8_t>(body.front()) != layout) return damaged(place, "unknown layout");
  return body.substr(1);
}

void write_nanoseconds(ByteWriter& writer, std::chrono::nanoseconds time) {
  writer.integer(static_cast<std::uint64_t>(time.count()));
}

void write_milliseconds(ByteWriter& writer, std::chrono::milliseconds time) {
  writer.integer(static_cast<std::uint64_t>(time.count()));
}

std::chrono::nanoseconds read_nanoseconds(ByteReader& reader) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(reader.integer<std::uint64_t>()));
}

std::chrono::milliseconds read_milliseconds(ByteReader& reader) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(reader.integer<std::uint64_t>()));
}

std::string placed(char prefix, std::string_view name) {
  std::string place;
  place.reserve(1 + name.size());
  place += prefix;
  place += name;
  return place;
}

}  // namespace

std::string key_place(std::string_view key) {
  return placed(kKeyPrefix, key);
}
std::string lease_place(std::string_view name) {
  return placed(kLeasePrefix, name);
}

std::string encode(std::string_view place, const KeyRecord& record) {
  std::uint8_t parts = 0;
  if (record.guard) parts |= kHasGuard;
  if (record.request) parts |= kHasRequest;
  if (record.value) parts |= kHasValue;

  ByteWriter writer;
  writer.reserve(64 + (record.guard ? record.guard->size() : 0) +
                 (record.request ? record.request->size() : 0) +
                 (record.value ? record.value->size() : 0));
  writer.integer(kKeyLayout);
  writer.integer(parts);
  writer.integer(record.fence.number());
  writer.integer(record.version);
  writer.integer(record.written_by.number());
  write_milliseconds(writer, record.written);
  if (record.guard) writer.string(*record.guard);
  if (record.request) writer.string(*record.request);
  if (record.value) writer.string(*record.value);
  return sealed(place, std::move(writer));
}

Result<KeyRecord> decode_key(std::string_view place, std::string_view bytes) {
  const auto body = unsealed(place, bytes, kKeyLayout);
  if (!body) return body.error();

  ByteReader reader(*body);
  const auto parts = reader.integer<std::uint8_t>();
  KeyRecord record;
  record.fence = Token{reader.integer<std::uint64_t>()};
  record.version = reader.integer<std::uint64_t>();
  record.written_by = Token{reader.integer<std::uint64_t>()};
  record.written = read_milliseconds(reader);
  if (parts & kHasGuard) record.guard = reader.string();
  if (parts & kHasRequest) record.request = reader.string();
  if (parts & kHasValue) record.value = reader.string();

  if (!reader.is_done() || parts > (kHasGuard | kHasRequest | kHasValue)) {
    return damaged(place, "length does not match its content");
  }
  if (!record.fence.is_valid()) return damaged(place, "fence out of range");
  return record;
}

std::string encode(std::string_view place, const LeaseRecord& record) {
  ByteWriter writer;
  writer.integer(kLeaseLayout);
  writer.integer(static_cast<std::uint8_t>(record.mode));
  writer.integer(static_cast<std::uint8_t>(record.end));
  writer.integer(record.fence.number());
  writer.integer(record.deadline.boot);
  write_nanoseconds(writer, record.deadline.at);
  write_milliseconds(writer, record.ttl);
  writer.string(record.owner);
  writer.string(record.client);
  return sealed(place, std::move(writer));
}

Result<LeaseRecord> decode_lease(std::string_view place, std::string_view bytes) {
  const auto body = unsealed(place, bytes, kLeaseLayout);
  if (!body) return body.error();

  ByteReader reader(*body);
  const auto mode = reader.integer<std::uint8_t>();
  const auto end = reader.integer<std::uint8_t>();
  LeaseRecord record;
  record.mode = static_cast<LeaseMode>(mode);
  record.end = static_cast<GrantEnd>(end);
  record.fence = Token{reader.integer<std::uint64_t>()};
  record.deadline.boot = reader.integer<std::uint32_t>();
  record.deadline.at = read_nanoseconds(reader);
  record.ttl = read_milliseconds(reader);
  record.owner = reader.string();
  record.client = reader.string();

  if (!reader.is_done()) return damaged(place, "length does not match its content");
  if (mode != static_cast<std::uint8_t>(LeaseMode::exclusive)) {
    return damaged(place, "unknown mode");
  }
  if (end > static_cast<std::uint8_t>(GrantEnd::disconnected)) {
    return damaged(place, "unknown end of a grant");
  }
  if (!record.fence.is_valid()) return damaged(place, "fence out of range");
  return record;
}

std::string encode(std::string_view place, const PositionRecord& record) {
  ByteWriter writer;
  writer.integer(kPositionLayout);
  writer.integer(record.epoch);
  writer.integer(record.n);
  write_nanoseconds(writer, record.clock);
  writer.integer(record.live_keys);
  writer.integer(record.tombstones);
  writer.integer(record.lease_names);
  return sealed(place, std::move(writer));
}

Result<PositionRecord> decode_position(std::string_view place, std::string_view bytes) {
  const auto body = unsealed(place, bytes, kPositionLayout);
  if (!body) return body.error();

  ByteReader reader(*body);
  PositionRecord record;
  record.epoch = reader.integer<std::uint64_t>();
  record.n = reader.integer<std::uint64_t>();
  record.clock = read_nanoseconds(reader);
  record.live_keys = reader.integer<std::uint64_t>();
  record.tombstones = reader.integer<std::uint64_t>();
  record.lease_names = reader.integer<std::uint64_t>();
  if (!reader.is_done()) return damaged(place, "length does not match its content");
  return record;
}

std::string encode(std::string_view place, const AllocatorRecord& record) {
  ByteWriter writer;
  writer.integer(kAllocatorLayout);
  writer.integer(record.newest.number());
  writer.integer(record.floor.number());
  return sealed(place, std::move(writer));
}

Result<AllocatorRecord> decode_allocator(std::string_view place, std::string_view bytes) {
  const auto body = unsealed(place, bytes, kAllocatorLayout);
  if (!body) return body.error();

  ByteReader reader(*body);
  AllocatorRecord record;
  record.newest = Token{reader.integer<std::uint64_t>()};
  record.floor = Token{reader.integer<std::uint64_t>()};
  if (!reader.is_done()) return damaged(place, "length does not match its content");
  if (record.newest.number() > Token::kMax || record.floor.number() > Token::kMax) {
    return damaged(place, "token out of range");
  }
  return record;
}

std::string encode(std::string_view place, const IdentityRecord& record) {
  ByteWriter writer;
  writer.integer(kIdentityLayout);
  writer.raw({reinterpret_cast<const char*>(record.incarnation.data()), record.incarnation.size()});
  writer.integer(record.boots.first());
  writer.integer(static_cast<std::uint32_t>(record.boots.all().size()));
  for (const auto& boot : record.boots.all()) {
    writer.string(boot.id);
    write_nanoseconds(writer, boot.opened);
    write_nanoseconds(writer, boot.last);
  }
  return sealed(place, std::move(writer));
}

Result<IdentityRecord> decode_identity(std::string_view place, std::string_view bytes) {
  const auto body = unsealed(place, bytes, kIdentityLayout);
  if (!body) return body.error();

  ByteReader reader(*body);
  IdentityRecord record;
  const auto incarnation = reader.raw(record.incarnation.size());
  std::copy(incarnation.begin(), incarnation.end(), record.incarnation.begin());
  const auto first = reader.integer<std::uint32_t>();
  const auto count = reader.integer<std::uint32_t>();
  std::vector<Boot> boots;
  for (std::uint32_t i = 0; i < count && !reader.has_failed(); ++i) {
    Boot boot;
    boot.id = reader.string();
    boot.opened = read_nanoseconds(reader);
    boot.last = read_nanoseconds(reader);
    boots.push_back(std::move(boot));
  }
  if (!reader.is_done()) return damaged(place, "length does not match its content");
  record.boots = Boots(first, std::move(boots));
  return record;
}

std::string to_hex(const Incarnation& incarnation) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (const auto byte : incarnation) text.append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
  return text;
}

}  // namespace fencekv::core
