// SPDX-License-Identifier: Apache-2.0
#include "client/command_codec.h"

#include "server/resp/request_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fencekv {
namespace {

using namespace std::chrono_literals;

/// The words of an encoded command, separated by blanks.
template <class C>
std::string words(const C& command) {
  const auto bytes = encode(command);
  if (!bytes) return "! " + bytes.error().line();
  resp::RequestParser parser({});
  parser.feed(*bytes);
  EXPECT_EQ(parser.next(), resp::RequestParser::Status::request);
  std::string text;
  for (const auto word : parser.request()) text += (text.empty() ? "" : " ") + std::string(word);
  EXPECT_EQ(parser.buffered(), 0U);
  return text;
}

resp::Value value_of(std::string_view bytes) {
  resp::ReplyParser parser;
  parser.feed(bytes);
  EXPECT_EQ(parser.next(), resp::ReplyParser::Status::reply) << parser.error();
  return std::move(parser.reply());
}

template <class C>
Result<AnswerOf<C>> answer(std::string_view bytes) {
  return decode<C>(value_of(bytes));
}

TEST(CommandCodec, WritesEveryCommandAsTheProtocolSpellsIt) {
  const Token t{7};
  const Write all{.entries = {{"k", "v"}},
                  .token = t,
                  .lease = "l",
                  .once = true,
                  .live = true,
                  .if_version = 0,
                  .request = "r"};

  EXPECT_EQ(words(Write{.entries = {{"k", "v"}}, .token = t}), "FENCE.SET k 7 v");
  EXPECT_EQ(words(all), "FENCE.SET k 7 v LEASE l ONCE IFVER 0 LIVE REQ r");
  EXPECT_EQ(words(Write{.entries = {{"k", std::nullopt}}, .token = t, .lease = "l"}),
            "FENCE.DEL k 7 LEASE l");
  EXPECT_EQ(words(Write{.entries = {{"a", "1"}, {"b", "2"}}, .token = t, .request = "r"}),
            "FENCE.MSET 7 2 a 1 b 2 REQ r");
  EXPECT_EQ(words(Write{.entries = {{"a", "1"}, {"b", std::nullopt}}, .token = t}),
            "! ERR several keys can be set together, not deleted");
  EXPECT_EQ(words(Raise{"k", t, "l"}), "FENCE.RAISE k 7 LEASE l");
  EXPECT_EQ(words(FencedRead{"k", t, {}}), "FENCE.GET k TOKEN 7");
  EXPECT_EQ(words(Reset{"k", t}), "FENCE.RESET k 7");
  EXPECT_EQ(words(Reset{"k", t, Reset::Guard::clear, ""}), "FENCE.RESET k 7 NOGUARD");
  EXPECT_EQ(words(Reset{"k", t, Reset::Guard::set, "g"}), "FENCE.RESET k 7 GUARD g");
  EXPECT_EQ(words(Acquire{"n", "o", 1500ms}), "LEASE.ACQUIRE n o 1500");
  EXPECT_EQ(words(make_acquire("n", "o", 1500ms,
                               {.wait = 20ms,
                                .mode = LeaseMode::permit,
                                .permits = 3,
                                .bind = true,
                                .delay = 0ms,
                                .payload = ""})),
            "LEASE.ACQUIRE n o 1500 WAIT 20 PERMITS 3 BIND DELAY 0 PAYLOAD ");
  EXPECT_EQ(words(make_acquire("n", "o", 1s, {.mode = LeaseMode::shared, .delay = 7s})),
            "LEASE.ACQUIRE n o 1000 SHARED DELAY 7000");
  EXPECT_EQ(words(make_acquire("n", "o", 1s, {.mode = LeaseMode::permit})),
            "LEASE.ACQUIRE n o 1000 PERMITS 0")
      << "the server says what is wrong with it";
  EXPECT_EQ(words(make_acquire("n", "o", 1s, {.permits = 2})),
            "! ERR permits go with the mode permit only");
  EXPECT_EQ(words(AcquireMany{{"a", "b"}, "o", 1s, 0ms}), "LEASE.MACQUIRE 2 a b o 1000");
  EXPECT_EQ(words(AcquireMany{{"a"}, "o", 1s, 5ms}), "LEASE.MACQUIRE 1 a o 1000 WAIT 5");
  EXPECT_EQ(words(RenewMany{{{"a", "o", t}, {"b", "p", Token{8}}}, 2s}),
            "LEASE.MRENEW 2000 2 a o 7 b p 8");
  EXPECT_EQ(words(ReleaseMany{{{"a", "o", t}}}), "LEASE.MRELEASE 1 a o 7");
  EXPECT_EQ(words(ListWaiters{"n"}), "LEASE.WAITERS n");
  EXPECT_EQ(words(Await{"n", Token{}, 5s}), "LEASE.WAIT n 0 5000");
  EXPECT_EQ(words(Renew{"n", "o", Token{Token::kMax}, -5ms}),
            "LEASE.RENEW n o 9223372036854775807 -5");
  EXPECT_EQ(words(Release{"n", "o", t}), "LEASE.RELEASE n o 7");
  EXPECT_EQ(words(Revoke{"n"}), "LEASE.REVOKE n");
  EXPECT_EQ(words(Inspect{"n"}), "LEASE.INFO n");
  EXPECT_EQ(words(Get{"k"}), "GET k");
  EXPECT_EQ(words(GetMany{{"a", "b"}}), "MGET a b");
  EXPECT_EQ(words(GetFenced{"k"}), "FENCE.GET k");
  EXPECT_EQ(words(Describe{"k"}), "FENCE.INFO k");
  EXPECT_EQ(words(ListRejections{3}), "FENCE.REJECTIONS COUNT 3");
  EXPECT_EQ(words(ScanLeases{"0", "a*", 5}), "LEASE.SCAN 0 MATCH a* COUNT 5");
  EXPECT_EQ(words(ScanKeys{}), "SCAN 0");
  EXPECT_EQ(words(Exists{{"a", "a"}}), "EXISTS a a");
  EXPECT_EQ(words(Strlen{"k"}), "STRLEN k");
  EXPECT_EQ(words(TypeOf{"k"}), "TYPE k");
  EXPECT_EQ(words(CountKeys{}), "DBSIZE");
  EXPECT_EQ(words(Ping{}), "PING");
  EXPECT_EQ(words(Ping{"m"}), "PING m");
  EXPECT_EQ(words(Echo{"m"}), "ECHO m");
  EXPECT_EQ(words(Raw{{"CLIENT", "ID"}}), "CLIENT ID");
  EXPECT_EQ(words(Raw{}), "! ERR a command needs a name");
}

TEST(CommandCodec, ReadsVersions) {
  EXPECT_EQ(*answer<Write>(":3\r\n"), (std::vector<std::uint64_t>{3}));
  EXPECT_EQ(*answer<Write>("*2\r\n:3\r\n:1\r\n"), (std::vector<std::uint64_t>{3, 1}));
}

TEST(CommandCodec, ReadsTokensOfAnySizeFromDecimalStrings) {
  EXPECT_EQ(*answer<Raise>("$19\r\n9223372036854775807\r\n"), Token{Token::kMax});
  EXPECT_EQ(answer<Raise>("$19\r\n9223372036854775808\r\n").error().code(), Errc::protocol);
  EXPECT_EQ(answer<Raise>(":7\r\n").error().code(), Errc::protocol);
}

TEST(CommandCodec, ReadsTheStateOfAKeyInBothProtocols) {
  const std::string fields =
      "$5\r\nvalue\r\n$1\r\nv\r\n$7\r\nversion\r\n:2\r\n$5\r\nfence\r\n$2\r\n34\r\n"
      "$5\r\nguard\r\n$1\r\ng\r\n";
  const KeyState expected{
      .value = "v", .version = 2, .fence = Token{34}, .guard = "g", .request = {}};

  EXPECT_EQ(*answer<GetFenced>("%4\r\n" + fields), expected);
  EXPECT_EQ(*answer<FencedRead>("*8\r\n" + fields), expected);
}

TEST(CommandCodec, ReadsAKeyWithoutRecord) {
  EXPECT_EQ(*answer<GetFenced>("%4\r\n+value\r\n_\r\n+version\r\n:0\r\n+fence\r\n$1\r\n0\r\n"
                               "+guard\r\n_\r\n"),
            KeyState{});
}

TEST(CommandCodec, ReadsADescription) {
  EXPECT_EQ(*answer<Describe>("%7\r\n+version\r\n:2\r\n+fence\r\n$1\r\n5\r\n+guard\r\n_\r\n"
                              "+exists\r\n:1\r\n+size\r\n:9\r\n+request\r\n$1\r\nr\r\n"
                              "+written\r\n:1700000000000\r\n"),
            (KeyDescription{.version = 2,
                            .fence = Token{5},
                            .guard = {},
                            .exists = true,
                            .size = 9,
                            .request = "r",
                            .written = 1700000000000ms}));
}

TEST(CommandCodec, ReadsGrants) {
  EXPECT_EQ(*answer<Acquire>("*2\r\n$2\r\n42\r\n:1000\r\n"), (Grant{Token{42}, 1000ms}));
  EXPECT_EQ(*answer<Acquire>("_\r\n"), std::nullopt);
  EXPECT_EQ(*answer<Acquire>("*-1\r\n"), std::nullopt);
  EXPECT_EQ(answer<Acquire>("*2\r\n$1\r\n0\r\n:1000\r\n").error().code(), Errc::protocol)
      << "no grant has the token 0";
  EXPECT_EQ(*answer<Renew>(":900\r\n"), 900ms);
  EXPECT_TRUE(answer<Release>("+OK\r\n"));
}

const std::string kLease =
    "%7\r\n+name\r\n$1\r\nn\r\n+fence\r\n$1\r\n7\r\n+mode\r\n+exclusive\r\n+holders\r\n*1\r\n"
    "%6\r\n+owner\r\n$8\r\n0123abcd\r\n+token\r\n$1\r\n7\r\n+mode\r\n$9\r\nexclusive\r\n"
    "+remaining\r\n:500\r\n+client\r\n$11\r\n127.0.0.1:1\r\n+bound\r\n:0\r\n"
    "+waiters\r\n:0\r\n+blocked\r\n:0\r\n+payload\r\n_\r\n";

const LeaseState kState{.name = "n",
                        .fence = Token{7},
                        .holders = {{.owner = "0123abcd",
                                     .token = Token{7},
                                     .mode = LeaseMode::exclusive,
                                     .remaining = 500ms,
                                     .client = "127.0.0.1:1"}}};

TEST(CommandCodec, ReadsLeases) {
  EXPECT_EQ(*answer<Inspect>(kLease), kState);

  const auto page = answer<ScanLeases>("*2\r\n$1\r\n0\r\n*1\r\n" + kLease);
  ASSERT_TRUE(page);
  EXPECT_EQ(page->cursor, "0");
  EXPECT_EQ(page->leases, std::vector{kState});
}

TEST(CommandCodec, ReadsEverythingAboutALease) {
  EXPECT_EQ(
      *answer<Inspect>(
          "%7\r\n+name\r\n$1\r\nn\r\n+fence\r\n$1\r\n8\r\n+mode\r\n+permit\r\n+holders\r\n*2\r\n"
          "%6\r\n+owner\r\n$8\r\n0123abcd\r\n+token\r\n$1\r\n7\r\n+mode\r\n+permit\r\n"
          "+remaining\r\n:500\r\n+client\r\n$1\r\nc\r\n+bound\r\n:1\r\n"
          "%6\r\n+owner\r\n$8\r\n89abcdef\r\n+token\r\n$1\r\n8\r\n+mode\r\n+permit\r\n"
          "+remaining\r\n:600\r\n+client\r\n$1\r\nd\r\n+bound\r\n:0\r\n"
          "+waiters\r\n:3\r\n+blocked\r\n:40\r\n+payload\r\n$4\r\na\r\nb\r\n"),
      (LeaseState{.name = "n",
                  .fence = Token{8},
                  .holders = {{.owner = "0123abcd",
                               .token = Token{7},
                               .mode = LeaseMode::permit,
                               .remaining = 500ms,
                               .client = "c",
                               .bound = true},
                              {.owner = "89abcdef",
                               .token = Token{8},
                               .mode = LeaseMode::permit,
                               .remaining = 600ms,
                               .client = "d",
                               .bound = false}},
                  .waiters = 3,
                  .blocked = 40ms,
                  .payload = "a\r\nb"}));
  EXPECT_EQ(*answer<ListWaiters>(
                "*1\r\n%5\r\n+owner\r\n$8\r\n0123abcd\r\n+mode\r\n+shared\r\n+waited\r\n:5\r\n"
                "+remaining\r\n:6\r\n+client\r\n$1\r\nc\r\n"),
            (std::vector<LeaseWaiter>{{.owner = "0123abcd",
                                       .mode = LeaseMode::shared,
                                       .waited = 5ms,
                                       .remaining = 6ms,
                                       .client = "c"}}));
  EXPECT_EQ(answer<ListWaiters>("*1\r\n%1\r\n+owner\r\n+x\r\n").error().code(), Errc::protocol);
}

TEST(CommandCodec, ReadsForEachOfManyWhatOneWouldBeAnswered) {
  const auto renewed =
      answer<RenewMany>("*3\r\n:900\r\n-LEASELOST revoked\r\n-ERR no such thing\r\n");

  ASSERT_TRUE(renewed);
  ASSERT_EQ(renewed->size(), 3U);
  EXPECT_EQ(*(*renewed)[0], 900ms);
  EXPECT_EQ((*renewed)[1].error().reason(), "revoked");
  EXPECT_EQ((*renewed)[2].error().code(), Errc::invalid);
  EXPECT_EQ(answer<RenewMany>("*1\r\n+OK\r\n").error().code(), Errc::protocol);
  EXPECT_EQ(answer<RenewMany>("-ERR all of it\r\n").error().code(), Errc::invalid);
  EXPECT_EQ(answer<ReleaseMany>("*2\r\n+OK\r\n-LEASELOST expired\r\n")->size(), 2U);
  EXPECT_EQ(answer<ReleaseMany>("*1\r\n:1\r\n").error().code(), Errc::protocol);
}

TEST(CommandCodec, ReadsChangesOfALease) {
  EXPECT_EQ(*answer<Await>("*3\r\n+expired\r\n$1\r\nn\r\n$1\r\n7\r\n"),
            (LeaseEvent{LeaseChange::expired, "n", Token{7}}));
  EXPECT_EQ(*answer<Await>("_\r\n"), std::nullopt);
  EXPECT_EQ(*answer<Await>("*-1\r\n"), std::nullopt);
  EXPECT_EQ(answer<Await>("*3\r\n+stolen\r\n$1\r\nn\r\n$1\r\n7\r\n").error().code(),
            Errc::protocol);

  const auto pushed = [](std::string_view bytes) { return decode_push(value_of(bytes)); };
  for (const auto change : {LeaseChange::granted, LeaseChange::released, LeaseChange::expired,
                            LeaseChange::revoked, LeaseChange::disconnected, LeaseChange::missed}) {
    EXPECT_EQ(
        pushed(">4\r\n+lease\r\n+" + std::string(to_string(change)) + "\r\n$1\r\nn\r\n$1\r\n7\r\n"),
        (LeaseEvent{change, "n", Token{7}}));
  }
  EXPECT_EQ(pushed(">2\r\n+invalidate\r\n_\r\n"), std::nullopt);
  EXPECT_EQ(pushed(">3\r\n+lease\r\n+granted\r\n$1\r\nn\r\n"), std::nullopt);
  EXPECT_EQ(pushed(">0\r\n"), std::nullopt);
  EXPECT_EQ(pushed("*4\r\n+lease\r\n+granted\r\n$1\r\nn\r\n$1\r\n7\r\n"), std::nullopt)
      << "a reply is no push";
}

TEST(CommandCodec, KnowsWhichCommandsWait) {
  const auto raw = [](std::vector<std::string> line) { return waits_for(Raw{std::move(line)}); };

  EXPECT_EQ(waits_for(make_acquire("n", "o", 1s)), 0ms);
  EXPECT_EQ(waits_for(make_acquire("n", "o", 1s, {.wait = 5s})), 5s);
  EXPECT_EQ(waits_for(AcquireMany{{"a"}, "o", 1s, 3s}), 3s);
  EXPECT_EQ(waits_for(Await{"n", Token{}, 4s}), 4s);
  EXPECT_EQ(waits_for(Renew{"n", "o", Token{7}, 9s}), 0ms);
  EXPECT_EQ(raw({"lease.Acquire", "n", "o", "1000", "wait", "250"}), 250ms);
  EXPECT_EQ(raw({"LEASE.MACQUIRE", "1", "n", "o", "1000", "WAIT", "250"}), 250ms);
  EXPECT_EQ(raw({"LEASE.WAIT", "n", "7", "99"}), 99ms);
  EXPECT_EQ(raw({"LEASE.WAIT", "n"}), 0ms);
  EXPECT_EQ(raw({"LEASE.ACQUIRE", "n", "o", "1000"}), 0ms);
  EXPECT_EQ(raw({"LEASE.ACQUIRE", "n", "o", "1000", "WAIT"}), 0ms);
  EXPECT_EQ(raw({"FENCE.SET", "WAIT", "1", "250"}), 0ms);
  EXPECT_EQ(raw({}), 0ms);
}

TEST(CommandCodec, WritesAWatch) {
  resp::RequestParser parser({});
  parser.feed(encode_watch(std::vector<std::string>{"a", "b c"}));
  ASSERT_EQ(parser.next(), resp::RequestParser::Status::request);
  EXPECT_EQ(std::vector<std::string>(parser.request().begin(), parser.request().end()),
            (std::vector<std::string>{"LEASE.WATCH", "a", "b c"}));
}

TEST(CommandCodec, ReadsListings) {
  const auto keys = answer<ScanKeys>("*2\r\n$2\r\n17\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n");
  ASSERT_TRUE(keys);
  EXPECT_EQ(keys->cursor, "17");
  EXPECT_EQ(keys->keys, (std::vector<std::string>{"a", "b"}));

  const auto rejections = answer<ListRejections>(
      "*1\r\n%7\r\n+when\r\n:5\r\n+client\r\n$1\r\nc\r\n+key\r\n$1\r\nk\r\n+lease\r\n_\r\n"
      "+offered\r\n$1\r\n1\r\n+highest\r\n$1\r\n2\r\n+reason\r\n$5\r\nstale\r\n");
  ASSERT_TRUE(rejections);
  ASSERT_EQ(rejections->size(), 1U);
  EXPECT_EQ(rejections->front().highest, Token{2});
  EXPECT_EQ(rejections->front().reason, "stale");
  EXPECT_EQ(rejections->front().lease, std::nullopt);

  EXPECT_EQ(*answer<GetMany>("*2\r\n$1\r\na\r\n_\r\n"), (GetMany::Reply{"a", std::nullopt}));
}

TEST(CommandCodec, ReadsWhatHasNoType) {
  const auto reply = answer<Raw>("*3\r\n:1\r\n-ERR x\r\n%1\r\n+a\r\n_\r\n");

  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->kind, RawReply::Kind::array);
  EXPECT_EQ(reply->parts[0].integer, 1);
  EXPECT_EQ(reply->parts[1].kind, RawReply::Kind::error);
  EXPECT_EQ(reply->parts[1].text, "ERR x");
  EXPECT_EQ(reply->parts[2].kind, RawReply::Kind::map);
  EXPECT_EQ(reply->parts[2].parts[1].kind, RawReply::Kind::null);
}

TEST(CommandCodec, ReadsRefusals) {
  const auto refused = answer<Write>("-FENCED 34 33 superseded\r\n");

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Errc::fenced);
  EXPECT_EQ(refused.error().highest(), Token{34});
  EXPECT_EQ(refused.error().offered(), Token{33});
  EXPECT_EQ(refused.error().reason(), "superseded");
  EXPECT_EQ(answer<Renew>("-LEASELOST revoked\r\n").error().reason(), "revoked");
  EXPECT_EQ(answer<Get>("-NOAUTH Authentication required.\r\n").error().code(), Errc::denied);
}

TEST(CommandCodec, TakesNoReplyThatTheCommandCannotHave) {
  // For each command every shape that is not its own.
  const std::vector<std::string> shapes = {"+QUEUED\r\n",
                                           ":-1\r\n",
                                           "#t\r\n",
                                           ",1.5\r\n",
                                           "*1\r\n_\r\n",
                                           "%0\r\n",
                                           "~0\r\n",
                                           "*2\r\n:1\r\n*0\r\n",
                                           "*2\r\n$1\r\n0\r\n:1\r\n",
                                           "$3\r\nabc\r\n"};
  const auto protocol = [](const auto& result) {
    return !result && result.error().code() == Errc::protocol;
  };

  for (const auto& bytes : shapes) {
    EXPECT_TRUE(protocol(answer<Write>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<Raise>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<GetFenced>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<Describe>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<Renew>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<Release>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<Inspect>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<ScanLeases>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<ScanKeys>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<CountKeys>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<Acquire>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<AcquireMany>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<RenewMany>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<ReleaseMany>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<ListWaiters>(bytes))) << bytes;
    EXPECT_TRUE(protocol(answer<Await>(bytes))) << bytes;
  }
}

}  // namespace
}  // namespace fencekv
