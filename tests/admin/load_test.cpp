// SPDX-License-Identifier: Apache-2.0
/// fencekv-admin load: what a dump holds comes back, in a history of its own; what is no whole dump
/// leaves no store behind (engine/SEMANTICS.md, 5.9).

#include "engine/core/new_history.h"
#include "tests/admin/scene.h"
#include "tests/support/print.h"
#include "tests/support/sanitized.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::admin_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

template <class T>
std::string line_of(const Result<T>& result) {
  return result ? "OK" : result.error().line();
}

/// The seed of this run: FENCEKV_SEED, or a new one.
unsigned seed() {
  const char* given = std::getenv("FENCEKV_SEED");
  return given != nullptr ? static_cast<unsigned>(std::stoul(given)) : std::random_device()();
}

class Loading : public ::testing::Test {
 protected:
  std::string dump_of(const fs::path& directory) {
    const auto ended = run_admin({"dump", directory.string(), "--format", "json"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  }
  Ended load(std::string_view dump, const fs::path& directory) {
    write_whole(dump_file_, dump);
    return run_admin({"load", dump_file_.string(), directory.string()});
  }
  /// The dump is refused with words that say so, and nothing is left of the attempt.
  void expect_refused(std::string_view dump, const std::string& words, int code = 2) {
    const auto ended = load(dump, copy_);
    EXPECT_EQ(ended.code, code) << ended.err << ended.out;
    EXPECT_THAT(ended.err, HasSubstr(words));
    EXPECT_THAT(ended.out, IsEmpty());
    expect_nothing_left();
  }
  void expect_nothing_left() {
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      const auto name = entry.path().filename().string();
      EXPECT_TRUE(name == "dump" || name == "store") << name << " was left behind";
    }
  }

  const Folder folder_;
  const fs::path directory_ = folder_.path() / "store";
  const fs::path copy_ = folder_.path() / "copy";
  const fs::path dump_file_ = folder_.path() / "dump";
};

/// A random name: short ones, binary ones, and the longest.
std::string random_name(std::mt19937& random) {
  std::string name(random() % 20 == 0 ? 1024 : 1 + random() % 12, '\0');
  const bool is_binary = random() % 2 == 0;
  for (char& byte : name) {
    byte = static_cast<char>(is_binary ? random() : 'a' + random() % 26);
  }
  return name;
}

void fill_at_random(Store& store, std::mt19937& random) {
  std::vector<std::string> keys;
  std::vector<Token> tokens;
  for (int i = 0; i < 12; ++i) {
    const auto name = random_name(random);
    const auto grant =
        store.acquire(name, "owner", random() % 2 == 0 ? std::chrono::milliseconds(1h) : 1ms,
                      {.mode = random() % 4 == 0 ? LeaseMode::shared : LeaseMode::exclusive});
    if (grant && *grant) tokens.push_back((*grant)->token);
    if (random() % 4 == 0) static_cast<void>(store.execute(Revoke{.name = name}));
  }
  for (int i = 0; i < 200; ++i) {
    if (keys.empty() || random() % 2 == 0) keys.push_back(random_name(random));
    const auto& key = keys[random() % keys.size()];
    const Token token{random() % 3 == 0 ? std::uint64_t{1} << (random() % 63) : 1 + random() % 9};
    WriteOptions options;
    if (random() % 3 == 0) options.request = random_name(random).substr(0, 256);
    switch (random() % 4) {
      case 0:
        static_cast<void>(store.remove(key, token, options));
        break;
      case 1:
        static_cast<void>(store.execute(Raise{.key = key, .token = token, .lease = {}}));
        break;
      default: {
        std::string value(random() % 8 == 0 ? 100'000 : random() % 40, '\0');
        const bool is_binary = random() % 2 == 0;
        for (char& byte : value)
          byte = static_cast<char>(is_binary ? random() : 32 + random() % 95);
        static_cast<void>(store.set(key, value, token, options));
      }
    }
  }
  // Some are bound to a lease.
  const auto grant = store.acquire("guard", "owner", 1h);
  ASSERT_TRUE(grant && *grant) << line_of(grant);
  for (int i = 0; i < 5; ++i) {
    static_cast<void>(
        store.set("guarded-" + std::to_string(i), "v", (*grant)->token, {.lease = "guard"}));
  }
}

TEST_F(Loading, ADumpOfWhatWasLoadedIsTheSameButForItsHistory) {
  for (int round = 0; round < 3; ++round) {
    const auto number = seed();
    SCOPED_TRACE("FENCEKV_SEED=" + std::to_string(number));
    std::mt19937 random(number);
    fs::remove_all(directory_);
    fs::remove_all(copy_);
    {
      const auto store = open_store(directory_, {.unguarded_tokens = UnguardedTokens::any});
      ASSERT_NE(store, nullptr);
      fill_at_random(*store, random);
    }
    const auto before = dump_of(directory_);

    const auto loaded = load(before, copy_);
    ASSERT_EQ(loaded.code, 0) << loaded.err;

    const auto old = parse_dump(before);
    const auto now = parse_dump(dump_of(copy_));
    EXPECT_GT(old.keys.size(), 20U);
    EXPECT_EQ(now.keys, old.keys);
    EXPECT_THAT(now.leases, IsEmpty());
    EXPECT_EQ(now.trailer["keys"], old.trailer["keys"]);
    EXPECT_EQ(now.trailer["tombstones"], old.trailer["tombstones"]);
    EXPECT_NE(now.header["incarnation"], old.header["incarnation"]);
    const auto number_of = [](const nlohmann::json& text) {
      return std::stoull(text.get<std::string>());
    };
    EXPECT_GE(number_of(now.header["newest"]),
              number_of(old.header["reserved"]) + core::kTokensBetweenHistories);
    EXPECT_EQ(number_of(now.header["floor"]), number_of(now.header["newest"]) + 1);
    // Notes there may be: of tokens of an external allocator, and of guards that are void now.
    EXPECT_THAT(run_admin({"verify", copy_.string()}).out, HasSubstr(": 0 damaged, 0 problems"));
  }
}

TEST_F(Loading, NobodyFromBeforeMayWriteAndNoTokenComesTwice) {
  Token held;
  {
    const auto store = open_store(directory_);
    const auto grant = store->acquire("job", "me", 1h);
    held = (**grant).token;
    ASSERT_EQ(line_of(store->set("bound", "v", held, {.lease = "job"})), "OK");
    ASSERT_EQ(line_of(store->set("free", "v", held)), "OK");
  }
  ASSERT_EQ(load(dump_of(directory_), copy_).code, 0);

  const auto store = open_store(copy_);
  EXPECT_EQ(*store->get("bound"), "v");
  EXPECT_THAT(line_of(store->set("bound", "x", held, {.lease = "job"})), StartsWith("FENCED"));
  EXPECT_THAT(line_of(store->set("free", "x", held)), StartsWith("FENCED"));
  EXPECT_THAT(line_of(store->set("new", "x", held)), StartsWith("FENCED"));
  EXPECT_EQ(line_of(store->renew("job", "me", held, 1s)), "LEASELOST unknown");
  const auto next = store->acquire("job", "you", 1h);
  ASSERT_TRUE(next && *next) << line_of(next);
  EXPECT_GT((*next)->token.number(), held.number() + core::kTokensBetweenHistories);
  EXPECT_EQ(line_of(store->set("bound", "mine", (*next)->token, {.lease = "job"})), "OK");
}

TEST_F(Loading, ReadsStandardInputAndAnEmptyDirectory) {
  {
    const auto store = open_store(directory_, {.unguarded_tokens = UnguardedTokens::any});
    ASSERT_EQ(line_of(store->set("key", "value", Token{7})), "OK");
  }
  write_whole(dump_file_, dump_of(directory_));
  fs::create_directory(copy_);

  const auto out = folder_.path() / "dump.out";
  EXPECT_EQ(run_shell(std::string(FENCEKV_ADMIN) + " load - " + copy_.string() +
                      " --format json <" + dump_file_.string() + " >" + out.string()),
            0);

  const auto said = nlohmann::json::parse(read_whole(out));
  EXPECT_EQ(said["keys"], 1);
  EXPECT_EQ(said["checksum"], true);
  EXPECT_EQ(*open_store(copy_)->get("key"), "value");
}

// What an older version wrote: no checksum, and in layout 1 leases were all exclusive.
constexpr std::string_view kOldDump =
    R"({"dump":"fencekv","dump_format":1,"format":1,"incarnation":"00112233445566778899aabbccddeeff",)"
    R"("newest":"7","floor":"0","reserved":"65536","epoch":"1","position":"9","created":1,)"
    R"("live":false,"what":"all","prefix":""})"
    "\n"
    R"({"kind":"key","key":"a","fence":"7","version":"3","written_by":"7","written":1000,)"
    R"("guard":"job","request":"r","value":{"text":"x"}})"
    "\n"
    R"({"kind":"key","key":"b","fence":"9223372036854775807","version":"0","written_by":"0",)"
    R"("written":0,"value":null})"
    "\n"
    R"({"kind":"key","key_base64":"/wA=","fence":"2","version":"18446744073709551615",)"
    R"("written_by":"2","written":0,"value":{"base64":"AP8="}})"
    "\n"
    R"({"kind":"lease","name":"job","fence":"7","mode":"exclusive","state":"held","remaining":5,)"
    R"("ttl":10,"owner":"0a0a0a0a","client":"here"})"
    "\n"
    R"({"kind":"end","keys":2,"tombstones":1,"leases":1})"
    "\n";

TEST_F(Loading, TakesTheFirstLayoutAndSaysThatItHasNoChecksum) {
  const auto loaded = load(kOldDump, copy_);

  ASSERT_EQ(loaded.code, 0) << loaded.err;
  EXPECT_THAT(loaded.out, HasSubstr("no checksum"));
  EXPECT_THAT(loaded.out, HasSubstr("before 00112233445566778899aabbccddeeff"));
  const auto now = parse_dump(dump_of(copy_));
  EXPECT_EQ(now.header["newest"],
            std::to_string(std::uint64_t{65536} + core::kTokensBetweenHistories));
  EXPECT_EQ(now.keys.at("a")["request"], "r");
  EXPECT_EQ(now.keys.at("b")["fence"], "9223372036854775807");
  EXPECT_EQ(now.keys.at("base64:/wA=")["version"], "18446744073709551615");
}

std::string replaced(std::string_view text, std::string_view what, std::string_view with) {
  std::string changed(text);
  const auto at = changed.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  if (at != std::string::npos) changed.replace(at, what.size(), with);
  return changed;
}

TEST_F(Loading, RefusesWhatIsWrongWithItsLineAndLeavesNothing) {
  struct Case {
    std::string_view what;
    std::string_view with;
    std::string_view line;
    std::string_view words;
  };
  using namespace std::string_view_literals;
  const std::vector<Case> cases{
      {R"("dump":"fencekv")", R"("dump":"other")", "1", "no dump in JSON lines"},
      {R"("dump_format":1)", R"("dump_format":0)", "1", "dump_format"},
      {R"("dump_format":1)", R"("dump_format":1e400)", "1", "not JSON"},
      {R"("what":"all")", R"("what":"leases")", "1", "void"},
      {R"("prefix":"")", R"("prefix":"a")", "1", "prefix"},
      {R"("newest":"7")", R"("newest":"9223372036854775808")", "1", "newest"},
      {R"("newest":"7")", R"("newest":7)", "1", "newest"},
      {R"("newest":"7",)", "", "1", "newest"},
      {R"("fence":"7")", R"("fence":"0")", "2", "fence"},
      {R"("fence":"7")", R"("fence":"07")", "2", "fence"},
      {R"("fence":"7")", R"("fence":"-7")", "2", "fence"},
      {R"("fence":"7")", R"("fence":"99999999999999999999999999999")", "2", "fence"},
      {R"("fence":"7")", R"("fence":"7","fence":"8")", "2", "twice"},
      {R"("version":"3")", R"("version":"18446744073709551616")", "2", "version"},
      {R"("version":"3")", R"("version":"0")", "2", "version is 0"},
      {R"("written_by":"7")", R"("written_by":"0")", "2", "by no token"},
      {R"("written":1000)", R"("written":-1)", "2", "written"},
      {R"("written":1000)", R"("written":9223372036854775808)", "2", "out of range"},
      {R"("guard":"job")", R"("guard":"")", "2", "guard"},
      {R"({"text":"x"})", R"({"bytes":1})", "2", "left out"},
      {R"({"text":"x"})", R"("x")", "2", "value"},
      {R"({"text":"x"})", R"({"text":{"text":"x"}})", "2", "too deeply"},
      {R"({"text":"x"})", R"({"text":"x","base64":"eA=="})", "2", "twice"},
      {R"({"text":"x"})", "{\"text\":\"\xFF\"}", "2", "not JSON"},
      {R"({"text":"x"})", "{\"text\":\"\0\"}"sv, "2", "not JSON"},
      {R"({"text":"x"})", R"({"text":"\ud800"})", "2", "not JSON"},
      {R"("key":"a")", R"("key":"")", "2", "0 bytes"},
      {R"("key":"a")", R"("key":"a","key_base64":"YQ==")", "2", "both"},
      {R"("key":"b")", R"("key":"a")", "3", "a is there twice"},
      {R"("key":"b")", R"("key":"0")", "3", "order"},
      {R"("key_base64":"/wA=")", R"("key_base64":"/wA")", "4", "base64"},
      {R"("key_base64":"/wA=")", R"("key_base64":"/wB=")", "4", "base64"},
      {R"("key_base64":"/wA=")", R"("key_base64":" /wA")", "4", "base64"},
      {R"("key_base64":"/wA=")", R"("key_base64":"====")", "4", "base64"},
      {R"("kind":"lease")", R"("kind":"other")", "5", "kind"},
      {R"("name":"job")", R"("name":"")", "5", "0 bytes"},
      {R"("keys":2)", R"("keys":3)", "6", "counts 3 keys, but 2"},
      {R"("tombstones":1)", R"("tombstones":0)", "6", "tombstones"},
      {R"("prefix":"")", R"("prefix":"","digest":"sha256")", "6", "sha256"},
      {R"("prefix":"")", R"("prefix":"","digest":"other")", "1", "digest"},
      {"\"leases\":1}\n", "\"leases\":1}\nmore", "7", "something else"},
      {R"({"kind":"key","key":"b")", R"([{"kind":"key","key":"b")", "3", "not an object"},
      {"\n", "\n\n", "2", "not JSON"},
  };
  for (const auto& [what, with, line, words] : cases) {
    SCOPED_TRACE(std::string(what) + " -> " + std::string(with));
    expect_refused(replaced(kOldDump, what, with),
                   dump_file_.string() + ":" + std::string(line) + ": ");
    expect_refused(replaced(kOldDump, what, with), std::string(words));
  }
  expect_refused(replaced(kOldDump, R"("dump_format":1)", R"("dump_format":3)"), "newer", 5);
  expect_refused("", ":1: the dump was cut off");
  expect_refused(
      "\x7f"
      "ELF",
      ":1: ");
}

TEST_F(Loading, RefusesADumpThatWasCutAnywhereOrChangedAnywhere) {
  {
    const auto store = open_store(directory_, {.unguarded_tokens = UnguardedTokens::any});
    const auto grant = store->acquire("job", "me", 1h);
    for (const auto* key : {"a", "b", "c"}) {
      ASSERT_EQ(line_of(store->set(key, "the value of it", (*grant)->token)), "OK");
    }
  }
  const auto whole = dump_of(directory_);
  ASSERT_THAT(whole, HasSubstr("sha256"));

  // At every end of a line, and around it; and at random places.
  std::vector<std::size_t> cuts;
  for (std::size_t at = 0; at + 2 < whole.size(); ++at) {
    if (whole[at] == '\n') cuts.insert(cuts.end(), {at, at + 1, at + 2});
  }
  const auto number = seed();
  SCOPED_TRACE("FENCEKV_SEED=" + std::to_string(number));
  std::mt19937 random(number);
  for (int i = 0; i < 20; ++i) cuts.push_back(random() % (whole.size() - 2));
  for (const auto cut : cuts) {
    SCOPED_TRACE("cut at byte " + std::to_string(cut));
    expect_refused(std::string_view(whole).substr(0, cut), "cut off");
  }

  for (int i = 0; i < 60; ++i) {
    const auto at = random() % whole.size();
    SCOPED_TRACE("byte " + std::to_string(at) + " flipped");
    auto changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ (1 << random() % 8));
    const auto ended = load(changed, copy_);
    EXPECT_NE(ended.code, 0) << ended.out;
    EXPECT_THAT(ended.err, HasSubstr(dump_file_.string()));
    expect_nothing_left();
  }
}

TEST_F(Loading, NeedsLittleMemoryForWhateverALineIs) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer reserves more address space than the limit";
  // 1 GiB each, where the whole process may have 900 MiB.
  const auto refused = [&](const std::string& source) {
    const auto err = folder_.path() / "store";
    const auto code = run_shell("ulimit -v 921600; (" + source + ") 2>/dev/null | " +
                                FENCEKV_ADMIN + " load - " + copy_.string() + " 2>" + err.string());
    EXPECT_EQ(code, 2);
    const auto said = read_whole(err);
    fs::remove(err);
    expect_nothing_left();
    return said;
  };
  const std::string line_2 = "printf '%s\\n' '" +
                             std::string(kOldDump.substr(0, kOldDump.find('\n'))) +
                             "'; printf '{\"kind\":\"key\",\"key\":\"'; ";
  EXPECT_THAT(refused("head -c 1G /dev/zero"), HasSubstr("standard input:1: it has more than"));
  EXPECT_THAT(refused(line_2 + "head -c 1G /dev/zero | tr '\\0' a"),
              HasSubstr("standard input:2: it has more than"));
  EXPECT_THAT(refused("head -c 100M /dev/zero | tr '\\0' '['; echo"),
              HasSubstr("standard input:1: "));
  EXPECT_THAT(refused("printf '{\"dump\":'; head -c 100M /dev/zero | tr '\\0' '['; echo"),
              HasSubstr("too deeply"));
}

TEST_F(Loading, KeepsOutOfADirectoryThatIsInUse) {
  fs::create_directory(copy_);
  write_whole(copy_ / "precious", "x");
  auto ended = load(kOldDump, copy_);
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(copy_.string()), HasSubstr("precious"),
                               Not(HasSubstr(dump_file_.string()))));
  EXPECT_EQ(read_whole(copy_ / "precious"), "x");

  fs::remove(copy_ / "precious");
  const auto store = open_store(copy_);
  ended = load(kOldDump, copy_);
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(line_of(store->get("a")), "OK");

  EXPECT_EQ(load(kOldDump, folder_.path() / "nowhere" / "copy").code, 2);
  ended = run_admin({"load", (folder_.path() / "none").string(), copy_.string()});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("none: No such file"));
  EXPECT_EQ(run_admin({"load", folder_.path().string(), copy_.string()}).code, 2);
}

}  // namespace
}  // namespace fencekv::admin_test
