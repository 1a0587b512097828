// SPDX-License-Identifier: Apache-2.0
/// fencekv-admin on a store that is in use: all of it at one point in time, and nobody disturbed.
#include "engine/core/record.h"
#include "engine/rocksdb/store_reader.h"
#include "tests/admin/scene.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace fencekv::admin_test {
namespace {

using testing::HasSubstr;

constexpr int kPairs = 8;

std::string first_of(int pair) {
  return "first/" + std::to_string(pair);
}
std::string second_of(int pair) {
  return "second/" + std::to_string(pair);
}

/// Writes pairs of keys, both in one command with the same value, until it is stopped. The value
/// begins with a number that rises, and is `value_bytes` long.
class PairWriters {
 public:
  PairWriters(Store& store, std::size_t value_bytes) : store_(store), value_bytes_(value_bytes) {
    token_ = store.acquire("load", new_owner(), std::chrono::hours(1)).operator*()->token;
    for (int writer = 0; writer < 2; ++writer) {
      threads_.emplace_back([this, writer] { work(writer); });
    }
  }
  ~PairWriters() {
    stopping_ = true;
    for (auto& thread : threads_) thread.join();
  }

  /// The newest number of the pair whose write was acknowledged.
  std::uint64_t acknowledged(int pair) const { return acknowledged_[static_cast<size_t>(pair)]; }
  std::uint64_t failures() const { return failures_; }

 private:
  void work(int writer) {
    for (std::uint64_t number = 1; !stopping_; ++number) {
      for (int pair = writer; pair < kPairs; pair += 2) {
        auto value = std::to_string(number) + " ";
        // Not compressible, so that it fills the store as fast as it can.
        std::uint64_t noise = number * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(pair);
        while (value.size() < value_bytes_) {
          noise = noise * 6364136223846793005ULL + 1442695040888963407ULL;
          value += static_cast<char>('!' + (noise >> 33) % 90);
        }
        const auto written =
            store_.execute(Write{.entries = {{first_of(pair), value}, {second_of(pair), value}},
                                 .token = token_,
                                 .lease = "load"});
        if (!written) ++failures_;
        if (written) acknowledged_[static_cast<std::size_t>(pair)] = number;
      }
    }
  }

  Store& store_;
  const std::size_t value_bytes_;
  Token token_;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::uint64_t> failures_ = 0;
  std::array<std::atomic<std::uint64_t>, kPairs> acknowledged_{};
  std::vector<std::thread> threads_;
};

/// Dumps while pairs are written, `dumps` times, and checks each dump.
void dump_under_load(const Options& options, std::size_t value_bytes, int dumps) {
  const Folder folder;
  const auto directory = folder.path() / "store";
  const auto store = open_store(directory, options);
  ASSERT_TRUE(store);
  PairWriters writers(*store, value_bytes);
  for (int pair = 0; pair < kPairs; ++pair) {
    while (writers.acknowledged(pair) == 0) std::this_thread::yield();
  }

  std::uint64_t last_position = 0;
  for (int i = 0; i < dumps; ++i) {
    std::array<std::uint64_t, kPairs> before{};
    for (int pair = 0; pair < kPairs; ++pair) {
      before[static_cast<std::size_t>(pair)] = writers.acknowledged(pair);
    }

    const auto ended = run_admin({"dump", "--dir", directory.string()});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto dump = parse_dump(ended.out);

    ASSERT_FALSE(dump.trailer.is_null());
    EXPECT_EQ(dump.header["live"], true);
    const auto position = std::stoull(dump.header["position"].get<std::string>());
    EXPECT_GT(position, last_position);
    last_position = position;
    ASSERT_EQ(dump.keys.size(), 2U * kPairs);
    for (int pair = 0; pair < kPairs; ++pair) {
      const auto& first = dump.keys.at(first_of(pair));
      const auto& second = dump.keys.at(second_of(pair));
      EXPECT_EQ(first["value"], second["value"]);
      EXPECT_EQ(first["version"], second["version"]);
      // What was acknowledged before is there, flushed or not.
      EXPECT_GE(std::stoull(first["value"]["text"].get<std::string>()),
                before[static_cast<std::size_t>(pair)]);
    }
  }
  const auto verified = run_admin({"verify", "--dir", directory.string()});
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  EXPECT_EQ(writers.failures(), 0U);
}

TEST(LiveStore, IsDumpedAtOnePointInTimeUnderSmallWrites) {
  dump_under_load({}, 100, 20);
}

TEST(LiveStore, IsDumpedAtOnePointInTimeWhileTablesComeAndGo) {
  // So much that RocksDB flushes, compacts and deletes files between and during the dumps.
  dump_under_load({.durability = Durability::process}, std::size_t{128} * 1024, 8);
}

/// A real fencekv-server in a process of its own.
class Server {
 public:
  explicit Server(const std::filesystem::path& directory) {
    std::array<int, 2> out{};
    EXPECT_EQ(pipe(out.data()), 0);
    const auto name = directory.string();
    process_ = fork();
    if (process_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      close(out[0]);
      execl(FENCEKV_SERVER, FENCEKV_SERVER, "--dir", name.c_str(), "--port", "0", nullptr);
      _exit(127);
    }
    close(out[1]);
    std::string line;
    for (char c = 0; read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    close(out[0]);
    EXPECT_THAT(line, testing::StartsWith("ready "));
    connect_to(static_cast<std::uint16_t>(std::atoi(line.substr(line.rfind(':') + 1).c_str())));
  }
  ~Server() {
    if (process_ > 0) end(SIGTERM);
    close(socket_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Sends an inline command; the first line of the answer.
  std::string ask(const std::string& command) const {
    const auto line = command + "\r\n";
    EXPECT_EQ(write(socket_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    std::string answer;
    for (char c = 0; read(socket_, &c, 1) == 1 && c != '\r';) {
      if (c != '\n') answer += c;
    }
    return answer;
  }

  void end(int signal) {
    kill(process_, signal);
    int status = 0;
    EXPECT_EQ(waitpid(process_, &status, 0), process_);
    process_ = -1;
  }

 private:
  void connect_to(std::uint16_t port) {
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }

  pid_t process_ = -1;
  int socket_ = -1;
};

TEST(LiveServer, IsLookedIntoAndNotDisturbed) {
  if (std::string_view(FENCEKV_SERVER).empty()) GTEST_SKIP() << "no fencekv-server was built";
  const Folder folder;
  const auto directory = folder.path() / "store";
  Server server(directory);
  EXPECT_EQ(server.ask("LEASE.ACQUIRE nightly owner-1 600000"), "*2");
  EXPECT_EQ(server.ask("PING"), "$1");  // the rest of the answer: token 1
  EXPECT_EQ(server.ask(""), "1");
  EXPECT_EQ(server.ask(""), ":600000");
  EXPECT_EQ(server.ask(""), "+PONG");
  EXPECT_EQ(server.ask("FENCE.SET report 1 hello LEASE nightly"), ":1");

  const auto dumped = run_admin({"dump", "--dir", directory.string()});
  const auto verified = run_admin({"verify", "--dir", directory.string()});

  EXPECT_EQ(dumped.code, 0) << dumped.err;
  const auto dump = parse_dump(dumped.out);
  EXPECT_EQ(dump.header["live"], true);
  EXPECT_EQ(dump.keys.at("report")["value"]["text"], "hello");
  EXPECT_EQ(dump.leases.at("nightly")["state"], "held");
  EXPECT_THAT(dump.leases.at("nightly")["client"].get<std::string>(), HasSubstr("127.0.0.1:"));
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  EXPECT_EQ(server.ask("FENCE.SET report 1 again LEASE nightly"), ":2");

  server.end(SIGKILL);
  const auto after = run_admin({"dump", "--dir", directory.string()});
  EXPECT_EQ(after.code, 0) << after.err;
  EXPECT_EQ(parse_dump(after.out).header["live"], false);
  EXPECT_EQ(parse_dump(after.out).keys.at("report")["value"]["text"], "again");
  EXPECT_EQ(run_admin({"verify", "--dir", directory.string()}).code, 0);
}

TEST(StoppedStore, KeepsWritersOutWhileItIsRead) {
  const Folder folder;
  const auto directory = folder.path() / "store";
  open_store(directory);
  const auto reader = rocks::StoreReader::open(directory, {});
  ASSERT_TRUE(reader) << reader.error().line();

  const auto writer = open_rocksdb(directory, {});

  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code(), Errc::in_use);
  EXPECT_EQ(run_admin({"stat", directory.string()}).code, 0);  // readers share
}

TEST(LiveStore, StaysAtItsPointInTimeWhileItsFilesAreDeleted) {
  const Folder folder;
  const auto directory = folder.path() / "store";
  auto store = open_store(directory);
  const auto token = (**store->acquire("l", "o", std::chrono::hours(1))).token;
  ASSERT_TRUE(store->set("key", "before", token));
  const auto reader = rocks::StoreReader::open(directory, {});
  ASSERT_TRUE(reader) << reader.error().line();
  ASSERT_TRUE((*reader)->is_live());

  ASSERT_TRUE(store->set("key", "after", token));
  ASSERT_TRUE(store->set("another", "after", token));
  store.reset();
  std::filesystem::remove_all(directory);

  std::vector<std::string> places;
  const auto scanned =
      (*reader)->records().scan("k", [&](std::string_view place, std::string_view bytes) {
        if (!place.starts_with('k')) return false;
        places.emplace_back(place);
        EXPECT_EQ(core::decode_key(place, bytes)->value, "before");
        return true;
      });
  EXPECT_TRUE(scanned);
  EXPECT_THAT(places, testing::ElementsAre("kkey"));
}

}  // namespace
}  // namespace fencekv::admin_test
