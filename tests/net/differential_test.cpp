// SPDX-License-Identifier: Apache-2.0
// The same bytes to fencekv-server and to Debian's redis-server: for the commands that both have,
// the replies and the end of the connection are the same, however broken the bytes are.
#include "server/resp/request_parser.h"
#include "tests/support/raw_client.h"
#include "tests/support/seed_from_environment.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;

/// A redis-server without persistence on a Unix socket; killed with its object.
class RedisProcess {
 public:
  explicit RedisProcess(const std::filesystem::path& directory)
      : socket_((directory / "redis").string()) {
    const std::string folder = directory.string();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int nowhere = ::open("/dev/null", O_RDWR);
      ::dup2(nowhere, STDOUT_FILENO);
      ::execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket_.c_str(),
               "--save", "", "--appendonly", "no", "--dir", folder.c_str(), nullptr);
      ::_exit(127);
    }
  }
  ~RedisProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  RedisProcess(const RedisProcess&) = delete;
  RedisProcess& operator=(const RedisProcess&) = delete;

  bool wait_ready() const {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (std::chrono::steady_clock::now() < deadline) {
      RawClient client(socket_);
      if (client.connected() && client.ask({"PING"}) == "+PONG") return true;
      std::this_thread::sleep_for(20ms);
    }
    return false;
  }

  const std::string& socket() const { return socket_; }

 private:
  std::string socket_;
  pid_t pid_ = -1;
};

bool is_installed(std::string_view program) {
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  std::stringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((std::filesystem::path(folder) / program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

/// What the framing rules say to expect, so that no test has to guess how long to wait.
struct Expected {
  std::size_t replies = 0;
  bool closed = false;
  bool own_limit = false;  ///< A limit that fencekv has and Redis has not: not comparable.
};

Expected expect(std::string_view bytes) {
  resp::RequestParser parser({});
  parser.feed(bytes);
  Expected expected;
  for (;;) {
    const auto status = parser.next();
    if (status == resp::RequestParser::Status::need_more) return expected;
    ++expected.replies;
    if (status == resp::RequestParser::Status::request) {
      const auto& words = parser.request();
      const bool has_keys = words.front() == "GET" || words.front() == "EXISTS";
      // No key is empty.
      if (has_keys && std::find(words.begin(), words.end(), "") != words.end()) {
        expected.own_limit = true;
      }
      continue;
    }
    expected.closed = true;
    expected.own_limit |= status == resp::RequestParser::Status::too_big;
    return expected;
  }
}

/// A reply for comparison. Protocol errors are compared whole. Of an error about a command only the
/// code counts: fencekv says more about what it expected.
std::string comparable(const std::string& shown) {
  if (!shown.starts_with("-") || shown.starts_with("-ERR Protocol error")) return shown;
  return shown.substr(0, shown.find(' '));
}

std::string converse(RawClient client, const std::vector<std::string_view>& pieces,
                     const Expected& expected) {
  for (const auto piece : pieces) {
    if (!client.send(piece)) break;  // closed in the middle
    // Two pieces that are sent at once arrive as one.
    if (pieces.size() > 1) std::this_thread::sleep_for(300us);
  }
  std::string heard;
  for (std::size_t i = 0; i < expected.replies; ++i) heard += comparable(client.line()) + "\n";
  const bool closed = client.closes_within(expected.closed ? RawClient::kPatience : 2ms);
  return heard + (closed ? "closed" : "open");
}

class Differential : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_installed("redis-server")) GTEST_SKIP() << "redis-server is not installed";
    redis_ = std::make_unique<RedisProcess>(directory_.path());
    fencekv_ = std::make_unique<ServerProcess>(
        ServerProcess::Start{.flags = {"--dir", (directory_.path() / "store").string(), "--port",
                                       "-1", "--unix", (directory_.path() / "fencekv").string()}});
    ASSERT_TRUE(fencekv_->next_line().starts_with("ready unix:")) << fencekv_->log();
    ASSERT_TRUE(redis_->wait_ready());
  }

  void compare(const std::string& bytes, const std::vector<std::string_view>& pieces) {
    const auto expected = expect(bytes);
    if (expected.own_limit) return;
    ++compared_;
    const auto ours =
        converse(RawClient((directory_.path() / "fencekv").string()), pieces, expected);
    const auto theirs = converse(RawClient(redis_->socket()), pieces, expected);
    EXPECT_EQ(ours, theirs) << ::testing::PrintToString(bytes) << " in " << pieces.size()
                            << " pieces";
  }
  void compare(const std::string& bytes) { compare(bytes, {bytes}); }

  std::size_t compared_ = 0;

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<RedisProcess> redis_;
  std::unique_ptr<ServerProcess> fencekv_;
};

const std::vector<std::vector<std::string>>& shared_commands() {
  static const std::vector<std::vector<std::string>> commands = {
      {"PING"},
      {"ping"},
      {"PING", "hello"},
      {"PING", "a", "b"},
      {"ECHO", "message"},
      {"ECHO", ""},
      {"ECHO", "two\r\nlines \xff\x01 'quoted' \"twice\" \\"},
      {"ECHO"},
      {"SELECT", "0"},
      {"GET", "missing"},
      {"GET"},
      {"GET", "a", "b"},
      {"MGET", "a", "b"},
      {"EXISTS", "missing", "missing"},
      {"EXISTS"},
      {"STRLEN", "missing"},
      {"TYPE", "missing"},
      {"DBSIZE"},
      {"NOSUCH", "command"},
      {""},
  };
  return commands;
}

TEST_F(Differential, AnswersSharedCommandsAsRedisDoes) {
  std::string all;
  for (const auto& words : shared_commands()) {
    compare(request(words));
    all += request(words);
  }
  compare(all);
}

TEST_F(Differential, TreatsBrokenFramingAsRedisDoes) {
  const std::string ping = request({"PING"});
  const std::vector<std::string> streams = {"*x\r\n",
                                            "*\r\n",
                                            "*01\r\n",
                                            "*+1\r\n",
                                            "*-0\r\n",
                                            "*-5\r\n" + ping,
                                            "*2147483648\r\n",
                                            "*1\r\nxPING\r\n",
                                            "*1\r\n\r\n",
                                            "*1\r\n*1\r\n",
                                            "*1\r\n:1\r\n",
                                            "*1\r\n$-1\r\n",
                                            "*2\r\n$3\r\nGET\r\n$-1\r\n",
                                            "*1\r\n$536870913\r\n",
                                            "*1\r\n$4x\r\n",
                                            "*1\r\n$\r\n",
                                            "*1\r\n$ 4\r\n",
                                            "*1\rX$4\rXPINGXX",
                                            "*1\n$4\nPING\n",
                                            "*0\r\n\r\n\n*-1\r\n" + ping,
                                            ping + "*1\r\nq\r\n" + ping,
                                            "*" + std::string(65'540, '1'),
                                            "*1\r\n$" + std::string(65'540, '1'),
                                            std::string(65'537, 'x'),
                                            "PING\n",
                                            "PING\r\n",
                                            "PING\r\r\n",
                                            "\r",
                                            "\r\n",
                                            "  PING  \r\n",
                                            "ECHO \"a\\x41\\n\\q\"\r\n",
                                            "ECHO 'a\\'b\\n'\r\n",
                                            "ECHO \"a\r\n",
                                            "ECHO 'a\r\n",
                                            "ECHO \"a\"b\r\n",
                                            "ECHO a\"b\"c\r\n",
                                            "ECHO \"\"\r\n",
                                            "\"\" x\r\n",
                                            "\"PING\"\r\n",
                                            "ECHO a\vb\r\n",
                                            "ECHO \"\\x4\" x\r\n",
                                            "PING\r\nPING\n" + ping + "ECHO x\r\n"};
  for (const auto& bytes : streams) compare(bytes);
}

/// Bytes that mean something to a parser, most of all.
std::string mutated(std::string bytes, std::minstd_rand& random) {
  constexpr std::string_view kBytes = "\r\n\r\n$*:-+0123456789\"'\\ x";
  const auto count = random() % 4;
  for (unsigned i = 0; i < count; ++i) {
    const char byte = kBytes[random() % kBytes.size()];
    const std::size_t at = random() % bytes.size();
    switch (random() % 4) {
      case 0:
        bytes.insert(at, 1, byte);
        break;
      case 1:
        bytes.erase(at, 1 + random() % 2);
        break;
      case 2:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 12));
        break;
      default:
        bytes[at] = byte;
    }
    if (bytes.empty()) bytes = "\r\n";
  }
  return bytes;
}

TEST_F(Differential, AgreesWithRedisOnRandomStreams) {
  const auto seed = static_cast<unsigned>(seed_from_environment("FENCEKV_SEED"));
  SCOPED_TRACE("FENCEKV_SEED=" + std::to_string(seed));
  std::minstd_rand random(seed);
  // SELECT and DBSIZE are not here: a mutation makes a difference out of them that is none of
  // framing.
  const std::vector<std::string> bases = {request({"PING"}),
                                          request({"ECHO", "a\r\nb"}),
                                          request({"GET", "k"}),
                                          request({"EXISTS", "k", "k"}),
                                          "PING\r\n",
                                          "ECHO \"a b\" \r\n",
                                          "ECHO 'c d'\n",
                                          "\r\n",
                                          "*0\r\n",
                                          request({"PING", "12345678901"})};

  for (int i = 0; i < 500 && !HasFailure(); ++i) {
    std::string bytes;
    const auto commands = 1 + random() % 4;
    for (unsigned c = 0; c < commands; ++c) bytes += bases[random() % bases.size()];
    bytes = mutated(std::move(bytes), random);

    std::vector<std::string_view> pieces;
    for (std::string_view rest = bytes; !rest.empty();) {
      const std::size_t size =
          i % 4 == 0 ? std::min<std::size_t>(1 + random() % 10, rest.size()) : rest.size();
      pieces.push_back(rest.substr(0, size));
      rest.remove_prefix(size);
    }
    compare(bytes, pieces);
  }
  EXPECT_GT(compared_, 300U);
}

}  // namespace
}  // namespace fencekv::testing
