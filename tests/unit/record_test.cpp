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

LeaseRecord any_lease() {
  LeaseRecord record;
  record.fence = *token();
  record.end = static_cast<GrantEnd>(*rc::gen::inRange(0, 5));
  record.deadline = {.boot = *rc::gen::arbitrary<std::uint32_t>(), .at = *nanoseconds()};
  record.ttl = *milliseconds();
  record.owner = *bytes();
  record.client = *bytes();
  return record;
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
  EXPECT_TRUE(rc::check("position",
                        [] { expect_round_trip(kPositionKey, any_position(), decode_position); }));
  EXPECT_TRUE(rc::check("allocator", [] {
    expect_round_trip(kAllocatorKey, AllocatorRecord{.newest = *token(), .floor = *token()},
                      decode_allocator);
  }));
  EXPECT_TRUE(rc::check("identity",
                        [] { expect_round_trip(kIdentityKey, any_identity(), decode_identity); }));
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

std::vector<Sample> samples() {
  auto key = example_key();
  key.request = "r-1";
  LeaseRecord lease;
  lease.fence = Token{7};
  lease.deadline = {.boot = 3, .at = 5s};
  lease.ttl = 10s;
  lease.owner = "me";
  lease.client = "here";
  IdentityRecord identity;
  identity.incarnation.fill(0x5a);
  identity.boots = Boots(
      2, {{.id = "first", .opened = 1s, .last = 9s}, {.id = "second", .opened = 2s, .last = 0s}});
  return {
      sample("key", key_place("job"), key, decode_key),
      sample("lease", lease_place("job"), lease, decode_lease),
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
    if (other.kind == good().kind) continue;
    expect_refused(other.place, good().bytes, "moved to the place of a " + other.kind);
    expect_refused(other.place, other.bytes, "a whole record of another kind: " + other.kind);
  }
}

/// The body with the checksum that belongs to it: what a writer of another version would leave.
std::string sealed(std::string_view place, std::string_view body) {
  const auto place_hash = XXH3_64bits_withSeed(place.data(), place.size(), 0x66656e63656b7631);
  ByteWriter writer;
  writer.raw(body);
  writer.integer(std::uint64_t{XXH3_64bits_withSeed(body.data(), body.size(), place_hash)});
  return std::move(writer).take();
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

  const auto place = lease_place("job");
  LeaseRecord lease;
  lease.fence = Token{1};
  EXPECT_FALSE(decode_lease(place, with_byte(place, lease, 1, 0)).has_value()) << "mode 0";
  EXPECT_FALSE(decode_lease(place, with_byte(place, lease, 1, 2)).has_value()) << "mode 2";
  EXPECT_TRUE(decode_lease(place, with_byte(place, lease, 2, 4)).has_value());
  EXPECT_FALSE(decode_lease(place, with_byte(place, lease, 2, 5)).has_value()) << "end 5";
  EXPECT_FALSE(decode_lease(place, with_byte(place, lease, 3, 0)).has_value()) << "fence 0";

  const AllocatorRecord allocator{.newest = Token{1}, .floor = Token{1}};
  for (const std::size_t last_byte : {8U, 16U}) {
    EXPECT_FALSE(
        decode_allocator(kAllocatorKey, with_byte(kAllocatorKey, allocator, last_byte, 0x80))
            .has_value());
  }
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

TEST(Record, TheExampleOfTheFormatPageIsWhatIsWritten) {
  std::ifstream file(FENCEKV_SOURCE_DIR "/engine/FORMAT.md");
  std::ostringstream page;
  page << file.rdbuf();

  const auto example = hex(encode(key_place("job"), example_key()));
  EXPECT_NE(page.str().find("```\n" + example + "\n```"), std::string::npos) << example;
}

}  // namespace
}  // namespace fencekv::testing
