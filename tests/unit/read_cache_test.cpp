// SPDX-License-Identifier: Apache-2.0
/// A read that asks no storage answers as one that does: each way in which readers, the leader and
/// the storage can overtake each other, and all of them at once.

#include "engine/core/read_cache.h"

#include "engine/core/record.h"
#include "tests/unit/committer_fixture.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>

namespace fencekv::core {
namespace {

using namespace std::chrono_literals;  // NOLINT: only literals
using testing::Failure;
using testing::line_of;
using ::testing::StartsWith;
using testing::write_of;

constexpr std::size_t kPlenty = std::size_t{4} * 1024 * 1024;

KeyState state_of(std::uint64_t version, std::optional<std::string> value) {
  KeyState state;
  state.value = std::move(value);
  state.version = version;
  state.fence = Token{version + 10};
  state.written = std::chrono::milliseconds(version + 20);
  return state;
}

void add(ReadCache& cache, std::string_view key, const KeyState& state) {
  cache.keep(key, cache.find(key), state);
}

std::optional<KeyState> found(ReadCache& cache, std::string_view key) {
  const auto look = cache.find(key);
  return look.record ? std::optional(look.record->state()) : std::nullopt;
}

Put put_of(const std::string& key, std::uint64_t version, std::string value) {
  KeyRecord record;
  record.version = version;
  record.fence = Token{version};
  record.written_by = Token{version};
  record.value = std::move(value);
  const auto place = key_place(key);
  return {.place = place, .bytes = encode(place, record)};
}

Batch batch_of(const std::vector<Put>& puts, std::vector<std::string> deletes = {}) {
  Batch batch{.puts = {}, .deletes = std::move(deletes), .position = {}};
  for (const auto& put : puts) batch.puts.add(put.place, put.bytes);
  batch.puts.add(kPositionKey, "position");
  return batch;
}

TEST(ReadCache, GivesBackTheWholeRecord) {
  ReadCache cache(kPlenty);
  auto full = state_of(5, "a value");
  full.guard = "guard";
  full.request = "request";
  add(cache, "full", full);
  add(cache, "tombstone", state_of(7, std::nullopt));
  add(cache, "empty", state_of(9, ""));

  EXPECT_EQ(found(cache, "full"), full);
  EXPECT_EQ(found(cache, "tombstone"), state_of(7, std::nullopt));
  EXPECT_EQ(found(cache, "empty"), state_of(9, ""));
  EXPECT_EQ(found(cache, "other"), std::nullopt);
  EXPECT_EQ(cache.size(), 3U);
}

TEST(ReadCache, WithoutMemoryKnowsNothing) {
  ReadCache cache(0);
  add(cache, "a", state_of(1, "v"));
  EXPECT_EQ(found(cache, "a"), std::nullopt);
  const auto batch = batch_of({put_of("a", 2, "w")});
  cache.begin(batch);
  cache.end(Outcome::committed);
  cache.stop();
  cache.resume();
  EXPECT_EQ(cache.find_together({"a", "b"}).size(), 2U);
  EXPECT_EQ(cache.size(), 0U);
}

TEST(ReadCache, ALookBeforeACommitKeepsNothingAfterIt) {
  ReadCache cache(kPlenty);
  const auto look = cache.find("key");
  const auto batch = batch_of({put_of("key", 2, "new")});
  cache.begin(batch);
  cache.keep("key", look, state_of(1, "old"));
  EXPECT_EQ(found(cache, "key"), std::nullopt);
  cache.end(Outcome::committed);
  cache.keep("key", look, state_of(1, "old"));
  EXPECT_EQ(found(cache, "key"), std::nullopt);
}

TEST(ReadCache, ALookDuringACommitKeepsNothing) {
  ReadCache cache(kPlenty);
  add(cache, "key", state_of(1, "old"));
  const auto batch = batch_of({put_of("key", 2, "new")});
  cache.begin(batch);
  const auto look = cache.find("key");
  EXPECT_FALSE(look.record);
  cache.keep("key", look, state_of(1, "old"));
  EXPECT_EQ(found(cache, "key"), std::nullopt);
  cache.end(Outcome::refused);
  cache.keep("key", look, state_of(1, "old"));
  EXPECT_EQ(found(cache, "key"), std::nullopt);
  add(cache, "key", state_of(1, "old"));
  EXPECT_EQ(found(cache, "key"), state_of(1, "old"));
}

TEST(ReadCache, OtherKeysAreKeptDuringACommit) {
  ReadCache cache(kPlenty);
  const auto batch = batch_of({put_of("key", 2, "new")});
  cache.begin(batch);
  int kept = 0;
  for (int i = 0; i < 1'000; ++i) {
    const auto other = "other " + std::to_string(i);
    add(cache, other, state_of(1, "v"));
    if (found(cache, other)) ++kept;
  }
  EXPECT_GT(kept, 950);
  cache.end(Outcome::committed);
}

TEST(ReadCache, WhatIsReadIsReplacedByWhatIsCommitted) {
  ReadCache cache(kPlenty);
  add(cache, "read", state_of(1, "old"));
  add(cache, "erased", state_of(1, "old"));
  add(cache, "grown", state_of(1, "old"));
  const auto batch = batch_of({put_of("read", 2, "new"), put_of("never read", 5, "v"),
                               put_of("grown", 2, std::string(ReadCache::kLongestValue + 1, 'x'))},
                              {key_place("erased")});
  cache.begin(batch);
  for (const auto* key : {"read", "erased", "grown", "never read"}) {
    EXPECT_EQ(found(cache, key), std::nullopt) << key;
  }
  cache.end(Outcome::committed);
  const auto now = found(cache, "read");
  ASSERT_TRUE(now.has_value());
  EXPECT_EQ(now->value, "new");
  EXPECT_EQ(now->version, 2U);
  EXPECT_EQ(now->fence, Token{2});
  EXPECT_EQ(cache.size(), 1U);
}

TEST(ReadCache, NothingIsKeptWhileTheStorageIsUncertain) {
  ReadCache cache(kPlenty);
  add(cache, "key", state_of(1, "old"));
  add(cache, "other", state_of(1, "old"));
  const auto before = cache.find("third");
  const auto batch = batch_of({put_of("key", 2, "new")});
  cache.begin(batch);
  cache.end(Outcome::unknown);
  EXPECT_EQ(cache.size(), 0U);
  const auto meanwhile = cache.find("key");
  add(cache, "key", state_of(1, "old"));
  add(cache, "other", state_of(1, "old"));
  cache.stop();  // once more, as every attempt to reopen does
  EXPECT_EQ(cache.size(), 0U);

  cache.resume();
  cache.keep("key", meanwhile, state_of(1, "old"));
  cache.keep("third", before, state_of(1, "old"));
  EXPECT_EQ(cache.size(), 0U);
  add(cache, "key", state_of(2, "new"));
  EXPECT_EQ(found(cache, "key"), state_of(2, "new"));
}

TEST(ReadCache, SeveralAreFoundAtOnceInALargeOne) {
  ReadCache cache(256 * kPlenty);
  const std::vector<std::string> keys{"c", "a", "b", "a", "none"};
  for (const auto* key : {"a", "b", "c"}) add(cache, key, state_of(1, key));
  const auto looks = cache.find_together(keys);
  ASSERT_EQ(looks.size(), keys.size());
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(looks[i].record) << i;
    EXPECT_EQ(looks[i].record->state(), state_of(1, keys[i]));
  }
  EXPECT_FALSE(looks[4].record);
}

TEST(ReadCache, SeveralAreFoundAtOnce) {
  ReadCache cache(kPlenty);
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < ReadCache::kMostTogether; ++i) {
    keys.push_back("key " + std::to_string(i));
    add(cache, keys.back(), state_of(i, "v"));
  }
  keys.front() = keys.back();  // twice the same
  const auto looks = cache.find_together(keys);
  ASSERT_EQ(looks.size(), keys.size());
  for (const auto& look : looks) ASSERT_TRUE(look.record);
  EXPECT_EQ(looks[5].record->state(), state_of(5, "v"));

  keys.push_back("one too many");
  for (const auto& look : cache.find_together(keys)) EXPECT_FALSE(look.record);
}

/// What it occupies is counted in keys: the rest is in kRecordBytes.
TEST(ReadCache, IsBoundedAndKeepsWhatIsUsed) {
  constexpr std::size_t kBytes = std::size_t{1024} * 1024;
  const std::string value(100, 'v');
  ReadCache cache(kBytes);
  std::size_t most = 0;
  add(cache, "used", state_of(1, value));
  for (std::uint64_t i = 0; i < 50'000; ++i) {
    const auto key = "key " + std::to_string(i);
    add(cache, key, state_of(i, value));
    ASSERT_EQ(found(cache, key), state_of(i, value));
    if (i % 100 == 0) {
      ASSERT_NE(found(cache, "used"), std::nullopt) << i;
      most = std::max(most, cache.size());
    }
  }
  const auto of_record = ReadCache::kRecordBytes + value.size() + 8;
  EXPECT_LE(most, kBytes / of_record);
  EXPECT_GE(most, kBytes / of_record / 3);
  EXPECT_EQ(found(cache, "key 0"), std::nullopt);
}

TEST(ReadCache, ARecordThatHardlyFitsIsLeftOut) {
  // A shard has 1 KiB for each generation.
  ReadCache cache(std::size_t{128} * 1024);
  add(cache, "large", state_of(1, std::string(1'000, 'v')));
  EXPECT_EQ(cache.size(), 0U);
  ReadCache roomy(std::size_t{64} * 1024 * 1024);
  add(roomy, "long", state_of(1, std::string(ReadCache::kLongestValue, 'v')));
  add(roomy, "longer", state_of(1, std::string(ReadCache::kLongestValue + 1, 'v')));
  EXPECT_EQ(roomy.size(), 1U);
}

// ---- A store, told by what its storage is asked. ----

class CachedReadsTest : public testing::CommitterTest {
 protected:
  ~CachedReadsTest() override {
    script_->let_reads_go();
    script_->let_go();
  }

  int reads_during(const std::function<void()>& work) {
    const auto before = script_->reads() + script_->snapshots();
    work();
    return script_->reads() + script_->snapshots() - before;
  }
  void write(const std::string& key, const std::string& value) {
    const auto written = store().set(key, value, Token{5});
    ASSERT_TRUE(written.has_value()) << line_of(written);
  }
  /// A key that is in the cache.
  void write_and_read(const std::string& key, const std::string& value) {
    write(key, value);
    ASSERT_EQ(value_of(key), value);
    ASSERT_EQ(reads_during([&] { EXPECT_EQ(value_of(key), value); }), 0);
  }
  /// A reader that has what the storage holds now, and is held before it goes on.
  std::future<std::optional<std::string>> late_reader(const std::string& key) {
    script_->hold_reads();
    auto late = std::async(std::launch::async, [this, key] { return value_of(key); });
    EXPECT_TRUE(script_->wait_for_read());
    return late;
  }
};

TEST_F(CachedReadsTest, AKeyThatWasReadIsNotReadAgain) {
  write_and_read("key", "one");
  EXPECT_EQ(reads_during([&] {
              write("key", "two");
              EXPECT_EQ(value_of("key"), "two");
              ASSERT_TRUE(store().remove("key", Token{9}).has_value());
              const auto removed = store().read_committed({.keys = {"key"}});
              ASSERT_TRUE(removed.has_value());
              EXPECT_EQ(removed->front().value, std::nullopt);
              EXPECT_EQ(removed->front().fence, Token{9});
              EXPECT_EQ(removed->front().version, 3U);
            }),
            0);
}

TEST_F(CachedReadsTest, AFenceThatWasResetIsSeen) {
  write_and_read("key", "one");
  ASSERT_TRUE(store().execute(Reset{.key = "key", .token = Token{3}}).has_value());
  EXPECT_EQ(reads_during([&] {
              const auto lowered = store().read_committed({.keys = {"key"}});
              ASSERT_TRUE(lowered.has_value());
              EXPECT_EQ(lowered->front().fence, Token{3});
              EXPECT_EQ(lowered->front().value, "one");
            }),
            0);
}

TEST_F(CachedReadsTest, AKeyThatWasNeverThereIsNotRead) {
  store();
  EXPECT_EQ(reads_during([&] { EXPECT_EQ(value_of("key"), std::nullopt); }), 0);
  write("key", "one");
  EXPECT_EQ(value_of("key"), "one");
}

TEST_F(CachedReadsTest, WithoutMemoryEveryReadAsksTheStorage) {
  options_.read_cache_bytes = 0;
  write("key", "one");
  EXPECT_EQ(reads_during([&] {
              EXPECT_EQ(value_of("key"), "one");
              EXPECT_EQ(value_of("key"), "one");
            }),
            2);
}

TEST_F(CachedReadsTest, SeveralKeysAreReadTogether) {
  const Read both{.keys = {"a", "b"}};
  write("a", "one");
  write("b", "one");
  EXPECT_GT(reads_during([&] { ASSERT_TRUE(store().read_committed(both).has_value()); }), 0);
  EXPECT_EQ(reads_during([&] {
              write("b", "two");
              const auto states = store().read_committed(both);
              ASSERT_TRUE(states.has_value());
              EXPECT_EQ((*states)[0].value, "one");
              EXPECT_EQ((*states)[1].value, "two");
            }),
            0);
  EXPECT_EQ(store().read_committed({.keys = {}})->size(), 0U);
}

TEST_F(CachedReadsTest, WhoReadBeforeACommitAndComesBackLateLeavesNothing) {
  write("key", "old");
  auto late = late_reader("key");
  write("key", "new");
  script_->let_reads_go();
  EXPECT_EQ(late.get(), "old");  // it began before the write
  EXPECT_EQ(value_of("key"), "new");
  EXPECT_EQ(value_of("key"), "new");
}

TEST_F(CachedReadsTest, WhoReadDuringACommitAndComesBackLateLeavesNothing) {
  write("key", "old");
  script_->hold();
  submit("write", write_of("key", "new", Token{5}));
  ASSERT_TRUE(script_->wait_for_commit());
  auto late = late_reader("key");
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(1));
  script_->let_reads_go();
  EXPECT_EQ(late.get(), "old");
  EXPECT_EQ(value_of("key"), "new");
  EXPECT_EQ(value_of("key"), "new");
}

TEST_F(CachedReadsTest, TheOldRecordIsNotKeptDuringACommit) {
  write_and_read("key", "old");
  script_->hold();
  submit("write", write_of("key", "new", Token{5}));
  ASSERT_TRUE(script_->wait_for_commit());
  EXPECT_EQ(reads_during([&] {
              EXPECT_EQ(value_of("key"), "old");
              EXPECT_EQ(value_of("key"), "old");
            }),
            2);
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(1));
  EXPECT_EQ(value_of("key"), "new");
}

TEST_F(CachedReadsTest, OnceItCanBeSeenTheNewRecordIsSeenByAll) {
  write_and_read("key", "old");
  write_and_read("other", "old");
  script_->hold_at_end();
  Write both = write_of("key", "new", Token{5});
  both.entries.push_back({.key = "other", .value = "new"});
  submit("write", std::move(both));
  ASSERT_TRUE(script_->wait_for_end());
  EXPECT_EQ(value_of("key"), "new");
  EXPECT_EQ(value_of("key"), "new");
  EXPECT_EQ(value_of("other"), "new");
  EXPECT_EQ(answers_.size(), 0U);
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(1));
  EXPECT_EQ(reads_during([&] {
              EXPECT_EQ(value_of("key"), "new");
              EXPECT_EQ(value_of("other"), "new");
            }),
            0);
}

TEST_F(CachedReadsTest, ARefusedGroupChangesNothing) {
  write_and_read("key", "old");
  script_->fail_next({.outcome = Outcome::refused});
  EXPECT_THAT(line_of(store().set("key", "new", Token{5})), StartsWith("MISCONF"));
  EXPECT_EQ(value_of("key"), "old");
  EXPECT_EQ(reads_during([&] { EXPECT_EQ(value_of("key"), "old"); }), 0);
}

class DoubtfulGroup : public CachedReadsTest, public ::testing::WithParamInterface<bool> {};

TEST_P(DoubtfulGroup, IsSeenAsTheStorageComesBack) {
  const bool lands = GetParam();
  write_and_read("key", "old");
  write_and_read("other", "old");
  script_->fail_settle(Error(Errc::misconf, "not yet"));
  script_->fail_next({.outcome = Outcome::unknown, .lands = lands});
  EXPECT_THAT(line_of(store().set("key", "new", Token{5})), StartsWith("INDOUBT"));
  EXPECT_EQ(reads_during([&] {
              EXPECT_EQ(value_of("key"), "old");
              EXPECT_EQ(value_of("key"), "old");
              EXPECT_EQ(value_of("other"), "old");
            }),
            3);
  auto late = late_reader("key");
  const auto tried = script_->settles();
  script_->fail_settle(std::nullopt);
  // Reads are held, and the recovery reads: it gets as far as the reopening.
  while (script_->settles() == tried) std::this_thread::sleep_for(10ms);
  script_->let_reads_go();
  EXPECT_EQ(late.get(), "old");
  ASSERT_TRUE(recovers());
  const auto* now = lands ? "new" : "old";
  EXPECT_EQ(value_of("key"), now);
  EXPECT_EQ(value_of("other"), "old");
  EXPECT_EQ(reads_during([&] { EXPECT_EQ(value_of("key"), now); }), 0);
}

INSTANTIATE_TEST_SUITE_P(Lands, DoubtfulGroup, ::testing::Bool(),
                         [](const auto& lands) { return lands.param ? "landed" : "lost"; });

TEST_F(CachedReadsTest, NothingIsKnownOfAStorageThatWasReopened) {
  write("key", "before");
  const auto before = script_->records().at("kkey");
  write_and_read("key", "after");
  // It comes back without what had not reached the disk.
  auto records = script_->records();
  records.at("kkey") = before;
  script_->fail_behind("a flush failed");
  script_->set_records(records);
  (void)store().set("other", "v", Token{5});
  ASSERT_TRUE(recovers());
  EXPECT_EQ(value_of("key"), "before");
}

TEST_F(CachedReadsTest, ADamagedRecordIsNeverKept) {
  write_and_read("known", "v");
  write("key", "v");
  auto records = script_->records();
  const auto whole = records.at("kkey");
  records.at("kkey").at(3) ^= 1;
  records.at("kknown").at(3) ^= 1;
  script_->set_records(records);
  EXPECT_THAT(line_of(store().get("key")), StartsWith("CORRUPT"));
  EXPECT_THAT(line_of(store().get("key")), StartsWith("CORRUPT"));
  EXPECT_THAT(line_of(store().read_committed({.keys = {"known", "key"}})), StartsWith("CORRUPT"));
  EXPECT_EQ(value_of("known"), "v");
  records.at("kkey") = whole;
  script_->set_records(records);
  EXPECT_EQ(value_of("key"), "v");
}

TEST_F(CachedReadsTest, AReclaimedKeyIsGone) {
  options_.unguarded_tokens = UnguardedTokens::issued;
  options_.clock = clock_;
  options_.reclaim_interval = {};
  auto opened = try_open();
  ASSERT_TRUE(opened) << line_of(opened);
  store_ = *std::move(opened);
  const auto grant = store().acquire("lease", "me", 10s);
  ASSERT_TRUE(grant && *grant) << line_of(grant);
  const auto token = (*grant)->token;
  ASSERT_TRUE(store().set("key", "v", token));
  ASSERT_TRUE(store().remove("key", token));
  const auto version = [&] { return store().read_committed({.keys = {"key"}})->front().version; };
  EXPECT_EQ(version(), 2U);
  EXPECT_EQ(reads_during([&] { EXPECT_EQ(version(), 2U); }), 0);
  ASSERT_TRUE(store().release("lease", "me", token));
  clock_->advance(std::chrono::hours(24) * 30);
  // A newer token, so that the floor can rise above the older one.
  const auto next = store().acquire("next", "me", 10s);
  ASSERT_TRUE(next && *next) << line_of(next);
  clock_->advance(std::chrono::hours(24) * 30);
  const auto reclaimed = store().reclaim();
  ASSERT_TRUE(reclaimed) << line_of(reclaimed);
  ASSERT_EQ(reclaimed->tombstones, 1U);
  EXPECT_EQ(version(), 0U);
}

// ---- All at once. ----

/// What anybody has seen of each key before a read began is the least that the read may see,
/// whoever reads; while little fits, so that records come and go, and groups fail.
class ReadersAndWriters : public CachedReadsTest,
                          public ::testing::WithParamInterface<std::size_t> {
 protected:
  static constexpr int kKeys = 6;
  static constexpr int kRounds = 4'000;

  static std::string name(int key) { return "key " + std::to_string(key); }
  void see(int key, std::uint64_t version) {
    auto& seen = seen_.at(static_cast<std::size_t>(key));
    auto last = seen.load();
    while (last < version && !seen.compare_exchange_weak(last, version)) {
    }
  }
  std::uint64_t seen(int key) const { return seen_.at(static_cast<std::size_t>(key)).load(); }

  void write_pairs(int first) {
    for (int i = 0, written_pairs = 0; written_pairs < kRounds; ++i) {
      const int key = (i + first) % (kKeys / 2) * 2;
      // The two keys of a pair are always written together: they have the same version.
      Write both = write_of(name(key), "v", Token{5});
      both.entries.push_back({.key = name(key + 1), .value = "v"});
      const auto written = store().execute(std::move(both));
      if (!written) {
        std::this_thread::sleep_for(1ms);
        continue;
      }
      ++written_pairs;
      see(key, written->front());
      see(key + 1, written->back());
    }
    --writers_;
  }
  void read_one_by_one(int first) {
    for (int i = first; writers_ > 0; ++i) {
      const int key = i % kKeys;
      const auto least = seen(key);
      const auto states = store().read_committed({.keys = {name(key)}});
      ASSERT_TRUE(states.has_value()) << line_of(states);
      ASSERT_GE(states->front().version, least) << name(key);
      see(key, states->front().version);
      ++reads_;
    }
  }
  void read_pairs() {
    for (int i = 0; writers_ > 0; ++i) {
      const int key = i % (kKeys / 2) * 2;
      const auto least = std::max(seen(key), seen(key + 1));
      const auto states = store().read_committed({.keys = {name(key + 1), name(key)}});
      ASSERT_TRUE(states.has_value()) << line_of(states);
      ASSERT_EQ(states->front().version, states->back().version) << name(key);
      ASSERT_GE(states->front().version, least) << name(key);
      see(key, states->front().version);
      see(key + 1, states->front().version);
      ++reads_;
    }
  }

  std::array<std::atomic<std::uint64_t>, kKeys> seen_{};
  std::atomic<int> writers_ = 2;
  std::atomic<std::uint64_t> reads_ = 0;
};

TEST_P(ReadersAndWriters, NobodySeesAnOlderRecordThanAnybodyHasSeen) {
  options_.read_cache_bytes = GetParam();
  store();
  std::vector<std::thread> threads;
  threads.emplace_back([this] { write_pairs(0); });
  threads.emplace_back([this] { write_pairs(1); });
  threads.emplace_back([this] { read_one_by_one(0); });
  threads.emplace_back([this] { read_one_by_one(3); });
  threads.emplace_back([this] { read_pairs(); });
  const std::array<Failure, 4> failures{{{.outcome = Outcome::unknown, .lands = true},
                                         {.outcome = Outcome::refused},
                                         {.outcome = Outcome::unknown, .lands = false},
                                         {.outcome = Outcome::unknown, .lands = true}}};
  for (const auto& failure : failures) {
    const auto before = script_->commits();
    while (writers_ > 0 && script_->commits() < before + kRounds / 8) std::this_thread::yield();
    script_->fail_next(failure);
    while (writers_ > 0 && script_->commits() < before + kRounds / 4) std::this_thread::yield();
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GT(reads_, 0U);
  ASSERT_TRUE(recovers());
  for (int key = 0; key < kKeys; ++key) {
    EXPECT_GE(store().read_committed({.keys = {name(key)}})->front().version, seen(key));
  }
}

INSTANTIATE_TEST_SUITE_P(Bytes, ReadersAndWriters,
                         ::testing::Values(std::size_t{0}, std::size_t{16} * 1024,
                                           std::size_t{32} * 1024 * 1024),
                         [](const auto& bytes) { return std::to_string(bytes.param); });

}  // namespace
}  // namespace fencekv::core
