// SPDX-License-Identifier: Apache-2.0
#include "engine/core/record.h"

#include "engine/core/byte_codec.h"

#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <utility>

namespace fencekv::core {
namespace {

// The first byte of every record: its kind and layout. Never reused for another layout.
constexpr std::uint8_t kKeyLayout = 0x11;
constexpr std::uint8_t kLeaseLayoutOfFormat1 = 0x21;  // read, and written never again
constexpr std::uint8_t kLeaseLayout = 0x22;
constexpr std::uint8_t kGrantLayout = 0x23;
constexpr std::uint8_t kPositionLayout = 0x31;
constexpr std::uint8_t kAllocatorLayout = 0x32;
constexpr std::uint8_t kIdentityLayout = 0x33;

// Which optional parts of a key record are present.
constexpr std::uint8_t kHasGuard = 1;
constexpr std::uint8_t kHasRequest = 2;
constexpr std::uint8_t kHasValue = 4;

// What a grant is, and which of its optional parts are present.
constexpr std::uint8_t kIsBound = 1;
constexpr std::uint8_t kHasDelay = 2;
constexpr std::uint8_t kHasPayload = 4;
constexpr std::uint8_t kIsAgain = 8;

// Which optional parts of a lease record are present.
constexpr std::uint8_t kIsBlocked = 1;
constexpr std::uint8_t kHasEnded = 2;

constexpr std::size_t kChecksumBytes = 8;

/// XXH3-64 over the place, seeded, then over the bytes, seeded with the first: two records cannot
/// be swapped, and bytes cannot move between place and record.
std::uint64_t checksum(std::string_view place, std::string_view bytes) {
  constexpr XXH64_hash_t kSeed = 0x66656e63656b7631;  // "fencekv1"
  const auto place_hash = XXH3_64bits_withSeed(place.data(), place.size(), kSeed);
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), place_hash);
}

/// Ends the record at `place` that `bytes` have from `begin` on.
void seal(std::string_view place, std::string& bytes, std::size_t begin) {
  const auto sum = checksum(place, std::string_view(bytes).substr(begin));
  ByteAppender(bytes).integer(sum);
}

Error damaged(std::string_view place, std::string_view what) {
  return {Errc::corrupt, "record " + escaped(place) + ": " + std::string(what)};
}

/// The bytes of a record without its checksum, which is verified: the layout is the first of them.
Result<std::string_view> verified(std::string_view place, std::string_view bytes) {
  if (bytes.size() < 1 + kChecksumBytes) return damaged(place, "too short");

  const auto body = bytes.substr(0, bytes.size() - kChecksumBytes);
  ByteReader tail(bytes.substr(body.size()));
  if (tail.integer<std::uint64_t>() != checksum(place, body)) {
    return damaged(place, "checksum does not match");
  }
  return body;
}

bool has_layout(std::string_view body, std::uint8_t layout) {
  return static_cast<std::uint8_t>(body.front()) == layout;
}

/// The bytes of a record without layout and checksum, both verified.
Result<std::string_view> unsealed(std::string_view place, std::string_view bytes,
                                  std::uint8_t layout) {
  const auto body = verified(place, bytes);
  if (!body) return body.error();
  if (!has_layout(*body, layout)) return damaged(place, "unknown layout");
  return body->substr(1);
}

void write_nanoseconds(ByteAppender& writer, std::chrono::nanoseconds time) {
  writer.integer(static_cast<std::uint64_t>(time.count()));
}

void write_milliseconds(ByteAppender& writer, std::chrono::milliseconds time) {
  writer.integer(static_cast<std::uint64_t>(time.count()));
}

std::chrono::nanoseconds read_nanoseconds(ByteReader& reader) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(reader.integer<std::uint64_t>()));
}

std::chrono::milliseconds read_milliseconds(ByteReader& reader) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(reader.integer<std::uint64_t>()));
}

void write_deadline(ByteAppender& writer, const Deadline& deadline) {
  writer.integer(deadline.boot);
  write_nanoseconds(writer, deadline.at);
}

Deadline read_deadline(ByteReader& reader) {
  Deadline deadline;
  deadline.boot = reader.integer<std::uint32_t>();
  deadline.at = read_nanoseconds(reader);
  return deadline;
}

void write_grant(ByteAppender& writer, const GrantRecord& grant) {
  std::uint8_t parts = 0;
  if (grant.bound) parts |= kIsBound;
  if (grant.delay.count() != 0) parts |= kHasDelay;
  if (grant.payload) parts |= kHasPayload;
  if (grant.again) parts |= kIsAgain;

  writer.integer(static_cast<std::uint8_t>(grant.mode));
  writer.integer(static_cast<std::uint8_t>(grant.end));
  writer.integer(parts);
  writer.integer(grant.token.number());
  write_deadline(writer, grant.deadline);
  write_milliseconds(writer, grant.ttl);
  writer.integer(grant.origin.process);
  writer.integer(grant.origin.session);
  if (grant.delay.count() != 0) write_milliseconds(writer, grant.delay);
  writer.string(grant.owner);
  writer.string(grant.client);
  if (grant.payload) writer.string(*grant.payload);
}

/// Mode and end come as they are in the bytes: check_grant() looks at them.
struct ReadGrant {
  GrantRecord grant;
  std::uint8_t parts = 0;
};

ReadGrant read_grant(ByteReader& reader) {
  ReadGrant read;
  auto& grant = read.grant;
  grant.mode = static_cast<LeaseMode>(reader.integer<std::uint8_t>());
  grant.end = static_cast<GrantEnd>(reader.integer<std::uint8_t>());
  read.parts = reader.integer<std::uint8_t>();
  grant.bound = (read.parts & kIsBound) != 0;
  grant.again = (read.parts & kIsAgain) != 0;
  grant.token = Token{reader.integer<std::uint64_t>()};
  grant.deadline = read_deadline(reader);
  grant.ttl = read_milliseconds(reader);
  grant.origin.process = reader.integer<std::uint64_t>();
  grant.origin.session = reader.integer<std::uint64_t>();
  if (read.parts & kHasDelay) grant.delay = read_milliseconds(reader);
  grant.owner = reader.string();
  grant.client = reader.string();
  if (read.parts & kHasPayload) grant.payload = reader.string();
  return read;
}

/// What makes a grant impossible; empty: nothing.
std::string_view fault_of(const GrantRecord& grant) {
  if (grant.mode < LeaseMode::exclusive || grant.mode > LeaseMode::permit) return "unknown mode";
  if (grant.end > GrantEnd::disconnected) return "unknown end of a grant";
  if (!grant.token.is_valid()) return "fence out of range";
  return {};
}

std::string_view fault_of(const LeaseRecord& lease) {
  if (const auto fault = fault_of(lease.newest); !fault.empty()) return fault;
  const bool is_permit = lease.newest.mode == LeaseMode::permit;
  if (is_permit != (lease.permits != 0)) return "permits do not fit its mode";
  if (lease.permits > Limits::kMaxPermits) return "permits out of range";
  if (is_permit && lease.others >= lease.permits) return "more grants than permits";
  if (lease.newest.mode == LeaseMode::exclusive && lease.others != 0) {
    return "further grants of an exclusive lease";
  }
  if (lease.ended >= lease.newest.token || lease.ended_before >= lease.newest.token) {
    return "an older grant with a newer token";
  }
  return {};
}

/// Of a grant that is not the newest of its name.
std::string_view fault_of_further(std::string_view place, const GrantRecord& grant) {
  if (const auto fault = fault_of(grant); !fault.empty()) return fault;
  if (grant.mode == LeaseMode::exclusive) return "further grants of an exclusive lease";
  if (grant.end != GrantEnd::open) return "an ended grant that is not the newest";
  const auto where = parse_grant_place(place);
  if (!where || where->token != grant.token) return "its place is that of another grant";
  return {};
}

std::string_view fault_of_parts(const ReadGrant& read) {
  if (read.parts > (kIsBound | kHasDelay | kHasPayload | kIsAgain))
    return "unknown part of a grant";
  if ((read.parts & kHasDelay) != 0 && read.grant.delay.count() == 0) return "a delay of nothing";
  return {};
}

void append_big_endian(std::string& place, std::uint64_t number, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    place += static_cast<char>(number >> shift & 0xff);
  }
}

std::uint64_t big_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

constexpr int kNameLengthBytes = 2;
constexpr int kPlaceTokenBytes = 8;

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

std::string grants_prefix(std::string_view name) {
  static_assert(Limits::kNameBytes <= 0xffff);
  assert(name.size() <= 0xffff);
  std::string place;
  place.reserve(1 + kNameLengthBytes + name.size() + kPlaceTokenBytes);
  place += kGrantPrefix;
  append_big_endian(place, name.size(), kNameLengthBytes);
  place += name;
  return place;
}

std::string grant_place(std::string_view name, Token token) {
  auto place = grants_prefix(name);
  append_big_endian(place, token.number(), kPlaceTokenBytes);
  return place;
}

std::optional<GrantPlace> parse_grant_place(std::string_view place) {
  constexpr std::size_t kFixed = 1 + kNameLengthBytes + kPlaceTokenBytes;
  if (place.size() < kFixed || place.front() != kGrantPrefix) return std::nullopt;
  if (place.size() != kFixed + big_endian(place.substr(1, kNameLengthBytes))) return std::nullopt;
  place.remove_prefix(1 + kNameLengthBytes);
  const auto name = place.substr(0, place.size() - kPlaceTokenBytes);
  return GrantPlace{.name = name, .token = Token{big_endian(place.substr(name.size()))}};
}

void encode(std::string_view place, const KeyRecord& record, std::string& to) {
  std::uint8_t parts = 0;
  if (record.guard) parts |= kHasGuard;
  if (record.request) parts |= kHasRequest;
  if (record.value) parts |= kHasValue;

  const auto begin = to.size();
  ByteAppender writer(to);
  writer.integer(kKeyLayout);
  writer.integer(parts);
  writer.integer(record.fence.number());
  writer.integer(record.version);
  writer.integer(record.written_by.number());
  write_milliseconds(writer, record.written);
  if (record.guard) writer.string(*record.guard);
  if (record.request) writer.string(*record.request);
  if (record.value) writer.string(*record.value);
  seal(place, to, begin);
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

void encode(std::string_view place, const LeaseRecord& record, std::string& to) {
  assert(fault_of(record).empty());
  const auto begin = to.size();
  ByteAppender writer(to);
  writer.integer(kLeaseLayout);
  write_grant(writer, record.newest);
  writer.integer(record.others);
  writer.integer(record.permits);
  std::uint8_t parts = 0;
  if (record.block.count() != 0) parts |= kIsBlocked;
  if (!record.ended.is_none()) parts |= kHasEnded;
  writer.integer(parts);
  if (parts & kIsBlocked) {
    write_deadline(writer, record.blocked);
    write_milliseconds(writer, record.block);
  }
  if (parts & kHasEnded) {
    write_deadline(writer, record.ended_since);
    writer.integer(record.ended.number());
    writer.integer(record.ended_before.number());
  }
  seal(place, to, begin);
}

namespace {

/// A lease of a format-1 store. All were exclusive, and nobody knew by which session.
Result<LeaseRecord> decode_lease_of_format_1(std::string_view place, std::string_view body) {
  ByteReader reader(body);
  LeaseRecord record;
  auto& grant = record.newest;
  grant.mode = static_cast<LeaseMode>(reader.integer<std::uint8_t>());
  grant.end = static_cast<GrantEnd>(reader.integer<std::uint8_t>());
  grant.token = Token{reader.integer<std::uint64_t>()};
  grant.deadline = read_deadline(reader);
  grant.ttl = read_milliseconds(reader);
  grant.owner = reader.string();
  grant.client = reader.string();

  if (!reader.is_done()) return damaged(place, "length does not match its content");
  if (grant.mode != LeaseMode::exclusive) return damaged(place, "unknown mode");
  if (const auto fault = fault_of(record); !fault.empty()) return damaged(place, fault);
  return record;
}

}  // namespace

Result<LeaseRecord> decode_lease(std::string_view place, std::string_view bytes) {
  const auto body = verified(place, bytes);
  if (!body) return body.error();
  if (has_layout(*body, kLeaseLayoutOfFormat1)) {
    return decode_lease_of_format_1(place, body->substr(1));
  }
  if (!has_layout(*body, kLeaseLayout)) return damaged(place, "unknown layout");

  ByteReader reader(body->substr(1));
  auto read = read_grant(reader);
  LeaseRecord record;
  record.others = reader.integer<std::uint32_t>();
  record.permits = reader.integer<std::uint32_t>();
  const auto parts = reader.integer<std::uint8_t>();
  if (parts & kIsBlocked) {
    record.blocked = read_deadline(reader);
    record.block = read_milliseconds(reader);
  }
  if (parts & kHasEnded) {
    record.ended_since = read_deadline(reader);
    record.ended = Token{reader.integer<std::uint64_t>()};
    record.ended_before = Token{reader.integer<std::uint64_t>()};
  }

  if (!reader.is_done()) return damaged(place, "length does not match its content");
  if (const auto fault = fault_of_parts(read); !fault.empty()) return damaged(place, fault);
  if (parts > (kIsBlocked | kHasEnded)) return damaged(place, "unknown part of a lease");
  if ((parts & kIsBlocked) != 0 && record.block.count() == 0) {
    return damaged(place, "a block of nothing");
  }
  if ((parts & kHasEnded) != 0 && record.ended.is_none()) {
    return damaged(place, "an ended grant without a token");
  }
  record.newest = std::move(read.grant);
  if (const auto fault = fault_of(record); !fault.empty()) return damaged(place, fault);
  return record;
}

void encode(std::string_view place, const GrantRecord& record, std::string& to) {
  assert(fault_of_further(place, record).empty());
  const auto begin = to.size();
  ByteAppender writer(to);
  writer.integer(kGrantLayout);
  write_grant(writer, record);
  seal(place, to, begin);
}

Result<GrantRecord> decode_grant(std::string_view place, std::string_view bytes) {
  const auto body = unsealed(place, bytes, kGrantLayout);
  if (!body) return body.error();

  ByteReader reader(*body);
  auto read = read_grant(reader);
  if (!reader.is_done()) return damaged(place, "length does not match its content");
  if (const auto fault = fault_of_parts(read); !fault.empty()) return damaged(place, fault);
  if (const auto fault = fault_of_further(place, read.grant); !fault.empty()) {
    return damaged(place, fault);
  }
  return std::move(read.grant);
}

void encode(std::string_view place, const PositionRecord& record, std::string& to) {
  const auto begin = to.size();
  ByteAppender writer(to);
  writer.integer(kPositionLayout);
  writer.integer(record.epoch);
  writer.integer(record.n);
  write_nanoseconds(writer, record.clock);
  writer.integer(record.live_keys);
  writer.integer(record.tombstones);
  writer.integer(record.lease_names);
  seal(place, to, begin);
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

void encode(std::string_view place, const AllocatorRecord& record, std::string& to) {
  const auto begin = to.size();
  ByteAppender writer(to);
  writer.integer(kAllocatorLayout);
  writer.integer(record.newest.number());
  writer.integer(record.floor.number());
  seal(place, to, begin);
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

void encode(std::string_view place, const IdentityRecord& record, std::string& to) {
  const auto begin = to.size();
  ByteAppender writer(to);
  writer.integer(kIdentityLayout);
  writer.raw({reinterpret_cast<const char*>(record.incarnation.data()), record.incarnation.size()});
  writer.integer(record.boots.first());
  writer.integer(static_cast<std::uint32_t>(record.boots.all().size()));
  for (const auto& boot : record.boots.all()) {
    writer.string(boot.id);
    write_nanoseconds(writer, boot.opened);
    write_nanoseconds(writer, boot.last);
  }
  seal(place, to, begin);
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
