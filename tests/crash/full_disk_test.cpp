// SPDX-License-Identifier: Apache-2.0
/// A disk that takes no more: nothing acknowledged is lost, the process lives, reads go on, and
/// writes too once there is space (engine/SEMANTICS.md, 4.4 and 4.8). And before that, floors: see
/// also tests/unit/space_watch_test.cpp.

#include "tests/crash/crash_store.h"
#include "tests/support/fast_directory.h"
#include "tests/support/file_tree.h"
#include "tests/support/noise.h"
#include "tests/support/raw_client.h"
#include "tests/support/server_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sched.h>
#include <string>
#include <string_view>
#include <sys/mount.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Writes until the storage fails, and remembers what was acknowledged.
class Filler {
 public:
  Filler(Store& store, Token token) : store_(store), token_(token) {}

  /// Returns the line of the first write that failed.
  std::string fill(std::size_t value_bytes, int at_most) {
    for (int i = 0; i < at_most; ++i) {
      const auto key = "key-" + std::to_string(next_);
      auto value = noise(value_bytes, static_cast<unsigned>(next_));
      ++next_;
      const auto version = store_.set(key, value, token_, {.lease = "lease"});
      if (!version) {
        in_doubt_.emplace(key, std::move(value));
        return version.error().line();
      }
      EXPECT_EQ(*version, 1U);
      acknowledged_.emplace(key, std::move(value));
    }
    return "OK";
  }

  /// All that was acknowledged is there, and what failed in full or not at all.
  void expect_all(Store& store) const {
    for (const auto& [key, value] : acknowledged_) {
      const auto state = state_of(store, key);
      ASSERT_TRUE(state.has_value()) << line_of(state);
      ASSERT_TRUE(state->value == value) << key;
      EXPECT_EQ(state->fence, token_);
      EXPECT_EQ(state->version, 1U);
    }
    for (const auto& [key, value] : in_doubt_) {
      const auto state = state_of(store, key);
      ASSERT_TRUE(state.has_value()) << line_of(state);
      EXPECT_TRUE(*state == KeyState{} || state->value == value) << key;
    }
  }
  std::size_t count() const { return acknowledged_.size(); }

 private:
  Store& store_;
  const Token token_;
  int next_ = 0;
  std::map<std::string, std::string> acknowledged_;
  std::map<std::string, std::string> in_doubt_;
};

Token hold(Store& store) {
  const auto grant = store.acquire("lease", "me", 1h);
  EXPECT_TRUE(grant && *grant) << line_of(grant);
  return grant && *grant ? (*grant)->token : Token{};
}

/// The storage lets itself be written again: the store notices by itself, everything is there, and
/// it goes on.
void expect_recovery(Store& store, const Filler& filler, Token token, std::string_view key) {
  ASSERT_TRUE(recovers(store));
  filler.expect_all(store);
  EXPECT_EQ(line_of(store.set(key, "v", token, {.lease = "lease"})), "OK");
  const auto next = store.acquire("next", "me", 1s);
  ASSERT_TRUE(next && *next) << line_of(next);
  EXPECT_GT((*next)->token, token);
}

// --- files that may not grow ----------------------------------------------------------------

void limit_files_to(rlim_t bytes) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = bytes;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST(FileTooLarge, IsInDoubtThenMisconfAndRecoversByItself) {
  const FastDirectory directory;
  in_child([&](int) {
    // Without this the process gets the signal instead of an error from write().
    std::signal(SIGXFSZ, SIG_IGN);
    auto opened = open_rocksdb(directory.path() / "store", {});
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    auto& store = **opened;
    const auto token = hold(store);
    Filler filler(store, token);
    // The second limit is so low that it cannot be reopened: the log does not fit into a table. It
    // has to come before the first attempt to reopen, which a busy machine may miss.
    for (int i = 0; i < 5 && !store.refuses_writes(); ++i) {
      limit_files_to(rlim_t{128} * 1024);
      EXPECT_THAT(filler.fill(4000, 1000), StartsWith("INDOUBT"));
      limit_files_to(rlim_t{16} * 1024);
      std::this_thread::sleep_for(150ms);
    }
    EXPECT_GT(filler.count(), 10U);

    for (int i = 0; i < 30; ++i) {
      EXPECT_THAT(line_of(store.set("more", "v", token, {.lease = "lease"})),
                  StartsWith("MISCONF"));
      EXPECT_THAT(line_of(store.acquire("next", "me", 1s)), StartsWith("MISCONF"));
      filler.expect_all(store);
      std::this_thread::sleep_for(10ms);
    }
    EXPECT_TRUE(store.refuses_writes().has_value());

    limit_files_to(RLIM_INFINITY);
    expect_recovery(store, filler, token, "more");
    if (::testing::Test::HasFatalFailure()) return;
  });
}

TEST(FileTooLarge, NeverAbortsWhereverItHits) {
  // The limit is reached by the log, by the table that is made of it, or by the manifest.
  for (const rlim_t kib : {9, 12, 20, 33, 64, 100, 200}) {
    SCOPED_TRACE(std::to_string(kib) + " KiB");
    const FastDirectory directory;
    in_child([&](int) {
      std::signal(SIGXFSZ, SIG_IGN);
      auto opened = open_rocksdb(directory.path() / "store", {});
      ASSERT_TRUE(opened.has_value()) << line_of(opened);
      const auto token = hold(**opened);
      Filler filler(**opened, token);
      limit_files_to(kib * 1024);
      EXPECT_THAT(filler.fill(3000, 1000), StartsWith("INDOUBT"));
      // Reads while it reopens, fails, and reopens.
      for (int i = 0; i < 20; ++i) {
        filler.expect_all(**opened);
        std::this_thread::sleep_for(10ms);
      }

      limit_files_to(RLIM_INFINITY);
      expect_recovery(**opened, filler, token, "after");
      if (::testing::Test::HasFatalFailure()) return;

      opened->reset();
      opened = open_rocksdb(directory.path() / "store", {});
      ASSERT_TRUE(opened.has_value()) << line_of(opened);
      filler.expect_all(**opened);
    });
  }
}

TEST(FileTooLarge, ACreationThatFailsHindersNobody) {
  for (const rlim_t bytes : {0, 10, 30, 100, 5000, 8192, 8193}) {
    SCOPED_TRACE(std::to_string(bytes) + " bytes");
    const FastDirectory directory;
    const auto path = directory.path() / "store";
    in_child([&](int) {
      std::signal(SIGXFSZ, SIG_IGN);
      limit_files_to(bytes);
      const auto refused = open_rocksdb(path, {});
      limit_files_to(RLIM_INFINITY);
      if (bytes < 100) {
        EXPECT_FALSE(refused.has_value());
      }
    });
    in_child([&](int) {
      const auto opened = open_rocksdb(path, {});
      ASSERT_TRUE(opened.has_value()) << line_of(opened);
      EXPECT_FALSE(hold(**opened).is_none());
    });
  }
}

// --- a disk that is full --------------------------------------------------------------------

constexpr std::size_t kDiskMiB = 16;

/// A store that runs into the end of the disk.
Options without_floors(Durability durability = Durability::sync) {
  Options options;
  options.durability = durability;
  options.soft_disk_floor = 0;
  options.hard_disk_floor = 0;
  return options;
}

/// Mounts a small disk at `where`, for this process and its children only. Returns why not, or
/// nothing.
std::string mount_small_disk(const std::filesystem::path& where) {
  const auto failed = [](const char* what) {
    return std::string("cannot ") + what + ": " + std::strerror(errno);
  };
  const auto user = getuid();
  const auto group = getgid();
  if (user != 0) {
    // A user may mount in a namespace of its own, where the system lets it.
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return failed("make a user namespace");
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
    std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
  } else if (unshare(CLONE_NEWNS) != 0) {
    return failed("make a mount namespace");
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return failed("keep mounts private");
  const auto size = "size=" + std::to_string(kDiskMiB) + "m";
  if (mount("fencekv-test", where.c_str(), "tmpfs", 0, size.c_str()) != 0)
    return failed("mount a tmpfs");
  return "";
}

/// A file that occupies everything, or at most `bytes`.
void occupy(const std::filesystem::path& path, std::size_t bytes = SIZE_MAX) {
  std::ofstream file(path, std::ios::binary);
  const std::string chunk(4096, 'x');
  for (std::size_t size = 0; size < bytes && file.write(chunk.data(), 4096).flush(); size += 4096) {
  }
}

/// Runs `body(disk)` in a process of its own that has a small disk; skips the test without one.
template <class Body>
void on_a_small_disk(Body body) {
  const FastDirectory directory;
  const auto said = in_child([&](int out) {
    const auto reason = mount_small_disk(directory.path());
    if (!reason.empty()) return say(out, reason);
    body(directory.path());
  });
  if (!said.empty()) GTEST_SKIP() << said;
}

TEST(FullDisk, KeepsEverythingServesReadsAndRecoversByItself) {
  on_a_small_disk([](const std::filesystem::path& disk) {
    const auto path = disk / "store";
    occupy(disk / "ballast", std::size_t{8} << 20);
    auto opened = open_rocksdb(path, without_floors());
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    const auto token = hold(**opened);
    Filler filler(**opened, token);
    // Reopening frees what RocksDB had set aside for its log. So more than once, and with the
    // blocks that are left, until it stays full.
    bool is_full = false;
    for (int i = 0; i < 20 && !is_full; ++i) {
      EXPECT_THAT(filler.fill(20'000, 5000), StartsWith("INDOUBT"));
      occupy(disk / ("rest-" + std::to_string(i)));
      is_full = !recovers(**opened, 3s);
    }
    ASSERT_TRUE(is_full);
    EXPECT_GT(filler.count(), 50U);

    // Running: reads go on, writes are refused with a reason.
    for (int i = 0; i < 10; ++i) {
      filler.expect_all(**opened);
      EXPECT_THAT(line_of((*opened)->set("more", "v", token, {.lease = "lease"})),
                  StartsWith("MISCONF"));
      std::this_thread::sleep_for(30ms);
    }
    ASSERT_TRUE((*opened)->refuses_writes().has_value());

    // Started anew on the full disk: the same.
    opened->reset();
    opened = open_rocksdb(path, without_floors());
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    ASSERT_TRUE((*opened)->refuses_writes().has_value());
    EXPECT_THAT(*(*opened)->refuses_writes(), HasSubstr("No space left"));
    filler.expect_all(**opened);
    EXPECT_EQ((*opened)->execute(Inspect{.name = "lease"})->fence, token);
    EXPECT_THAT(line_of((*opened)->set("more", "v", token, {.lease = "lease"})),
                StartsWith("MISCONF"));
    EXPECT_THAT(line_of((*opened)->acquire("next", "me", 1s)), StartsWith("MISCONF"));

    // There is space again.
    std::filesystem::remove(disk / "ballast");
    expect_recovery(**opened, filler, token, "after");
    if (::testing::Test::HasFatalFailure()) return;

    opened->reset();
    opened = open_rocksdb(path, without_floors());
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    filler.expect_all(**opened);
    EXPECT_EQ(state_of(**opened, "after")->value, "v");
  });
}

TEST(FullDisk, RecoversWithoutARestartToo) {
  on_a_small_disk([](const std::filesystem::path& disk) {
    occupy(disk / "ballast", std::size_t{8} << 20);
    auto opened = open_rocksdb(disk / "store", without_floors(Durability::process));
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    const auto token = hold(**opened);
    Filler filler(**opened, token);
    EXPECT_THAT(filler.fill(20'000, 5000), StartsWith("INDOUBT"));
    std::this_thread::sleep_for(250ms);
    std::filesystem::remove(disk / "ballast");
    ASSERT_TRUE(recovers(**opened));
    filler.expect_all(**opened);
    // It has not only recovered, it works: more than was written before.
    for (int i = 0; i < 30; ++i) {
      ASSERT_EQ(line_of((*opened)->set("after-" + std::to_string(i), noise(20'000, 7), token)),
                "OK");
    }
    EXPECT_EQ((*opened)->stats().floor, Token{});
  });
}

TEST(FullDisk, AStoreThatIsBehindIsRefusedThereToo) {
  on_a_small_disk([](const std::filesystem::path& disk) {
    {
      auto opened = open_rocksdb(disk / "store", {});
      ASSERT_TRUE(opened.has_value()) << line_of(opened);
      Filler filler(**opened, hold(**opened));
      EXPECT_EQ(filler.fill(20'000, 50), "OK");
    }
    for (const auto& entry : std::filesystem::directory_iterator(disk / "store/db")) {
      if (entry.path().extension() != ".log") continue;
      const auto content = content_of(entry.path());
      set_content(entry.path(), content.substr(0, content.size() / 2));
    }
    occupy(disk / "ballast");
    EXPECT_THAT(line_of(open_rocksdb(disk / "store", {})), StartsWith("CORRUPT"));
  });
}

TEST(FullDisk, ANewStoreIsNotBegunThere) {
  on_a_small_disk([](const std::filesystem::path& disk) {
    occupy(disk / "ballast");
    const auto refused = open_rocksdb(disk / "store", {});
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::no_space) << line_of(refused);
    EXPECT_THAT(refused.error().detail(), HasSubstr((disk / "store").string()));

    std::filesystem::remove(disk / "ballast");
    EXPECT_EQ(line_of(open_rocksdb(disk / "store", {})), "OK");
  });
}

/// What the process of a real server says and does there.
TEST(FullDisk, TheServerStartsThereSaysSoServesReadsAndRecoversByItself) {
  on_a_small_disk([](const std::filesystem::path& disk) {
    occupy(disk / "ballast", std::size_t{8} << 20);
    const ServerProcess::Start start{.flags = {"--dir", (disk / "store").string(), "--port", "0",
                                               "--soft-disk-floor", "0", "--hard-disk-floor", "0"}};
    auto server = std::make_unique<ServerProcess>(start);
    auto port = server->wait_ready();
    ASSERT_NE(port, 0) << server->log();
    EXPECT_THAT(RawClient(port).ask({"LEASE.ACQUIRE", "lease", "me", "3600000"}),
                StartsWith("[$1,"));
    int acknowledged = 0;
    const auto write = [&](const std::string& key, const std::string& value) {
      return RawClient(port).ask({"FENCE.SET", key, "1", value, "LEASE", "lease"});
    };
    const auto value_of = [](int i) { return noise(20'000, static_cast<unsigned>(i)); };
    const auto fill = [&] {
      std::string reply = ":1";
      for (int i = 0; i < 5000; ++i) {
        const auto number = acknowledged;
        reply = write("key-" + std::to_string(number), value_of(number));
        // One that was in doubt may have happened, and is not told apart: it is written again.
        if (!reply.starts_with(":")) return reply;
        ++acknowledged;
      }
      return reply;
    };
    const auto expect_all = [&] {
      RawClient client(port);
      for (int i = 0; i < acknowledged; ++i) {
        ASSERT_TRUE(client.ask({"GET", "key-" + std::to_string(i)}) == "$" + value_of(i)) << i;
      }
    };

    // An opening may give back what the log had taken, so more than once. With little left it may
    // succeed, and what is made behind it fail: that is not what is looked for.
    const auto says_so = HasSubstr("the store takes no writes and serves reads only: ");
    bool is_full = false;
    for (int i = 0; i < 20 && !is_full; ++i) {
      EXPECT_THAT(fill(), AnyOf(StartsWith("-INDOUBT"), StartsWith("-MISCONF")));
      server->signal(SIGKILL);
      ASSERT_EQ(server->wait_exit(), 128 + SIGKILL);
      occupy(disk / ("rest-" + std::to_string(i)));
      server = std::make_unique<ServerProcess>(start);
      port = server->wait_ready();
      ASSERT_NE(port, 0) << "exit " << server->wait_exit().value_or(-1) << ": " << server->log();
      is_full =
          write("more", "v").starts_with("-MISCONF") && ::testing::Matches(says_so)(server->log());
    }
    ASSERT_TRUE(is_full) << "no start said that it takes no writes: " << server->log();
    EXPECT_THAT(server->log(), HasSubstr("No space left"));
    EXPECT_GT(acknowledged, 50);
    expect_all();
    EXPECT_THAT(RawClient(port).ask({"LEASE.INFO", "lease"}), HasSubstr("$fence, $1,"));
    EXPECT_THAT(RawClient(port).ask({"INFO", "fencekv"}),
                AllOf(HasSubstr("accepts_writes:0\r\n"), HasSubstr("refuses_writes:")));
    EXPECT_THAT(RawClient(port).ask({"LEASE.ACQUIRE", "next", "me", "1000"}),
                StartsWith("-MISCONF"));

    // There is space again.
    std::filesystem::remove(disk / "ballast");
    for (int i = 0; i < 3000 && !write("more", "v").starts_with(":"); ++i) {
      std::this_thread::sleep_for(10ms);
    }
    EXPECT_THAT(write("more", "w"), StartsWith(":")) << server->log();
    EXPECT_THAT(RawClient(port).ask({"LEASE.ACQUIRE", "next", "me", "1000"}), StartsWith("[$"));
    expect_all();
    server->signal(SIGTERM);
    EXPECT_EQ(server->wait_exit(), 0) << server->log();
    server = std::make_unique<ServerProcess>(start);
    port = server->wait_ready();
    ASSERT_NE(port, 0) << server->log();
    EXPECT_THAT(server->log(), Not(says_so));
    expect_all();
    EXPECT_EQ(RawClient(port).ask({"GET", "more"}), "$w");
  });
}

// --- a disk that would be full, but for its floors ------------------------------------------

/// Nothing fails: what there is no room for is refused before.
TEST(DiskFloors, ComeBeforeTheEndOfTheDisk) {
  on_a_small_disk([](const std::filesystem::path& disk) {
    const auto path = disk / "store";
    auto opened = open_rocksdb(path, {});
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    const auto token = hold(**opened);
    Filler filler(**opened, token);
    // Making tables of the log wins room, so more than once.
    for (int i = 0; i < 12; ++i) {
      EXPECT_THAT(filler.fill(20'000, 5000),
                  AllOf(StartsWith("MISCONF"), HasSubstr("below the soft floor of 0.8 MiB")));
      std::this_thread::sleep_for(300ms);
    }
    EXPECT_GT(filler.count(), 300U) << "most of the disk is used";
    EXPECT_FALSE((*opened)->refuses_writes());
    EXPECT_EQ((*opened)->stats().space, SpaceLevel::low);

    // Leases go on for as long as anybody wants, since what is overwritten is won back.
    for (int i = 0; i < 20'000; ++i) {
      ASSERT_EQ(line_of((*opened)->renew("lease", "me", token, 1h)), "OK") << i;
    }
    EXPECT_EQ(line_of((*opened)->acquire("another", "me", 1h)), "OK");
    EXPECT_EQ(line_of((*opened)->remove("key-0", token, {.lease = "lease"})), "OK");
    EXPECT_EQ(line_of((*opened)->set("key-0", "v", token, {.lease = "lease"})).substr(0, 7),
              "MISCONF");

    // Somebody else takes the rest of the disk.
    // A table that is finished meanwhile gives space back, so more than once.
    const std::uint64_t rest = 120 * 1024;
    std::string renewed;
    for (int i = 0; i < 20 && !renewed.starts_with("MISCONF"); ++i) {
      const auto free = (*opened)->stats().free_bytes;
      if (free > rest) occupy(disk / ("ballast-" + std::to_string(i)), free - rest);
      std::this_thread::sleep_for(300ms);
      renewed = line_of((*opened)->renew("lease", "me", token, 1h));
    }
    EXPECT_THAT(renewed,
                AllOf(StartsWith("MISCONF"), HasSubstr("below the hard floor of 0.2 MiB")));

    // Started anew there, it says so and serves reads. An opening may give space back, too.
    for (int i = 0; i < 10; ++i) {
      opened->reset();
      const auto free = std::filesystem::space(disk).available;
      if (free > rest) occupy(disk / ("ballast-" + std::to_string(20 + i)), free - rest);
      opened = open_rocksdb(path, {});
      ASSERT_TRUE(opened.has_value()) << line_of(opened);
      if ((*opened)->refuses_writes()) break;
    }
    ASSERT_TRUE((*opened)->refuses_writes().has_value());
    EXPECT_EQ((*opened)->stats().space, SpaceLevel::out);
    EXPECT_EQ((*opened)->execute(Inspect{.name = "lease"})->fence, token);
    EXPECT_TRUE((*opened)->get("key-1")->has_value());

    // There is space again: of itself it takes all writes.
    for (int i = 0; i < 30; ++i) std::filesystem::remove(disk / ("ballast-" + std::to_string(i)));
    ASSERT_TRUE(recovers(**opened));
    EXPECT_EQ(line_of((*opened)->renew("lease", "me", token, 1h)), "OK");
    for (int i = 1; i < 200; ++i) {
      ASSERT_EQ(line_of((*opened)->remove("key-" + std::to_string(i), token, {.lease = "lease"})),
                "OK");
    }
    opened->reset();
    opened = open_rocksdb(path, {});
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    EXPECT_EQ(state_of(**opened, "key-1")->fence, token);
    EXPECT_TRUE(state_of(**opened, "key-250")->value.has_value());
  });
}

TEST(DiskFloors, AreWhatTheOptionsSay) {
  on_a_small_disk([](const std::filesystem::path& disk) {
    Options options;
    // A new store leaves nearly all of the 16 MiB of this disk.
    options.soft_disk_floor = std::uint64_t{13} << 20;
    options.hard_disk_floor = 0;
    auto opened = open_rocksdb(disk / "store", options);
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    const auto token = hold(**opened);
    EXPECT_EQ(line_of((*opened)->set("key", "v", token)), "OK");
    occupy(disk / "ballast", std::size_t{5} << 20);
    std::this_thread::sleep_for(300ms);
    EXPECT_THAT(line_of((*opened)->set("key", "w", token)), HasSubstr("soft floor of 13.0 MiB"));
    EXPECT_EQ(line_of((*opened)->renew("lease", "me", token, 1h)), "OK");

    std::filesystem::remove(disk / "ballast");
    // There is not a quarter more than the floor; a start does not know that there was less.
    std::this_thread::sleep_for(300ms);
    EXPECT_THAT(line_of((*opened)->set("key", "w", token)), StartsWith("MISCONF"));
    opened->reset();
    opened = open_rocksdb(disk / "store", options);
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    EXPECT_EQ(line_of((*opened)->set("key", "w", token)), "OK");
  });
}

}  // namespace
}  // namespace fencekv::testing
