// SPDX-License-Identifier: Apache-2.0
/// The real server over raw sockets: what it answers, what it refuses, and how it ends.

#include "server/commands/command_table.h"
#include "tests/support/raw_client.h"
#include "tests/support/sanitized.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace fencekv::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::string_view kPassword = "canary-password-1f7c";

class ServerTest : public ::testing::Test {
 protected:
  /// Starts a server on the test's directory, with more flags.
  ServerProcess& start(std::vector<std::string> more = {},
                       std::optional<unsigned> open_files = std::nullopt) {
    std::vector<std::string> flags = {"--dir", store_directory()};
    if (std::find(more.begin(), more.end(), "--port") == more.end()) {
      flags.insert(flags.end(), {"--port", "0"});
    }
    flags.insert(flags.end(), more.begin(), more.end());
    server_ = std::make_unique<ServerProcess>(
        ServerProcess::Start{.flags = std::move(flags), .open_files = open_files});
    port_ = server_->wait_ready();
    EXPECT_NE(port_, 0) << server_->log();
    return *server_;
  }

  void stop() {
    server_->signal(SIGTERM);
    EXPECT_EQ(server_->wait_exit(), 0) << server_->log();
  }

  RawClient connect() const { return RawClient(port_); }
  std::string store_directory() const { return (directory_.path() / "store").string(); }
  std::string path(std::string_view name) const { return (directory_.path() / name).string(); }

  std::string password_file(std::string_view text = kPassword, mode_t mode = 0600) const {
    std::ofstream(path("password")) << text << "\n";
    ::chmod(path("password").c_str(), mode);
    return path("password");
  }

  /// A server with the flags, which is expected to refuse to start.
  void expect_exit(int code, const std::vector<std::string>& flags, std::string_view why) const {
    ServerProcess process({.flags = flags});
    EXPECT_EQ(process.wait_exit(), code) << why << ": " << process.log();
    EXPECT_EQ(process.next_line(), "") << why;
    EXPECT_THAT(process.log(), HasSubstr(std::string(why)));
  }

  TemporaryDirectory directory_;
  std::unique_ptr<ServerProcess> server_;
  std::uint16_t port_ = 0;
};

// ---- What bad input gets -------------------------------------------------------------------

TEST_F(ServerTest, AnswersBadInputWithOneLineAndGoesOn) {
  start({"--max-value-bytes", "1000"});
  auto client = connect();
  ASSERT_EQ(client.ask({"LEASE.ACQUIRE", "job", "me", "600000"}), "[$1, :600000]");
  ASSERT_EQ(client.ask({"FENCE.SET", "k", "1", "v"}), ":1");
  const std::string before = client.ask({"FENCE.INFO", "k"});
  const std::string long_name(1025, 'n');

  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      // Numbers that are no plain decimals.
      {{"FENCE.SET", "k", "+1", "x"}, "-ERR invalid token '+1', expected"},
      {{"FENCE.SET", "k", " 1", "x"}, "-ERR invalid token '\\x201', expected"},
      {{"FENCE.SET", "k", "1.0", "x"}, "-ERR invalid token"},
      {{"FENCE.SET", "k", "1e3", "x"}, "-ERR invalid token"},
      {{"FENCE.SET", "k", "0x1", "x"}, "-ERR invalid token"},
      {{"FENCE.SET", "k", "01", "x"}, "-ERR invalid token"},
      {{"FENCE.SET", "k", "", "x"}, "-ERR invalid token ''"},
      {{"FENCE.SET", "k", "-1", "x"}, "-ERR invalid token"},
      {{"FENCE.SET", "k", "1\n", "x"}, "-ERR invalid token '1\\x0a'"},
      {{"FENCE.SET", "k", "0", "x"}, "-ERR invalid token '0', expected a decimal number from 1"},
      {{"FENCE.SET", "k", "9223372036854775808", "x"}, "-ERR invalid token"},
      {{"FENCE.SET", "k", "18446744073709551617", "x"}, "-ERR invalid token"},
      {{"FENCE.DEL", "k", "0"}, "-ERR invalid token"},
      {{"FENCE.MSET", "0", "1", "k", "x"}, "-ERR invalid token"},
      {{"FENCE.RAISE", "k", "0"}, "-ERR invalid token"},
      {{"FENCE.GET", "k", "TOKEN", "0"}, "-ERR invalid token"},
      {{"FENCE.RESET", "k", "0"}, "-ERR invalid token"},
      {{"LEASE.RENEW", "job", "me", "0", "1000"}, "-ERR invalid token"},
      {{"LEASE.RELEASE", "job", "me", "x"}, "-ERR invalid token"},
      {{"FENCE.SET", "k", "1", "x", "IFVER", "-1"}, "-ERR invalid version"},
      {{"FENCE.SET", "k", "1", "x", "IFVER", "1.0"}, "-ERR invalid version"},
      {{"FENCE.REJECTIONS", "COUNT", "0"}, "-ERR invalid count"},
      {{"FENCE.REJECTIONS", "COUNT", "all"}, "-ERR invalid count"},
      // The largest token there is, which nobody issued.
      {{"FENCE.SET", "k", "9223372036854775807", "x"}, "-UNISSUED 1 9223372036854775807"},
      // Keys, names, owners, values.
      {{"FENCE.SET", "", "1", "x"}, "-ERR"},
      {{"FENCE.SET", long_name, "1", "x"}, "-ERR"},
      {{"FENCE.DEL", long_name, "1"}, "-ERR"},
      {{"FENCE.GET", long_name}, "-ERR"},
      {{"FENCE.INFO", ""}, "-ERR"},
      {{"FENCE.RAISE", "", "1"}, "-ERR"},
      {{"FENCE.RESET", "", "1"}, "-ERR"},
      {{"GET", long_name}, "-ERR"},
      {{"MGET", "k", ""}, "-ERR"},
      {{"FENCE.SET", "k", "1", "x", "LEASE", ""}, "-ERR"},
      {{"FENCE.SET", "k", "1", "x", "LEASE", long_name}, "-ERR"},
      {{"FENCE.SET", "k", "1", "x", "REQ", ""}, "-ERR"},
      {{"FENCE.SET", "k", "1", "x", "REQ", std::string(257, 'r')}, "-ERR"},
      {{"FENCE.RESET", "k", "1", "GUARD", ""}, "-ERR"},
      {{"LEASE.ACQUIRE", "", "me", "1000"}, "-ERR"},
      {{"LEASE.ACQUIRE", long_name, "me", "1000"}, "-ERR"},
      {{"LEASE.ACQUIRE", "job", "", "1000"}, "-ERR"},
      {{"LEASE.ACQUIRE", "job", std::string(257, 'o'), "1000"}, "-ERR"},
      {{"LEASE.INFO", long_name}, "-ERR"},
      {{"LEASE.REVOKE", ""}, "-ERR"},
      {{"FENCE.SET", "k", "1", std::string(1001, 'v')}, "-TOOBIG"},
      {{"FENCE.MSET", "1", "2", "a", "x", "b", std::string(1001, 'v')}, "-TOOBIG"},
      // Options.
      {{"FENCE.SET", "k", "1", "x", "NX"},
       "-ERR syntax error: unexpected 'NX', expected FENCE.SET"},
      {{"FENCE.SET", "k", "1", "x", "ONCE", "ONCE"}, "-ERR syntax error: ONCE is given twice"},
      {{"FENCE.SET", "k", "1", "x", "REQ", "a", "req", "b"},
       "-ERR syntax error: REQ is given twice"},
      {{"FENCE.SET", "k", "1", "x", "LEASE"}, "-ERR syntax error: LEASE without its name"},
      {{"FENCE.SET", "k", "1", "x", "IFVER"}, "-ERR syntax error: IFVER without its version"},
      {{"FENCE.SET", "k", "1", "x", "LIVE"}, "-ERR"},
      {{"FENCE.DEL", "k", "1", "ONCE"}, "-ERR syntax error: unexpected 'ONCE', expected FENCE.DEL"},
      {{"FENCE.MSET", "1", "1", "k", "x", "IFVER", "1"}, "-ERR syntax error: unexpected 'IFVER'"},
      {{"FENCE.GET", "k", "LEASE", "job"}, "-ERR syntax error: LEASE without TOKEN"},
      {{"FENCE.GET", "k", "TOKEN"}, "-ERR syntax error: TOKEN without its token"},
      {{"FENCE.RESET", "k", "1", "GUARD", "a", "NOGUARD"}, "-ERR syntax error: NOGUARD and GUARD"},
      {{"SCAN", "0", "COUNT", "1", "COUNT", "1"}, "-ERR syntax error: COUNT is given twice"},
      {{"SCAN", "0", "COUNT", "0"}, "-ERR invalid count"},
      {{"SCAN", "0", "COUNT", "-1"}, "-ERR invalid count"},
      {{"SCAN", "0", "MATCH", std::string(1025, '*')}, "-ERR the pattern has 1025 bytes"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "WAIT"}, "-ERR syntax error: WAIT without its ms"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "WAIT", "-1"}, "-ERR invalid wait '-1'"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "WAIT", "1.5"}, "-ERR invalid wait '1.5'"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "WAIT", "86400001"}, "-ERR invalid wait"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "WAIT", "5", "WAIT", "5"},
       "-ERR syntax error: WAIT is given twice"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "SHARED", "PERMITS", "2"},
       "-ERR syntax error: PERMITS and SHARED exclude each other"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "PERMITS"},
       "-ERR syntax error: PERMITS without its count"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "PERMITS", "0"}, "-ERR invalid number of permits '0'"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "PERMITS", "1000001"}, "-ERR invalid number of"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "PERMITS", "two"}, "-ERR invalid number of permits"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "BIND", "bind"}, "-ERR syntax error: BIND is given"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "DELAY"}, "-ERR syntax error: DELAY without its ms"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "DELAY", "604800001"}, "-ERR invalid delay"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "DELAY", "+1"}, "-ERR invalid delay"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "PAYLOAD"},
       "-ERR syntax error: PAYLOAD without its bytes"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "PAYLOAD", std::string(1025, 'p')}, "-ERR"},
      {{"LEASE.ACQUIRE", "j", "me", "1000", "NX"},
       "-ERR syntax error: unexpected 'NX', expected LEASE.ACQUIRE name owner ttl-ms [WAIT ms]"},
      // Several names.
      {{"LEASE.MACQUIRE", "0", "a", "me", "1000"}, "-ERR invalid number of names '0'"},
      {{"LEASE.MACQUIRE", "-1", "a", "me", "1000"}, "-ERR invalid number of names"},
      {{"LEASE.MACQUIRE", "1025", "a", "me", "1000"}, "-ERR invalid number of names"},
      {{"LEASE.MACQUIRE", "18446744073709551615", "a", "me", "1000"}, "-ERR invalid number of"},
      {{"LEASE.MACQUIRE", "2", "a", "me", "1000"},
       "-ERR syntax error: fewer than 2 names, owner and ttl, expected LEASE.MACQUIRE numnames"},
      {{"LEASE.MACQUIRE", "2", "a", "a", "me", "1000"}, "-ERR"},
      {{"LEASE.MACQUIRE", "2", "a", "", "me", "1000"}, "-ERR"},
      {{"LEASE.MACQUIRE", "1", "a", "me", "x"}, "-ERR invalid ttl"},
      {{"LEASE.MACQUIRE", "1", "a", "", "1000"}, "-ERR"},
      {{"LEASE.MACQUIRE", "1", "a", "me", "1000", "WAIT", "x"}, "-ERR invalid wait"},
      {{"LEASE.MACQUIRE", "1", "a", "me", "1000", "SHARED"},
       "-ERR syntax error: unexpected 'SHARED', expected LEASE.MACQUIRE"},
      {{"LEASE.MRENEW", "1000", "1", "job", "me"}, "-ERR wrong number of arguments"},
      {{"LEASE.MRENEW", "1000", "2", "job", "me", "1"},
       "-ERR syntax error: fewer than 2 times name, owner and token, expected LEASE.MRENEW"},
      {{"LEASE.MRENEW", "1000", "1", "job", "me", "1", "x"}, "-ERR syntax error: unexpected 'x'"},
      {{"LEASE.MRENEW", "0", "1", "job", "me", "1"}, "-ERR invalid ttl"},
      {{"LEASE.MRENEW", "1000", "0", "job", "me", "1"}, "-ERR invalid number of leases"},
      {{"LEASE.MRENEW", "1000", "1025", "job", "me", "1"}, "-ERR invalid number of leases"},
      {{"LEASE.MRENEW", "1000", "2", "job", "me", "1", "job", "me", "x"}, "-ERR invalid token 'x'"},
      {{"LEASE.MRENEW", "1000", "2", "job", "me", "1", "", "me", "1"}, "-ERR"},
      {{"LEASE.MRELEASE", "2", "job", "me", "1", "job", "me", "0"}, "-ERR invalid token '0'"},
      {{"LEASE.MRELEASE", "2", "job", "me", "1", long_name, "me", "1"}, "-ERR"},
      {{"LEASE.MRELEASE", "2", "job", "me", "1", "job", "", "1"}, "-ERR"},
      {{"LEASE.MRELEASE", "1", "job", "me", "1", "FORCE"}, "-ERR syntax error: unexpected 'FORCE'"},
      // Looking and waiting.
      {{"LEASE.WAITERS", ""}, "-ERR"},
      {{"LEASE.WAITERS", long_name}, "-ERR"},
      {{"LEASE.WAIT", "job", "x", "5"}, "-ERR invalid token 'x', expected a decimal number from 1"},
      {{"LEASE.WAIT", "job", "00", "5"}, "-ERR invalid token"},
      {{"LEASE.WAIT", "job", "9223372036854775808", "5"}, "-ERR invalid token"},
      {{"LEASE.WAIT", "job", "1", "-5"}, "-ERR invalid timeout '-5'"},
      {{"LEASE.WAIT", "job", "1", "86400001"}, "-ERR invalid timeout"},
      {{"LEASE.WAIT", "", "1", "5"}, "-ERR"},
      {{"LEASE.WATCH"}, "-ERR wrong number of arguments for 'lease.watch' command"},
      {{"LEASE.WATCH", "job"}, "-ERR changes are told by the pushes of RESP3"},
      {{"LEASE.UNWATCH"}, "-ERR changes are told by the pushes of RESP3"},
      {{"LEASE.UNWATCH", "job"}, "-ERR wrong number of arguments"},
      // A missing lease.
      {{"FENCE.SET", "k", "1", "x", "LEASE", "nowhere"}, "-NOLEASE nowhere"},
      {{"FENCE.SET", "k", "1", "x", "LEASE", "no where\r\n"}, "-NOLEASE no\\x20where\\x0d\\x0a"},
      {{"LEASE.RENEW", "nowhere", "me", "1", "1000"}, "-LEASELOST unknown"},
      {{"LEASE.REVOKE", "nowhere"}, "-LEASELOST unknown"},
      // Times.
      {{"LEASE.ACQUIRE", "j", "me", "0"}, "-ERR invalid ttl '0', expected"},
      {{"LEASE.ACQUIRE", "j", "me", "-5"}, "-ERR invalid ttl"},
      {{"LEASE.ACQUIRE", "j", "me", "604800001"}, "-ERR invalid ttl"},
      {{"LEASE.ACQUIRE", "j", "me", "99999999999999999999"}, "-ERR invalid ttl"},
      {{"LEASE.RENEW", "job", "me", "1", "0"}, "-ERR invalid ttl"},
      // Numbers of arguments and keys.
      {{"FENCE.SET", "k", "1"}, "-ERR wrong number of arguments for 'fence.set' command"},
      {{"FENCE.SET"}, "-ERR wrong number of arguments for 'fence.set' command"},
      {{"LEASE.RELEASE", "job", "me", "1", "x"}, "-ERR wrong number of arguments"},
      {{"GET"}, "-ERR wrong number of arguments for 'get' command"},
      {{"GET", "a", "b"}, "-ERR wrong number of arguments for 'get' command"},
      {{"FENCE.MSET", "1", "2", "a", "x"}, "-ERR"},
      {{"FENCE.MSET", "1", "0", "a", "x"}, "-ERR invalid number of keys"},
      {{"FENCE.MSET", "1", "-1", "a", "x"}, "-ERR invalid number of keys"},
      {{"FENCE.MSET", "1", "1025", "a", "x"}, "-ERR invalid number of keys"},
      {{"FENCE.MSET", "1", "9223372036854775807", "a", "x"}, "-ERR invalid number of keys"},
      {{"FENCE.MSET", "1", "2", "a", "x", "a", "y"}, "-ERR"},
      // Cursors.
      {{"SCAN", "9223372036854775808"}, "-ERR invalid cursor"},
      {{"SCAN", "18446744073709551616"}, "-ERR invalid cursor"},
      {{"SCAN", "-1"}, "-ERR invalid cursor"},
      {{"SCAN", "abc"}, "-ERR invalid cursor"},
      {{"LEASE.SCAN", "12345"}, "-ERR invalid cursor '12345'"},
      // Writes without a token, and what is not there.
      {{"SET", "k", "v"}, "-ERR a write needs a token: use FENCE.SET key token value"},
      {{"SET"}, "-ERR a write needs a token: use FENCE.SET"},
      {{"DEL", "k"}, "-ERR a delete needs a token: use FENCE.DEL key token"},
      {{"setex", "k", "1", "v"}, "-ERR a write needs a token: use FENCE.SET"},
      {{"INCR", "k"}, "-ERR a write needs a token: use FENCE.SET"},
      {{"MSET", "k", "v"}, "-ERR a write needs a token: use FENCE.MSET"},
      {{"EXPIRE", "k", "1"}, "-ERR keys do not expire"},
      {{"HSET", "k", "f", "v"}, "-ERR values are strings"},
      {{"FLUSHALL"}, "-ERR keys are deleted one by one"},
      {{"EVAL", "return 1", "0"}, "-ERR scripts are not supported"},
      {{"MULTI"}, "-ERR transactions are not supported"},
      {{"SUBSCRIBE", "c"}, "-ERR publish and subscribe are not supported"},
      {{"SYNC"}, "-ERR this server does not replicate"},
      {{"CLUSTER", "NODES"}, "-ERR This instance has cluster support disabled"},
      {{"READONLY"}, "-ERR This instance has cluster support disabled"},
      {{"SENTINEL", "MASTERS"},
       "-ERR unknown command 'SENTINEL', with args beginning with: 'MASTERS' "},
      {{"NO\r\nSUCH", "a\nb"}, "-ERR unknown command 'NO\\x0d\\x0aSUCH'"},
      {{"CLIENT", "NOSUCH"}, "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP."},
      {{"CLIENT"}, "-ERR wrong number of arguments for 'client' command"},
      {{"CLIENT|ID"}, "-ERR unknown command"},
      {{"CLIENT", "SETNAME", "a b"}, "-ERR Client names cannot contain spaces"},
      {{"CLIENT", "TRACKING", "ON"}, "-ERR client side caching is not supported"},
      {{"SELECT", "1"}, "-ERR DB index is out of range"},
      {{"SELECT", "x"}, "-ERR value is not an integer or out of range"},
      {{"HELLO", "4"}, "-NOPROTO unsupported protocol version"},
      {{"HELLO", "x"}, "-ERR Protocol version is not an integer"},
      {{"HELLO", "2", "NOSUCH"}, "-ERR Syntax error in HELLO option 'NOSUCH'"},
      {{"HELLO", "2", "AUTH", "default"}, "-ERR Syntax error in HELLO option 'AUTH'"},
      {{"AUTH", "x"}, "-ERR AUTH <password> called without any password configured"},
      {{"AUTH", "nobody", "x"}, "-WRONGPASS invalid username-password pair"},
      {{"AUTH"}, "-ERR wrong number of arguments for 'auth' command"},
      {{"COMMAND", "GETKEYS", "NOSUCH"}, "-ERR Invalid command specified"},
      {{"COMMAND", "GETKEYS", "GET"}, "-ERR Invalid number of arguments"},
      {{"COMMAND", "GETKEYS", "PING"}, "-ERR The command has no key arguments"},
      {{"CONFIG", "SET", "a", "b"}, "-ERR settings are read at the start"},
  };
  for (const auto& [words, expected] : cases) {
    const std::string reply = client.ask(words);
    EXPECT_THAT(reply, StartsWith(expected));
    EXPECT_THAT(reply, Not(HasSubstr("\n")));
    EXPECT_LT(reply.size(), 700U);
    // The connection lives, and the next reply is the next request's.
    ASSERT_EQ(client.ask({"ECHO", expected}), "$" + expected);
  }

  // Nothing was changed.
  EXPECT_EQ(client.ask({"FENCE.INFO", "k"}), before);
  EXPECT_EQ(client.ask({"DBSIZE"}), ":1");
  EXPECT_THAT(client.ask({"LEASE.INFO", "job"}), HasSubstr("$token, $1"));
  for (const std::string name : {"j", "a"}) {
    EXPECT_THAT(client.ask({"LEASE.INFO", name}), HasSubstr("$fence, $0, ")) << name;
  }
}

TEST_F(ServerTest, AcceptsEveryLimitItself) {
  start({"--max-value-bytes", "1000"});
  auto client = connect();
  const std::string name(1024, 'n');
  const std::string owner(256, 'o');

  EXPECT_EQ(client.ask({"LEASE.ACQUIRE", name, owner, "604800000"}), "[$1, :604800000]");
  EXPECT_EQ(client.ask({"FENCE.SET", name, "1", std::string(1000, 'v'), "LEASE", name, "REQ",
                        std::string(256, 'r'), "IFVER", "0", "LIVE"}),
            ":1");
  EXPECT_EQ(client.ask({"LEASE.ACQUIRE", "b", owner, "1"}), "[$2, :1]");
  std::vector<std::string> many = {"FENCE.MSET", "2", "1024"};
  for (int i = 0; i < 1024; ++i) many.insert(many.end(), {"m" + std::to_string(i), "v"});
  EXPECT_THAT(client.ask(many), StartsWith("[:1, :1, "));
  EXPECT_EQ(client.ask({"LEASE.ACQUIRE", "c", owner, "1000", "WAIT", "86400000", "PERMITS",
                        "1000000", "DELAY", "604800000", "PAYLOAD", std::string(1024, 'p')}),
            "[$3, :1000]");
  std::vector<std::string> names = {"LEASE.MACQUIRE", "1024"};
  std::vector<std::string> holdings = {"LEASE.MRELEASE", "1024"};
  for (int i = 0; i < 1024; ++i) {
    names.push_back("n" + std::to_string(i));
    holdings.insert(holdings.end(), {names.back(), owner, "4"});
  }
  names.insert(names.end(), {owner, "600000"});
  EXPECT_EQ(client.ask(names), "[$4, :600000]");
  EXPECT_THAT(client.ask(holdings), StartsWith("[+OK, +OK, "));
  const std::string binary("\0\r\n \xff", 5);
  EXPECT_EQ(client.ask({"FENCE.SET", binary, "2", binary}), ":1");
  EXPECT_EQ(client.ask({"GET", binary}), "$" + binary);
}

TEST_F(ServerTest, AnswersEveryCommandWithAnyNumberOfArgumentsExactlyOnce) {
  start();
  auto client = connect();
  const std::set<std::string_view> ending = {"quit", "shutdown", "client|reply", "client|kill"};
  int asked = 0;
  for (const auto* command : server::all_commands()) {
    std::vector<const server::CommandSpec*> specs = {command};
    for (const auto& subcommand : command->subcommands) specs.push_back(&subcommand);
    for (const auto* spec : specs) {
      if (ending.contains(spec->name)) continue;
      std::vector<std::string> words;
      std::stringstream name{std::string(spec->name)};
      for (std::string word; std::getline(name, word, '|');) words.push_back(word);
      for (const std::string& filler : {std::string("1"), std::string("x"), std::string()}) {
        std::vector<std::string> full = words;
        for (int more = 0; more <= 9; ++more) {
          const std::string nonce = "nonce" + std::to_string(++asked);
          client.send(request(full) + request({"ECHO", nonce}));
          ASSERT_NE(client.line(), "closed") << spec->name << " with " << more;
          ASSERT_EQ(client.line(), "$" + nonce) << spec->name << " with " << more;
          full.push_back(filler);
        }
      }
    }
  }
  EXPECT_GT(asked, 1000);
}

TEST_F(ServerTest, ClosesAfterBrokenFramingAndAnswersWhatCameBefore) {
  start();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"*2\r\n$3\r\nGET\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length"},
      {"*2\r\n$3\r\nGET\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'"},
      {"*99999999999\r\n", "-ERR Protocol error: invalid multibulk length"},
      {"GET \"unbalanced\r\n", "-ERR Protocol error: unbalanced quotes in request"},
      {"*2000000\r\n", "-TOOBIG"},
      {"*2\r\n$4\r\nECHO\r\n$70000000\r\n", "-TOOBIG"},
  };
  for (const auto& [bytes, expected] : cases) {
    auto client = connect();
    client.send(request({"PING"}) + bytes + request({"FENCE.SET", "k", "1", "v"}));
    EXPECT_EQ(client.line(), "+PONG");
    EXPECT_THAT(client.line(), StartsWith(expected));
    EXPECT_EQ(client.line(), "closed");
  }
  EXPECT_EQ(connect().ask({"EXISTS", "k"}), ":0");
}

TEST_F(ServerTest, RefusesARequestOf64MebibytesInManyPieces) {
  start();
  auto client = connect();
  const std::string argument(1024 * 1024, 'x');

  client.send("*71\r\n$4\r\nMGET\r\n");
  for (int i = 0; i < 70; ++i) {
    if (!client.send("$1048576\r\n" + argument + "\r\n")) break;
  }

  EXPECT_THAT(client.line(), StartsWith("-TOOBIG"));
  EXPECT_EQ(client.line(), "closed");
  EXPECT_EQ(connect().ask({"PING"}), "+PONG");
}

TEST_F(ServerTest, SkipsEmptyRequestsAndTakesInlineCommands) {
  start();
  auto client = connect();
  client.send("\r\n*0\r\n*-1\r\n\nPING\r\necho \"a b\\x41\"\nECHO 'c'\r\n");
  EXPECT_EQ(client.line(), "+PONG");
  EXPECT_EQ(client.line(), "$a bA");
  EXPECT_EQ(client.line(), "$c");
}

TEST_F(ServerTest, DropsWebRequestsAtOnceAndRunsNothingBehindThem) {
  auto& server = start({"--unguarded-tokens", "any"});
  const std::string attack = request({"FENCE.SET", "k", "1", "v"});
  for (const std::string head : {"POST / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
                                 "Host: example.org\r\n", "PUT /x HTTP/1.0\r\n\r\n"}) {
    auto client = connect();
    client.send(head + attack + "FENCE.SET k 1 v\r\n");
    EXPECT_EQ(client.receive(), "") << head;
  }
  EXPECT_EQ(connect().ask({"EXISTS", "k"}), ":0");
  EXPECT_THAT(server.log(), HasSubstr("client 127.0.0.1:"));
  EXPECT_THAT(server.log(), HasSubstr("speaks HTTP"));
}

// ---- Order ---------------------------------------------------------------------------------

TEST_F(ServerTest, AnswersAPipelineInOrderAndLetsItSeeItsOwnWrites) {
  start();
  auto client = connect();
  ASSERT_EQ(client.ask({"LEASE.ACQUIRE", "l", "me", "600000"}), "[$1, :600000]");
  std::string bytes;
  std::vector<std::string> expected;
  const auto add = [&](const std::vector<std::string>& words, std::string reply) {
    bytes += request(words);
    expected.push_back(std::move(reply));
  };
  constexpr int kTurns = 1500;
  for (int i = 1; i <= kTurns; ++i) {
    const std::string number = std::to_string(i);
    add({"FENCE.SET", "k", "1", number}, ":" + number);
    add({"GET", "k"}, "$" + number);
    add({"MGET", "k", "none", "k"}, "[$" + number + ", _, $" + number + "]");
    add({"ECHO", number}, "$" + number);
    add({"FENCE.SET", "k", "7", "x"}, "-UNISSUED 1 7");
    add({"NOSUCH"}, "-ERR unknown command 'NOSUCH', with args beginning with: ");
    add({"FENCE.SET", "n" + number, "1", "v"}, ":1");
    if (i % 10 == 0) add({"DBSIZE"}, ":" + std::to_string(i + 1));
  }

  std::thread sender([&] { client.send(bytes); });
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::string reply = client.line();
    EXPECT_EQ(reply, expected[i]) << "reply " << i;
    if (reply != expected[i]) break;
  }
  sender.join();
}

TEST_F(ServerTest, ChangesTheProtocolInTheMiddleOfAPipeline) {
  start();
  auto client = connect();
  client.send(request({"LEASE.ACQUIRE", "l", "me", "600000"}) + request({"LEASE.INFO", "free"}) +
              request({"HELLO", "3"}) + request({"LEASE.INFO", "free"}) + request({"HELLO", "2"}) +
              request({"LEASE.INFO", "free"}) + request({"LEASE.ACQUIRE", "l", "you", "5"}));
  const std::string flat =
      "[$name, $free, $fence, $0, $mode, _, $holders, [], $waiters, :0, $blocked, :0, $payload, _]";
  EXPECT_EQ(client.line(), "[$1, :600000]");
  EXPECT_EQ(client.line(), flat);
  EXPECT_THAT(client.line(), StartsWith("{$server: $redis, "));
  EXPECT_EQ(client.line(),
            "{$name: $free, $fence: $0, $mode: _, $holders: [], $waiters: :0, $blocked: :0, "
            "$payload: _}");
  EXPECT_THAT(client.line(), StartsWith("[$server, $redis, "));
  EXPECT_EQ(client.line(), flat);
  EXPECT_EQ(client.line(), "_");
}

TEST_F(ServerTest, SwitchesRepliesOffAndOn) {
  start({"--unguarded-tokens", "any"});
  auto client = connect();
  client.send(request({"CLIENT", "REPLY", "OFF"}) + request({"PING"}) +
              request({"FENCE.SET", "k", "1", "v"}) + request({"CLIENT", "REPLY", "ON"}) +
              request({"CLIENT", "REPLY", "SKIP"}) + request({"FENCE.SET", "k", "1", "w"}) +
              request({"GET", "k"}) + request({"CLIENT", "REPLY", "SKIP"}) + request({"NOSUCH"}) +
              request({"ECHO", "end"}));
  EXPECT_EQ(client.line(), "+OK");
  EXPECT_EQ(client.line(), "$w");
  EXPECT_EQ(client.line(), "$end");
}

TEST_F(ServerTest, ReadsRequestsInAnyPieces) {
  start({"--unguarded-tokens", "any"});
  auto client = connect();
  const std::string bytes =
      request({"FENCE.SET", "key", "1", "value"}) + "PING\r\n" + request({"GET", "key"});
  for (const char byte : bytes) {
    client.send(std::string_view(&byte, 1));
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(client.line(), ":1");
  EXPECT_EQ(client.line(), "+PONG");
  EXPECT_EQ(client.line(), "$value");
}

// ---- The shape of every reply --------------------------------------------------------------

TEST_F(ServerTest, GivesEveryReplyItsShape) {
  start();
  auto two = connect();
  auto three = connect();
  three.ask({"HELLO", "3"});
  // The line of RESP3 and what RESP2 makes of it.
  const auto both = [&](const std::vector<std::string>& words, const std::string& in_two,
                        const std::string& in_three) {
    EXPECT_THAT(two.ask(words), ::testing::MatchesRegex(in_two)) << words[0];
    EXPECT_THAT(three.ask(words), ::testing::MatchesRegex(in_three)) << words[0];
  };
  const auto same = [&](const std::vector<std::string>& words, const std::string& line) {
    both(words, line, line);
  };

  EXPECT_EQ(two.ask({"LEASE.ACQUIRE", "l", "me", "600000"}), "[$1, :600000]");
  EXPECT_EQ(three.ask({"LEASE.ACQUIRE", "l", "me", "600000"}), "[$1, :600000]");
  same({"LEASE.ACQUIRE", "l", "other", "5"}, "_");
  EXPECT_EQ(two.ask({"FENCE.SET", "k", "1", "v", "LEASE", "l", "REQ", "r1"}), ":1");
  EXPECT_EQ(three.ask({"FENCE.SET", "k", "1", "v", "REQ", "r2"}), ":2");
  both({"FENCE.GET", "k"}, R"(\[\$value, \$v, \$version, :2, \$fence, \$1, \$guard, \$l\])",
       R"(\{\$value: \$v, \$version: :2, \$fence: \$1, \$guard: \$l\})");
  both({"FENCE.GET", "k", "TOKEN", "1"},
       R"(\[\$value, \$v, \$version, :2, \$fence, \$1, \$guard, \$l\])",
       R"(\{\$value: \$v, \$version: :2, \$fence: \$1, \$guard: \$l\})");
  both({"FENCE.GET", "none"}, R"(\[\$value, _, \$version, :0, \$fence, \$0, \$guard, _\])",
       R"(\{\$value: _, \$version: :0, \$fence: \$0, \$guard: _\})");
  both(
      {"FENCE.INFO", "k"},
      R"(\[\$version, :2, \$fence, \$1, \$guard, \$l, \$exists, :1, \$size, :1, \$request, \$r2, \$written, :[0-9]+\])",
      R"(\{\$version: :2, \$fence: \$1, \$guard: \$l, \$exists: :1, \$size: :1, \$request: \$r2, \$written: :[0-9]+\})");
  both(
      {"FENCE.INFO", "none"},
      R"(\[\$version, :0, \$fence, \$0, \$guard, _, \$exists, :0, \$size, :0, \$request, _, \$written, :0\])",
      R"(\{\$version: :0, \$fence: \$0, \$guard: _, \$exists: :0, \$size: :0, \$request: _, \$written: :0\})");
  same({"FENCE.RAISE", "raised", "1"}, R"(\$1)");
  same({"FENCE.MSET", "1", "2", "m1", "a", "m2", "b"}, R"(\[:[12], :[12]\])");
  EXPECT_EQ(two.ask({"FENCE.DEL", "m2", "1"}), ":3");
  same({"FENCE.SET", "k", "2", "x"}, "-UNISSUED 1 2");
  both(
      {"FENCE.REJECTIONS", "COUNT", "1"},
      R"(\[\[\$when, :[0-9]+, \$client, \$127[^,]*, \$key, \$k, \$lease, \$l, \$offered, \$2, \$highest, \$1, \$reason, \$unissued\]\])",
      R"(\[\{\$when: :[0-9]+, \$client: \$127[^,]*, \$key: \$k, \$lease: \$l, \$offered: \$2, \$highest: \$1, \$reason: \$unissued\}\])");
  same({"FENCE.RESET", "raised", "1"}, R"(\$1)");
  both(
      {"LEASE.INFO", "l"},
      R"(\[\$name, \$l, \$fence, \$1, \$mode, \$exclusive, \$holders, \[\[\$owner, \$[0-9a-f]+, \$token, \$1, \$mode, \$exclusive, \$remaining, :[0-9]+, \$client, \$127[^,]*, \$bound, :0\]\], \$waiters, :0, \$blocked, :0, \$payload, _\])",
      R"(\{\$name: \$l, \$fence: \$1, \$mode: \$exclusive, \$holders: \[\{\$owner: \$[0-9a-f]+, \$token: \$1, \$mode: \$exclusive, \$remaining: :[0-9]+, \$client: \$127[^,]*, \$bound: :0\}\], \$waiters: :0, \$blocked: :0, \$payload: _\})");
  both({"LEASE.SCAN", "0"}, R"(\[\$0, \[\[\$name, \$l, .*\]\]\])",
       R"(\[\$0, \[\{\$name: \$l, .*\}\]\])");
  same({"LEASE.RENEW", "l", "me", "1", "500"}, ":500");
  same({"LEASE.MRENEW", "600000", "2", "l", "me", "1", "free", "me", "1"},
       R"(\[:600000, -LEASELOST unknown.*\])");
  same({"LEASE.WAITERS", "l"}, R"(\[\])");
  same({"LEASE.WAIT", "l", "1", "0"}, "_");
  same({"LEASE.WAIT", "l", "0", "0"}, R"(\[\$granted, \$l, \$1\])");
  same({"LEASE.MRELEASE", "2", "l", "me", "1", "free", "me", "1"},
       R"(\[\+OK, -LEASELOST unknown.*\])");
  same({"LEASE.RELEASE", "l", "me", "1"}, R"(\+OK)");
  same({"LEASE.REVOKE", "l"}, R"(\$1)");
  same({"GET", "k"}, R"(\$v)");
  same({"GET", "none"}, "_");
  same({"MGET", "k", "none"}, R"(\[\$v, _\])");
  same({"EXISTS", "k", "k", "none", "m2"}, ":2");
  same({"STRLEN", "k"}, ":1");
  same({"STRLEN", "none"}, ":0");
  same({"TYPE", "k"}, R"(\+string)");
  same({"TYPE", "none"}, R"(\+none)");
  same({"TTL", "k"}, ":-1");
  same({"PTTL", "none"}, ":-2");
  same({"SCAN", "0"}, R"(\[\$0, \[\$k, \$m1\]\])");
  same({"SCAN", "0", "MATCH", "m*"}, R"(\[\$0, \[\$m1\]\])");
  same({"SCAN", "0", "TYPE", "string"}, R"(\[\$0, \[\$k, \$m1\]\])");
  same({"SCAN", "0", "TYPE", "hash"}, R"(\[\$0, \[\]\])");
  same({"DBSIZE"}, ":2");
  same({"OBJECT", "ENCODING", "k"}, R"(\$raw)");
  same({"OBJECT", "ENCODING", "none"}, "_");
  same({"MEMORY", "USAGE", "k"}, ":[0-9]+");
  same({"MEMORY", "USAGE", "none"}, "_");
  same({"PING"}, R"(\+PONG)");
  same({"PING", "m"}, R"(\$m)");
  same({"SELECT", "0"}, R"(\+OK)");
  same({"CLIENT", "ID"}, ":[0-9]+");
  same({"CLIENT", "GETNAME"}, "_");
  same({"CLIENT", "SETNAME", "n"}, R"(\+OK)");
  same({"CLIENT", "GETNAME"}, R"(\$n)");
  same({"CLIENT", "INFO"}, R"(\$id=[0-9]+ addr=127.* name=n .*)");
  same({"CLIENT", "SETINFO", "LIB-NAME", "test"}, R"(\+OK)");
  same({"CLIENT", "NO-EVICT", "ON"}, R"(\+OK)");
  same({"CLIENT", "CAPA", "redirect"}, R"(\+OK)");
  both({"CONFIG", "GET", "save"}, R"(\[\$save, \$\])", R"(\{\$save: \$\})");
  same({"COMMAND", "COUNT"}, ":[0-9]+");
  both(
      {"COMMAND", "INFO", "GET", "nosuch"},
      R"(\[\[\$get, :2, \[\+readonly\], :1, :1, :1, \[\+@read\], \[\], \[\[.*\]\], \[\]\], _\])",
      R"(\[\[\$get, :2, ~\[\+readonly\], :1, :1, :1, ~\[\+@read\], ~\[\], ~\[\{.*\}\], \[\]\], _\])");
  same({"COMMAND", "GETKEYS", "FENCE.MSET", "1", "2", "a", "x", "b", "y"}, R"(\[\$a, \$b\])");
  both({"COMMAND", "DOCS", "fence.info", "nosuch"}, R"(\[\$fence.info, \[\$summary, .*\]\])",
       R"(\{\$fence.info: \{\$summary: .*\}\})");
  same({"TIME"}, R"(\[\$[0-9]+, \$[0-9]+\])");
  same({"ROLE"}, R"(\[\$master, :0, \[\]\])");
  same({"WAIT", "1", "100"}, ":0");
  same({"SLOWLOG", "GET"}, R"(\[\])");
  same({"SLOWLOG", "LEN"}, ":0");
  both({"LATENCY", "HISTOGRAM"}, R"(\[\])", R"(\{\})");
  same({"LATENCY", "LATEST"}, R"(\[\])");
  same({"MODULE", "LIST"}, R"(\[\])");
  same({"ACL", "WHOAMI"}, R"(\$default)");
  same({"ACL", "USERS"}, R"(\[\$default\])");
  same({"ACL", "GETUSER", "nobody"}, "_");
  both(
      {"HELLO"},
      R"(\[\$server, \$redis, \$version, \$7[^,]*, \$proto, :2, \$id, :[0-9]+, \$mode, \$standalone, \$role, \$master, \$modules, \[\]\])",
      R"(\{\$server: \$redis, \$version: \$7[^,]*, \$proto: :3, \$id: :[0-9]+, \$mode: \$standalone, \$role: \$master, \$modules: \[\]\})");
  EXPECT_EQ(three.ask({"RESET"}), "+RESET");
  EXPECT_THAT(three.ask({"CONFIG", "GET", "save"}), StartsWith("[")) << "RESET goes back to RESP2";
  EXPECT_EQ(two.ask({"QUIT"}), "+OK");
  EXPECT_EQ(two.line(), "closed");
}

TEST_F(ServerTest, GivesNilsTheirRawBytes) {
  start();
  auto client = connect();
  client.ask({"LEASE.ACQUIRE", "l", "me", "600000"});

  client.send(request({"GET", "none"}) + request({"LEASE.ACQUIRE", "l", "you", "5"}) +
              request({"ECHO", "e"}));
  std::string bytes;
  while (!bytes.ends_with("$1\r\ne\r\n")) bytes += client.receive();
  EXPECT_EQ(bytes, "$-1\r\n*-1\r\n$1\r\ne\r\n");
}

TEST_F(ServerTest, TellsInInfoWhatClientsAskFor) {
  start();
  auto client = connect();
  const std::string text = client.ask({"INFO"});
  EXPECT_THAT(text, ContainsRegex("redis_version:7\\.[2-9]"));
  for (const std::string line :
       {"fencekv_version:", "loading:0\r\n", "redis_mode:standalone\r\n", "role:master\r\n",
        "run_id:", "cluster_enabled:0\r\n", "connected_clients:1\r\n",
        "incarnation:", "newest_token:0\r\n", "accepts_writes:1\r\n", "durability:sync\r\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  const std::string section = client.ask({"INFO", "REPLICATION"});
  EXPECT_THAT(section, HasSubstr("role:master"));
  EXPECT_THAT(section, Not(HasSubstr("redis_version")));
}

TEST_F(ServerTest, TellsWhatItMayRemember) {
  start({"--memory-budget", "16777216", "--fence-cache-bytes", "1000"});
  auto client = connect();
  EXPECT_THAT(client.ask({"INFO", "memory"}), HasSubstr("memory_budget:16777216\r\n"));
  const auto setting = [&](const std::string& name) { return client.ask({"CONFIG", "GET", name}); };
  EXPECT_EQ(setting("memory_budget"), "[$memory_budget, $16777216]");
  EXPECT_EQ(setting("fence_cache_bytes"), "[$fence_cache_bytes, $1000]");
  EXPECT_EQ(setting("read_cache_bytes"), "[$read_cache_bytes, $4194304]");
}

// ---- Listings ------------------------------------------------------------------------------

TEST_F(ServerTest, WalksThroughAllKeysInPages) {
  start({"--unguarded-tokens", "any"});
  auto client = connect();
  std::set<std::string> expected;
  std::string bytes;
  for (int i = 0; i < 500; ++i) {
    expected.insert("key:" + std::to_string(i));
    bytes += request({"FENCE.SET", "key:" + std::to_string(i), "1", "v"});
  }
  client.send(bytes);
  for (int i = 0; i < 500; ++i) ASSERT_EQ(client.line(), ":1");

  std::set<std::string> found;
  std::string cursor = "0";
  int pages = 0;
  do {
    client.send(request({"SCAN", cursor, "COUNT", "7"}));
    const auto page = client.read();
    ASSERT_TRUE(page && page->parts.size() == 2) << shown(*page);
    cursor = page->parts[0].text;
    for (const auto& key : page->parts[1].parts) EXPECT_TRUE(found.insert(key.text).second);
    ++pages;
  } while (cursor != "0" && pages < 1000);
  EXPECT_EQ(found, expected);
  EXPECT_GT(pages, 50);
}

TEST_F(ServerTest, AnswersAnEvilPatternInTime) {
  start({"--unguarded-tokens", "any"});
  auto client = connect();
  for (int i = 0; i < 50; ++i) {
    client.ask({"FENCE.SET", std::string(1000, 'a') + std::to_string(i), "1", "v"});
  }
  std::string pattern;
  while (pattern.size() < 1000) pattern += "a*";
  pattern += "b";

  const auto begin = Clock::now();
  EXPECT_THAT(client.ask({"SCAN", "0", "COUNT", "100000", "MATCH", pattern}), StartsWith("[$"));
  EXPECT_LT(Clock::now() - begin, 15s);
}

TEST_F(ServerTest, ListsAndKillsConnections) {
  start();
  auto admin = connect();
  auto victim = connect();
  victim.ask({"CLIENT", "SETNAME", "victim"});
  victim.send(request({"CLIENT", "ID"}));
  const auto id = std::to_string(victim.read()->integer);

  EXPECT_THAT(admin.ask({"CLIENT", "LIST"}), HasSubstr(" name=victim "));
  EXPECT_THAT(admin.ask({"CLIENT", "LIST", "ID", id}), StartsWith("$id=" + id + " "));
  EXPECT_EQ(admin.ask({"CLIENT", "KILL", "127.0.0.1:1"}), "-ERR No such client");
  EXPECT_EQ(admin.ask({"CLIENT", "KILL", "ID", "999999"}), ":0");
  EXPECT_EQ(admin.ask({"CLIENT", "KILL", "ID", id, "SKIPME", "maybe"}).substr(0, 17),
            "-ERR syntax error");
  EXPECT_EQ(admin.ask({"CLIENT", "KILL", "ID", id}), ":1");
  EXPECT_TRUE(victim.closes_within(RawClient::kPatience));
  // The victim's socket ends a moment before its session.
  EXPECT_THAT(admin.ask({"CLIENT", "KILL", "SKIPME", "no", "TYPE", "normal"}), AnyOf(":1", ":2"));
  EXPECT_EQ(admin.line(), "closed");
}

// ---- Authentication ------------------------------------------------------------------------

TEST_F(ServerTest, LetsNobodyInWithoutThePassword) {
  start({"--password-file", password_file()});
  const std::string password(kPassword);
  auto client = connect();

  EXPECT_EQ(client.ask({"PING"}), "-NOAUTH Authentication required.");
  EXPECT_EQ(client.ask({"GET", "k"}), "-NOAUTH Authentication required.");
  EXPECT_EQ(client.ask({"NOSUCH"}), "-NOAUTH Authentication required.");
  EXPECT_THAT(client.ask({"HELLO", "3"}), StartsWith("-NOAUTH HELLO must be called"));
  EXPECT_THAT(client.ask({"HELLO"}), StartsWith("-NOAUTH HELLO must be called"));
  const std::string wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
  EXPECT_EQ(client.ask({"AUTH", "wrong"}), wrong);
  EXPECT_EQ(client.ask({"AUTH", password + "x"}), wrong);
  EXPECT_EQ(client.ask({"AUTH", ""}), wrong);
  EXPECT_EQ(client.ask({"AUTH", "nobody", password}), wrong);
  EXPECT_EQ(client.ask({"HELLO", "3", "AUTH", "default", "wrong"}), wrong);
  EXPECT_EQ(client.ask({"PING"}), "-NOAUTH Authentication required.");
  EXPECT_EQ(client.ask({"AUTH", "default", password}), "+OK");
  EXPECT_EQ(client.ask({"PING"}), "+PONG");
  // A failed attempt takes nothing away.
  EXPECT_EQ(client.ask({"AUTH", "wrong"}), wrong);
  EXPECT_EQ(client.ask({"PING"}), "+PONG");
  EXPECT_EQ(client.ask({"RESET"}), "+RESET");
  EXPECT_EQ(client.ask({"PING"}), "-NOAUTH Authentication required.");
  EXPECT_EQ(client.ask({"AUTH", password}), "+OK");
  auto other = connect();
  EXPECT_THAT(other.ask({"HELLO", "3", "AUTH", "default", password, "SETNAME", "n"}),
              StartsWith("{$server: $redis"));
  EXPECT_EQ(other.ask({"CLIENT", "GETNAME"}), "$n");
}

TEST_F(ServerTest, AnswersOnceAndInOrderAroundAnAuthInThePipeline) {
  start({"--password-file", password_file()});
  const std::string password(kPassword);
  const std::string big(100'000, 'v');

  auto client = connect();
  client.send(request({"PING"}) + request({"AUTH", "bad"}) + request({"PING"}) +
              request({"HELLO", "3", "AUTH", "default", "bad"}) + request({"AUTH", password}) +
              request({"ECHO", big}) + request({"AUTH", "bad"}) + request({"GET", "k"}) +
              request({"PING"}));
  const std::string wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
  EXPECT_EQ(client.line(), "-NOAUTH Authentication required.");
  EXPECT_EQ(client.line(), wrong);
  EXPECT_EQ(client.line(), "-NOAUTH Authentication required.");
  EXPECT_EQ(client.line(), wrong);
  EXPECT_EQ(client.line(), "+OK");
  EXPECT_EQ(client.line(), "$" + big) << "larger than what is taken before AUTH";
  EXPECT_EQ(client.line(), wrong);
  EXPECT_EQ(client.line(), "_");
  EXPECT_EQ(client.line(), "+PONG");
}

TEST_F(ServerTest, TakesLittleFromStrangers) {
  start({"--password-file", password_file()});
  const std::vector<std::string> cases = {
      "*1000000\r\n",
      "*17\r\n",
      "*2\r\n$4\r\nAUTH\r\n$16384\r\n",
      "*2\r\n$4\r\nAUTH\r\n$500000000\r\n",
      std::string(20'000, 'x'),
      "*2\r\n$4\r\nAUTH\r\n$9000\r\n" + std::string(9000, 'x') +
          "\r\n*3\r\n$4\r\nAUTH\r\n$9000\r\n" + std::string(9000, 'x') + "\r\n$9000\r\n",
  };
  for (const std::string& bytes : cases) {
    auto client = connect();
    client.send(bytes);
    std::string last;
    for (std::string line = client.line(); line != "closed"; line = client.line()) last = line;
    EXPECT_TRUE(last.starts_with("-TOOBIG") || last.starts_with("-ERR Protocol error")) << last;
  }
}

TEST_F(ServerTest, HoldsUpAStrangerWhoNeverReads) {
  auto& server = start({"--password-file", password_file()});
  auto client = connect();
  EXPECT_THAT(client.ask({"GET", "x"}), StartsWith("-NOAUTH"));
  const std::size_t before = server_->memory();
  std::string flood;
  for (int i = 0; i < 100'000; ++i) flood += request({"GET", "x"});
  std::size_t taken = 0;
  // What the two kernels buffer is taken; after that nothing moves.
  for (int idle = 0; idle < 30;) {
    ASSERT_LT(taken, 64U * 1024 * 1024);
    const std::size_t at = taken % flood.size();
    const std::size_t size = client.try_send(std::string_view(flood).substr(at));
    taken += size;
    if (size > 0) {
      idle = 0;
    } else {
      ++idle;
      std::this_thread::sleep_for(10ms);
    }
  }
  // Of what the server itself has taken, no more is kept than one round of requests and replies.
  const std::size_t now = server_->memory();
  std::cout << taken / 1024 << " KiB sent, the server has grown by "
            << (now > before ? now - before : 0) / 1024 << " KiB\n";
  if (!kSanitized) {
    EXPECT_LT(now, before + (std::size_t{2} << 20));
  }
  const auto begin = Clock::now();
  while (Clock::now() - begin < 40s && server.log().find("is closed") == std::string::npos) {
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_THAT(server.log(), HasSubstr("is closed: it did not authenticate in time"));
  EXPECT_TRUE(client.closes_within(RawClient::kPatience));
}

TEST_F(ServerTest, ShowsNoSecretAnywhere) {
  auto& server = start({"--password-file", password_file(), "--log-level", "debug"});
  auto client = connect();
  client.ask({"AUTH", "canary-wrong-22aa"});
  client.ask({"AUTH", std::string(kPassword)});
  client.ask({"LEASE.ACQUIRE", "l", "canary-owner-33bb", "60000"});
  client.ask({"FENCE.SET", "k", "1", "canary-value-44cc", "LEASE", "l"});
  client.ask({"FENCE.SET", "k", "9", "canary-value-44cc", "LEASE", "l"});
  client.ask({"LEASE.RENEW", "l", "canary-owner-33bb", "7", "1000"});
  client.ask({"FENCE.RESET", "k", "1"});
  client.ask({"LEASE.REVOKE", "l"});

  std::string all;
  for (const auto& words : {std::vector<std::string>{"INFO"},
                            {"CLIENT", "LIST"},
                            {"CLIENT", "INFO"},
                            {"CONFIG", "GET", "*"},
                            {"LEASE.INFO", "l"},
                            {"FENCE.REJECTIONS"},
                            {"ACL", "LIST"},
                            {"ACL", "GETUSER", "default"},
                            {"FENCE.INFO", "k"},
                            {"SLOWLOG", "GET"}}) {
    all += client.ask(words);
  }
  stop();
  all += server.log();
  EXPECT_THAT(all, Not(HasSubstr("canary")));
  EXPECT_THAT(server.log(), HasSubstr("AUTH failed: 127.0.0.1:"));
}

TEST_F(ServerTest, LogsWhatAnAdministratorOverrides) {
  auto& server = start();
  auto client = connect();
  for (int i = 0; i < 3; ++i) client.ask({"LEASE.ACQUIRE", "l" + std::to_string(i), "me", "60000"});
  client.ask({"FENCE.SET", "k\n", "3", "v"});
  EXPECT_EQ(client.ask({"FENCE.RESET", "k\n", "1"}), "$1");
  EXPECT_EQ(client.ask({"LEASE.REVOKE", "l1"}), "$2");
  EXPECT_THAT(server.log(), HasSubstr("FENCE.RESET k\\x0a: fence 3 -> 1 by 127.0.0.1:"));
  EXPECT_THAT(server.log(), HasSubstr("LEASE.REVOKE l1: token 2 granted -> revoked by 127.0.0.1:"));
}

// ---- Slow, silent and vanishing clients ----------------------------------------------------

TEST_F(ServerTest, ClosesWhoDribblesWhoDoesNotReadAndWhoDoesNotAuthenticate) {
  start();
  TemporaryDirectory other_directory;
  ServerProcess guarded({.flags = {"--dir", (other_directory.path() / "s").string(), "--port", "0",
                                   "--password-file", password_file()}});
  const std::uint16_t guarded_port = guarded.wait_ready();

  const auto begin = Clock::now();
  RawClient stranger(guarded_port);
  auto dribbler = connect();
  auto deaf = connect();
  auto patient = connect();
  ASSERT_EQ(patient.ask({"LEASE.ACQUIRE", "l", "me", "600000"}), "[$1, :600000]");
  ASSERT_EQ(patient.ask({"FENCE.SET", "big", "1", std::string(1 << 20, 'v')}), ":1");
  const std::size_t before = server_->peak_memory();
  // At once: one by one, the server would be stuck with the reply to the first before it knows
  // more.
  std::string requests;
  for (int i = 0; i < 500; ++i) requests += request({"GET", "big"});
  deaf.send(requests);
  dribbler.send("*2\r\n$4\r\nECHO\r\n$1000\r\n");

  // A byte every now and then does not help, neither before AUTH nor in a command.
  bool stranger_closed = false;
  while (Clock::now() - begin < 29s) {
    dribbler.send("x");
    if (!stranger_closed) {
      stranger.send("x");
      stranger_closed = stranger.closes_within(1ms);
      if (stranger_closed) {
        EXPECT_GT(Clock::now() - begin, 9s);
        EXPECT_LT(Clock::now() - begin, 25s) << "as others that dribble";
      }
    }
    ASSERT_EQ(patient.ask({"PING"}), "+PONG") << "others are served";
    std::this_thread::sleep_for(250ms);
  }
  EXPECT_TRUE(stranger_closed);
  if (!kSanitized) {
    ASSERT_GT(before, 0U);
    EXPECT_LT(server_->peak_memory(), before + (std::size_t{100} << 20))
        << "500 MiB of replies are not buffered";
  }
  EXPECT_TRUE(dribbler.closes_within(RawClient::kPatience));
  EXPECT_TRUE(deaf.closes_within(RawClient::kPatience));
  EXPECT_THAT(server_->log(), HasSubstr("its command did not arrive in full in time"));
  EXPECT_EQ(patient.ask({"PING"}), "+PONG") << "an idle connection stays by default";
  const auto is_alone = [&] {
    const std::string listed = patient.ask({"CLIENT", "LIST"});
    return std::count(listed.begin(), listed.end(), '\n') == 1;
  };
  // A socket ends a moment before its session.
  for (int i = 0; i < 1000 && !is_alone(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(is_alone());
}

TEST_F(ServerTest, ClosesIdleConnectionsIfAskedTo) {
  start({"--idle-timeout-ms", "3000"});
  auto client = connect();
  for (int i = 0; i < 4; ++i) {
    std::this_thread::sleep_for(1000ms);
    ASSERT_EQ(client.ask({"PING"}), "+PONG") << "not idle";
  }
  EXPECT_TRUE(client.closes_within(RawClient::kPatience));
}

TEST_F(ServerTest, SurvivesClientsThatVanishInTheMiddle) {
  start({"--unguarded-tokens", "any", "--durability", "process"});
  std::string writes;
  for (int i = 0; i < 300; ++i) {
    writes += request({"FENCE.SET", "k" + std::to_string(i), "1", std::string(200, 'v')});
    if (i % 50 == 0) writes += request({"SCAN", "0", "COUNT", "1000"}) + request({"INFO"});
  }
  for (int i = 0; i < 60; ++i) {
    auto client = connect();
    client.send(std::string_view(writes).substr(0, writes.size() - i));
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(i % 7));
    if (i % 2 == 0) {
      client.reset();
    } else {
      client.close();
    }
  }
  auto client = connect();
  EXPECT_EQ(client.ask({"PING"}), "+PONG");
  EXPECT_EQ(client.ask({"GET", "k0"}), "$" + std::string(200, 'v'));
  stop();
}

TEST_F(ServerTest, AnswersAClientThatHasFinishedSending) {
  start({"--unguarded-tokens", "any"});
  auto client = connect();
  client.send(request({"FENCE.SET", "k", "1", "v"}) + request({"GET", "k"}));
  client.finish_sending();
  EXPECT_EQ(client.line(), ":1");
  EXPECT_EQ(client.line(), "$v");
  EXPECT_EQ(client.line(), "closed");
}

// ---- Many connections ----------------------------------------------------------------------

TEST_F(ServerTest, RefusesConnectionsBeyondTheLimitAndRecovers) {
  start({"--max-connections", "5"});
  std::vector<RawClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(connect());
    ASSERT_EQ(clients.back().ask({"PING"}), "+PONG");
  }
  for (int i = 0; i < 10; ++i) {
    auto refused = connect();
    EXPECT_EQ(refused.line(), "-ERR max number of clients reached");
    EXPECT_EQ(refused.line(), "closed");
  }
  EXPECT_EQ(clients[0].ask({"PING"}), "+PONG");
  clients.pop_back();
  std::string reply;
  for (int i = 0; i < 1000 && reply != "+PONG"; ++i) {
    reply = connect().ask({"PING"});
    if (reply != "+PONG") std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(reply, "+PONG");
}

TEST_F(ServerTest, OutlivesARunOutOfDescriptors) {
  auto& server = start();
  // The server reckons with the limit that it starts with, so it is lowered behind its back.
  const auto open_files = [&] {
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(server.pid()) + "/fd");
    return std::distance(begin(all), end(all));
  };
  const rlimit little{static_cast<rlim_t>(open_files()) + 20, 4096};
  ASSERT_EQ(::prlimit(server.pid(), RLIMIT_NOFILE, &little, nullptr), 0);
  const auto cpu_ticks = [&] {
    std::ifstream file("/proc/" + std::to_string(server.pid()) + "/stat");
    std::string word;
    long ticks = 0;
    for (int i = 1; i <= 15 && file >> word; ++i) {
      if (i == 14 || i == 15) ticks += std::stol(word);
    }
    return ticks;
  };
  auto first = connect();
  ASSERT_EQ(first.ask({"PING"}), "+PONG");
  std::vector<RawClient> crowd;
  const auto begin = Clock::now();
  for (int i = 0; i < 150; ++i) crowd.push_back(connect());
  const long before = cpu_ticks();
  std::this_thread::sleep_for(2500ms);
  EXPECT_LT(cpu_ticks() - before, ::sysconf(_SC_CLK_TCK) / 2) << "it spins";
  EXPECT_EQ(first.ask({"PING"}), "+PONG");

  crowd.clear();
  EXPECT_EQ(connect().ask({"PING"}), "+PONG");
  const std::string log = server.log();
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = log.find("cannot accept", at)) != std::string::npos; ++at) ++lines;
  EXPECT_GE(lines, 1U);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin);
  EXPECT_LE(lines, 5U + static_cast<std::size_t>(seconds.count())) << "one a second";
}

TEST_F(ServerTest, KeepsDescriptorsForTheStore) {
  auto& server = start({}, 100);
  EXPECT_THAT(server.log(), HasSubstr("max_connections is 50 instead of 10000"));
  std::vector<RawClient> crowd;
  for (int i = 0; i < 50; ++i) {
    crowd.push_back(connect());
    ASSERT_EQ(crowd.back().ask({"PING"}), "+PONG");
  }
  EXPECT_EQ(connect().line(), "-ERR max number of clients reached");
  EXPECT_EQ(crowd[0].ask({"LEASE.ACQUIRE", "l", "me", "1000"}), "[$1, :1000]");
}

TEST_F(ServerTest, AcceptsWhileOthersConnectAndGo) {
  start();
  std::atomic<bool> done = false;
  std::thread rude([&] {
    while (!done) connect().reset();
  });
  for (int i = 0; i < 50; ++i) {
    const auto begin = Clock::now();
    EXPECT_EQ(connect().ask({"PING"}), "+PONG");
    EXPECT_LT(Clock::now() - begin, 15s);
  }
  done = true;
  rude.join();
}

// ---- Start and end -------------------------------------------------------------------------

TEST_F(ServerTest, AnswersWhatWasReceivedBeforeItStops) {
  start({"--unguarded-tokens", "any"});
  std::vector<RawClient> clients;
  std::string writes;
  for (int i = 1; i <= 200; ++i) writes += request({"FENCE.SET", "k", "1", std::to_string(i)});
  auto idle = connect();
  ASSERT_EQ(idle.ask({"PING"}), "+PONG");
  for (int i = 0; i < 8; ++i) {
    clients.push_back(connect());
    ASSERT_EQ(clients.back().ask({"PING"}), "+PONG");
  }
  for (auto& client : clients) ASSERT_TRUE(client.send(writes));

  const auto begin = Clock::now();
  server_->signal(SIGTERM);

  for (auto& client : clients) {
    for (int i = 0; i < 200; ++i) {
      ASSERT_THAT(client.line(), StartsWith(":")) << "reply " << i;
    }
    EXPECT_EQ(client.line(), "closed");
  }
  EXPECT_EQ(idle.line(), "closed");
  EXPECT_EQ(server_->wait_exit(), 0) << server_->log();
  EXPECT_LT(Clock::now() - begin, 8s);
  EXPECT_FALSE(connect().connected());

  start({"--unguarded-tokens", "any"});
  EXPECT_EQ(connect().ask({"FENCE.INFO", "k"}).substr(0, 18), "[$version, :1600, ");
}

TEST_F(ServerTest, StopsByShutdownAndBySigint) {
  start();
  EXPECT_EQ(connect().ask({"SHUTDOWN"}), "+OK");
  EXPECT_EQ(server_->wait_exit(), 0);
  start();
  server_->signal(SIGINT);
  EXPECT_EQ(server_->wait_exit(), 0);
}

TEST_F(ServerTest, StopsAtOnceAtTheSecondSignal) {
  start();
  auto deaf = connect();
  auto writer = connect();
  writer.ask({"LEASE.ACQUIRE", "l", "me", "600000"});
  writer.ask({"FENCE.SET", "big", "1", std::string(8 << 20, 'v')});
  for (int i = 0; i < 20; ++i) deaf.send(request({"GET", "big"}));
  std::this_thread::sleep_for(300ms);

  server_->signal(SIGTERM);
  EXPECT_EQ(server_->wait_exit(1s), std::nullopt) << "it waits for the client to read";
  server_->signal(SIGTERM);
  EXPECT_EQ(server_->wait_exit(5s), 0);
}

TEST_F(ServerTest, HasAnExitCodeForEachWayNotToStart) {
  start();
  const std::string dir = store_directory();
  expect_exit(3, {"--dir", dir, "--port", "0"}, dir);
  EXPECT_EQ(connect().ask({"PING"}), "+PONG") << "the first one is not disturbed";
  const std::string port = std::to_string(port_);
  expect_exit(6, {"--dir", path("other"), "--port", port}, "cannot listen on 127.0.0.1:" + port);
  expect_exit(2, {"--port", "0"}, "--dir");
  expect_exit(2, {"--dir", dir, "--nonsense", "1"}, "--help");
  expect_exit(2, {"--dir", dir, "--bind", "0.0.0.0"}, "--password-file");
  expect_exit(2, {"--dir", dir, "--password-file", path("absent")}, path("absent"));
  expect_exit(2, {"--dir", dir, "--password-file", password_file("", 0600)}, "is empty");
  expect_exit(2, {"--dir", dir, "--password-file", password_file("x", 0644)}, "chmod 600");
  std::ofstream(path("bad.toml")) << "dir = \"x\"\nnonsense = 1\n";
  expect_exit(2, {"--config", path("bad.toml")}, "bad.toml:2: unknown key 'nonsense'");
  expect_exit(0, {"--dir", dir, "--check-config"}, "the configuration is good");
  stop();

  std::filesystem::copy(dir, path("newer"), std::filesystem::copy_options::recursive);
  std::ofstream(path("newer") + "/FORMAT") << "fencekv store\nformat 999\n";
  expect_exit(5, {"--dir", path("newer"), "--port", "0"}, "newer");
  std::filesystem::copy(dir, path("damaged"), std::filesystem::copy_options::recursive);
  std::ofstream(path("damaged") + "/db/CURRENT") << "garbage";
  expect_exit(4, {"--dir", path("damaged"), "--port", "0"}, "damaged");
}

TEST_F(ServerTest, ReadsItsConfigurationFile) {
  std::ofstream(path("good.toml")) << "dir = \"" << store_directory() << "\"\nport = 1\n"
                                   << "max_value_bytes = 10\nunguarded_tokens = \"any\"\n";
  start({"--config", path("good.toml")});
  auto client = connect();
  EXPECT_EQ(client.ask({"FENCE.SET", "k", "77", "0123456789"}), ":1");
  EXPECT_THAT(client.ask({"FENCE.SET", "k", "77", "0123456789x"}), StartsWith("-TOOBIG"));
  EXPECT_EQ(client.ask({"CONFIG", "GET", "unguarded_tokens"}), "[$unguarded_tokens, $any]");
}

TEST_F(ServerTest, ListensOnAUnixSocketForItsUserAlone) {
  const std::string socket = path("s.sock");
  start({"--unix", socket});
  EXPECT_EQ(server_->next_line(), "ready unix:" + socket);
  struct stat status {};
  ASSERT_EQ(::stat(socket.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 077, 0U) << "open to others";
  RawClient client(socket);
  EXPECT_EQ(client.ask({"PING"}), "+PONG");
  EXPECT_THAT(client.ask({"CLIENT", "INFO"}), HasSubstr("addr=unix:" + socket));

  // A living server's socket is left alone.
  expect_exit(6, {"--dir", path("other"), "--port", "-1", "--unix", socket},
              "another server listens there");
  EXPECT_EQ(RawClient(socket).ask({"PING"}), "+PONG");
  stop();
  EXPECT_FALSE(std::filesystem::exists(socket));
}

TEST_F(ServerTest, ReplacesTheSocketOfADeadServerAndNothingElse) {
  const std::string socket = path("s.sock");
  {
    ServerProcess dead({.flags = {"--dir", path("dead"), "--port", "-1", "--unix", socket}});
    ASSERT_EQ(dead.next_line(), "ready unix:" + socket);
    dead.signal(SIGKILL);
    ASSERT_EQ(dead.wait_exit(), 128 + SIGKILL);
  }
  ASSERT_TRUE(std::filesystem::exists(socket));
  ServerProcess next({.flags = {"--dir", path("next"), "--port", "-1", "--unix", socket}});
  EXPECT_EQ(next.next_line(), "ready unix:" + socket) << "the only line: TCP is off";
  EXPECT_EQ(RawClient(socket).ask({"PING"}), "+PONG");

  std::ofstream(path("precious")) << "keep me";
  expect_exit(6, {"--dir", path("third"), "--port", "-1", "--unix", path("precious")},
              "the file is no socket");
  EXPECT_EQ(std::filesystem::file_size(path("precious")), 7U);
}

TEST_F(ServerTest, SaysWhereItListensOnVersionSix) {
  ServerProcess server({.flags = {"--dir", path("six"), "--port", "0", "--bind", "::1"}});
  EXPECT_THAT(server.next_line(), ContainsRegex("^ready \\[::1\\]:[0-9]+$"));
}

TEST_F(ServerTest, TakesTheLeaseOverARestart) {
  start();
  EXPECT_EQ(connect().ask({"LEASE.ACQUIRE", "l", "me", "600000"}), "[$1, :600000]");
  stop();
  start();
  auto client = connect();
  EXPECT_EQ(client.ask({"LEASE.ACQUIRE", "l", "you", "600000"}), "_");
  EXPECT_THAT(client.ask({"LEASE.RENEW", "l", "me", "1", "600000"}), ":600000");
}

}  // namespace
}  // namespace fencekv::testing
