// SPDX-License-Identifier: Apache-2.0
/// STORE.BACKUP and STORE.BACKUPS over the network: server/PROTOCOL.md, "The server".

#include "fencekv/store.h"
#include "tests/support/file_tree.h"
#include "tests/support/raw_client.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace fencekv::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class BackupCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(root());
    start({"--backup-root", root().string()});
  }

  void start(const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--dir", (directory_.path() / "store").string(), "--port",
                                      "0"};
    flags.insert(flags.end(), more.begin(), more.end());
    server_ = std::make_unique<ServerProcess>(
        ServerProcess::Start{.flags = std::move(flags), .open_files = {}});
    port_ = server_->wait_ready();
    ASSERT_NE(port_, 0) << server_->log();
  }

  std::filesystem::path root() const { return directory_.path() / "backups"; }

  TemporaryDirectory directory_;
  std::unique_ptr<ServerProcess> server_;
  std::uint16_t port_ = 0;
};

TEST_F(BackupCommandTest, HoldsWhatTheSameConnectionWroteBefore) {
  RawClient client(port_);
  client.ask({"HELLO", "3"});
  const auto token = client.ask({"LEASE.ACQUIRE", "l", "me", "60000"});
  ASSERT_THAT(token, StartsWith("[$1,"));

  // In one packet: the backup comes after the write.
  client.send(request({"FENCE.SET", "k", "1", "v", "LEASE", "l"}) +
              request({"STORE.BACKUP", "monday"}) + request({"FENCE.GET", "k"}));

  EXPECT_EQ(client.line(), ":1");
  EXPECT_THAT(client.line(),
              AllOf(StartsWith("{$name: $monday, $bytes: :"), HasSubstr("$newest: $1")));
  EXPECT_THAT(client.line(), HasSubstr("$value: $v"));
  EXPECT_THAT(client.ask({"STORE.BACKUPS"}), StartsWith("[{$name: $monday, $bytes: :"));
  const auto listed = list_backups(root());
  ASSERT_TRUE(listed);
  ASSERT_THAT(*listed, SizeIs(1));
  EXPECT_EQ(listed->front().newest, Token{1});
  EXPECT_GT(listed->front().records, 3U);
}

TEST_F(BackupCommandTest, ItsNameCannotLeaveTheRoot) {
  std::filesystem::create_directory(directory_.path() / "victim");
  std::filesystem::create_directory_symlink(directory_.path() / "victim", root() / "planted");
  RawClient client(port_);
  for (const auto* name : {"", ".", "..", "../x", "a/b", "/tmp/x", ".hidden", "a b", "a\\b", "\xff",
                           "12345678901234567890123456789012345678901234567890123456789012345"}) {
    EXPECT_THAT(client.ask({"STORE.BACKUP", name}), StartsWith("-ERR a backup has a name")) << name;
  }
  EXPECT_THAT(client.ask({"STORE.BACKUP", std::string("a\0b", 3)}), StartsWith("-ERR"));
  EXPECT_THAT(client.ask({"STORE.BACKUP", "planted"}), HasSubstr("is there already"));
  EXPECT_EQ(client.ask({"STORE.BACKUPS"}), "[]");
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path() / "victim"));
}

TEST_F(BackupCommandTest, ANameThatIsTakenStaysWithItsBackup) {
  RawClient client(port_);
  client.ask({"HELLO", "3"});
  ASSERT_THAT(client.ask({"STORE.BACKUP", "b"}), StartsWith("{$name: $b"));
  const auto before = tree_of(root());

  EXPECT_THAT(client.ask({"STORE.BACKUP", "b"}),
              AllOf(StartsWith("-ERR"), HasSubstr("is there already")));
  EXPECT_EQ(difference(before, tree_of(root())), "");
}

TEST_F(BackupCommandTest, WithoutARootItSaysWhichFlagIsMissing) {
  server_.reset();
  start({});
  RawClient client(port_);

  EXPECT_THAT(client.ask({"STORE.BACKUP", "b"}),
              AllOf(StartsWith("-ERR"), HasSubstr("--backup-root")));
  EXPECT_THAT(client.ask({"STORE.BACKUPS"}), HasSubstr("--backup-root"));
}

TEST_F(BackupCommandTest, WhatAKilledServerLeftIsRemovedByTheNextBackup) {
  const auto left = root() / ".old.fencekv-unfinished";
  std::filesystem::create_directories(left / "db");
  set_content(left / "db" / "000004.sst", "half");
  RawClient client(port_);

  EXPECT_EQ(client.ask({"STORE.BACKUPS"}), "[]");
  ASSERT_THAT(client.ask({"STORE.BACKUP", "new"}), StartsWith("["));
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(BackupCommandTest, AnEndingServerWaitsForNoBackup) {
  RawClient client(port_);
  client.ask({"LEASE.ACQUIRE", "l", "me", "600000"});
  const std::string value(1 << 20, 'v');
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(client.ask({"FENCE.SET", "k" + std::to_string(i), "1", value, "LEASE", "l"}), ":1");
  }
  client.send(request({"STORE.BACKUP", "b"}));

  server_->signal(SIGTERM);

  EXPECT_EQ(server_->wait_exit(), 0) << server_->log();
  // Complete, or absent: which of them depends on how fast it was.
  for (const auto& entry : std::filesystem::directory_iterator(root())) {
    EXPECT_EQ(entry.path().filename(), "b");
    EXPECT_TRUE(std::filesystem::exists(entry.path() / "MANIFEST.backup"));
  }
}

}  // namespace
}  // namespace fencekv::testing
