// SPDX-License-Identifier: Apache-2.0
/// The bytes of records: engine/FORMAT.md, "Records".

#include "engine/core/record.h"

#include "engine/core/byte_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <xxhash.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace fencekv::core;  // NOLINT: these are its tests
using namespace std::chrono_literals;
using ::testing::HasSubstr;

/// The body with the checksum that belongs to it: what a writer of another version would leave.
std::string sealed(std::string_view place, std::string_view body) {
  const auto place_hash = XXH3_64bits_withSeed(place.data(), place.size(), 0x66656e63656b7631);
  ByteWriter writer;
  writer.raw(body);
  writer.integer(std::uint64_t{XXH3_64bits_withSeed(body.data(), body.size(), place_hash)});
  return std::move(writer).take();
}

rc::Gen<std::string> bytes() {
  return rc::gen::container<std::string>(rc::gen::arbitrary<char>());
}

rc::Gen<Token> token() {
  return rc::gen::map(
      rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(1, 100),
                     rc::gen::inRange<std::uint64_t>(std::uint64_t{1} << 53, Token::kMax),
                     rc::gen::just(Token::kMax)),
      [](std::uint64_t number) { return Token{number}; });
}

rc::Gen<std::chrono::nanoseconds> nanoseconds() {
  return rc::gen::map(rc::gen::arbitrary<std::int64_t>(),
                      [](std::int64_t count) { return std::chrono::nanoseconds(count); });
}

rc::Gen<std::chrono::milliseconds> milliseconds() {
  return rc::gen::map(rc::gen::arbitrary<std::int64_t>(),
                      [](std::int64_t count) { return std::chrono::milliseconds(count); });
}

KeyRecord any_key() {
  KeyRecord record;
  record.fence = *token();
  record.version = *rc::gen::arbitrary<std::uint64_t>();
  record.written_by = *token();
  record.written = *milliseconds();
  record.guard = *rc::gen::arbitrary<bool>() ? std::optional(*bytes()) : std::nullopt;
  record.request = *rc::gen::arbitrary<bool>() ? std::optional(*bytes()) : std::nullopt;
  record.value = *rc::gen::arbitrary<bool>() ? std::optional(*bytes()) : std::nullopt;
  return record;
}

std::chrono::milliseconds no_or_some() {
  return *rc::gen::arbitrary<bool>() ? *milliseconds() : 0ms;
}

GrantRecord any_grant() {
  GrantRecord grant;
  grant.token = *token();
  grant.mode = static_cast<LeaseMode>(*rc::gen::inRange(1, 4));
  grant.end = static_cast<GrantEnd>(*rc::gen::inRange(0, 5));
  grant.deadline = {.boot = *rc::gen::arbitrary<std::uint32_t>(), .at = *nanoseconds()};
  grant.ttl = *milliseconds();
  grant.delay = no_or_some();
  grant.bound = *rc::gen::arbitrary<bool>();
  grant.again = *rc::gen::arbitrary<bool>();
  grant.origin = {.process = *rc::gen::arbitrary<std::uint64_t>(),
                  .session = *rc::gen::arbitrary<std::uint64_t>()};
  grant.owner = *bytes();
  grant.client = *bytes();
  grant.payload = *rc::gen::arbitrary<bool>() ? std::optional(*bytes()) : std::nullopt;
  return grant;
}

LeaseRecord any_lease() {
  LeaseRecord record;
  record.newest = any_grant();
  if (record.newest.mode == LeaseMode::shared) {
    record.others = *rc::gen::arbitrary<std::uint32_t>();
  } else if (record.newest.mode == LeaseMode::permit) {
    record.permits = *rc::gen::inRange<std::uint32_t>(1, Limits::kMaxPermits + 1);
    record.others = *rc::gen::inRange<std::uint32_t>(0, record.permits);
  }
  record.block = no_or_some();
  if (record.block != 0ms) {
    record.blocked = {.boot = *rc::gen::arbitrary<std::uint32_t>(), .at = *nanoseconds()};
  }
  const auto newest = record.newest.token.number();
  if (newest > 1 && *rc::gen::arbitrary<bool>()) {
    record.ended_since = {.boot = *rc::gen::arbitrary<std::uint32_t>(), .at = *nanoseconds()};
    record.ended = Token{*rc::gen::inRange<std::uint64_t>(1, newest)};
    record.ended_before = Token{*rc::gen::inRange<std::uint64_t>(0, newest)};
  }
  return record;
}

GrantRecord any_further_grant() {
  auto grant = any_grant();
  grant.mode = *rc::gen::arbitrary<bool>() ? LeaseMode::shared : LeaseMode::permit;
  grant.end = GrantEnd::open;
  return grant;
}

PositionRecord any_position() {
  return {.epoch = *rc::gen::arbitrary<std::uint64_t>(),
          .n = *rc::gen::arbitrary<std::uint64_t>(),
          .clock = *nanoseconds(),
          .live_keys = *rc::gen::arbitrary<std::uint64_t>(),
          .tombstones = *rc::gen::arbitrary<std::uint64_t>(),
          .lease_names = *rc::gen::arbitrary<std::uint64_t>()};
}

IdentityRecord any_identity() {
  IdentityRecord record;
  for (auto& byte : record.incarnation) byte = *rc::gen::arbitrary<std::uint8_t>();
  std::vector<Boot> boots;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    boots.push_back({.id = *bytes(), .opened = *nanoseconds(), .last = *nanoseconds()});
  }
  record.boots = Boots(*rc::gen::arbitrary<std::uint32_t>(), std::move(boots));
  return record;
}

/// Encodes, decodes, and expects the same.
template <class Record>
void expect_round_trip(std::string_view place, const Record& record,
                       Result<Record> (*decode)(std::string_view, std::string_view)) {
  const auto decoded = decode(place, encode(place, record));
  RC_ASSERT(decoded.has_value());
  RC_ASSERT(*decoded == record);
}

TEST(Record, EveryKindComesBackAsItWas) {
  EXPECT_TRUE(rc::check("key", [] {
    const auto place = key_place(*bytes());
    expect_round_trip(place, any_key(), decode_key);
  }));
  EXPECT_TRUE(rc::check("lease", [] {
    const auto place = lease_place(*bytes());
    expect_round_trip(place, any_lease(), decode_lease);
  }));
  EXPECT_TRUE(rc::check("grant", [] {
    const auto grant = any_further_grant();
    expect_round_trip(grant_place(*bytes(), grant.token), grant, decode_grant);
  }));
  EXPECT_TRUE(rc::check("position",
                        [] { expect_round_trip(kPositionKey, any_position(), decode_position); }));
  EXPECT_TRUE(rc::check("allocator", [] {
    expect_round_trip(kAllocatorKey, AllocatorRecord{.newest = *token(), .floor = *token()},
                      decode_allocator);
  }));
  EXPECT_TRUE(rc::check("identity",
                        [] { expect_round_trip(kIdentityKey, any_identity(), decode_identity); }));
}

TEST(Record, ALeaseOfFormat1IsAnExclusiveGrantOfNobodyKnowsWhichSession) {
  const auto place = lease_place("job");
  ByteWriter writer;
  writer.raw({"\x21\x01\x02", 3});
  writer.integer(std::uint64_t{7});
  writer.integer(std::uint32_t{3});
  writer.integer(std::uint64_t{5'000'000'000});
  writer.integer(std::uint64_t{10'000});
  writer.string("me");
  writer.string("here");

  const auto decoded = decode_lease(place, sealed(place, writer.bytes()));

  ASSERT_TRUE(decoded.has_value()) << decoded.error().line();
  LeaseRecord expected;
  expected.newest = {.token = Token{7},
                     .mode = LeaseMode::exclusive,
                     .end = GrantEnd::released,
                     .deadline = {.boot = 3, .at = 5s},
                     .ttl = 10s,
                     .owner = "me",
                     .client = "here"};
  EXPECT_EQ(*decoded, expected);
  // Written again it has the newest layout.
  EXPECT_EQ(encode(place, *decoded).front(), '\x22');
}

TEST(Record, TheFurtherGrantsOfANameStandTogetherInTheOrderOfTheirTokens) {
  std::vector<std::string> names{"",
                                 "a",
                                 "ab",
                                 std::string("a\0", 2),
                                 std::string("\0\2a", 3),
                                 "b",
                                 std::string(Limits::kNameBytes, '\xff')};
  const std::vector<Token> tokens{Token{1},          Token{2},   Token{255},
                                  Token{256},        Token{257}, Token{std::uint64_t{1} << 53},
                                  Token{Token::kMax}};
  for (const auto& name : names) {
    std::string last;
    for (const auto token : tokens) {
      const auto place = grant_place(name, token);
      EXPECT_LT(last, place);
      last = place;
      const auto parsed = parse_grant_place(place);
      ASSERT_TRUE(parsed.has_value());
      EXPECT_EQ(parsed->name, name);
      EXPECT_EQ(parsed->token, token);
      for (const auto& other : names) {
        EXPECT_EQ(place.starts_with(grants_prefix(other)), other == name) << escaped(other);
      }
    }
  }
  const auto place = grant_place("a", Token{1});
  for (std::size_t size = 0; size < place.size(); ++size) {
    EXPECT_FALSE(parse_grant_place(place.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(parse_grant_place(place + "x").has_value());
  EXPECT_FALSE(parse_grant_place("l" + place.substr(1)).has_value());
}

TEST(Record, AValueOf16MiBComesBack) {
  KeyRecord record{.fence = Token{1}, .value = std::string(std::size_t{16} << 20, '\xff')};
  const auto place = key_place("big");
  const auto decoded = decode_key(place, encode(place, record));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, record);
}

// --- damage ---------------------------------------------------------------------------------

/// One record of a kind, and the code that reads it.
struct Sample {
  std::string kind;
  std::string place;
  std::string bytes;
  std::function<std::optional<Error>(std::string_view place, std::string_view bytes)> read;
};

template <class Record>
Sample sample(std::string kind, std::string place, const Record& record,
              Result<Record> (*decode)(std::string_view, std::string_view)) {
  auto bytes = encode(place, record);
  return {.kind = std::move(kind),
          .place = std::move(place),
          .bytes = std::move(bytes),
          .read = [decode](std::string_view where, std::string_view what) {
            const auto decoded = decode(where, what);
            return decoded ? std::nullopt : std::optional(decoded.error());
          }};
}

KeyRecord example_key() {
  return {.fence = Token{34},
          .version = 1,
          .written_by = Token{34},
          .written = 1000ms,
          .guard = "l",
          .request = std::nullopt,
          .value = "done"};
}

GrantRecord example_grant() {
  return {.token = Token{7},
          .mode = LeaseMode::shared,
          .end = GrantEnd::open,
          .deadline = {.boot = 3, .at = 5s},
          .ttl = 10s,
          .delay = 2s,
          .bound = true,
          .origin = {.process = 4, .session = 21},
          .owner = "me",
          .client = "here",
          .payload = "who"};
}

/// A lease with all its optional parts.
LeaseRecord example_lease() {
  LeaseRecord lease;
  lease.newest = example_grant();
  lease.newest.mode = LeaseMode::permit;
  lease.others = 2;
  lease.permits = 3;
  lease.blocked = {.boot = 3, .at = 6s};
  lease.block = 1s;
  lease.ended_since = {.boot = 3, .at = 4s};
  lease.ended = Token{6};
  lease.ended_before = Token{2};
  return lease;
}

std::vector<Sample> samples() {
  auto key = example_key();
  key.request = "r-1";
  LeaseRecord exclusive;
  exclusive.newest = example_grant();
  exclusive.newest.mode = LeaseMode::exclusive;
  IdentityRecord identity;
  identity.incarnation.fill(0x5a);
  identity.boots = Boots(
      2, {{.id = "first", .opened = 1s, .last = 9s}, {.id = "second", .opened = 2s, .last = 0s}});
  return {
      sample("key", key_place("job"), key, decode_key),
      sample("lease", lease_place("job"), example_lease(), decode_lease),
      sample("exclusive_lease", lease_place("other"), exclusive, decode_lease),
      sample("grant", grant_place("job", Token{7}), example_grant(), decode_grant),
      sample(
          "position", std::string(kPositionKey),
          PositionRecord{
              .epoch = 1, .n = 2, .clock = 3ns, .live_keys = 4, .tombstones = 5, .lease_names = 6},
          decode_position),
      sample("allocator", std::string(kAllocatorKey),
             AllocatorRecord{.newest = Token{9}, .floor = Token{4}}, decode_allocator),
      sample("identity", std::string(kIdentityKey), identity, decode_identity),
  };
}

class RecordDamage : public ::testing::TestWithParam<Sample> {
 protected:
  const Sample& good() const { return GetParam(); }

  void expect_refused(std::string_view place, std::string_view bytes, const std::string& why) {
    const auto error = good().read(place, bytes);
    ASSERT_TRUE(error.has_value()) << why << " was not noticed";
    EXPECT_EQ(error->code(), Errc::corrupt) << why;
    EXPECT_THAT(error->detail(), HasSubstr(escaped(place))) << why;
  }
};

TEST_P(RecordDamage, AWholeRecordIsRead) {
  EXPECT_EQ(good().read(good().place, good().bytes), std::nullopt);
}

TEST_P(RecordDamage, EveryFlippedBitIsNoticed) {
  for (std::size_t i = 0; i < good().bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = good().bytes;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      expect_refused(good().place, bytes,
                     "bit " + std::to_string(bit) + " of byte " + std::to_string(i));
    }
  }
}

TEST_P(RecordDamage, EveryTruncationIsNoticed) {
  for (std::size_t size = 0; size < good().bytes.size(); ++size) {
    expect_refused(good().place, good().bytes.substr(0, size),
                   "cut to " + std::to_string(size) + " bytes");
  }
  expect_refused(good().place, good().bytes + '\0', "one byte more");
}

TEST_P(RecordDamage, ARecordAtAnotherPlaceIsNoticed) {
  expect_refused(good().place + "x", good().bytes, "moved");
  expect_refused(good().place.substr(0, good().place.size() - 1), good().bytes, "moved");
  for (const auto& other : samples()) {
    if (other.place == good().place) continue;
    expect_refused(other.place, good().bytes, "moved to the place of a " + other.kind);
    if (other.bytes.front() == good().bytes.front()) continue;
    expect_refused(other.place, other.bytes, "a whole record of another kind: " + other.kind);
  }
}

TEST_P(RecordDamage, AnUnknownLayoutIsRefusedAlthoughItsChecksumIsRight) {
  auto body = good().bytes.substr(0, good().bytes.size() - 8);
  ASSERT_EQ(sealed(good().place, body), good().bytes) << "the checksum is not as FORMAT.md says";
  for (int layout = 0; layout < 256; ++layout) {
    if (layout == static_cast<unsigned char>(good().bytes.front())) continue;
    body.front() = static_cast<char>(layout);
    expect_refused(good().place, sealed(good().place, body), "layout " + std::to_string(layout));
  }
}

TEST_P(RecordDamage, AContentThatDoesNotFitIsRefusedAlthoughItsChecksumIsRight) {
  const auto body = good().bytes.substr(0, good().bytes.size() - 8);
  for (std::size_t size = 1; size < body.size(); ++size) {
    expect_refused(good().place, sealed(good().place, body.substr(0, size)),
                   "body of " + std::to_string(size) + " bytes");
  }
  expect_refused(good().place, sealed(good().place, body + "x"), "one byte more");
}

INSTANTIATE_TEST_SUITE_P(EveryKind, RecordDamage, ::testing::ValuesIn(samples()),
                         [](const auto& kind) { return kind.param.kind; });

/// The body of `record` with one byte set, and the checksum that belongs to it.
template <class Record>
std::string with_byte(std::string_view place, const Record& record, std::size_t offset, int byte) {
  auto body = encode(place, record);
  body.resize(body.size() - 8);
  body.at(offset) = static_cast<char>(byte);
  return sealed(place, body);
}

TEST(Record, NumbersOutOfRangeAreRefused) {
  const auto key = key_place("job");
  EXPECT_TRUE(decode_key(key, with_byte(key, example_key(), 9, 0x7f)).has_value());
  EXPECT_FALSE(decode_key(key, with_byte(key, example_key(), 9, 0x80)).has_value());
  EXPECT_FALSE(decode_key(key, with_byte(key, example_key(), 2, 0)).has_value()) << "fence 0";
  EXPECT_FALSE(decode_key(key, with_byte(key, example_key(), 1, 0x0d)).has_value()) << "part 8";

  const AllocatorRecord allocator{.newest = Token{1}, .floor = Token{1}};
  for (const std::size_t last_byte : {8U, 16U}) {
    EXPECT_FALSE(
        decode_allocator(kAllocatorKey, with_byte(kAllocatorKey, allocator, last_byte, 0x80))
            .has_value());
  }
}

/// Whether a lease is read whose body has these bytes at `offset`, and the checksum that belongs to
/// it.
bool is_read_with(const LeaseRecord& lease, std::size_t offset, std::string_view bytes) {
  const auto place = lease_place("job");
  auto body = encode(place, lease);
  body.resize(body.size() - 8);
  body.replace(offset, bytes.size(), bytes);
  return decode_lease(place, sealed(place, body)).has_value();
}

TEST(Record, LeasesThatCannotBeAreRefused) {
  constexpr std::size_t kMode = 1;
  constexpr std::size_t kEnd = 2;
  constexpr std::size_t kParts = 3;
  constexpr std::size_t kToken = 4;
  LeaseRecord lease;
  lease.newest = {.token = Token{1}, .owner = "me", .client = "here"};
  const std::size_t others = encode(lease_place("job"), lease).size() - 8 - 9;
  const auto permits = others + 4;
  const auto parts = others + 8;

  EXPECT_TRUE(is_read_with(lease, kMode, "\1"));
  EXPECT_TRUE(is_read_with(lease, kMode, "\2"));
  EXPECT_FALSE(is_read_with(lease, kMode, "\3")) << "a permit without permits";
  EXPECT_FALSE(is_read_with(lease, kMode, "\4"));
  EXPECT_FALSE(is_read_with(lease, kMode, {"\0", 1}));
  EXPECT_TRUE(is_read_with(lease, kEnd, "\4"));
  EXPECT_FALSE(is_read_with(lease, kEnd, "\5"));
  EXPECT_TRUE(is_read_with(lease, kParts, "\1"));
  EXPECT_FALSE(is_read_with(lease, kParts, "\x10")) << "an unknown part";
  EXPECT_FALSE(is_read_with(lease, kToken, {"\0", 1}));
  EXPECT_FALSE(is_read_with(lease, kToken + 7, "\x80")) << "a token beyond the biggest";
  EXPECT_FALSE(is_read_with(lease, others, "\1")) << "further grants of an exclusive lease";
  EXPECT_FALSE(is_read_with(lease, permits, "\1")) << "permits of an exclusive lease";
  EXPECT_FALSE(is_read_with(lease, parts, "\4")) << "an unknown part";

  lease.newest.mode = LeaseMode::shared;
  EXPECT_TRUE(is_read_with(lease, others, "\xff\xff\xff\xff"));
  EXPECT_FALSE(is_read_with(lease, permits, "\1")) << "permits of a shared lease";

  lease.newest.mode = LeaseMode::permit;
  lease.permits = 3;
  EXPECT_TRUE(is_read_with(lease, others, "\2"));
  EXPECT_FALSE(is_read_with(lease, others, "\3")) << "as many others as permits";
  EXPECT_TRUE(is_read_with(lease, permits, {"\x40\x42\x0f\0", 4}));
  EXPECT_FALSE(is_read_with(lease, permits, {"\x41\x42\x0f\0", 4})) << "too many permits";
  EXPECT_FALSE(is_read_with(lease, permits, {"\0", 1})) << "no permits";

  lease.newest.delay = 1ms;
  EXPECT_FALSE(is_read_with(lease, kToken + 44, {"\0", 1})) << "a delay of nothing";
  lease.newest.delay = 0ms;
  lease.block = 1ms;
  EXPECT_TRUE(is_read_with(lease, parts + 13, "\2"));
  EXPECT_FALSE(is_read_with(lease, parts + 13, {"\0", 1})) << "a block of nothing";

  lease.block = 0ms;
  lease.newest.token = Token{9};
  lease.ended = Token{8};
  const auto ended = parts + 13;
  EXPECT_TRUE(is_read_with(lease, ended, "\1"));
  EXPECT_FALSE(is_read_with(lease, ended, {"\0", 1})) << "an ended grant without a token";
  EXPECT_FALSE(is_read_with(lease, ended, "\x9")) << "an older grant that is not older";
  EXPECT_TRUE(is_read_with(lease, ended + 8, "\x8"));
  EXPECT_FALSE(is_read_with(lease, ended + 8, "\x9")) << "an older grant that is not older";
}

TEST(Record, LeasesOfFormat1ThatCannotBeAreRefused) {
  const auto place = lease_place("job");
  const auto is_read = [&](std::uint8_t mode, std::uint8_t end, std::uint64_t token) {
    ByteWriter writer;
    writer.integer(std::uint8_t{0x21});
    writer.integer(mode);
    writer.integer(end);
    writer.integer(token);
    writer.raw(std::string(20, '\0'));
    writer.string("me");
    writer.string("here");
    return decode_lease(place, sealed(place, writer.bytes())).has_value();
  };
  EXPECT_TRUE(is_read(1, 4, 1));
  EXPECT_FALSE(is_read(0, 4, 1)) << "mode 0";
  EXPECT_FALSE(is_read(2, 4, 1)) << "mode 2 was never written";
  EXPECT_FALSE(is_read(1, 5, 1)) << "end 5";
  EXPECT_FALSE(is_read(1, 4, 0)) << "token 0";
  EXPECT_FALSE(is_read(1, 4, Token::kMax + 1));
}

TEST(Record, FurtherGrantsThatCannotBeAreRefused) {
  const auto is_read_with = [](Token at, std::size_t offset, char byte) {
    const auto place = grant_place("job", at);
    auto body = encode(grant_place("job", Token{7}), example_grant());
    body.resize(body.size() - 8);
    body.at(offset) = byte;
    return decode_grant(place, sealed(place, body)).has_value();
  };
  EXPECT_TRUE(is_read_with(Token{7}, 1, '\2'));
  EXPECT_TRUE(is_read_with(Token{7}, 1, '\3'));
  EXPECT_FALSE(is_read_with(Token{7}, 1, '\1')) << "exclusive";
  EXPECT_FALSE(is_read_with(Token{7}, 2, '\1')) << "expired";
  EXPECT_FALSE(is_read_with(Token{7}, 3, '\x1f')) << "an unknown part";
  EXPECT_FALSE(is_read_with(Token{8}, 1, '\2')) << "at the place of another grant";
  EXPECT_TRUE(is_read_with(Token{8}, 4, '\x8'));
}

TEST(Record, AnAbsurdCountOfBootsIsRefusedAtOnce) {
  IdentityRecord identity;
  auto body = encode(kIdentityKey, identity);
  body.resize(body.size() - 8);
  for (std::size_t i = 21; i < 25; ++i) body.at(i) = '\xff';
  const auto decoded = decode_identity(kIdentityKey, sealed(kIdentityKey, body));
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().code(), Errc::corrupt);
}

// --- the page -------------------------------------------------------------------------------

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (i > 0) text += i % 32 == 0 ? '\n' : ' ';
    text.append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
  }
  return text;
}

void expect_on_the_format_page(const std::string& example) {
  std::ifstream file(FENCEKV_SOURCE_DIR "/engine/FORMAT.md");
  std::ostringstream page;
  page << file.rdbuf();
  EXPECT_NE(page.str().find("```\n" + example + "\n```"), std::string::npos) << example;
}

TEST(Record, TheExampleOfTheFormatPageIsWhatIsWritten) {
  expect_on_the_format_page(hex(encode(key_place("job"), example_key())));
}

TEST(Record, TheLeaseOfTheFormatPageIsWhatIsWritten) {
  expect_on_the_format_page(hex(encode(lease_place("job"), example_lease())));
}

}  // namespace
}  // namespace fencekv::testing
