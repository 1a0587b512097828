// SPDX-License-Identifier: Apache-2.0
/// Records of a store from any bytes: no fault; what decodes is written again as the same bytes;
/// what is written decodes to the same record; and one changed bit, or another place, is noticed.
#include "engine/core/byte_codec.h"
#include "engine/core/record.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/pieces.h"

#include <xxhash.h>

#include <string>
#include <type_traits>

namespace {

using namespace fencekv;
using namespace fencekv::core;
using fencekv::fuzz::Choices;
using fencekv::fuzz::require;

/// The layout that only older versions wrote.
constexpr char kLeaseOfFormat1 = 0x21;

/// The body with the checksum that engine/FORMAT.md describes: without it hardly an input would get
/// past the first check.
std::string sealed(std::string_view place, std::string_view body) {
  constexpr XXH64_hash_t kSeed = 0x66656e63656b7631;
  const auto seed = XXH3_64bits_withSeed(place.data(), place.size(), kSeed);
  ByteWriter writer;
  writer.raw(body);
  writer.integer(std::uint64_t{XXH3_64bits_withSeed(body.data(), body.size(), seed)});
  return std::move(writer).take();
}

void require_refused(const Error& error) {
  require(error.code() == Errc::corrupt, "what cannot be read is CORRUPT");
  for (const char c : error.line()) require(c >= ' ' && c <= '~', "errors are one printable line");
}

template <class Decode, class Record>
void expect_sealed(Decode decode, std::string_view place, const std::string& bytes,
                   const Record& record, std::size_t where) {
  const auto again = decode(place, bytes);
  require(again && *again == record, "what is written reads as it was");

  auto flipped = bytes;
  flipped[where / 8 % bytes.size()] ^= static_cast<char>(1U << where % 8);
  require(!decode(place, flipped), "a changed bit is noticed");
  require(!decode(place, bytes.substr(0, where % bytes.size())), "a short record is noticed");
  require(!decode(std::string(place) + "x", bytes), "another place is noticed");
}

template <class Decode>
void read(Decode decode, std::string_view place, std::string_view bytes, std::size_t where) {
  const auto record = decode(place, bytes);
  if (!record) return require_refused(record.error());
  const auto written = encode(place, *record);
  require(written == bytes || bytes.front() == kLeaseOfFormat1, "one record has one form");
  expect_sealed(decode, place, written, *record, where);
}

/// Of a grant record, its token stands at the same offset in every layout.
Token token_in(std::string_view body) {
  constexpr std::size_t kOffset = 4;
  if (body.size() < kOffset + 8) return Token{};
  ByteReader reader(body.substr(kOffset));
  return Token{reader.integer<std::uint64_t>()};
}

void read_any(Choices& choices) {
  const auto kind = choices.pick(6);
  const bool is_sealed = choices.pick(8) != 0;
  const auto where = choices.byte() * 256U + choices.byte();
  const auto name = std::string(choices.text(40));
  const auto body = choices.rest();

  const auto place = [&]() -> std::string {
    switch (kind) {
      case 0:
        return key_place(name);
      case 1:
        return lease_place(name);
      case 2:
        return grant_place(name, token_in(body));
      case 3:
        return std::string(kPositionKey);
      case 4:
        return std::string(kAllocatorKey);
      default:
        return std::string(kIdentityKey);
    }
  }();
  const auto bytes = is_sealed ? sealed(place, body) : std::string(body);
  switch (kind) {
    case 0:
      return read(decode_key, place, bytes, where);
    case 1:
      return read(decode_lease, place, bytes, where);
    case 2:
      return read(decode_grant, place, bytes, where);
    case 3:
      return read(decode_position, place, bytes, where);
    case 4:
      return read(decode_allocator, place, bytes, where);
    default:
      return read(decode_identity, place, bytes, where);
  }
}

GrantRecord any_grant(Choices& choices, LeaseMode mode, GrantEnd end) {
  GrantRecord grant;
  grant.token = Token{1 + choices.number() % Token::kMax};
  grant.mode = mode;
  grant.end = end;
  grant.deadline = {static_cast<std::uint32_t>(choices.number()),
                    std::chrono::nanoseconds(static_cast<std::int64_t>(choices.number()))};
  grant.ttl = std::chrono::milliseconds(choices.byte());
  grant.delay = std::chrono::milliseconds(choices.byte());
  grant.bound = choices.maybe();
  grant.again = choices.maybe();
  grant.origin = {choices.number(), choices.number()};
  grant.owner = choices.text(20);
  grant.client = choices.text(20);
  grant.payload = choices.maybe_text(20);
  return grant;
}

void write_key(Choices& choices) {
  KeyRecord record;
  record.fence = Token{1 + choices.number() % Token::kMax};
  record.version = choices.number();
  record.written_by = Token{choices.number()};
  record.written = std::chrono::milliseconds(static_cast<std::int64_t>(choices.number()));
  record.guard = choices.maybe_text(20);
  record.request = choices.maybe_text(20);
  record.value = choices.maybe_text(60);
  const auto place = key_place(choices.text(20));
  expect_sealed(decode_key, place, encode(place, record), record, choices.byte());
}

void write_lease(Choices& choices) {
  LeaseRecord record;
  const auto mode = static_cast<LeaseMode>(1 + choices.pick(3));
  record.newest = any_grant(choices, mode, static_cast<GrantEnd>(choices.pick(5)));
  if (mode == LeaseMode::permit) {
    record.permits = 1 + choices.byte();
    record.others = static_cast<std::uint32_t>(choices.pick(record.permits));
  }
  if (mode == LeaseMode::shared) record.others = choices.byte();
  if (choices.maybe()) {
    record.blocked = {choices.byte(), std::chrono::nanoseconds(choices.byte())};
    record.block = std::chrono::milliseconds(1 + choices.byte());
  }
  if (choices.maybe() && record.newest.token > Token{1}) {
    const auto below = record.newest.token.number() - 1;
    record.ended = Token{1 + choices.number() % below};
    record.ended_before = Token{choices.number() % (below + 1)};
    record.ended_since = {choices.byte(), std::chrono::nanoseconds(choices.byte())};
  }
  const auto place = lease_place(choices.text(20));
  expect_sealed(decode_lease, place, encode(place, record), record, choices.byte());
}

void write_grant(Choices& choices) {
  const auto mode = choices.maybe() ? LeaseMode::shared : LeaseMode::permit;
  const auto record = any_grant(choices, mode, GrantEnd::open);
  const auto place = grant_place(choices.text(20), record.token);
  const auto parsed = parse_grant_place(place);
  require(parsed && parsed->token == record.token, "a place tells its token");
  expect_sealed(decode_grant, place, encode(place, record), record, choices.byte());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  Choices choices(bytes, size);
  switch (choices.pick(5)) {
    case 0:
      write_key(choices);
      break;
    case 1:
      write_lease(choices);
      break;
    case 2:
      write_grant(choices);
      break;
    default:
      read_any(choices);
  }
  return 0;
}
