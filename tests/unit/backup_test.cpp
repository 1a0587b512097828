// SPDX-License-Identifier: Apache-2.0
/// Backups and what is made of them: engine/SEMANTICS.md, 5; engine/FORMAT.md, "A backup".

#include "engine/rocksdb/backup.h"

#include "engine/core/backend.h"
#include "engine/core/new_history.h"
#include "engine/rocksdb/new_store.h"
#include "engine/rocksdb/restore.h"
#include "engine/rocksdb/store_reader.h"
#include "fencekv/store.h"
#include "tests/support/fast_directory.h"
#include "tests/support/file_tree.h"
#include "tests/support/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using rocks::posix_files;
using std::filesystem::path;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

template <class T>
std::string line_of(const Result<T>& result) {
  return result ? "OK" : result.error().line();
}

std::vector<std::string> names_in(const path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

KeyState state_of(Store& store, const std::string& key) {
  auto keys = store.read_committed({.keys = {key}});
  EXPECT_TRUE(keys) << line_of(keys);
  return keys ? std::move(keys->front()) : KeyState{};
}

class BackupTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open(const path& directory, const Options& options = {}) {
    auto store = open_rocksdb(directory, options);
    EXPECT_TRUE(store) << line_of(store);
    return store ? *std::move(store) : nullptr;
  }

  path at(const std::string& name) const { return root_.path() / name; }

  /// A store with a lease, keys under it, a tombstone, and a key that was only raised.
  std::unique_ptr<Store> filled(const std::string& name) {
    auto store = open(at(name));
    const auto grant = store->acquire("lease", "me", 1h);
    EXPECT_TRUE(grant && *grant);
    token_ = (*grant)->token;
    for (int i = 0; i < 20; ++i) {
      const auto key = "key-" + std::to_string(i);
      EXPECT_TRUE(store->set(key, "value of " + key, token_, {.lease = "lease"}));
    }
    EXPECT_TRUE(store->set("gone", "v", token_));
    EXPECT_TRUE(store->remove("gone", token_));
    EXPECT_TRUE(store->execute(Raise{.key = "raised", .token = token_, .lease = {}}));
    EXPECT_TRUE(store->acquire("readers", "a", 1h, {.mode = LeaseMode::shared}));
    EXPECT_TRUE(store->acquire("readers", "b", 1h, {.mode = LeaseMode::shared}));
    return store;
  }

  const FastDirectory root_;
  Token token_;
};

TEST_F(BackupTest, IsListedSummedAndVerified) {
  const auto store = filled("store");

  const auto made = store->backup(at("backup"));

  ASSERT_TRUE(made) << line_of(made);
  EXPECT_THAT(names_in(at("backup")), ElementsAre("FORMAT", "MANIFEST.backup", "db"));
  EXPECT_THAT(names_in(root_.path()), ElementsAre("backup", "store"));
  const auto verified = rocks::verify_backup(posix_files(), at("backup"), {});
  ASSERT_TRUE(verified) << line_of(verified);
  EXPECT_EQ(verified->manifest.group, store->stats().groups);
  EXPECT_EQ(verified->manifest.group, made->group);
  EXPECT_EQ(verified->manifest.newest, store->stats().newest);
  EXPECT_EQ(verified->manifest.incarnation, store->stats().incarnation);
  EXPECT_EQ(verified->manifest.bytes(), made->bytes);
  EXPECT_EQ(verified->manifest.files.size(), made->files);
}

TEST_F(BackupTest, RestoredItHasEveryFactAndIsANewHistory) {
  std::map<std::string, KeyState> before;
  std::string incarnation;
  Token newest;
  {
    const auto store = filled("store");
    for (int i = 0; i < 20; ++i) {
      const auto key = "key-" + std::to_string(i);
      before[key] = state_of(*store, key);
    }
    for (const auto* key : {"gone", "raised"}) before[key] = state_of(*store, key);
    incarnation = store->stats().incarnation;
    newest = store->stats().newest;
    ASSERT_TRUE(store->backup(at("backup")));
  }

  const auto restored = rocks::restore(posix_files(), at("backup"), at("new"), {});

  ASSERT_TRUE(restored) << line_of(restored);
  EXPECT_THAT(names_in(root_.path()), ElementsAre("backup", "new", "store"));
  const auto store = open(at("new"));
  for (const auto& [key, state] : before) EXPECT_EQ(state_of(*store, key), state) << key;
  const auto stats = store->stats();
  EXPECT_NE(stats.incarnation, incarnation);
  EXPECT_EQ(stats.live_keys, 20U);
  EXPECT_EQ(stats.tombstones, 2U);
  EXPECT_GE(stats.floor.number(), newest.number() + core::kTokensBetweenHistories);
  EXPECT_EQ(line_of(store->renew("lease", "me", token_, 1s)), "LEASELOST unknown");
  // Tokens of the old history are over, also those that were drawn after the backup.
  for (const auto token : {token_, Token{newest.number() + 1000}}) {
    EXPECT_THAT(line_of(store->set("key-1", "late", token)),
                AllOf(StartsWith("FENCED"), HasSubstr("floor")));
    EXPECT_THAT(line_of(store->set("never seen", "late", token)),
                AllOf(StartsWith("FENCED"), HasSubstr("floor")));
  }
  const auto grant = store->acquire("lease", "you", 1h);
  ASSERT_TRUE(grant && *grant) << line_of(grant);
  EXPECT_GE((*grant)->token, stats.floor);
  EXPECT_EQ(line_of(store->set("key-1", "new", (*grant)->token, {.lease = "lease"})), "OK");
  const auto writer = store->acquire("readers", "c", 1h);
  EXPECT_TRUE(writer && *writer) << "readers of the old history hold nothing";
}

TEST_F(BackupTest, ARestoredStoreIsSoundAtRest) {
  ASSERT_TRUE(filled("store")->backup(at("backup")));
  ASSERT_TRUE(rocks::restore(posix_files(), at("backup"), at("new"), {}));

  auto reader = rocks::StoreReader::open(at("new"), {});

  ASSERT_TRUE(reader) << line_of(reader);
  const auto meta = (*reader)->meta();
  ASSERT_TRUE(meta) << line_of(meta);
  EXPECT_TRUE((*reader)->check_position(*meta));
  EXPECT_EQ((*reader)->noted().valid_slots, 2);
}

TEST_F(BackupTest, ManyRecordsAcrossManyTablesComeBack) {
  // More than one table of 64 MiB: values that do not compress.
  constexpr int kKeys = 100;
  auto store = open(at("store"));
  const auto grant = store->acquire("lease", "me", 1h);
  ASSERT_TRUE(grant && *grant);
  std::uint64_t noise = 1;
  std::map<std::string, std::string> values;
  for (int i = 0; i < kKeys; ++i) {
    std::string value(1 << 20, '\0');
    for (auto& byte : value) {
      noise = noise * 6364136223846793005U + 1442695040888963407U;
      byte = static_cast<char>(noise >> 56);
    }
    const auto key = "key-" + std::to_string(i);
    ASSERT_TRUE(store->set(key, value, (*grant)->token, {.lease = "lease"}));
    values[key] = std::move(value);
  }
  const auto made = store->backup(at("backup"));
  store.reset();
  ASSERT_TRUE(made) << line_of(made);

  ASSERT_TRUE(rocks::restore(posix_files(), at("backup"), at("new"), {}));

  store = open(at("new"));
  for (const auto& [key, value] : values) EXPECT_EQ(store->get(key)->value(), value) << key;
}

TEST_F(BackupTest, NeverReplacesAnything) {
  const auto store = filled("store");
  std::filesystem::create_directory(at("empty"));
  std::filesystem::create_symlink(at("nowhere"), at("link"));
  set_content(at("file"), "mine");
  const auto before = tree_of(root_.path());

  for (const auto* name : {"empty", "link", "file", "store"}) {
    EXPECT_THAT(line_of(store->backup(at(name))), HasSubstr("is there already")) << name;
  }
  EXPECT_THAT(line_of(store->backup(at("no folder") / "backup")), HasSubstr("is not a directory"));
  EXPECT_EQ(difference(before, tree_of(root_.path())), "");
}

TEST_F(BackupTest, WhatAnEarlierOneLeftIsRemovedAndNothingElse) {
  const auto store = filled("store");
  for (const auto* name : {".backup.fencekv-unfinished", ".other.fencekv-unfinished"}) {
    std::filesystem::create_directories(at(name) / "db");
    set_content(at(name) / "db" / "000004.sst", "half");
  }
  std::filesystem::create_directory(at(".mine.fencekv-unfinished"));
  set_content(at(".mine.fencekv-unfinished") / "letter", "to keep");

  const auto made = store->backup(at("backup"));

  ASSERT_TRUE(made) << line_of(made);
  EXPECT_THAT(names_in(root_.path()), ElementsAre(".mine.fencekv-unfinished", "backup", "store"));
  EXPECT_THAT(line_of(store->backup(at("mine"))), HasSubstr("did not put there"));
  EXPECT_EQ(content_of(at(".mine.fencekv-unfinished") / "letter"), "to keep");
}

TEST_F(BackupTest, WritesThroughNoLinkThatSomebodyPlanted) {
  const auto store = filled("store");
  std::filesystem::create_directory(at("victim"));
  set_content(at("victim") / "letter", "to keep");
  std::filesystem::create_directory_symlink(at("victim"), at(".backup.fencekv-unfinished"));

  const auto made = store->backup(at("backup"));

  ASSERT_TRUE(made) << line_of(made);
  EXPECT_THAT(names_in(at("victim")), ElementsAre("letter"));
  EXPECT_FALSE(std::filesystem::is_symlink(at("backup")));
}

TEST_F(BackupTest, OneThatIsBeingMadeByAnotherIsLeftAlone) {
  const auto store = filled("store");
  auto other =
      rocks::Unfinished::begin(posix_files(), at("backup"), rocks::Unfinished::Target::absent);
  ASSERT_TRUE(other) << line_of(other);
  ASSERT_TRUE(posix_files().make_directory(other->where() / "db"));

  EXPECT_THAT(line_of(store->backup(at("backup"))), HasSubstr("in use"));
  ASSERT_TRUE(store->backup(at("second")));

  EXPECT_TRUE(std::filesystem::exists(other->where() / "db"));
}

TEST_F(BackupTest, CancelledItLeavesNothing) {
  const auto store = filled("store");
  std::stop_source stop;
  stop.request_stop();

  const auto made = store->backup(at("backup"), stop.get_token());

  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Errc::unreachable);
  EXPECT_THAT(names_in(root_.path()), ElementsAre("store"));
}

TEST_F(BackupTest, AStoreInMemoryHasNone) {
  const auto made = open_memory({})->backup(at("backup"));

  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Errc::invalid);
}

TEST_F(BackupTest, DamagedAnywhereItIsRefusedWithTheNameOfTheFile) {
  ASSERT_TRUE(filled("store")->backup(at("backup")));
  for (const auto& [name, content] : tree_of(at("backup"))) {
    if (name.ends_with("/")) continue;
    const auto expect_refusal = [&](const std::string& what) {
      SCOPED_TRACE(name + " " + what);
      const auto verified = rocks::verify_backup(posix_files(), at("backup"), {});
      ASSERT_FALSE(verified);
      EXPECT_EQ(verified.error().code(), Errc::corrupt);
      EXPECT_THAT(verified.error().detail(), HasSubstr((at("backup") / name).string()));
      const auto restored = rocks::restore(posix_files(), at("backup"), at("new"), {});
      EXPECT_EQ(line_of(restored), verified.error().line());
      EXPECT_THAT(names_in(root_.path()), ElementsAre("backup", "store"));
    };
    const auto step = std::max<std::size_t>(content.size() / 16, 1);
    for (std::size_t i = 0; i < content.size(); i += step) {
      flip_bit(at("backup") / name, i, static_cast<int>(i % 8));
      expect_refusal("flipped at " + std::to_string(i));
      set_content(at("backup") / name, content);
    }
    set_content(at("backup") / name, content + "x");
    expect_refusal("with a byte more");
    if (!content.empty()) {
      set_content(at("backup") / name, content.substr(0, content.size() - 1));
      expect_refusal("cut");
    }
    std::filesystem::remove(at("backup") / name);
    expect_refusal("gone");
    set_content(at("backup") / name, content);
  }
  EXPECT_TRUE(rocks::verify_backup(posix_files(), at("backup"), {}));
}

TEST_F(BackupTest, AFileThatDoesNotBelongToItIsRefused) {
  ASSERT_TRUE(filled("store")->backup(at("backup")));
  set_content(at("backup") / "db" / "000999.sst", "planted");

  EXPECT_THAT(line_of(rocks::verify_backup(posix_files(), at("backup"), {})),
              AllOf(HasSubstr("000999.sst"), HasSubstr("not part of the backup")));
}

TEST_F(BackupTest, ItsListIsBelievedOnlyAsAWhole) {
  const rocks::BackupManifest manifest{
      .format = 2,
      .incarnation = "00ff",
      .group = 7,
      .newest = Token{9},
      .records = 3,
      .taken = 1000ms,
      .files = {{.name = "FORMAT", .bytes = 24, .sha256 = std::string(64, 'a')},
                {.name = "db/a b", .bytes = 0, .sha256 = std::string(64, '0')}}};
  const auto text = rocks::encode(manifest);

  const auto decoded = rocks::decode_manifest(text);
  ASSERT_TRUE(decoded) << line_of(decoded);
  EXPECT_EQ(*decoded, manifest);
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(rocks::decode_manifest(text.substr(0, size))) << size;
  }
  // Names that lead out of it, with a list that is whole otherwise.
  for (const auto* name : {"../FORMAT", "db/../../x", "/etc/passwd", "db/", "db/.", "db/..", ""}) {
    auto other = manifest;
    other.files[1].name = name;
    EXPECT_FALSE(rocks::decode_manifest(rocks::encode(other))) << name;
  }
  auto twice = manifest;
  twice.files[1].name = "FORMAT";
  EXPECT_FALSE(rocks::decode_manifest(rocks::encode(twice)));
}

TEST_F(BackupTest, RestoresIntoAnEmptyDirectoryAndIntoNoOther) {
  ASSERT_TRUE(filled("store")->backup(at("backup")));
  std::filesystem::create_directory(at("empty"));
  std::filesystem::create_directory(at("full"));
  set_content(at("full") / "letter", "to keep");
  set_content(at("file"), "mine");

  EXPECT_EQ(line_of(rocks::restore(posix_files(), at("backup"), at("empty"), {})), "OK");
  EXPECT_THAT(line_of(rocks::restore(posix_files(), at("backup"), at("full"), {})),
              HasSubstr("holds letter"));
  EXPECT_THAT(line_of(rocks::restore(posix_files(), at("backup"), at("store"), {})),
              HasSubstr("name an empty or new directory"));
  EXPECT_THAT(line_of(rocks::restore(posix_files(), at("backup"), at("file"), {})),
              HasSubstr("is not a directory"));
  EXPECT_TRUE(open(at("empty")));
}

TEST_F(BackupTest, UnderLoadItIsOnePrefixOfWhatWasAcknowledged) {
  // Each thread writes its key with a counter, one group after the other, and notes what was
  // acknowledged. A write of two keys keeps two values equal.
  constexpr int kThreads = 4;
  auto store = open(at("store"));
  const auto grant = store->acquire("lease", "me", 1h);
  ASSERT_TRUE(grant && *grant);
  const auto token = (*grant)->token;
  std::atomic<bool> stop = false;
  std::array<std::atomic<std::uint64_t>, kThreads> acknowledged{};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto id = std::to_string(t);
      for (std::uint64_t n = 1; !stop; ++n) {
        const auto value = std::to_string(n);
        const auto written = store->execute(make_write(
            {{.key = "a" + id, .value = value}, {.key = "z" + id, .value = value}}, token));
        ASSERT_TRUE(written) << line_of(written);
        acknowledged[static_cast<std::size_t>(t)] = n;
      }
    });
  }
  const auto numbers = [&] {
    std::array<std::uint64_t, kThreads> now{};
    for (std::size_t t = 0; t < kThreads; ++t) now[t] = acknowledged[t];
    return now;
  };
  const auto has_begun = [](std::uint64_t n) { return n >= 20; };
  for (auto now = numbers(); !std::all_of(now.begin(), now.end(), has_begun); now = numbers()) {
    std::this_thread::yield();
  }

  for (int round = 0; round < 3; ++round) {
    const auto name = "backup-" + std::to_string(round);
    const auto before = numbers();
    const auto made = store->backup(at(name));
    const auto after = numbers();
    ASSERT_TRUE(made) << line_of(made);
    const auto target = at("new-" + std::to_string(round));
    ASSERT_TRUE(rocks::restore(posix_files(), at(name), target, {}));

    const auto restored = open(target);
    for (std::size_t t = 0; t < kThreads; ++t) {
      const auto a = state_of(*restored, "a" + std::to_string(t));
      const auto z = state_of(*restored, "z" + std::to_string(t));
      EXPECT_EQ(a.value, z.value) << "half a group";
      // The counter is the version: no write in between is missing.
      EXPECT_EQ(a.value, std::to_string(a.version));
      EXPECT_GE(a.version, before[t]) << "acknowledged before the backup began";
      // The thread may have had its answer and not yet noted it.
      EXPECT_LE(a.version, after[t] + 1) << "written after the backup had ended";
    }
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace fencekv::testing
