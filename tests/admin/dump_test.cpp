// SPDX-License-Identifier: Apache-2.0
/// What fencekv-admin dump and stat show, and what they say to wrong arguments.
#include "engine/core/record.h"
#include "tests/admin/scene.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <sys/wait.h>
#include <thread>

namespace fencekv::admin_test {
namespace {

using namespace std::chrono_literals;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr Token kBig{9223372036854775806U};

/// A store with one of everything.
class Dumping : public testing::Test {
 protected:
  Dumping() {
    const auto store = open_store(directory_, {.unguarded_tokens = UnguardedTokens::any});
    const auto grant = store->acquire("nightly", "owner-of-the-test", 1h);
    token_ = (**grant).token;
    ok(store->set("report", "by the first", token_, {.lease = "nightly", .request = "req-7"}));
    ok(store->set("big", "x", kBig));
    ok(store->set("gone", "x", Token{5}));
    ok(store->remove("gone", Token{5}));
    ok(store->set("empty", "", Token{5}));
    ok(store->set("lines", "one\ntwo\t\"three\"\\", Token{5}));
    ok(store->set("umlaut/\xC3\xA4", "\xE2\x82\xAC", Token{5}));
    ok(store->set(std::string("\xFF\0key", 5), std::string("\x00\xFF\x1B[31m", 7), Token{5}));
    ok(store->execute(Raise{.key = "raised", .token = Token{6}, .lease = {}}));
    ok(store->acquire("done", "somebody", 1h));
    ok(store->execute(Revoke{.name = "done"}));
    ok(store->acquire("short", "somebody", 1ms));
    ok(store->acquire("given back", "somebody", 1h));
    ok(store->release("given back", "somebody", Token{4}));
  }

  template <class T>
  static void ok(const Result<T>& result) {
    if (!result) ADD_FAILURE() << result.error().line();
  }

  Dump dump(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"dump", "--dir", directory_.string()});
    const auto ended = run_admin(more);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_THAT(ended.err, IsEmpty());
    return parse_dump(ended.out);
  }

  const Folder folder_;
  const std::filesystem::path directory_ = folder_.path() / "store";
  Token token_;
};

TEST_F(Dumping, ShowsEverythingOfAKey) {
  const auto all = dump();

  const auto& report = all.keys.at("report");
  EXPECT_EQ(report["fence"], std::to_string(token_.number()));
  EXPECT_EQ(report["version"], "1");
  EXPECT_EQ(report["written_by"], std::to_string(token_.number()));
  EXPECT_EQ(report["guard"], "nightly");
  EXPECT_EQ(report["request"], "req-7");
  EXPECT_EQ(report["value"], nlohmann::json({{"text", "by the first"}}));
  EXPECT_GT(report["written"].get<std::int64_t>(), 1'600'000'000'000);
  EXPECT_EQ(all.keys.at("empty")["value"], nlohmann::json({{"text", ""}}));
  EXPECT_EQ(all.keys.at("lines")["value"]["text"], "one\ntwo\t\"three\"\\");
  EXPECT_EQ(all.keys.at("umlaut/\xC3\xA4")["value"]["text"], "\xE2\x82\xAC");
  EXPECT_FALSE(all.keys.at("big").contains("guard"));
}

TEST_F(Dumping, ShowsTombstonesAndRaisedKeys) {
  const auto all = dump();

  EXPECT_TRUE(all.keys.at("gone")["value"].is_null());
  EXPECT_EQ(all.keys.at("gone")["version"], "2");
  EXPECT_TRUE(all.keys.at("raised")["value"].is_null());
  EXPECT_EQ(all.keys.at("raised")["version"], "0");
  EXPECT_EQ(all.keys.at("raised")["fence"], "6");
}

TEST_F(Dumping, ShowsBigTokensAsStrings) {
  EXPECT_EQ(dump().keys.at("big")["fence"], "9223372036854775806");
}

TEST_F(Dumping, ShowsBinaryKeysAndValuesAsBase64) {
  const auto all = dump();

  const auto& binary = all.keys.at("base64:/wBrZXk=");
  EXPECT_FALSE(binary.contains("key"));
  EXPECT_EQ(binary["value"], nlohmann::json({{"base64", "AP8bWzMxbQ=="}}));
}

TEST_F(Dumping, ShowsHowLeasesStandAndNoOwner) {
  const auto ended = run_admin({"dump", directory_.string(), "--what", "leases"});
  const auto all = parse_dump(ended.out);

  EXPECT_THAT(all.keys, IsEmpty());
  ASSERT_EQ(all.leases.size(), 4U);
  const auto& held = all.leases.at("nightly");
  EXPECT_EQ(held["state"], "held");
  EXPECT_GT(held["remaining"].get<std::int64_t>(), 3'000'000);
  EXPECT_LE(held["remaining"].get<std::int64_t>(), 3'600'000);
  EXPECT_EQ(held["owner"], owner_fingerprint("owner-of-the-test"));
  EXPECT_EQ(all.leases.at("done")["state"], "revoked");
  EXPECT_EQ(all.leases.at("given back")["state"], "released");
  EXPECT_EQ(all.leases.at("short")["state"], "expired");
  EXPECT_TRUE(all.leases.at("short")["remaining"].is_null());
  EXPECT_THAT(ended.out, Not(HasSubstr("owner-of-the-test")));
  EXPECT_THAT(ended.out, Not(HasSubstr("somebody")));
}

TEST_F(Dumping, BeginsAndEndsSoThatACutOffDumpShows) {
  const auto all = dump();

  EXPECT_EQ(all.header["dump"], "fencekv");
  EXPECT_EQ(all.header["dump_format"], 2);
  EXPECT_EQ(all.header["format"], core::kFormat);
  EXPECT_EQ(all.header["incarnation"].get<std::string>().size(), 32U);
  EXPECT_EQ(all.header["newest"], "4");
  EXPECT_EQ(all.header["floor"], "0");
  EXPECT_EQ(all.header["live"], false);
  EXPECT_GT(all.header["created"].get<std::int64_t>(), 1'600'000'000'000);
  EXPECT_EQ(all.trailer,
            nlohmann::json(
                {{"kind", "end"}, {"keys", 6}, {"tombstones", 2}, {"leases", 4}, {"holders", 1}}));
  EXPECT_THAT(all.sha256, testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(all.sha256.size(), 64U);
}

TEST_F(Dumping, IsTheSameOnALiveStore) {
  const auto stopped = dump();
  const auto store = open_store(directory_);

  const auto live = dump();

  EXPECT_EQ(live.header["live"], true);
  EXPECT_EQ(live.header["incarnation"], stopped.header["incarnation"]);
  EXPECT_EQ(live.keys, stopped.keys);
  EXPECT_EQ(live.trailer, stopped.trailer);
}

TEST_F(Dumping, KeepsToAPrefix) {
  const auto some = dump({"--prefix", "g"});

  EXPECT_EQ(some.keys.size(), 1U);
  EXPECT_TRUE(some.keys.contains("gone"));
  EXPECT_EQ(some.leases.size(), 1U);
  EXPECT_TRUE(some.leases.contains("given back"));
  EXPECT_EQ(some.header["prefix"], "g");
  EXPECT_EQ(some.trailer["tombstones"], 1);
  EXPECT_EQ(dump({"--prefix", "\xFF"}).keys.size(), 1U);
  EXPECT_EQ(dump({"--prefix", "nothing"}).trailer["keys"], 0);
}

TEST_F(Dumping, ShowsValuesAsAsked) {
  EXPECT_EQ(dump({"--values", "base64"}).keys.at("report")["value"],
            nlohmann::json({{"base64", "YnkgdGhlIGZpcnN0"}}));
  EXPECT_EQ(dump({"--values", "none"}).keys.at("report")["value"], nlohmann::json({{"bytes", 12}}));
}

TEST_F(Dumping, IsATableOnRequest) {
  const auto ended = run_admin({"dump", directory_.string(), "--format", "table"});

  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, StartsWith("KEY "));
  EXPECT_THAT(ended.out, HasSubstr("by the first\n"));
  EXPECT_THAT(ended.out, HasSubstr("(deleted)\n"));
  EXPECT_THAT(ended.out, HasSubstr("(never written)\n"));
  EXPECT_THAT(ended.out, HasSubstr("\\xff\\x00key"));
  EXPECT_THAT(ended.out, HasSubstr("one\\x0atwo"));
  EXPECT_THAT(ended.out, HasSubstr("6 keys with a value, 2 without, 4 lease names, 1 holders\n"));
  EXPECT_EQ(ended.out.find('\x1B'), std::string::npos);
}

TEST_F(Dumping, LeavesAStoppedStoreByteIdentical) {
  const auto before = contents(directory_);

  EXPECT_EQ(run_admin({"dump", directory_.string()}).code, 0);
  EXPECT_EQ(run_admin({"stat", directory_.string()}).code, 0);
  EXPECT_EQ(run_admin({"verify", directory_.string()}).code, 0);

  EXPECT_EQ(contents(directory_), before);
}

TEST_F(Dumping, LeavesNothingBehind) {
  const auto scratch = folder_.path() / "scratch";
  std::filesystem::create_directory(scratch);
  const auto store = open_store(directory_);
  const auto before = settled_contents(directory_);

  EXPECT_EQ(run_admin({"dump", directory_.string()}, scratch).code, 0);
  EXPECT_EQ(run_admin({"verify", directory_.string()}, scratch).code, 0);

  EXPECT_TRUE(std::filesystem::is_empty(scratch));
  EXPECT_EQ(contents(directory_), before);
  EXPECT_TRUE(store->set("after", "x", token_));
}

TEST_F(Dumping, EndsWellWhenNobodyReads) {
  {
    const auto store = open_store(directory_);
    for (int i = 0; i < 200; ++i) {
      ok(store->set("long/" + std::to_string(i), std::string(10'000, 'x'), token_));
    }
  }
  const auto ended = run_shell(std::string(FENCEKV_ADMIN) + " dump " + directory_.string() +
                               " | head -1 > /dev/null; exit ${PIPESTATUS[0]}");
  EXPECT_EQ(ended, 0);
}

TEST_F(Dumping, SaysSoWhenTheOutputCannotBeWritten) {
  const auto program = std::string(FENCEKV_ADMIN) + " dump " + directory_.string();

  EXPECT_EQ(run_shell(program + " 2>/dev/null > /dev/full"), 8);
  EXPECT_EQ(run_shell(program + " 2>/dev/null >&-"), 8);
}

TEST_F(Dumping, StatTellsWhereTheStoreStands) {
  const auto stopped = run_admin({"stat", directory_.string(), "--format", "json"});
  const auto text = run_admin({"stat", directory_.string()});
  const auto store = open_store(directory_, {.durability = Durability::process});
  const auto live = run_admin({"stat", directory_.string(), "--format", "json"});

  ASSERT_EQ(stopped.code, 0) << stopped.err;
  auto json = nlohmann::json::parse(stopped.out);
  EXPECT_EQ(json["live"], false);
  EXPECT_EQ(json["clean"], true);
  EXPECT_EQ(json["same_boot"], true);
  EXPECT_EQ(json["durability"], "sync");
  EXPECT_EQ(json["newest"], "4");
  EXPECT_EQ(json["reserved"], "4");
  EXPECT_EQ(json["epoch"], "1");
  EXPECT_EQ(json["keys"], 6);
  EXPECT_EQ(json["tombstones"], 2);
  EXPECT_EQ(json["leases"], 4);
  EXPECT_GT(json["bytes"]["logs"].get<std::uint64_t>(), 0U);
  EXPECT_EQ(json["bytes"]["position"], 8192);
  EXPECT_THAT(text.out, HasSubstr("stopped cleanly"));
  json = nlohmann::json::parse(live.out);
  EXPECT_EQ(json["live"], true);
  EXPECT_EQ(json["durability"], "process");
  EXPECT_EQ(json["epoch"], "2");
  EXPECT_EQ(json["keys"], 6);
}

// --- leases of every kind ---------------------------------------------------------------------

/// A store in use, with leases of all modes in it.
class DumpingLeases : public testing::Test {
 protected:
  void SetUp() override {
    store_ = open_store(directory_);
    session_.emplace(*store_);
    take("readers", "secret-1", {.mode = LeaseMode::shared, .payload = "host \"a\""});  // 1
    take("readers", "secret-2", {.mode = LeaseMode::shared}, "10.0.0.1:4711");          // 2
    take("readers", "secret-3", {.mode = LeaseMode::shared});                           // 3
    ASSERT_TRUE(store_->release("readers", "secret-3", Token{3}));
    take("seats", "secret-4", {.mode = LeaseMode::permit, .permits = 3, .delay = 5s});  // 4
    take("seats", "secret-5", {.mode = LeaseMode::permit, .permits = 3});               // 5
    take("bound", "secret-6", {.bind = true, .payload = std::string("\xff\0", 2)});     // 6
    take("blocked", "secret-7", {.delay = 1h});                                         // 7
    ASSERT_TRUE(store_->execute(Revoke{.name = "blocked"}));
  }

  void take(const std::string& name, const std::string& owner, AcquireOptions options,
            std::string_view client = "") {
    Caller caller{.session = session_->id()};
    if (!client.empty()) caller.name = std::make_shared<const std::string>(client);
    const auto granted = store_->acquire(name, owner, 1h, std::move(options), caller);
    ASSERT_TRUE(granted && *granted) << name;
  }

  std::string dump_text(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"dump", "--dir", directory_.string(), "--what", "leases"});
    const auto ended = run_admin(more);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  }

  const Folder folder_;
  const std::filesystem::path directory_ = folder_.path() / "store";
  std::unique_ptr<Store> store_;
  std::optional<Session> session_;
};

TEST_F(DumpingLeases, ShowsEveryHolderInTheOrderOfTheTokens) {
  const auto all = parse_dump(dump_text());

  const auto& readers = all.leases.at("readers");
  EXPECT_EQ(readers["fence"], "3");
  EXPECT_EQ(readers["mode"], "shared");
  EXPECT_EQ(readers["state"], "released");
  EXPECT_TRUE(readers["remaining"].is_null());
  EXPECT_FALSE(readers.contains("permits"));
  ASSERT_EQ(readers["holders"].size(), 2U);
  const auto& first = readers["holders"][0];
  EXPECT_EQ(first["token"], "1");
  EXPECT_EQ(first["mode"], "shared");
  EXPECT_EQ(first["owner"], owner_fingerprint("secret-1"));
  EXPECT_EQ(first["client"], "embedded");
  EXPECT_EQ(first["payload"], "host \"a\"");
  EXPECT_EQ(first["ttl"], 3'600'000);
  EXPECT_GT(first["remaining"].get<std::int64_t>(), 3'000'000);
  EXPECT_LE(first["remaining"].get<std::int64_t>(), 3'600'000);
  EXPECT_EQ(readers["holders"][1]["token"], "2");
  EXPECT_EQ(readers["holders"][1]["client"], "10.0.0.1:4711");
  EXPECT_FALSE(readers["holders"][1].contains("payload"));

  const auto& seats = all.leases.at("seats");
  EXPECT_EQ(seats["mode"], "permit");
  EXPECT_EQ(seats["permits"], 3);
  EXPECT_EQ(seats["state"], "held");
  ASSERT_EQ(seats["holders"].size(), 2U);
  EXPECT_EQ(seats["holders"][0]["delay"], 5000);
  EXPECT_EQ(seats["holders"][1]["delay"], 0);
  EXPECT_EQ(all.trailer["leases"], 4);
  EXPECT_EQ(all.trailer["holders"], 5);
}

TEST_F(DumpingLeases, ShowsWhatIsBoundAndWhatIsBlocked) {
  const auto all = parse_dump(dump_text());

  const auto& bound = all.leases.at("bound");
  EXPECT_EQ(bound["bound"], true);
  EXPECT_EQ(bound["state"], "held");
  EXPECT_EQ(bound["payload_base64"], "/wA=");
  EXPECT_EQ(all.leases.at("seats")["bound"], false);
  const auto& blocked = all.leases.at("blocked");
  EXPECT_EQ(blocked["state"], "revoked");
  EXPECT_TRUE(blocked["holders"].empty());
  EXPECT_GT(blocked["blocked"].get<std::int64_t>(), 3'000'000);
  EXPECT_LE(blocked["blocked"].get<std::int64_t>(), 3'600'000);
  EXPECT_EQ(bound["blocked"], 0);
}

TEST_F(DumpingLeases, ShowsNoOwner) {
  EXPECT_THAT(dump_text(), Not(HasSubstr("secret")));
  EXPECT_THAT(dump_text({"--format", "table"}), Not(HasSubstr("secret")));
}

TEST_F(DumpingLeases, HasALineForEveryHolderInATable) {
  const auto table = dump_text({"--format", "table"});

  EXPECT_THAT(table, StartsWith("LEASE "));
  EXPECT_THAT(table, ContainsRegex("readers +3 +shared +released +- +- "));
  EXPECT_THAT(table, ContainsRegex("readers +2 +shared +held +[0-9]+ ms "));
  EXPECT_THAT(table, ContainsRegex("readers +1 +shared +held +[0-9]+ ms .*host \"a\""));
  EXPECT_THAT(table, ContainsRegex("seats +5 +permit of 3 +held "));
  EXPECT_THAT(table, ContainsRegex("seats +4 +permit of 3 +held .* 5000 ms "));
  EXPECT_THAT(table, ContainsRegex("bound +6 +exclusive, bound +held "));
  EXPECT_THAT(table, ContainsRegex("blocked +7 +exclusive +revoked +- +[0-9]+ ms "));
  EXPECT_THAT(table, HasSubstr("4 lease names, 5 holders\n"));
}

TEST_F(DumpingLeases, ABoundGrantOfAProcessThatDiedIsOver) {
  // What a server leaves that is killed now.
  const auto killed = folder_.path() / "killed";
  std::filesystem::copy(directory_, killed, std::filesystem::copy_options::recursive);

  const auto stopped = parse_dump(run_admin({"dump", killed.string()}).out);
  EXPECT_EQ(stopped.leases.at("bound")["state"], "disconnected");
  EXPECT_TRUE(stopped.leases.at("bound")["holders"].empty());
  EXPECT_EQ(stopped.leases.at("seats")["holders"].size(), 2U);

  // And another one that has opened it since knows so, before anybody asked for the name.
  const auto next = open_store(killed);
  const auto live = parse_dump(run_admin({"dump", killed.string()}).out);
  EXPECT_EQ(live.header["live"], true);
  EXPECT_EQ(live.leases.at("bound")["state"], "disconnected");
  EXPECT_EQ(live.leases.at("readers")["holders"].size(), 2U);
}

TEST_F(DumpingLeases, AnExpiryThatNobodyNoticedBlocksTheNameAllTheSame) {
  take("short", "secret-8", {.delay = 1h});
  ASSERT_TRUE(store_->renew("short", "secret-8", Token{8}, 1ms));
  std::this_thread::sleep_for(5ms);

  const auto lease = parse_dump(dump_text()).leases.at("short");

  EXPECT_EQ(lease["state"], "expired");
  EXPECT_GT(lease["blocked"].get<std::int64_t>(), 3'000'000);
  EXPECT_LE(lease["blocked"].get<std::int64_t>(), 3'600'000);
}

TEST_F(DumpingLeases, StatCountsThemOnRequest) {
  const auto counted = run_admin({"stat", directory_.string(), "--leases", "--format", "json"});
  const auto text = run_admin({"stat", directory_.string(), "--leases"});
  const auto quick = run_admin({"stat", directory_.string(), "--format", "json"});

  ASSERT_EQ(counted.code, 0) << counted.err;
  EXPECT_EQ(nlohmann::json::parse(counted.out)["held"], nlohmann::json({{"names", 3},
                                                                        {"holders", 5},
                                                                        {"exclusive", 1},
                                                                        {"shared", 2},
                                                                        {"permit", 2},
                                                                        {"bound", 1},
                                                                        {"blocked", 1}}));
  EXPECT_THAT(text.out, HasSubstr("3 names by 5 holders (1 exclusive, 2 shared, 2 permits; 1 "
                                  "bound), 1 names blocked\n"));
  EXPECT_FALSE(nlohmann::json::parse(quick.out).contains("held"));
}

TEST_F(DumpingLeases, AllOfThemAreSoundAndAnEndedFurtherGrantIsGone) {
  ASSERT_TRUE(store_->release("readers", "secret-1", Token{1}));
  const auto readers = parse_dump(dump_text()).leases.at("readers");
  ASSERT_EQ(readers["holders"].size(), 1U);
  EXPECT_EQ(readers["holders"][0]["token"], "2");

  const auto live = run_admin({"verify", directory_.string()});
  EXPECT_EQ(live.code, 0) << live.out;
  session_.reset();
  store_.reset();
  const auto stopped = run_admin({"verify", directory_.string()});
  EXPECT_EQ(stopped.code, 0) << stopped.out;
  EXPECT_THAT(stopped.out, HasSubstr(": no problems (0 keys with a value, 0 without, 4 lease"));
}

TEST(DumpingFormat1, ShowsItAndLeavesItAlone) {
  const Folder folder;
  const auto directory = folder.path() / "store";
  std::filesystem::copy(FENCEKV_SOURCE_DIR "/tests/golden/format-1", directory,
                        std::filesystem::copy_options::recursive);
  const auto before = contents(directory);

  const auto all = parse_dump(run_admin({"dump", directory.string()}).out);
  const auto stat = run_admin({"stat", directory.string(), "--format", "json"});

  EXPECT_EQ(all.header["format"], 1);
  EXPECT_EQ(all.leases.size(), 5U);
  EXPECT_EQ(all.leases.at("jobs/released")["state"], "released");
  EXPECT_EQ(nlohmann::json::parse(stat.out)["format"], 1);
  EXPECT_EQ(run_admin({"verify", directory.string()}).code, 0);
  EXPECT_EQ(contents(directory), before);
}

TEST(Arguments, ThatAreWrongGetOneLineAndCode2) {
  const Folder folder;
  const auto empty = folder.path() / "empty";
  std::filesystem::create_directory(empty);
  const auto other = folder.path() / "other";
  std::filesystem::create_directory(other);
  write_whole(other / "letter", "dear");
  const std::string long_path(10'000, 'x');

  const std::vector<std::vector<std::string>> wrong{
      {},
      {"frobnicate"},
      {"dump"},
      {"dump", "--dir", ""},
      {"dump", "--dir"},
      {"dump", "a", "b"},
      {"dump", "--dir", "a", "--dir", "b"},
      {"dump", "a", "--prefix", "x", "--prefix", "y"},
      {"dump", "a", "--format", "xml"},
      {"dump", "a", "--what", "everything"},
      {"dump", "a", "--values", "hex"},
      {"dump", "a", "--frobnicate"},
      {"stat", "a", "--prefix", "x"},
      {"stat", "a", "--format", "table"},
      {"verify", (folder.path() / "nowhere").string()},
      {"verify", empty.string()},
      {"dump", other.string()},
      {"stat", (other / "letter").string()},
      {"stat", (other / "letter" / "below").string()},
      {"stat", long_path},
      {"dump", "--dir", "/" + long_path + "/" + long_path},
      {"dump", "\x1B[31mred\n\xFF"},
      {"\x1B[31mred\n"},
  };
  for (const auto& arguments : wrong) {
    const auto ended = run_admin(arguments);
    const auto what = testing::PrintToString(arguments).substr(0, 300);
    EXPECT_EQ(ended.code, 2) << what << ended.err.substr(0, 300);
    EXPECT_THAT(ended.out, IsEmpty()) << what;
    EXPECT_THAT(ended.err, StartsWith("fencekv-admin: ")) << what;
    EXPECT_EQ(ended.err.find('\x1B'), std::string::npos) << what;
    EXPECT_LE(std::count(ended.err.begin(), ended.err.end(), '\n'), 2) << ended.err;
  }
  EXPECT_TRUE(std::filesystem::is_empty(empty));
}

TEST(Arguments, HelpNamesCommandsAndExitCodes) {
  const auto help = run_admin({"--help"});

  EXPECT_EQ(help.code, 0);
  for (const auto* word : {"dump", "stat", "verify", "Exit codes", "8 "}) {
    EXPECT_THAT(help.out, HasSubstr(word));
  }
  EXPECT_THAT(run_admin({"dump", "--help"}).out, HasSubstr("--prefix"));
  EXPECT_THAT(run_admin({"--version"}).out, StartsWith("fencekv-admin "));
}

}  // namespace
}  // namespace fencekv::admin_test
