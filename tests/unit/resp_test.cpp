// SPDX-License-Identifier: Apache-2.0
#include "server/resp/reply_parser.h"
#include "server/resp/reply_writer.h"
#include "server/resp/request_parser.h"
#include "server/resp/request_writer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <malloc.h>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::resp {
namespace {

using std::string_literals::operator""s;
using Words = std::vector<std::string>;

// ---- Requests ---------------------------------------------------------------------------------

/// What a parser made of a stream.
struct Heard {
  std::vector<Words> requests;
  std::string error;  ///< Empty: the stream can go on.
  bool too_big = false;

  friend bool operator==(const Heard&, const Heard&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Heard& heard) {
    return out << testing::PrintToString(heard.requests) << " then '" << heard.error << "'";
  }
};

Heard hear(const std::vector<std::string_view>& pieces, RequestLimits limits = {}) {
  RequestParser parser(limits);
  Heard heard;
  for (const auto piece : pieces) {
    parser.feed(piece);
    for (auto status = parser.next(); status != RequestParser::Status::need_more;
         status = parser.next()) {
      if (status != RequestParser::Status::request) {
        EXPECT_EQ(parser.next(), status) << "a failed parser stays failed";
        return {heard.requests, parser.error(), status == RequestParser::Status::too_big};
      }
      heard.requests.emplace_back(parser.request().begin(), parser.request().end());
    }
  }
  return heard;
}

struct RequestCase {
  std::string name;
  std::string bytes;
  std::vector<Words> requests;
  std::string error;
  RequestLimits limits{};
  bool too_big = false;

  friend void PrintTo(const RequestCase& row, std::ostream* out) { *out << row.name; }
};

std::string protocol_error(std::string_view what) {
  return "ERR Protocol error: " + std::string(what);
}

// Every row without limits of its own was measured against a redis-server 7.0.15.
std::vector<RequestCase> request_cases() {
  const std::string ping = "*1\r\n$4\r\nPING\r\n";
  const std::string kib64(65536, 'x');
  const RequestLimits small{
      .request_bytes = 64, .arguments = 4, .argument_bytes = 16, .inline_bytes = 32};
  const std::string over_request =
      "TOOBIG request of more than 64 bytes; split it, or raise the limit";
  return {
      // Arrays.
      {"Array", "*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n", {{"ECHO", "a\r\n"}}, ""},
      {"AnyBytes", "*2\r\n$1\r\nX\r\n$4\r\n\0\xff\r\n\r\n"s, {{"X", "\0\xff\r\n"s}}, ""},
      {"EmptyArgument", "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", {{"ECHO", ""}}, ""},
      {"Pipeline", ping + ping + "PING\r\n" + ping, {{"PING"}, {"PING"}, {"PING"}, {"PING"}}, ""},
      {"EmptyRequestsAreSkipped", "*0\r\n\r\n\n*-1\r\n  \r\n*-5\r\n" + ping, {{"PING"}}, ""},
      {"WhatFollowsACrIsNotLookedAt", "*1\rX$4\rXPINGXX" + ping, {{"PING"}, {"PING"}}, ""},
      {"LfAloneEndsNoHeader", "*1\n$4\nPING\n", {}, ""},
      {"CountOfLetters", "*x\r\n", {}, protocol_error("invalid multibulk length")},
      {"CountEmpty", "*\r\n", {}, protocol_error("invalid multibulk length")},
      {"CountWithZero", "*01\r\n", {}, protocol_error("invalid multibulk length")},
      {"CountWithPlus", "*+1\r\n", {}, protocol_error("invalid multibulk length")},
      {"CountOfInt32", "*2147483648\r\n", {}, protocol_error("invalid multibulk length")},
      {"CountOfInt64", "*9223372036854775808\r\n", {}, protocol_error("invalid multibulk length")},
      {"NotABulk", "*1\r\nxPING\r\n", {}, protocol_error("expected '$', got 'x'")},
      {"NestedArray", "*1\r\n*1\r\n", {}, protocol_error("expected '$', got '*'")},
      {"EmptyHeader", "*1\r\n\r\n", {}, protocol_error("expected '$', got ' '")},
      {"NullArgument", "*2\r\n$3\r\nGET\r\n$-1\r\n", {}, protocol_error("invalid bulk length")},
      {"LengthOverRedisLimit", "*1\r\n$536870913\r\n", {}, protocol_error("invalid bulk length")},
      {"LengthOfInt64",
       "*1\r\n$9223372036854775807\r\n",
       {},
       protocol_error("invalid bulk length")},
      {"LengthWithRest", "*1\r\n$4x\r\n", {}, protocol_error("invalid bulk length")},
      {"LengthEmpty", "*1\r\n$\r\n", {}, protocol_error("invalid bulk length")},
      {"EndlessCount", "*" + kib64, {}, protocol_error("too big mbulk count string")},
      {"EndlessLength", "*1\r\n$" + kib64, {}, protocol_error("too big bulk count string")},
      {"ErrorAfterRequests",
       ping + "*1\r\nq\r\n" + ping,
       {{"PING"}},
       protocol_error("expected '$', got 'q'")},
      // Inline.
      {"Inline", "PING\r\n", {{"PING"}}, ""},
      {"InlineWithLf", "PING\n", {{"PING"}}, ""},
      {"InlineWithTwoCr", "PING\r\r\n", {{"PING"}}, ""},
      {"InlineBlanks", " \tECHO \v\f a  \r\n", {{"ECHO", "a"}}, ""},
      {"InlineBlankWithinWord", "ECHO a\vb\r\n", {{"ECHO", "a\vb"}}, ""},
      {"DoubleQuotes",
       R"(ECHO "a b" "")"
       "\r\n",
       {{"ECHO", "a b", ""}},
       ""},
      {"HexEscape",
       R"(ECHO "a\x41\xfF\x00b")"
       "\r\n",
       {{"ECHO", "aA\xff\0b"s}},
       ""},
      {"HexEscapeCutShort",
       R"(ECHO "\x4" "\x4g" "\x")"
       "\r\n",
       {{"ECHO", "x4", "x4g", "x"}},
       ""},
      {"NamedEscapes",
       R"(ECHO "\n\r\t\b\a\q\"\\")"
       "\r\n",
       {{"ECHO", "\n\r\t\b\aq\"\\"}},
       ""},
      {"SingleQuotes",
       R"(ECHO 'a\'b\n"')"
       "\r\n",
       {{"ECHO", R"(a'b\n")"}},
       ""},
      {"QuotesWithinWord",
       R"(ECHO a"b c"  x'y z')"
       "\r\n",
       {{"ECHO", "ab c", "xy z"}},
       ""},
      {"EscapeOutsideQuotes",
       R"(ECHO a\nb)"
       "\r\n",
       {{"ECHO", R"(a\nb)"}},
       ""},
      {"EmptyName", "\"\" x\r\n", {{"", "x"}}, ""},
      {"OpenDoubleQuote", "ECHO \"a\r\n", {}, protocol_error("unbalanced quotes in request")},
      {"OpenSingleQuote", "ECHO 'a\r\n", {}, protocol_error("unbalanced quotes in request")},
      {"EscapedEnd", "ECHO \"a\\\r\n", {}, protocol_error("unbalanced quotes in request")},
      {"TextAfterQuote", "ECHO \"a\"b\r\n", {}, protocol_error("unbalanced quotes in request")},
      {"TextAfterSingleQuote", "ECHO 'a'b\r\n", {}, protocol_error("unbalanced quotes in request")},
      {"LongestInline", kib64.substr(1) + "\n", {{kib64.substr(1)}}, ""},
      {"EndlessInline", kib64 + "x", {}, protocol_error("too big inline request")},
      {"InlineThatEndsTooLate", kib64 + "xx\n", {}, protocol_error("too big inline request")},
      // Limits: exactly at each, and one over it.
      {"AtTheCount",
       "*4\r\n$1\r\na\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n",
       {{"a", "", "", ""}},
       "",
       small},
      {"OverTheCount", "*5\r\n", {}, "TOOBIG request of more than 4 arguments", small, true},
      {"OverTheInlineCount",
       "a b c d e\n",
       {},
       "TOOBIG request of more than 4 arguments",
       small,
       true},
      {"AtTheArgument", "*1\r\n$16\r\n0123456789abcdef\r\n", {{"0123456789abcdef"}}, "", small},
      {"OverTheArgument",
       "*1\r\n$17\r\n",
       {},
       "TOOBIG argument of more than 16 bytes",
       small,
       true},
      {"OverTheInlineArgument",
       "0123456789abcdefg\n",
       {},
       "TOOBIG argument of more than 16 bytes",
       small,
       true},
      {"AtTheRequest",
       "*3\r\n$15\r\n0123456789abcde\r\n$15\r\n0123456789abcde\r\n$6\r\n012345\r\n",
       {{"0123456789abcde", "0123456789abcde", "012345"}},
       "",
       {.request_bytes = 4 + 22 + 22 + 12, .argument_bytes = 16}},
      {"OverTheRequest",
       "*4\r\n$16\r\n0123456789abcdef\r\n$16\r\n0123456789abcdef\r\n$8\r\n",
       {},
       over_request,
       small,
       true},
      {"CountThatCannotFit", "*20\r\n", {}, over_request, {.request_bytes = 64}, true},
      {"EndlessHeaderOverTheRequest", "*" + std::string(64, '1'), {}, over_request, small, true},
      {"EndlessInlineOverTheRequest",
       std::string(65, 'x'),
       {},
       over_request,
       {.request_bytes = 64},
       true},
      {"RequestsAreMeasuredOneByOne",
       ping + ping + ping + ping + ping + ping,
       {{"PING"}, {"PING"}, {"PING"}, {"PING"}, {"PING"}, {"PING"}},
       "",
       small},
  };
}

class RequestFraming : public testing::TestWithParam<RequestCase> {};

TEST_P(RequestFraming, AnswersAsRedisDoes) {
  const auto& row = GetParam();

  const auto heard = hear({row.bytes}, row.limits);

  EXPECT_EQ(heard, (Heard{row.requests, row.error, row.too_big}));
}

TEST_P(RequestFraming, DoesNotDependOnTheSplit) {
  const auto& row = GetParam();
  const std::string_view bytes = row.bytes;
  const Heard expected{row.requests, row.error, row.too_big};

  // Long rows are long in one dull run: their ends are where something can go wrong.
  for (std::size_t at = 0; at <= bytes.size(); ++at) {
    if (at > 100 && at + 100 < bytes.size()) continue;
    ASSERT_EQ(hear({bytes.substr(0, at), bytes.substr(at)}, row.limits), expected) << "at " << at;
  }
  std::vector<std::string_view> single;
  for (std::size_t at = 0; at < bytes.size(); ++at) single.push_back(bytes.substr(at, 1));
  EXPECT_EQ(hear(single, row.limits), expected) << "byte by byte";
}

INSTANTIATE_TEST_SUITE_P(Resp, RequestFraming, testing::ValuesIn(request_cases()),
                         [](const auto& row) { return row.param.name; });

TEST(RequestParser, GivesOneLineOfPrintableTextForEveryFirstByte) {
  for (int byte = 0; byte < 256; ++byte) {
    if (byte == '$' || byte == '\r') continue;

    const auto heard = hear({"*1\r\n"s + static_cast<char>(byte) + "x\r\n"});

    ASSERT_TRUE(heard.error.starts_with("ERR Protocol error: expected '$', got '")) << byte;
    for (const char c : heard.error) ASSERT_TRUE(c >= ' ' && c <= '~') << byte;
  }
}

TEST(RequestParser, TightensAndLoosensLimitsBetweenRequests) {
  RequestParser parser({.request_bytes = 16});
  parser.feed("PING\r\n");
  ASSERT_EQ(parser.next(), RequestParser::Status::request);

  parser.set_limits({.request_bytes = 64});
  parser.feed("ECHO 01234567890123456789\r\n");

  EXPECT_EQ(parser.next(), RequestParser::Status::request);
}

TEST(RequestParser, CountsWhatIsBuffered) {
  RequestParser parser({});
  parser.feed("PING\r\nECHO");
  EXPECT_EQ(parser.buffered(), 10U);

  ASSERT_EQ(parser.next(), RequestParser::Status::request);

  EXPECT_EQ(parser.buffered(), 4U);
}

/// Bytes this process has from malloc; nullopt where a sanitizer keeps that to itself.
std::optional<std::size_t> allocated() {
  const auto read = [] {
    const auto now = mallinfo2();
    return now.uordblks + now.hblkhd;
  };
  const auto before = read();
  const std::string probe(1 << 20, 'x');
  if (read() < before + probe.size()) return std::nullopt;
  return before;
}

#define SKIP_WITHOUT_MALLOC_COUNTERS() \
  if (!allocated()) GTEST_SKIP() << "this allocator does not count"

TEST(RequestParser, ReservesNothingForWhatAHeaderAnnounces) {
  SKIP_WITHOUT_MALLOC_COUNTERS();
  constexpr std::size_t kConnections = 1000;
  const RequestLimits huge{.request_bytes = std::size_t{1} << 40,
                           .arguments = std::numeric_limits<std::int32_t>::max(),
                           .argument_bytes = std::size_t{1} << 40};
  const auto before = *allocated();

  std::vector<RequestParser> parsers(kConnections, RequestParser(huge));
  for (auto& parser : parsers) {
    parser.feed("*1000000\r\n$500000000\r\nabc");
    ASSERT_EQ(parser.next(), RequestParser::Status::need_more);
  }

  EXPECT_LT(*allocated() - before, kConnections * 1024);
}

TEST(RequestParser, GivesBackWhatALongRequestTook) {
  SKIP_WITHOUT_MALLOC_COUNTERS();
  RequestParser parser({});
  const auto before = *allocated();
  {
    const std::string value(std::size_t{8} * 1024 * 1024, 'x');
    std::string bytes;
    std::vector<std::string_view> arguments(100'000, "a");
    arguments.push_back(value);
    write_request(bytes, arguments);
    parser.feed(bytes);
  }
  ASSERT_EQ(parser.next(), RequestParser::Status::request);
  ASSERT_GT(*allocated() - before, std::size_t{8} * 1024 * 1024);

  ASSERT_EQ(parser.next(), RequestParser::Status::need_more);

  EXPECT_LT(*allocated() - before, std::size_t{256} * 1024);
}

TEST(RequestParser, HoldsNoMoreThanAFactorOfWhatItReceived) {
  SKIP_WITHOUT_MALLOC_COUNTERS();
  // The dearest request for its size: nothing but empty arguments.
  std::string bytes = "*1000000\r\n";
  for (int i = 0; i < 1'000'000; ++i) bytes += "$0\r\n\r\n";
  const auto before = *allocated();
  RequestParser parser({});

  parser.feed(bytes);
  ASSERT_EQ(parser.next(), RequestParser::Status::request);

  EXPECT_EQ(parser.request().size(), 1'000'000U);
  EXPECT_LT(*allocated() - before, bytes.size() * 10);
}

TEST(RequestParser, TakesTimeThatIsLinearHoweverTheBytesAreSplit) {
  // A parser that starts over with each piece needs hours for any of these.
  constexpr std::size_t kBytes = std::size_t{4} * 1024 * 1024;
  const RequestLimits limits{.inline_bytes = 2 * kBytes};
  std::string pings;
  while (pings.size() < kBytes) pings += "PING\r\n";
  std::string tiny = "*1000000\r\n";
  while (tiny.size() < kBytes / 2) tiny += "$1\r\na\r\n";
  const std::vector<std::string> streams = {std::string(kBytes, 'x'),
                                            "*1\r\n$4194304\r\n" + std::string(kBytes, 'x'), tiny};
  const auto begin = std::chrono::steady_clock::now();

  for (const auto& stream : streams) {
    RequestParser parser(limits);
    for (const char byte : stream) {
      parser.feed({&byte, 1});
      ASSERT_NE(parser.next(), RequestParser::Status::protocol_error);
    }
  }
  RequestParser behind(limits);
  behind.feed(pings);
  for (std::size_t i = 0; i < pings.size() / 6; ++i) {
    ASSERT_EQ(behind.next(), RequestParser::Status::request);
    behind.feed(" ");
  }

  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

RC_GTEST_PROP(RequestRoundTrip, ReadsWhatTheWriterWroteInAnyPieces, (std::uint32_t seed)) {
  const auto requests = *rc::gen::container<std::vector<Words>>(
      rc::gen::nonEmpty(rc::gen::container<Words>(rc::gen::string<std::string>())));
  std::string bytes;
  for (const auto& request : requests) {
    const std::vector<std::string_view> arguments(request.begin(), request.end());
    write_request(bytes, arguments);
  }

  std::vector<std::string_view> pieces;
  for (std::string_view rest = bytes; !rest.empty();) {
    seed = seed * 1664525 + 1013904223;
    const std::size_t size = std::min<std::size_t>(1 + (seed >> 16U) % 9, rest.size());
    pieces.push_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }

  RC_ASSERT(hear(pieces) == (Heard{requests, "", false}));
}

RC_GTEST_PROP(RequestRoundTrip, AgreesWithItselfOnAnyBytesInAnyPieces, ()) {
  // Bytes that mean something are likely, so that the interesting states are reached.
  const auto bytes = *rc::gen::container<std::string>(
      rc::gen::oneOf(rc::gen::elementOf("*$\r\n0123-\"'\\x "s), rc::gen::arbitrary<char>()));
  const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size() + 1);
  const std::string_view view = bytes;

  RC_ASSERT(hear({view.substr(0, at), view.substr(at)}) == hear({view}));
}

// ---- Replies ----------------------------------------------------------------------------------

using Kind = Value::Kind;

Value text(Kind kind, std::string bytes) {
  return {.kind = kind, .text = std::move(bytes)};
}
Value bulk(std::string bytes) {
  return text(Kind::bulk, std::move(bytes));
}
Value integer(std::int64_t number) {
  return {.kind = Kind::integer, .integer = number};
}
Value boolean(bool yes) {
  return {.kind = Kind::boolean, .integer = yes ? 1 : 0};
}
Value parts(Kind kind, std::vector<Value> of) {
  return {.kind = kind, .parts = std::move(of)};
}

struct HeardReplies {
  std::vector<Value> replies;
  std::string error;

  friend bool operator==(const HeardReplies&, const HeardReplies&) = default;
};

HeardReplies hear_replies(const std::vector<std::string_view>& pieces, ReplyLimits limits = {}) {
  ReplyParser parser(limits);
  HeardReplies heard;
  for (const auto piece : pieces) {
    parser.feed(piece);
    for (auto status = parser.next(); status != ReplyParser::Status::need_more;
         status = parser.next()) {
      if (status == ReplyParser::Status::protocol_error) {
        EXPECT_EQ(parser.next(), status) << "a failed parser stays failed";
        return {heard.replies, parser.error()};
      }
      heard.replies.push_back(std::move(parser.reply()));
    }
  }
  return heard;
}

struct ReplyCase {
  std::string name;
  std::string bytes;
  std::vector<Value> replies;
  std::string error;
  ReplyLimits limits{};

  friend void PrintTo(const ReplyCase& row, std::ostream* out) { *out << row.name; }
};

std::vector<ReplyCase> reply_cases() {
  const std::string over = "the peer sent a reply over the limit";
  const std::string length = "the peer sent an invalid length";
  const std::string count = "the peer sent an invalid number of parts";
  const ReplyLimits small{.reply_bytes = 3 * sizeof(Value) + 10, .depth = 2};
  return {
      {"Simple", "+OK\r\n", {text(Kind::simple, "OK")}, ""},
      {"Error", "-FENCED 2 1 stale\r\n", {text(Kind::error, "FENCED 2 1 stale")}, ""},
      {"Integer", ":-9223372036854775808\r\n", {integer(INT64_MIN)}, ""},
      {"IntegerWithPlus", ":+5\r\n", {integer(5)}, ""},
      {"Bulk", "$5\r\na\r\n\0b\r\n"s, {bulk("a\r\n\0b"s)}, ""},
      {"EmptyBulk", "$0\r\n\r\n", {bulk("")}, ""},
      {"Nulls", "$-1\r\n*-1\r\n_\r\n", {Value{}, Value{}, Value{}}, ""},
      {"Array",
       "*3\r\n:1\r\n*0\r\n$1\r\na\r\n",
       {parts(Kind::array, {integer(1), parts(Kind::array, {}), bulk("a")})},
       ""},
      {"Booleans", "#t\r\n#f\r\n", {boolean(true), boolean(false)}, ""},
      {"Real", ",-1.5e3\r\n,inf\r\n", {text(Kind::real, "-1.5e3"), text(Kind::real, "inf")}, ""},
      {"BigNumber",
       "(3492890328409238509324850943850943825024385\r\n",
       {text(Kind::real, "3492890328409238509324850943850943825024385")},
       ""},
      {"BlobError", "!9\r\nERR a\r\nbc\r\n", {text(Kind::error, "ERR a\r\nbc")}, ""},
      {"Verbatim", "=8\r\ntxt:a\r\nb\r\n", {bulk("a\r\nb")}, ""},
      {"Map",
       "%2\r\n+a\r\n:1\r\n$1\r\nb\r\n_\r\n",
       {parts(Kind::map, {text(Kind::simple, "a"), integer(1), bulk("b"), Value{}})},
       ""},
      {"Set", "~2\r\n:1\r\n:2\r\n", {parts(Kind::set, {integer(1), integer(2)})}, ""},
      {"Push",
       ">2\r\n+lease\r\n+granted\r\n:1\r\n",
       {parts(Kind::push, {text(Kind::simple, "lease"), text(Kind::simple, "granted")}),
        integer(1)},
       ""},
      {"AttributeIsSkipped",
       "|1\r\n+ttl\r\n*2\r\n:1\r\n:2\r\n*1\r\n|1\r\n+x\r\n+y\r\n:7\r\n",
       {parts(Kind::array, {integer(7)})},
       ""},
      {"EmptyAttribute", "|0\r\n:7\r\n", {integer(7)}, ""},
      {"UnknownType", "?1\r\n", {}, "the peer sent an unknown type of reply"},
      {"EmptyLine", "\r\n", {}, "the peer sent an empty line"},
      {"CrAlone", "+a\rb\r\n", {}, "the peer sent a CR without LF"},
      {"LfAlone", "+a\nb\r\n", {}, "the peer sent an LF without CR"},
      {"IntegerOfLetters", ":x\r\n", {}, "the peer sent an invalid integer"},
      {"IntegerOverflow", ":9223372036854775808\r\n", {}, "the peer sent an invalid integer"},
      {"BooleanOfLetters", "#x\r\n", {}, "the peer sent an invalid boolean"},
      {"NullWithText", "_x\r\n", {}, "the peer sent an invalid null"},
      {"EmptyReal", ",\r\n", {}, "the peer sent an empty number"},
      {"NegativeLength", "$-2\r\n", {}, length},
      {"NegativeErrorLength", "!-1\r\n", {}, length},
      {"StreamedBulk", "$?\r\n", {}, length},
      {"NegativeCount", "*-2\r\n", {}, count},
      {"NegativeMap", "%-1\r\n", {}, count},
      {"StreamedArray", "*?\r\n", {}, count},
      {"LongerThanAnnounced",
       "$1\r\nabc\r\n",
       {},
       "the peer sent a string that is longer than announced"},
      {"VerbatimWithoutFormat",
       "=3\r\nabc\r\n",
       {},
       "the peer sent a verbatim string without a format"},
      {"PushWithinAReply", "*2\r\n>1\r\n:1\r\n:2\r\n", {}, "the peer sent a push within a reply"},
      {"ErrorAfterReplies", ":1\r\n?\r\n", {integer(1)}, "the peer sent an unknown type of reply"},
      // Limits: exactly at each, and one over it.
      {"AtTheDepth",
       "*1\r\n*1\r\n:1\r\n",
       {parts(Kind::array, {parts(Kind::array, {integer(1)})})},
       "",
       small},
      {"OverTheDepth",
       "*1\r\n*1\r\n*1\r\n",
       {},
       "the peer sent a reply that is nested too deep",
       {.depth = 2}},
      {"AtTheBytes",
       "*2\r\n$5\r\n01234\r\n$5\r\n56789\r\n",
       {parts(Kind::array, {bulk("01234"), bulk("56789")})},
       "",
       small},
      {"OverTheBytes", "*2\r\n$5\r\n01234\r\n$6\r\n", {}, over, small},
      {"OverTheValues", "*3\r\n:1\r\n:2\r\n:3\r\n", {}, over, small},
      {"CountThatCannotFit", "*4\r\n", {}, over, small},
      {"RepliesAreMeasuredOneByOne",
       "$9\r\n012345678\r\n$9\r\n012345678\r\n",
       {bulk("012345678"), bulk("012345678")},
       "",
       small},
  };
}

class ReplyReading : public testing::TestWithParam<ReplyCase> {};

TEST_P(ReplyReading, UnderstandsEveryType) {
  const auto& row = GetParam();

  const auto heard = hear_replies({row.bytes}, row.limits);

  EXPECT_EQ(heard.error, row.error);
  EXPECT_TRUE(heard.replies == row.replies);
}

TEST_P(ReplyReading, DoesNotDependOnTheSplit) {
  const auto& row = GetParam();
  const std::string_view bytes = row.bytes;
  const HeardReplies expected{row.replies, row.error};

  for (std::size_t at = 0; at <= bytes.size(); ++at) {
    ASSERT_TRUE(hear_replies({bytes.substr(0, at), bytes.substr(at)}, row.limits) == expected)
        << "at " << at;
  }
  std::vector<std::string_view> single;
  for (std::size_t at = 0; at < bytes.size(); ++at) single.push_back(bytes.substr(at, 1));
  EXPECT_TRUE(hear_replies(single, row.limits) == expected) << "byte by byte";
}

INSTANTIATE_TEST_SUITE_P(Resp, ReplyReading, testing::ValuesIn(reply_cases()),
                         [](const auto& row) { return row.param.name; });

TEST(ReplyParser, ReservesNothingForWhatAHeaderAnnounces) {
  SKIP_WITHOUT_MALLOC_COUNTERS();
  const auto before = *allocated();

  std::vector<ReplyParser> parsers(1000);
  for (auto& parser : parsers) {
    parser.feed("*1000000\r\n%1000\r\n$100000000\r\nabc");
    ASSERT_EQ(parser.next(), ReplyParser::Status::need_more);
  }

  EXPECT_LT(*allocated() - before, std::size_t{1000} * 2048);
}

TEST(ReplyParser, TakesTimeThatIsLinearHoweverTheBytesAreSplit) {
  constexpr std::size_t kBytes = std::size_t{4} * 1024 * 1024;
  std::string many = "*1000000\r\n";
  while (many.size() < kBytes / 2) many += ":1\r\n";
  const std::vector<std::string> streams = {"+" + std::string(kBytes, 'x'),
                                            "$4194304\r\n" + std::string(kBytes, 'x'), many};
  const auto begin = std::chrono::steady_clock::now();

  for (const auto& stream : streams) {
    ReplyParser parser;
    for (const char byte : stream) {
      parser.feed({&byte, 1});
      ASSERT_NE(parser.next(), ReplyParser::Status::protocol_error);
    }
  }

  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(Value, FindsTheValueOfAKeyInMapsAndFlatArrays) {
  const auto pairs =
      std::vector<Value>{bulk("a"), integer(1), integer(5), bulk("a"), bulk("b"), integer(2)};

  for (const auto kind : {Kind::map, Kind::array}) {
    const auto value = parts(kind, pairs);
    ASSERT_NE(value.at("b"), nullptr);
    EXPECT_EQ(value.at("b")->integer, 2);
    EXPECT_EQ(value.at("c"), nullptr);
  }
  EXPECT_EQ(parts(Kind::set, pairs).at("a"), nullptr);
  EXPECT_EQ(parts(Kind::array, {bulk("a")}).at("a"), nullptr);
}

// ---- Writing ----------------------------------------------------------------------------------

TEST(ReplyWriter, WritesEveryTypeInBothProtocols) {
  const auto all = [](Protocol protocol) {
    std::string out;
    ReplyWriter writer(out, protocol);
    writer.simple("OK");
    writer.error("ERR no");
    writer.integer(-7);
    writer.bulk("a\r\n");
    writer.number_as_bulk(9223372036854775807U);
    writer.verbatim("text");
    writer.boolean(true);
    writer.boolean(false);
    writer.null();
    writer.null_array();
    writer.array(1);
    writer.map(2);
    writer.set(3);
    return out;
  };

  EXPECT_EQ(all(Protocol::resp2),
            "+OK\r\n-ERR no\r\n:-7\r\n$3\r\na\r\n\r\n$19\r\n9223372036854775807\r\n$4\r\ntext\r\n"
            ":1\r\n:0\r\n$-1\r\n*-1\r\n*1\r\n*4\r\n*3\r\n");
  EXPECT_EQ(
      all(Protocol::resp3),
      "+OK\r\n-ERR no\r\n:-7\r\n$3\r\na\r\n\r\n$19\r\n9223372036854775807\r\n=8\r\ntxt:text\r\n"
      "#t\r\n#f\r\n_\r\n_\r\n*1\r\n%2\r\n~3\r\n");
}

TEST(ReplyWriter, LetsNoTextStartAnotherReply) {
  std::string out;
  ReplyWriter writer(out, Protocol::resp2);

  writer.error("ERR a\r\n+OK\n:1\r");
  writer.simple("b\r\n+OK");

  EXPECT_EQ(out, "-ERR a  +OK :1 \r\n+b  +OK\r\n");
}

Value arbitrary_value(int depth) {
  const auto kind = *rc::gen::inRange(0, depth > 0 ? 10 : 7);
  const auto line = [] {
    return *rc::gen::container<std::string>(rc::gen::inRange<char>(' ', '~'));
  };
  const auto several = [&](std::size_t multiple) {
    const auto count = *rc::gen::inRange<std::size_t>(0, 4) * multiple;
    std::vector<Value> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(arbitrary_value(depth - 1));
    return values;
  };
  switch (kind) {
    case 0:
      return text(Kind::simple, line());
    case 1:
      return text(Kind::error, line());
    case 2:
      return integer(*rc::gen::arbitrary<std::int64_t>());
    case 3:
      return boolean(*rc::gen::arbitrary<bool>());
    case 4:
      return Value{};
    case 5:
    case 6:
      return bulk(*rc::gen::string<std::string>());
    case 7:
      return parts(Kind::array, several(1));
    case 8:
      return parts(Kind::set, several(1));
    default:
      return parts(Kind::map, several(2));
  }
}

void write(ReplyWriter& writer, const Value& value) {
  switch (value.kind) {
    case Kind::simple:
      writer.simple(value.text);
      break;
    case Kind::error:
      writer.error(value.text);
      break;
    case Kind::integer:
      writer.integer(value.integer);
      break;
    case Kind::boolean:
      writer.boolean(value.integer == 1);
      break;
    case Kind::null:
      writer.null();
      break;
    case Kind::bulk:
      writer.bulk(value.text);
      break;
    case Kind::array:
      writer.array(value.parts.size());
      break;
    case Kind::set:
      writer.set(value.parts.size());
      break;
    case Kind::map:
      writer.map(value.parts.size() / 2);
      break;
    default:
      FAIL() << "no writer for this kind";
  }
  for (const auto& part : value.parts) write(writer, part);
}

RC_GTEST_PROP(ReplyRoundTrip, ReadsWhatTheWriterWroteInAnyPieces, ()) {
  std::vector<Value> values;
  const auto count = *rc::gen::inRange(1, 5);
  for (int i = 0; i < count; ++i) values.push_back(arbitrary_value(3));
  std::string bytes;
  ReplyWriter writer(bytes, Protocol::resp3);
  for (const auto& value : values) write(writer, value);
  const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size() + 1);
  const std::string_view view = bytes;

  const auto heard = hear_replies({view.substr(0, at), view.substr(at)});

  RC_ASSERT(heard.error.empty());
  RC_ASSERT(heard.replies == values);
}

RC_GTEST_PROP(ReplyRoundTrip, AgreesWithItselfOnAnyBytesInAnyPieces, ()) {
  const auto bytes = *rc::gen::container<std::string>(rc::gen::oneOf(
      rc::gen::elementOf("+-:$*_#,(!=%~>|\r\n\r\n0123t"s), rc::gen::arbitrary<char>()));
  const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size() + 1);
  const std::string_view view = bytes;

  RC_ASSERT(hear_replies({view.substr(0, at), view.substr(at)}) == hear_replies({view}));
}

}  // namespace
}  // namespace fencekv::resp
