// SPDX-License-Identifier: Apache-2.0
/// Errors as lines of the protocol and back, and the numbers of the protocol.

#include "fencekv/result.h"

#include "fencekv/types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fencekv::testing {
namespace {

// --- lines ----------------------------------------------------------------------------------

struct Line {
  std::string text;
  Error error;
};

std::vector<Line> lines() {
  auto with_more = Error::fenced(Token{34}, Token{33}, "stale");
  with_more.append("a=34").append("and 3 more");
  return {
      {"FENCED 34 33 stale", Error::fenced(Token{34}, Token{33}, "stale")},
      {"FENCED 34 34 once", Error::fenced(Token{34}, Token{34}, "once")},
      {"FENCED 9223372036854775807 1 floor", Error::fenced(Token{Token::kMax}, Token{1}, "floor")},
      {"FENCED 34 33 stale a=34 and 3 more", with_more},
      {"UNISSUED 0 1", Error::unissued(Token{}, Token{1})},
      {"UNISSUED 7 9223372036854775807", Error::unissued(Token{7}, Token{Token::kMax})},
      {"NOLEASE jobs/nightly", Error::no_lease("jobs/nightly")},
      {R"(NOLEASE a\x20b\x5cc\x00\xff\x0a)", Error::no_lease({"a b\\c\0\xff\n", 8})},
      {"WRONGLEASE guard", Error::wrong_lease("guard")},
      {R"(WRONGLEASE \xc3\xa4)", Error::wrong_lease("\xc3\xa4")},
      {"WRONGLEASE " + std::string(64, 'x'), Error::wrong_lease(std::string(64, 'x'))},
      {"EXPIRED 7000", Error::expired(7000)},
      {"VERSION 3 2", Error::version(3, 2)},
      {"LEASELOST superseded", Error::lease_lost("superseded")},
      {"TOOBIG value of 9 bytes", Error(Errc::too_big, "value of 9 bytes")},
      {"OVERLOADED later", Error(Errc::overloaded, "later")},
      {"INDOUBT maybe", Error(Errc::in_doubt, "maybe")},
      {"MISCONF no writes", Error(Errc::misconf, "no writes")},
      {"CORRUPT record kjob: too short", Error(Errc::corrupt, "record kjob: too short")},
      {"ERR token must be a number", Error(Errc::invalid, "token must be a number")},
      {"ERR", Error(Errc::invalid, "")},
  };
}

TEST(ErrorLine, IsTheCodeThenNumbersThenWords) {
  for (const auto& [text, error] : lines()) EXPECT_EQ(error.line(), text);
}

TEST(ErrorLine, ComesBackAsTheSameError) {
  for (const auto& [text, error] : lines()) {
    const auto parsed = parse_error_line(text);
    EXPECT_EQ(parsed, error) << text << " became " << parsed.line();
    EXPECT_EQ(parsed.highest(), error.highest()) << text;
    EXPECT_EQ(parsed.offered(), error.offered()) << text;
    EXPECT_EQ(parsed.reason(), error.reason()) << text;
    EXPECT_EQ(parsed.subject(), error.subject()) << text;
  }
}

TEST(ErrorLine, EveryNameOfUpTo64BytesComesBack) {
  EXPECT_TRUE(rc::check("names", [] {
    const auto size = *rc::gen::inRange<std::size_t>(1, 65);
    const auto name = *rc::gen::container<std::string>(size, rc::gen::arbitrary<char>());
    RC_ASSERT(parse_error_line(Error::no_lease(name).line()) == Error::no_lease(name));
    RC_ASSERT(parse_error_line(Error::wrong_lease(name).line()) == Error::wrong_lease(name));
  }));
}

TEST(ErrorLine, ALongerNameIsCutAndTheLineStaysTheSame) {
  const auto error = Error::wrong_lease(std::string(1024, 'x'));
  EXPECT_EQ(error.line(), "WRONGLEASE " + std::string(64, 'x') + "...");
  EXPECT_EQ(error.subject(), std::string(1024, 'x'));
  EXPECT_EQ(parse_error_line(error.line()).line(), error.line());
  EXPECT_EQ(parse_error_line(error.line()).code(), Errc::wrong_lease);
}

TEST(ErrorLine, OfAnyBytesBecomesOneLine) {
  EXPECT_EQ(parse_error_line("OVERLOADED a\r\nb\x7f").line(), "OVERLOADED a  b ");
  EXPECT_EQ(parse_error_line("what\nelse").line().find('\n'), std::string::npos);
}

TEST(ErrorLine, WhatANewerServerSaysIsKeptForPeople) {
  const auto fenced = parse_error_line("FENCED 34 33 superseded and something new");
  EXPECT_EQ(fenced.code(), Errc::fenced);
  EXPECT_EQ(fenced.reason(), "superseded");
  EXPECT_EQ(fenced.line(), "FENCED 34 33 superseded and something new");

  const auto lost = parse_error_line("LEASELOST expired long ago");
  EXPECT_EQ(lost.reason(), "expired");
  EXPECT_EQ(lost.detail(), "expired long ago");

  const auto unknown = parse_error_line("NEWCODE 1 2");
  EXPECT_EQ(unknown.code(), Errc::invalid);
  EXPECT_EQ(unknown.detail(), "NEWCODE 1 2");
}

TEST(ErrorLine, NumbersThatAreNoneDoNotLoseTheCode) {
  for (const auto* line : {"FENCED", "FENCED 1", "FENCED x y stale", "FENCED 01 2 stale",
                           "FENCED 9223372036854775808 2 stale", "UNISSUED 1", "UNISSUED -1 2"}) {
    const auto error = parse_error_line(line);
    EXPECT_TRUE(error.code() == Errc::fenced || error.code() == Errc::unissued) << line;
    EXPECT_TRUE(error.highest().is_none()) << line;
    EXPECT_EQ(error.line(), line);
  }
}

TEST(ErrorLine, ARefusedLoginIsDenied) {
  for (const auto* line : {"NOAUTH Authentication required.", "WRONGPASS no", "NOPERM no"}) {
    EXPECT_EQ(parse_error_line(line).code(), Errc::denied) << line;
    EXPECT_EQ(parse_error_line(line).detail(), line);
  }
}

TEST(ErrorLine, CodesThatNeverTravelAreNotTakenFromTheWire) {
  for (const auto* line : {"INUSE x", "NEWER x", "NOSPACE x", "UNREACHABLE x", "PROTOCOL x"}) {
    EXPECT_EQ(parse_error_line(line).code(), Errc::invalid) << line;
    EXPECT_EQ(parse_error_line(line).detail(), line);
  }
}

TEST(ErrorLine, AnyLineIsUnderstoodSomehow) {
  EXPECT_TRUE(rc::check("any bytes", [] {
    const auto word = *rc::gen::element<std::string>("FENCED", "NOLEASE", "WRONGLEASE", "VERSION",
                                                     "LEASELOST", "ERR", "\\x", "NOLEASE \\x4");
    const auto line =
        word + *rc::gen::container<std::string>(rc::gen::element(' ', '\\', 'x', '1', 'f', '\0'));
    RC_ASSERT(!parse_error_line(line).line().empty());
  }));
}

// --- escaped --------------------------------------------------------------------------------

TEST(Escaped, ShowsPrintableBytesAndNamesTheOthers) {
  EXPECT_EQ(escaped("jobs/nightly:7"), "jobs/nightly:7");
  EXPECT_EQ(escaped(""), "");
  EXPECT_EQ(escaped("a b"), R"(a\x20b)");
  EXPECT_EQ(escaped("\\"), R"(\x5c)");
  EXPECT_EQ(escaped("\r\n\t"), R"(\x0d\x0a\x09)");
  EXPECT_EQ(escaped({"\0\x1f\x7f\x80\xff", 5}), R"(\x00\x1f\x7f\x80\xff)");
  EXPECT_EQ(escaped("!~"), "!~");
}

TEST(Escaped, IsCutAt64BytesOfInput) {
  EXPECT_EQ(escaped(std::string(64, 'x')), std::string(64, 'x'));
  EXPECT_EQ(escaped(std::string(65, 'x')), std::string(64, 'x') + "...");
  std::string blanks;
  for (int i = 0; i < 64; ++i) blanks += R"(\x20)";
  EXPECT_EQ(escaped(std::string(1024, ' ')), blanks + "...");
}

TEST(Escaped, IsOneWordOfPrintableText) {
  EXPECT_TRUE(rc::check("any bytes", [] {
    const auto bytes = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
    for (const char c : escaped(bytes)) RC_ASSERT(c > 0x20 && c < 0x7f);
  }));
}

// --- numbers --------------------------------------------------------------------------------

TEST(Decimal, OnlyPlainOnesAreNumbers) {
  for (const auto* text : {"",
                           "+5",
                           "-5",
                           "-0",
                           " 5",
                           "5 ",
                           "5.0",
                           "5.",
                           ".5",
                           "1e3",
                           "0x10",
                           "007",
                           "00",
                           "01",
                           "5a",
                           "a5",
                           "٥",
                           "1_000",
                           "1,000",
                           "5\n",
                           "inf",
                           "18446744073709551616",
                           "18446744073709551620",
                           "28446744073709551615",
                           "99999999999999999999",
                           "184467440737095516150"}) {
    EXPECT_EQ(parse_decimal(text), std::nullopt) << "'" << text << "'";
  }
  EXPECT_EQ(parse_decimal({"5\0", 2}), std::nullopt);
}

TEST(Decimal, ReadsAllThatFit) {
  EXPECT_EQ(parse_decimal("0"), 0U);
  EXPECT_EQ(parse_decimal("7"), 7U);
  EXPECT_EQ(parse_decimal("10"), 10U);
  EXPECT_EQ(parse_decimal("9007199254740993"), (std::uint64_t{1} << 53) + 1);
  EXPECT_EQ(parse_decimal("9223372036854775807"), Token::kMax);
  EXPECT_EQ(parse_decimal("9223372036854775808"), Token::kMax + 1);
  EXPECT_EQ(parse_decimal("18446744073709551615"), UINT64_MAX);
}

TEST(Decimal, HoldsTheLimitGiven) {
  EXPECT_EQ(parse_decimal("9223372036854775807", Token::kMax), Token::kMax);
  EXPECT_EQ(parse_decimal("9223372036854775808", Token::kMax), std::nullopt);
  EXPECT_EQ(parse_decimal("18446744073709551616", Token::kMax), std::nullopt);
  for (const std::uint64_t max : {0ULL, 1ULL, 8ULL, 9ULL, 10ULL, 99ULL, 1024ULL}) {
    EXPECT_EQ(parse_decimal(std::to_string(max), max), max);
    EXPECT_EQ(parse_decimal(std::to_string(max + 1), max), std::nullopt) << max;
  }
}

TEST(Decimal, EveryNumberComesBack) {
  EXPECT_TRUE(rc::check("numbers", [](std::uint64_t number, std::uint64_t max) {
    const auto read = parse_decimal(std::to_string(number), max);
    RC_ASSERT(read == (number <= max ? std::optional(number) : std::nullopt));
  }));
}

}  // namespace
}  // namespace fencekv::testing
