// SPDX-License-Identifier: Apache-2.0
/// The parts of the server that need no socket: patterns, cursors, queues of events, options, and
/// what the command table says about itself.

#include "server/buffer_budget.h"
#include "server/commands/arguments.h"
#include "server/commands/command_table.h"
#include "server/commands/cursor_table.h"
#include "server/commands/glob.h"
#include "server/commands/listing.h"
#include "server/event_queue.h"
#include "server/machine_memory.h"
#include "server/options.h"
#include "server/password.h"
#include "tests/support/temporary_directory.h"

#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <variant>
#include <vector>

namespace fencekv::server {
namespace {

using fencekv::testing::TemporaryDirectory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- Glob ----------------------------------------------------------------------------------

struct GlobCase {
  std::string_view pattern;
  std::string_view text;
  bool matches;
};

TEST(Glob, ReadsPatternsAsRedisDoes) {
  using namespace std::string_view_literals;
  const GlobCase cases[] = {
      {"", "", true},
      {"", "a", false},
      {"*", "", true},
      {"*", "anything", true},
      {"**", "anything", true},
      {"a", "a", true},
      {"a", "b", false},
      {"a", "ab", false},
      {"a*", "abc", true},
      {"*c", "abc", true},
      {"*b*", "abc", true},
      {"*d*", "abc", false},
      {"a*c*e", "abcde", true},
      {"a*c*e", "abcdef", false},
      {"*ab", "aab", true},
      {"*aab", "aaab", true},
      {"h?llo", "hello", true},
      {"h?llo", "hllo", false},
      {"?", "", false},
      {"??", "ab", true},
      {"h[ae]llo", "hallo", true},
      {"h[ae]llo", "hillo", false},
      {"h[^e]llo", "hallo", true},
      {"h[^e]llo", "hello", false},
      {"h[a-c]llo", "hbllo", true},
      {"h[c-a]llo", "hbllo", true},
      {"h[a-c]llo", "hdllo", false},
      {"[a-]", "-", true},
      {"[\\]]", "]", true},
      {"[\\^a]", "^", true},
      {"[abc", "c", true},
      {"[", "a", false},
      {"\\*", "*", true},
      {"\\*", "a", false},
      {"\\**", "*abc", true},
      {"\\*\\*", "**", true},
      {"\\\\*", "\\abc", true},
      {"\\", "\\", true},
      {"a\\?", "a?", true},
      {"a\\?", "ab", false},
      {"*\0*"sv, "a\0b"sv, true},
      {"\xff*", "\xff\xfe", true},
      {"[\x80-\xff]", "\x90", true},
      {"[>-**-Z]", "A", true},  // From > to *, and from * to Z.
      {"[>-*-Z]", "A", false},
  };
  for (const GlobCase& one : cases) {
    EXPECT_EQ(Glob(one.pattern).matches(one.text), one.matches)
        << "pattern " << one.pattern << " text " << one.text;
  }
}

TEST(Glob, TakesNoMoreThanPatternTimesTextSteps) {
  std::string pattern;
  while (pattern.size() + 2 < Glob::kMaxBytes) pattern += "a*";
  pattern += 'b';
  const std::string text(1024, 'a');

  std::size_t steps = 0;
  EXPECT_FALSE(Glob(pattern).matches(text, steps));

  EXPECT_LT(steps, 4 * pattern.size() * text.size());
}

TEST(Glob, StopsAPageWhosePatternCostsTooMuchAndGoesOnThere) {
  // Each comparison fails late: the tail after the star never fits.
  std::string pattern = "*";
  pattern += std::string(500, 'a') + "b";
  Page<std::string> page;
  for (int i = 0; i < 200; ++i) page.items.push_back(std::string(1000, 'a') + std::to_string(i));
  page.next = page.items.back();
  ScanRequest request;
  request.pattern.emplace(pattern);

  const auto selection =
      select(page, request, [](const std::string& key) -> const std::string& { return key; });

  EXPECT_TRUE(selection.items.empty());
  ASSERT_TRUE(selection.next);
  EXPECT_NE(selection.next, page.next);
  EXPECT_THAT(page.items, ::testing::Contains(*selection.next));
}

// ---- CursorTable ---------------------------------------------------------------------------

TEST(CursorTable, AnswersAPositionAsOftenAsItIsAsked) {
  CursorTable table;
  const auto cursor = std::to_string(table.remember(Listing::keys, "k7"));

  for (int i = 0; i < 2; ++i) {
    const auto position = table.position(Listing::keys, cursor);
    ASSERT_TRUE(position);
    EXPECT_EQ(*position, "k7");
  }
}

TEST(CursorTable, BeginsAtZero) {
  CursorTable table;
  const auto position = table.position(Listing::keys, "0");
  ASSERT_TRUE(position);
  EXPECT_EQ(*position, std::nullopt);
}

TEST(CursorTable, KeepsTheNewestAndRefusesOlderOnes) {
  CursorTable table;
  const auto oldest = std::to_string(table.remember(Listing::keys, "old"));
  const auto second = std::to_string(table.remember(Listing::keys, "second"));
  for (std::size_t i = 0; i < CursorTable::kCapacity - 1; ++i) table.remember(Listing::keys, "new");

  const auto evicted = table.position(Listing::keys, oldest);
  ASSERT_FALSE(evicted);
  EXPECT_THAT(evicted.error().line(), HasSubstr("ERR invalid cursor"));
  EXPECT_THAT(evicted.error().line(), HasSubstr("start again with 0"));
  const auto kept = table.position(Listing::keys, second);
  ASSERT_TRUE(kept);
  EXPECT_EQ(*kept, "second");
}

TEST(CursorTable, RefusesWhatIsNoCursorOfTheListing) {
  CursorTable table;
  const auto lease_cursor = std::to_string(table.remember(Listing::leases, "a"));
  for (const std::string& text :
       {lease_cursor, std::string("1"), std::string("-1"), std::string("9223372036854775808"),
        std::string("18446744073709551615"), std::string("18446744073709551616"),
        std::string("abc"), std::string(""), std::string("00"), std::string("+0")}) {
    EXPECT_FALSE(table.position(Listing::keys, text)) << text;
  }
}

TEST(CursorTable, HandsOutGrowingNumbersThatJavaScriptReadsExactly) {
  CursorTable table;
  std::uint64_t previous = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto cursor = table.remember(Listing::keys, "k");
    EXPECT_GT(cursor, previous);
    EXPECT_LT(cursor, std::uint64_t{1} << 53);
    previous = cursor;
  }
}

// ---- EventQueue ----------------------------------------------------------------------------

/// A queue whose executor runs when the test says so.
class EventQueueTest : public ::testing::Test {
 protected:
  EventQueueTest()
      : queue_(std::make_shared<EventQueue>(context_.get_executor(), [this] { ++woken_; })) {}

  void add(LeaseChange change, const std::string& name, std::uint64_t token) {
    queue_->add({change, name, Token{token}});
  }
  /// Delivers the messages under way; returns how often the queue has woken its connection so far.
  int woken() {
    context_.restart();
    context_.run();
    return woken_;
  }

  boost::asio::io_context context_;
  int woken_ = 0;
  std::shared_ptr<EventQueue> queue_;
};

TEST(BufferBudget, AddsUpWhatConnectionsHoldBeyondWhatIsFree) {
  constexpr std::size_t kMuch = BufferShare::kFreeBytes + 1;
  BufferBudget budget(2 * kMuch);
  BufferShare one(budget);
  {
    BufferShare two(budget);
    BufferShare three(budget);
    one.set(kMuch);
    two.set(kMuch);
    EXPECT_FALSE(budget.is_exceeded()) << "as much as there may be";
    three.set(BufferShare::kFreeBytes);
    EXPECT_FALSE(budget.is_exceeded()) << "little costs nothing";
    three.set(kMuch);
    EXPECT_TRUE(budget.is_exceeded());
    two.set(10);
    EXPECT_FALSE(budget.is_exceeded()) << "given back";
    one.set(2 * kMuch);
    EXPECT_TRUE(budget.is_exceeded());
  }
  EXPECT_FALSE(budget.is_exceeded()) << "ended connections hold nothing";
}

TEST_F(EventQueueTest, GivesEventsInOrderAndWakesOnceForAll) {
  queue_->open();
  add(LeaseChange::granted, "a", 1);
  add(LeaseChange::released, "a", 1);
  add(LeaseChange::granted, "b", 2);

  EXPECT_EQ(woken(), 1);
  EXPECT_TRUE(queue_->has_events());
  const std::vector<LeaseEvent> expected = {{LeaseChange::granted, "a", Token{1}},
                                            {LeaseChange::released, "a", Token{1}},
                                            {LeaseChange::granted, "b", Token{2}}};
  EXPECT_EQ(queue_->take(), expected);
  EXPECT_FALSE(queue_->has_events());
  add(LeaseChange::expired, "b", 2);
  EXPECT_EQ(woken(), 2);
}

TEST_F(EventQueueTest, TellsOneMissedForANameWithTheNewestTokenOnceItIsFull) {
  queue_->open();
  for (std::size_t i = 1; i <= EventQueue::kMaxEvents; ++i) add(LeaseChange::granted, "a", i);
  for (std::uint64_t token = 5000; token < 9000; ++token) {
    add(LeaseChange::granted, token % 2 == 0 ? "even" : "odd", token);
  }
  // Ends of older grants come late.
  add(LeaseChange::expired, "even", 7);

  const auto events = queue_->take();

  ASSERT_EQ(events.size(), EventQueue::kMaxEvents + 2);
  EXPECT_EQ(events[EventQueue::kMaxEvents - 1].change, LeaseChange::granted);
  EXPECT_EQ(events[EventQueue::kMaxEvents], (LeaseEvent{LeaseChange::missed, "even", Token{8998}}));
  EXPECT_EQ(events.back(), (LeaseEvent{LeaseChange::missed, "odd", Token{8999}}));
  add(LeaseChange::granted, "even", 9000);
  EXPECT_EQ(queue_->take().front(), (LeaseEvent{LeaseChange::granted, "even", Token{9000}}))
      << "what was taken has made room";
}

TEST_F(EventQueueTest, IsFullByBytesToo) {
  queue_->open();
  const std::string name(1024, 'n');
  for (std::uint64_t token = 1; token <= 1020; ++token) add(LeaseChange::granted, name, token);

  const auto events = queue_->take();

  EXPECT_LT(events.size(), 1020U);
  EXPECT_GT(events.size(), 900U);
  EXPECT_EQ(events.back(), (LeaseEvent{LeaseChange::missed, name, Token{1020}}));
}

TEST_F(EventQueueTest, DropsEventsWhileItIsClosed) {
  add(LeaseChange::granted, "a", 1);
  EXPECT_FALSE(queue_->has_events());
  queue_->open();
  add(LeaseChange::granted, "a", 2);
  queue_->close();
  add(LeaseChange::granted, "a", 3);
  EXPECT_FALSE(queue_->has_events());
}

TEST_F(EventQueueTest, WakesNobodyAfterTheEndOfItsConnection) {
  queue_->open();
  add(LeaseChange::granted, "a", 1);
  queue_->disconnect();
  add(LeaseChange::granted, "a", 2);
  EXPECT_EQ(woken(), 0);
}

// ---- Options -------------------------------------------------------------------------------

std::variant<ServerOptions, EarlyExit> parsed(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "fencekv-server");
  std::vector<const char*> words;
  for (const std::string& flag : flags) words.push_back(flag.c_str());
  return parse_options(static_cast<int>(words.size()), words.data());
}

/// The text of the refusal; empty: it was accepted.
std::string refusal(const std::vector<std::string>& flags) {
  const auto result = parsed(flags);
  const auto* exit = std::get_if<EarlyExit>(&result);
  if (exit == nullptr) return {};
  EXPECT_EQ(exit->code, ExitCode::usage);
  return exit->text;
}

TEST(ServerOptions, HasTheDocumentedDefaults) {
  const auto result = parsed({"--dir", "/d"});
  const auto& options = std::get<ServerOptions>(result);

  EXPECT_EQ(options.dir, "/d");
  EXPECT_EQ(options.bind, "127.0.0.1");
  EXPECT_EQ(options.port, 7433);
  EXPECT_EQ(options.max_connections, 10000U);
  EXPECT_EQ(options.max_buffer_bytes, std::size_t{1} << 30U);
  EXPECT_EQ(options.idle_timeout.count(), 0);
  EXPECT_EQ(options.store.durability, Durability::sync);
  EXPECT_EQ(options.store.unguarded_tokens, UnguardedTokens::issued);
  EXPECT_EQ(options.store.max_value_bytes, 16U * 1024 * 1024);
  EXPECT_EQ(options.store.max_waiting, 200'000U);
  EXPECT_EQ(options.store.memory_budget, default_memory_budget());
  EXPECT_EQ(options.store.fence_cache_bytes, std::nullopt);
  EXPECT_EQ(options.store.read_cache_bytes, std::nullopt);
  EXPECT_EQ(options.store.fence_retention, std::chrono::hours(24 * 7));
  EXPECT_EQ(options.store.reclaim_interval, std::chrono::hours(1));
}

TEST(ServerOptions, ReadsEveryFlag) {
  const auto result = parsed({"--dir",
                              "/d",
                              "--bind",
                              "::1",
                              "--port",
                              "-1",
                              "--unix",
                              "/s",
                              "--durability",
                              "process",
                              "--unguarded-tokens",
                              "any",
                              "--max-value-bytes",
                              "1000",
                              "--max-waiting",
                              "50",
                              "--fence-retention-s",
                              "60",
                              "--reclaim-interval-s",
                              "0",
                              "--max-buffer-bytes",
                              "2000000",
                              "--memory-budget",
                              "16777216",
                              "--read-cache-bytes",
                              "8192",
                              "--fence-cache-bytes",
                              "4096",
                              "--io-threads",
                              "3",
                              "--max-connections",
                              "7",
                              "--idle-timeout-ms",
                              "1500",
                              "--log-level",
                              "error",
                              "--password-file",
                              "/p",
                              "--check-config"});
  const auto& options = std::get<ServerOptions>(result);

  EXPECT_EQ(options.bind, "::1");
  EXPECT_EQ(options.port, -1);
  EXPECT_EQ(options.unix_path, "/s");
  EXPECT_EQ(options.store.durability, Durability::process);
  EXPECT_EQ(options.store.unguarded_tokens, UnguardedTokens::any);
  EXPECT_EQ(options.store.max_value_bytes, 1000U);
  EXPECT_EQ(options.store.max_waiting, 50U);
  EXPECT_EQ(options.store.fence_retention, std::chrono::seconds(60));
  EXPECT_EQ(options.store.reclaim_interval, std::chrono::seconds(0));
  EXPECT_EQ(options.io_threads, 3U);
  EXPECT_EQ(options.max_connections, 7U);
  EXPECT_EQ(options.max_buffer_bytes, 2'000'000U);
  EXPECT_EQ(options.store.memory_budget, 16'777'216U);
  EXPECT_EQ(options.store.fence_cache_bytes, 4096U);
  EXPECT_EQ(options.store.read_cache_bytes, 8192U);
  EXPECT_EQ(options.idle_timeout.count(), 1500);
  EXPECT_EQ(options.log_level, LogThreshold::error);
  EXPECT_EQ(options.password_file, "/p");
  EXPECT_TRUE(options.check_config);
}

TEST(ServerOptions, LeaveAProcessorToTheCommitsThatNeedOne) {
  EXPECT_EQ(default_io_threads(Durability::process, 1), 1U);
  EXPECT_EQ(default_io_threads(Durability::process, 2), 1U);
  EXPECT_EQ(default_io_threads(Durability::process, 3), 2U);
  EXPECT_EQ(default_io_threads(Durability::sync, 1), 2U);
  EXPECT_EQ(default_io_threads(Durability::sync, 64), 2U);
  const auto threads = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--dir", "/d"});
    return std::get<ServerOptions>(parsed(more)).io_threads;
  };
  const auto processors = std::thread::hardware_concurrency();
  EXPECT_EQ(threads({}), default_io_threads(Durability::sync, processors));
  EXPECT_EQ(threads({"--durability", "process"}),
            default_io_threads(Durability::process, processors));
  EXPECT_EQ(threads({"--durability", "process", "--io-threads", "5"}), 5U);
}

TEST(ServerOptions, RefusesWhatIsWrongAndSaysWhatWasExpected) {
  EXPECT_THAT(refusal({}), HasSubstr("--dir"));
  EXPECT_THAT(refusal({"--dir", "/d", "--port", "65536"}), HasSubstr("--port: expected a port"));
  EXPECT_THAT(refusal({"--dir", "/d", "--port", "-2"}), HasSubstr("expected a port"));
  EXPECT_THAT(refusal({"--dir", "/d", "--port", "0x10"}), HasSubstr("expected a port"));
  EXPECT_THAT(refusal({"--dir", "/d", "--durability", "yes"}), HasSubstr("sync or process"));
  EXPECT_THAT(refusal({"--dir", "/d", "--unguarded-tokens", "x"}), HasSubstr("any, issued or"));
  EXPECT_THAT(refusal({"--dir", "/d", "--max-value-bytes", "0"}), HasSubstr("from 1 to"));
  EXPECT_THAT(refusal({"--dir", "/d", "--max-waiting", "-1"}), HasSubstr("from 0 to"));
  EXPECT_THAT(refusal({"--dir", "/d", "--max-buffer-bytes", "1000"}), HasSubstr("from 1048576 to"));
  EXPECT_THAT(refusal({"--dir", "/d", "--max-value-bytes", "1e6"}), HasSubstr("whole number"));
  EXPECT_THAT(refusal({"--dir", "/d", "--memory-budget", "16777215"}), HasSubstr("from 16777216"));
  EXPECT_THAT(refusal({"--dir", "/d", "--memory-budget", "1G"}), HasSubstr("whole number"));
  EXPECT_THAT(refusal({"--dir", "/d", "--fence-cache-bytes", "-1"}), HasSubstr("from 0 to"));
  EXPECT_THAT(refusal({"--dir", "/d", "--scrub-interval-s", "31536001"}), HasSubstr("from 0 to"));
  EXPECT_THAT(refusal({"--dir", "/d", "--log-level", "loud"}), HasSubstr("debug, note"));
  EXPECT_THAT(refusal({"--dir", "/d", "--bind", "example.org"}), HasSubstr("IP address"));
  EXPECT_THAT(refusal({"--dir", "/d", "--unix", std::string(108, 'x')}), HasSubstr("107 bytes"));
  EXPECT_THAT(refusal({"--dir", "/d", "--port", "-1"}), HasSubstr("nothing to listen on"));
  EXPECT_NE(refusal({"--dir", "/d", "--nonsense"}), "");
  EXPECT_NE(refusal({"--dir", "/d", "--port", "1", "--port", "2"}), "");
  EXPECT_NE(refusal({"--dir", "/d", "word"}), "");
  EXPECT_NE(refusal({"--dir"}), "");
}

TEST(ServerOptions, RefusesToServeStrangersWithoutAPassword) {
  EXPECT_THAT(refusal({"--dir", "/d", "--bind", "0.0.0.0"}), HasSubstr("--password-file"));
  EXPECT_THAT(refusal({"--dir", "/d", "--bind", "::"}), HasSubstr("--password-file"));
  EXPECT_THAT(refusal({"--dir", "/d", "--bind", "192.0.2.1"}), HasSubstr("--password-file"));
  EXPECT_EQ(refusal({"--dir", "/d", "--bind", "0.0.0.0", "--password-file", "/p"}), "");
  EXPECT_EQ(refusal({"--dir", "/d", "--bind", "127.1.2.3"}), "");
  EXPECT_EQ(refusal({"--dir", "/d", "--bind", "::1"}), "");
  EXPECT_EQ(refusal({"--dir", "/d", "--bind", "::ffff:127.0.0.1"}), "");
  EXPECT_EQ(refusal({"--dir", "/d", "--bind", "localhost"}), "");
  EXPECT_EQ(refusal({"--dir", "/d", "--bind", "0.0.0.0", "--port", "-1", "--unix", "/s"}), "");
}

class ConfigFile : public ::testing::Test {
 protected:
  std::string write(std::string_view text) {
    const auto path = directory_.path() / "fencekv.toml";
    std::ofstream(path) << text;
    return path.string();
  }

 private:
  TemporaryDirectory directory_;
};

TEST_F(ConfigFile, HasTheNamesOfTheFlagsAndFlagsWin) {
  const auto file = write(
      "dir = \"/from-file\"\nport = 0\nmax_value_bytes = 123\nunguarded_tokens = \"refuse\"\n"
      "idle_timeout_ms = 9\nmemory_budget = 20000000\nread_cache_bytes = 0\n"
      "soft_disk_floor = 5\nscrub_interval_s = 6\nscrub_rate = 7\n");

  const auto result = parsed({"--config", file, "--port", "77"});
  const auto marked = write(
      "\xef\xbb\xbf"
      "dir = \"/marked\"\n");
  EXPECT_EQ(std::get<ServerOptions>(parsed({"--config", marked})).dir, "/marked");
  const auto umlaut = write("dir = \"/\xc3\xa4 \\\" #\" # \xc3\xb6\n");
  EXPECT_EQ(std::get<ServerOptions>(parsed({"--config", umlaut})).dir, "/\xc3\xa4 \" #");
  const auto long_text = write("dir = \"\"\"\n/\xc3\xa4 \\\n   \xd2\x8c\"\"\"\n");
  EXPECT_EQ(std::get<ServerOptions>(parsed({"--config", long_text})).dir, "/\xc3\xa4 \xd2\x8c");
  const auto& options = std::get<ServerOptions>(result);

  EXPECT_EQ(options.dir, "/from-file");
  EXPECT_EQ(options.port, 77);
  EXPECT_EQ(options.store.max_value_bytes, 123U);
  EXPECT_EQ(options.store.unguarded_tokens, UnguardedTokens::refuse);
  EXPECT_EQ(options.idle_timeout.count(), 9);
  EXPECT_EQ(options.store.memory_budget, 20'000'000U);
  EXPECT_EQ(options.store.read_cache_bytes, 0U);
  EXPECT_EQ(options.store.soft_disk_floor, 5U);
  EXPECT_EQ(options.store.scrub_interval, std::chrono::seconds(6));
  EXPECT_EQ(options.store.scrub_bytes_per_second, 7U);
}

TEST_F(ConfigFile, NamesTheLineOfWhatIsWrong) {
  const auto error = [&](std::string_view text) { return refusal({"--config", write(text)}); };
  const std::string ok = "dir = \"/d\"\n";

  EXPECT_THAT(error(ok + "# note\nprot = 1\n"), HasSubstr("fencekv.toml:3: unknown key 'prot'"));
  EXPECT_THAT(error(ok + "port = \"1\"\n"), HasSubstr(":2: port: expected an integer"));
  EXPECT_THAT(error(ok + "port = 1.5\n"), HasSubstr(":2: port: expected an integer"));
  EXPECT_THAT(error(ok + "bind = 5\n"), HasSubstr(":2: bind: expected a string"));
  EXPECT_THAT(error(ok + "\nport = 70000\n"), HasSubstr(":3: port: expected a port"));
  EXPECT_THAT(error(ok + "io_threads = -1\n"), HasSubstr(":2: io_threads: expected a whole"));
  EXPECT_THAT(error(ok + "port = \n"), HasSubstr("fencekv.toml:2: "));
  EXPECT_THAT(error(ok + "dir = \"/e\"\n"), HasSubstr("fencekv.toml:2: "));
  EXPECT_THAT(error(ok + "[section]\nport = 1\n"), HasSubstr("unknown key 'section'"));
  // Wherever a letter stands that is not ASCII.
  for (const std::string_view line :
       {"gr\xc3\xb6\xc3\x9f"
        "e = 1",
        "port = 1 \xd2\x8c", "port = 1\xd2\x8c", "port\xd2\x8c= 1", "\xe3\x82\xa2 = 1",
        "port = -'\xd2\x8c", "port = 19-\"\xd2\x8c\""}) {
    EXPECT_THAT(error(ok + std::string(line) + "\n"), HasSubstr("fencekv.toml:2: ")) << line;
  }
  EXPECT_THAT(error(std::string(2'000'000, '#')), HasSubstr("longer than"));
  for (const std::string_view header : {"[?]", "[=]", "[\n", "[[#]]", "[.a]"}) {
    EXPECT_THAT(error(ok + std::string(header) + "\n"), HasSubstr("fencekv.toml:2: ")) << header;
  }
  EXPECT_THAT(error(ok + "config = \"x\"\n"), HasSubstr("unknown key 'config'"));
  EXPECT_THAT(refusal({"--config", "/nonexistent/file"}), HasSubstr("/nonexistent/file"));
}

// ---- Password ------------------------------------------------------------------------------

class PasswordFile : public ::testing::Test {
 protected:
  Result<Password> read(std::string_view text, mode_t mode = 0600) {
    const auto path = directory_.path() / "password";
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return Password::read(path);
  }

 private:
  TemporaryDirectory directory_;
};

TEST_F(PasswordFile, IsItsFirstLine) {
  for (const std::string_view text : {"secret", "secret\n", "secret\r\n", "secret\nmore\n"}) {
    const auto password = read(text);
    ASSERT_TRUE(password) << text;
    EXPECT_TRUE(password->is_set());
    EXPECT_TRUE(password->matches("secret"));
    EXPECT_FALSE(password->matches("secret\n"));
    EXPECT_FALSE(password->matches("Secret"));
    EXPECT_FALSE(password->matches(""));
  }
}

TEST_F(PasswordFile, IsRefusedIfOthersMayReadItOrItIsEmpty) {
  EXPECT_THAT(read("secret", 0640).error().detail(), HasSubstr("chmod 600"));
  EXPECT_THAT(read("secret", 0604).error().detail(), HasSubstr("chmod 600"));
  EXPECT_THAT(read("").error().detail(), HasSubstr("is empty"));
  EXPECT_THAT(read("\nsecret").error().detail(), HasSubstr("is empty"));
  EXPECT_THAT(read(std::string(513, 'x')).error().detail(), HasSubstr("longer than 512"));
  EXPECT_FALSE(Password::read("/nonexistent/password"));
}

// ---- The command table ---------------------------------------------------------------------

std::vector<const CommandSpec*> with_subcommands() {
  std::vector<const CommandSpec*> all;
  for (const CommandSpec* spec : all_commands()) {
    all.push_back(spec);
    for (const CommandSpec& subcommand : spec->subcommands) all.push_back(&subcommand);
  }
  return all;
}

TEST(CommandTable, DescribesEveryCommandInFull) {
  std::set<std::string_view> names;
  for (const CommandSpec* spec : with_subcommands()) {
    EXPECT_TRUE(names.insert(spec->name).second) << spec->name << " is there twice";
    EXPECT_NE(spec->arity, 0) << spec->name;
    EXPECT_FALSE(spec->summary.empty()) << spec->name;
    EXPECT_EQ(spec->summary.back(), '.') << spec->name;
    EXPECT_FALSE(spec->group.empty()) << spec->name;
    EXPECT_TRUE(spec->handler != nullptr || !spec->subcommands.empty()) << spec->name;
    for (const char letter : spec->name) EXPECT_FALSE(letter >= 'A' && letter <= 'Z');
    EXPECT_EQ(find_command(spec->name), spec);
  }
}

TEST(CommandTable, HasTheArityThatItsArgumentsSay) {
  for (const CommandSpec* spec : with_subcommands()) {
    if (!spec->subcommands.empty()) continue;
    int needed = 1 + static_cast<int>(std::count(spec->name.begin(), spec->name.end(), '|'));
    bool open = false;
    for (const Argument& argument : spec->arguments) {
      if (argument.optional || argument.multiple) open = true;
      if (argument.optional) continue;
      needed += argument.type == ArgumentType::block ? static_cast<int>(argument.parts.size()) : 1;
      // A oneof of words with values: the word and its value.
      if (argument.type == ArgumentType::oneof &&
          argument.parts.front().type != ArgumentType::pure_token) {
        ++needed;
      }
    }
    // These take more than they document, to refuse it with a better text, or like Redis.
    const std::set<std::string_view> lenient = {
        "quit", "client|kill", "client|capa", "client|tracking", "config|set", "cluster"};
    if (lenient.contains(spec->name)) {
      EXPECT_LT(spec->arity, 0) << spec->name;
      continue;
    }
    EXPECT_EQ(spec->arity, open ? -needed : needed) << spec->name << ": " << usage(*spec);
  }
}

TEST(CommandTable, FindsCommandsInAnyCase) {
  EXPECT_EQ(find_command("FENCE.SET"), find_command("fence.set"));
  EXPECT_EQ(find_command("fEnCe.SeT")->name, "fence.set");
  EXPECT_EQ(find_command("fence.se"), nullptr);
  EXPECT_EQ(find_command(""), nullptr);
  EXPECT_EQ(find_command(std::string(100'000, 'g')), nullptr);
  EXPECT_EQ(find_subcommand(*find_command("client"), "SetName")->name, "client|setname");
  EXPECT_EQ(find_subcommand(*find_command("client"), "id|"), nullptr);
}

std::vector<std::string_view> keys(std::vector<std::string_view> request) {
  const auto found = keys_of(*find_command(request[0]), request);
  return found ? *found : std::vector<std::string_view>{"(refused)"};
}

TEST(CommandTable, FindsTheKeysOfARequest) {
  EXPECT_THAT(keys({"fence.set", "k", "1", "v"}), ElementsAre("k"));
  EXPECT_THAT(keys({"mget", "a", "b", "c"}), ElementsAre("a", "b", "c"));
  EXPECT_THAT(keys({"fence.mset", "1", "2", "a", "1", "b", "2"}), ElementsAre("a", "b"));
  EXPECT_THAT(keys({"fence.mset", "1", "1", "a", "1", "LEASE", "l"}), ElementsAre("a"));
  EXPECT_THAT(keys({"lease.macquire", "2", "a", "b", "me", "1000"}), ElementsAre("a", "b"));
  EXPECT_THAT(keys({"lease.macquire", "1", "a", "me", "1000", "WAIT", "5"}), ElementsAre("a"));
  EXPECT_THAT(keys({"lease.mrenew", "1000", "2", "a", "me", "1", "b", "me", "2"}),
              ElementsAre("a", "b"));
  EXPECT_THAT(keys({"lease.mrelease", "2", "a", "me", "1", "b", "me", "2"}), ElementsAre("a", "b"));
  EXPECT_THAT(keys({"lease.watch", "a", "b"}), ElementsAre("a", "b"));
  EXPECT_THAT(keys({"lease.wait", "a", "0", "5"}), ElementsAre("a"));
  EXPECT_THAT(keys({"lease.unwatch"}), ElementsAre());
  EXPECT_THAT(keys({"ping"}), ElementsAre());
  for (const std::string_view count :
       {"3", "0", "-1", "x", "1025", "2147483648", "9223372036854775807", "18446744073709551615"}) {
    EXPECT_THAT(keys({"fence.mset", "1", count, "a", "1", "b", "2"}), ElementsAre("(refused)"));
    EXPECT_THAT(keys({"lease.mrelease", count, "a", "me", "1", "b", "me"}),
                ElementsAre("(refused)"));
  }
  EXPECT_THAT(keys({"mget"}), ElementsAre("(refused)"));
}

TEST(CommandTable, SurvivesKeysOfAnyNumberOfArguments) {
  const std::vector<std::string_view> many(12, "2");
  for (const CommandSpec* spec : with_subcommands()) {
    for (std::size_t size = 1; size <= many.size(); ++size) {
      const auto found = keys_of(*spec, std::span(many).first(size));
      if (!found) continue;
      EXPECT_LT(found->size(), size);
    }
  }
}

TEST(CommandTable, TellsWhatToUseInsteadOfAPlainWrite) {
  EXPECT_THAT(std::string(advice_for("SET")), HasSubstr("FENCE.SET"));
  EXPECT_THAT(std::string(advice_for("del")), HasSubstr("FENCE.DEL"));
  EXPECT_EQ(advice_for("nonsense"), "");
  for (const std::string_view name :
       {"setex", "incr", "expire", "hset", "flushall", "eval", "multi", "subscribe"}) {
    EXPECT_NE(advice_for(name), "") << name;
    EXPECT_EQ(find_command(name), nullptr) << name << " is refused and in the table";
  }
}

/// PROTOCOL.md has one table row for each command: | `USAGE` | arity | …
std::map<std::string, int> documented_arities() {
  std::ifstream file(FENCEKV_PROTOCOL_MD);
  std::map<std::string, int> arities;
  const std::regex row(R"(^\| `([^`]+)` \| (-?[0-9]+) \|.*)");
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    // A bar inside a table has to be written `\\|`.
    if (std::regex_match(line, match, row)) {
      arities[std::regex_replace(match[1].str(), std::regex(R"(\\\|)"), "|")] = std::stoi(match[2]);
    }
  }
  return arities;
}

TEST(ProtocolManual, HasEveryCommandOfTheTableAndNoOther) {
  std::map<std::string, int> expected;
  for (const CommandSpec* spec : with_subcommands()) {
    if (spec->handler != nullptr) expected[usage(*spec)] = spec->arity;
  }
  EXPECT_EQ(documented_arities(), expected);
}

TEST(ProtocolManual, ExplainsEveryErrorCode) {
  std::stringstream text;
  text << std::ifstream(FENCEKV_PROTOCOL_MD).rdbuf();
  for (int code = 0; code < static_cast<int>(Errc::in_use); ++code) {
    if (code > static_cast<int>(Errc::corrupt)) break;
    const std::string row = "\n| `" + std::string(to_string(static_cast<Errc>(code)));
    EXPECT_THAT(text.str(), HasSubstr(row));
  }
}

}  // namespace
}  // namespace fencekv::server
