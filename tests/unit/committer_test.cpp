// SPDX-License-Identifier: Apache-2.0
/// The one serialised step: what is answered when, and what happens when the storage fails.

#include "engine/core/group.h"
#include "tests/unit/committer_fixture.h"

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using core::Outcome;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// --- what is answered when ------------------------------------------------------------------

TEST_F(CommitterTest, NoReplyComesBeforeItsGroupIsDurable) {
  store();
  script_->hold();
  submit("write", write_of("key", "value", Token{1}));
  ASSERT_TRUE(script_->wait_for_commit());
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(answers_.line("write"), "no answer");
  EXPECT_EQ(value_of("key"), std::nullopt);
  EXPECT_EQ(store().stats().live_keys, 0U);

  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(1));
  EXPECT_EQ(answers_.line("write"), "OK");
  EXPECT_EQ(value_of("key"), "value");
  EXPECT_EQ(store().stats().live_keys, 1U);
}

TEST_F(CommitterTest, ABlockingCallerWaitsForItsGroupToo) {
  store();
  script_->hold();
  std::atomic<bool> has_returned = false;
  std::thread caller([&] {
    EXPECT_TRUE(store().set("key", "value", Token{1}).has_value());
    has_returned = true;
  });
  ASSERT_TRUE(script_->wait_for_commit());
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(has_returned);
  script_->let_go();
  caller.join();
}

TEST_F(CommitterTest, AReadThatSawAGroupsWriteWaitsForItToBeDurable) {
  collect_a_group();
  submit("write", write_of("key", "value", Token{1}));
  submit("read", Read{.keys = {"key"}});
  script_->step();
  EXPECT_EQ(answers_.order(), std::vector<std::string>{"before"});
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(answers_.line("read"), "no answer");

  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(3));
  EXPECT_EQ(answers_.reply<Read>("read").front().value, "value");
}

TEST_F(CommitterTest, AGroupOfReadsCommitsNothing) {
  store();
  const auto commits = script_->commits();
  EXPECT_EQ(queued_read("key"), "(none)");
  EXPECT_TRUE(store().execute(Inspect{.name = "lease"}).has_value());
  EXPECT_THAT(line_of(store().set("key", "v", Token{})), StartsWith("ERR"));
  EXPECT_EQ(script_->commits(), commits);
}

TEST_F(CommitterTest, WritersShareAGroup) {
  collect_a_group();
  const auto commits = script_->commits();
  for (int i = 0; i < 1000; ++i) {
    submit(std::to_string(i), write_of("key " + std::to_string(i), "v", Token{1}));
  }
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(1001));
  EXPECT_EQ(script_->commits(), commits + 2);
  EXPECT_EQ(store().stats().live_keys, 1001U);
}

TEST_F(CommitterTest, BlockingWritersShareGroupsToo) {
  store();
  script_->slow(5ms);
  const auto before = script_->commits();
  std::vector<std::thread> writers;
  for (int i = 0; i < 32; ++i) {
    writers.emplace_back([&, i] {
      for (int k = 0; k < 10; ++k) {
        const auto key = std::to_string(i) + "/" + std::to_string(k);
        EXPECT_TRUE(store().set(key, "v", Token{1}).has_value());
      }
    });
  }
  for (auto& writer : writers) writer.join();
  EXPECT_LT(script_->commits() - before, 320 / 4);
  EXPECT_EQ(store().stats().live_keys, 320U);
}

TEST_F(CommitterTest, EveryGroupMovesThePositionByOneAndCarriesItLast) {
  store();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store().set("key", "v", Token{1}).has_value());
  store_.reset();
  store();
  std::uint64_t n = 0;
  for (const auto& batch : script_->batches()) {
    EXPECT_EQ(batch.position.n, ++n);
    EXPECT_EQ(batch.position.epoch, n <= 7 ? 1U : 2U);
    EXPECT_EQ(batch.puts.back().place, core::kPositionKey);
    const auto position = core::decode_position(core::kPositionKey, batch.puts.back().bytes);
    ASSERT_TRUE(position.has_value());
    EXPECT_EQ(*position, batch.position);
  }
  EXPECT_EQ(n, 8U);  // a beginning, five writes, an end, a beginning
}

TEST_F(CommitterTest, CommandsOfOneThreadAreDecidedInTheirOrder) {
  std::vector<std::string> names;
  for (int i = 0; i < 2000; ++i) names.push_back(std::to_string(i));
  for (const auto& name : names) submit(name, write_of("key", name, Token{1}));
  ASSERT_TRUE(answers_.wait_for(names.size()));
  EXPECT_EQ(answers_.order(), names);
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_THAT(answers_.reply<Write>(names[i]), ElementsAre(i + 1));
  }
  EXPECT_EQ(value_of("key"), "1999");
}

TEST_F(CommitterTest, AnAnswerMaySubmitTheNextCommand) {
  std::function<void(Result<Reply>)> next;
  int left = 100;
  next = [&](Result<Reply> reply) {
    if (!reply || --left == 0) return answers_.expect("end")(std::move(reply));
    store().enqueue(write_of("key", "v", Token{1}), next);
  };
  store().enqueue(write_of("key", "v", Token{1}), next);
  ASSERT_TRUE(answers_.wait_for(1));
  EXPECT_THAT(answers_.reply<Write>("end"), ElementsAre(100U));
}

// --- the storage fails ----------------------------------------------------------------------

struct InDoubt {
  std::string name;
  bool lands;
};

class UnknownOutcome : public CommitterTest, public ::testing::WithParamInterface<InDoubt> {};

TEST_P(UnknownOutcome, IsInDoubtThenMisconfAndRecoversByItself) {
  ASSERT_TRUE(store().set("key", "old", Token{1}).has_value());
  const auto first = store().acquire("lease", "me", 10s);
  ASSERT_TRUE(first && *first);
  collect_a_group();
  submit("write", write_of("key", "new", Token{2}));
  submit("read", Read{.keys = {"key"}});
  submit("acquire", acquire_of("another lease"));
  submit("inspect", Inspect{.name = "another lease"});
  submit("stale", write_of("key", "stale", Token{1}));
  script_->fail_settle(Error(Errc::misconf, "still full"));
  script_->step();
  script_->fail_next({.outcome = Outcome::unknown, .lands = GetParam().lands});
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(6));

  // The group: nobody knows. Its reads have an answer: what is committed.
  EXPECT_THAT(answers_.line("write"), StartsWith("INDOUBT"));
  EXPECT_THAT(answers_.line("acquire"), StartsWith("INDOUBT"));
  // It was refused because of a write that may never have happened.
  EXPECT_THAT(answers_.line("stale"), StartsWith("INDOUBT"));
  EXPECT_EQ(answers_.reply<Read>("read").front().value, "old");
  EXPECT_TRUE(answers_.reply<Inspect>("inspect").fence.is_none());

  // From then on: no writes, reads as before.
  const auto commits = script_->commits();
  EXPECT_THAT(line_of(store().set("key", "later", Token{3})), StartsWith("MISCONF"));
  EXPECT_THAT(line_of(store().acquire("third lease", "me", 1s)), StartsWith("MISCONF"));
  EXPECT_THAT(line_of(store().execute(FencedRead{.key = "key", .token = Token{3}, .lease = {}})),
              StartsWith("MISCONF"));
  EXPECT_TRUE(store().refuses_writes().has_value());
  EXPECT_EQ(queued_read("key"), "old");
  EXPECT_EQ(value_of("key"), "old");
  while (script_->settles() < 2) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(script_->commits(), commits) << "a group was committed before the state was certain";
  EXPECT_THAT(line_of(store().set("key", "later", Token{3})), HasSubstr("still full"));

  // Once the storage works, so does the store, without anybody doing anything.
  script_->fail_settle(std::nullopt);
  ASSERT_TRUE(recovers());
  EXPECT_EQ(value_of("key"), GetParam().lands ? "new" : "old");
  EXPECT_EQ(store().execute(Inspect{.name = "another lease"})->holders.size(),
            GetParam().lands ? 1U : 0U);
  EXPECT_EQ(line_of(store().set("key", "later", Token{3})), "OK");
  EXPECT_EQ(store().stats().epoch, 2U);

  // The token of the group in doubt is not handed out to anybody else.
  const auto drawn = highest_drawn();
  EXPECT_GT(drawn, (*first)->token);
  const auto next = store().acquire("fourth lease", "me", 10s);
  ASSERT_TRUE(next && *next) << line_of(next);
  EXPECT_GT((*next)->token, drawn);
}

INSTANTIATE_TEST_SUITE_P(Both, UnknownOutcome,
                         ::testing::Values(InDoubt{"it_landed", true},
                                           InDoubt{"it_did_not_land", false}),
                         [](const auto& entry) { return entry.param.name; });

TEST_F(CommitterTest, ABlockingWriterInDoubtIsToldSo) {
  store();
  script_->fail_next({.outcome = Outcome::unknown, .lands = true});
  EXPECT_THAT(line_of(store().set("key", "v", Token{1})), StartsWith("INDOUBT"));
  ASSERT_TRUE(recovers());
  EXPECT_EQ(value_of("key"), "v");
}

TEST_F(CommitterTest, RecoveryGoesOnUntilClaimAndTheFirstGroupSucceed) {
  store();
  script_->fail_claim(Error(Errc::misconf, "cannot claim"));
  script_->fail_next({.outcome = Outcome::unknown});
  EXPECT_THAT(line_of(store().set("key", "v", Token{1})), StartsWith("INDOUBT"));
  while (script_->settles() < 2) std::this_thread::sleep_for(5ms);
  EXPECT_THAT(line_of(store().set("key", "v", Token{1})), HasSubstr("cannot claim"));

  // The first group of the new epoch fails as well, and lands: then the epoch was used.
  script_->fail_next({.outcome = Outcome::unknown, .lands = true});
  script_->fail_claim(std::nullopt);
  ASSERT_TRUE(recovers());
  EXPECT_EQ(store().stats().epoch, 3U);
  EXPECT_EQ(line_of(store().set("key", "v", Token{1})), "OK");
}

TEST_F(CommitterTest, AStreamOfReadsDoesNotPutTheRecoveryOff) {
  store();
  script_->fail_next({.outcome = Outcome::unknown});
  EXPECT_THAT(line_of(store().set("key", "v", Token{1})), StartsWith("INDOUBT"));
  std::atomic<bool> stop = false;
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      while (!stop) EXPECT_EQ(queued_read("key"), "(none)");
    });
  }
  EXPECT_TRUE(recovers());
  stop = true;
  for (auto& reader : readers) reader.join();
}

TEST_F(CommitterTest, ARefusedGroupChangedNothingAndItsReadsAreAnswered) {
  ASSERT_TRUE(store().set("key", "old", Token{1}).has_value());
  collect_a_group();
  submit("write", write_of("key", "new", Token{2}));
  submit("acquire", acquire_of("lease"));
  submit("read", Read{.keys = {"key"}});
  script_->step();
  script_->fail_next({.outcome = Outcome::refused});
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(4));
  EXPECT_THAT(answers_.line("write"), StartsWith("MISCONF"));
  EXPECT_THAT(answers_.line("acquire"), StartsWith("MISCONF"));
  EXPECT_EQ(answers_.line("read"), "OK");
  EXPECT_EQ(answers_.reply<Read>("read").front().value, "old");

  // Certainly nothing happened, so there is nothing to recover from.
  EXPECT_EQ(store().refuses_writes(), std::nullopt);
  EXPECT_EQ(line_of(store().set("key", "new", Token{1})), "OK");
  EXPECT_EQ(store().stats().lease_names, 0U);
  const auto stats = store().stats();
  EXPECT_EQ(stats.groups, static_cast<std::uint64_t>(script_->commits() - 1));
}

// --- tokens ---------------------------------------------------------------------------------

TEST_F(CommitterTest, ATokenThatCannotBeReservedIsNotHandedOut) {
  store();
  const auto commits = script_->commits();
  const auto before = store().stats();
  script_->fail_reserve(Error(Errc::misconf, "tokens cannot be reserved"));
  EXPECT_THAT(line_of(store().acquire("lease", "me", 10s)), StartsWith("MISCONF"));
  EXPECT_EQ(script_->commits(), commits);
  EXPECT_EQ(store().stats().newest, before.newest);
  EXPECT_TRUE(store().execute(Inspect{.name = "lease"})->fence.is_none());
  // What needs no token goes on.
  EXPECT_EQ(line_of(store().set("key", "v", Token{1})), "OK");
  EXPECT_EQ(store().refuses_writes(), std::nullopt);

  script_->fail_reserve(std::nullopt);
  const auto grant = store().acquire("lease", "me", 10s);
  ASSERT_TRUE(grant && *grant);
  EXPECT_EQ((*grant)->token, Token{1});
}

TEST_F(CommitterTest, TokensAreReservedInBlocksBeforeTheyAreHandedOut) {
  script_->set_reserved(Token{1000});
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const auto grant = store().acquire("lease " + std::to_string(i), "me", 10s);
    ASSERT_TRUE(grant && *grant);
    // Above all that an earlier writer may have handed out.
    EXPECT_EQ((*grant)->token, Token{1000 + i});
    EXPECT_EQ(script_->reserved(), Token{1000 + core::Group::kReservedTokens});
  }
}

TEST_F(CommitterTest, TheLastTokenWorksAndNoneComesAfterIt) {
  constexpr auto kMax = Token::kMax;
  script_->set_reserved(Token{kMax - 2});
  for (const auto number : {kMax - 1, kMax}) {
    const auto grant = store().acquire("lease " + std::to_string(number), "me", 10s);
    ASSERT_TRUE(grant && *grant) << line_of(grant);
    EXPECT_EQ((*grant)->token, Token{number});
    EXPECT_EQ(line_of(store().set("key", "v", Token{number},
                                  {.lease = "lease " + std::to_string(number)})),
              number == kMax ? "WRONGLEASE lease\\x20" + std::to_string(kMax - 1) : "OK");
  }
  EXPECT_EQ(
      line_of(store().set("last", "v", Token{kMax}, {.lease = "lease " + std::to_string(kMax)})),
      "OK");
  for (int life = 0; life < 2; ++life) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(line_of(store().acquire("one more", "me", 10s)),
                  AllOf(StartsWith("ERR"), HasSubstr("used up")));
    }
    EXPECT_EQ(script_->reserved(), Token{kMax});
    EXPECT_EQ(store().stats().newest, Token{kMax});
    // A holder keeps what it has.
    const auto again = store().acquire("lease " + std::to_string(kMax), "me", 10s);
    ASSERT_TRUE(again && *again);
    EXPECT_EQ((*again)->token, Token{kMax});
    store_.reset();
  }
}

// --- opening and ending ---------------------------------------------------------------------

TEST_F(CommitterTest, AStoreThatTakesNoWritesOpensForReadsAndRecovers) {
  ASSERT_TRUE(store().set("key", "v", Token{1}).has_value());
  store_.reset();
  script_->fail_claim(Error(Errc::misconf, "disk full"));
  EXPECT_EQ(value_of("key"), "v");
  EXPECT_EQ(queued_read("key"), "v");
  EXPECT_EQ(store().refuses_writes(), "disk full");
  EXPECT_THAT(line_of(store().set("key", "w", Token{1})),
              AllOf(StartsWith("MISCONF"), HasSubstr("disk full")));
  script_->fail_claim(std::nullopt);
  ASSERT_TRUE(recovers());
  EXPECT_EQ(line_of(store().set("key", "w", Token{1})), "OK");
}

TEST_F(CommitterTest, ANewStoreThatTakesNoWritesDoesNotOpen) {
  options_.clock = clock_;
  script_->fail_claim(Error(Errc::misconf, "disk full"));
  EXPECT_EQ(line_of(try_open()), "MISCONF disk full");
  script_->fail_claim(std::nullopt);
  script_->fail_next({.outcome = Outcome::unknown});
  EXPECT_THAT(line_of(try_open()), StartsWith("MISCONF"));
}

TEST_F(CommitterTest, AStoreThatLacksASmallRecordIsDamaged) {
  store();
  store_.reset();
  const auto whole = script_->records();
  for (const auto place : {core::kPositionKey, core::kAllocatorKey, core::kIdentityKey}) {
    auto records = whole;
    records.erase(std::string(place));
    script_->set_records(records);
    EXPECT_THAT(line_of(try_open()), AllOf(StartsWith("CORRUPT"), HasSubstr("missing"))) << place;

    records = whole;
    records.at(std::string(place)).at(3) ^= 1;
    script_->set_records(records);
    EXPECT_THAT(line_of(try_open()), AllOf(StartsWith("CORRUPT"), HasSubstr(place))) << place;
  }
  script_->set_records(whole);
  EXPECT_EQ(line_of(try_open()), "OK");
}

TEST_F(CommitterTest, ADamagedRecordIsToldApartFromNoRecord) {
  options_.fence_cache_bytes = 0;
  ASSERT_TRUE(store().set("key", "v", Token{5}).has_value());
  auto records = script_->records();
  records.at("kkey").at(3) ^= 1;
  script_->set_records(records);
  EXPECT_THAT(line_of(store().get("key")), StartsWith("CORRUPT"));
  EXPECT_THAT(queued_read("key"), StartsWith("CORRUPT"));
  EXPECT_THAT(line_of(store().set("key", "w", Token{6})), StartsWith("CORRUPT"));
  EXPECT_EQ(script_->records(), records);
  EXPECT_EQ(line_of(store().set("other", "w", Token{6})), "OK");
}

TEST_F(CommitterTest, AWriteUnderARememberedFenceMendsADamagedRecord) {
  ASSERT_TRUE(store().set("key", "v", Token{5}).has_value());
  auto records = script_->records();
  records.at("kkey").at(3) ^= 1;
  script_->set_records(records);
  EXPECT_EQ(line_of(store().set("key", "late", Token{4})), "FENCED 5 4 stale");
  EXPECT_THAT(queued_read("key"), StartsWith("CORRUPT"));
  EXPECT_EQ(line_of(store().execute(Raise{.key = "key", .token = Token{6}})).substr(0, 7),
            "CORRUPT");
  EXPECT_EQ(script_->records(), records);
  EXPECT_EQ(line_of(store().set("key", "w", Token{6})), "OK");
  EXPECT_EQ(queued_read("key"), "w");
}

TEST_F(CommitterTest, TheEndAnswersWhatIsQueuedAndIsClean) {
  collect_a_group();
  for (int i = 0; i < 50; ++i) {
    submit(std::to_string(i), write_of(std::to_string(i), "v", Token{1}));
  }
  submit("acquire", acquire_of("lease"));
  std::thread end([this] { store_.reset(); });
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(answers_.size(), 0U);
  script_->let_go();
  end.join();

  EXPECT_EQ(answers_.size(), 52U);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(answers_.line(std::to_string(i)), "OK");
  EXPECT_EQ(answers_.line("acquire"), "OK");
  EXPECT_EQ(script_->closed(), Token{1});
}

TEST_F(CommitterTest, AnEndInDoubtIsNotClean) {
  store();
  script_->fail_settle(Error(Errc::misconf, "still full"));
  script_->fail_next({.outcome = Outcome::unknown});
  EXPECT_THAT(line_of(store().set("key", "v", Token{1})), StartsWith("INDOUBT"));
  const auto commits = script_->commits();
  submit("late", write_of("key", "v", Token{1}));
  store_.reset();
  EXPECT_THAT(answers_.line("late"), StartsWith("MISCONF"));
  EXPECT_EQ(script_->closed(), std::nullopt);
  EXPECT_EQ(script_->commits(), commits);
}

TEST_F(CommitterTest, AnEndWhoseLastGroupFailsIsNotClean) {
  store();
  script_->fail_next({.outcome = Outcome::unknown});
  store_.reset();
  EXPECT_EQ(script_->closed(), std::nullopt);
}

// --- too much -------------------------------------------------------------------------------

TEST_F(CommitterTest, BeyondTheQueueCommandsAreRefusedAndNotExecuted) {
  options_.max_queued_commands = 10;
  collect_a_group();
  for (int i = 0; i < 12; ++i) {
    submit(std::to_string(i), write_of(std::to_string(i), "v", Token{1}));
  }
  EXPECT_THAT(answers_.order(), ElementsAre("10", "11"));
  EXPECT_THAT(answers_.line("10"), StartsWith("OVERLOADED"));
  EXPECT_THAT(line_of(store().set("blocking", "v", Token{1})), StartsWith("OVERLOADED"));
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(13));

  EXPECT_EQ(value_of("9"), "v");
  for (const auto* key : {"10", "11", "blocking"}) EXPECT_EQ(value_of(key), std::nullopt);
  EXPECT_EQ(line_of(store().set("10", "v", Token{1})), "OK");
}

TEST_F(CommitterTest, BeyondTheBytesOfTheQueueCommandsAreRefused) {
  options_.max_queued_bytes = 100'000;
  collect_a_group();
  submit("small", write_of("small", std::string(60'000, 'x'), Token{1}));
  submit("too much", write_of("too much", std::string(60'000, 'x'), Token{1}));
  submit("fits", write_of("fits", "x", Token{1}));
  EXPECT_THAT(answers_.line("too much"), StartsWith("OVERLOADED"));
  script_->let_go();
  ASSERT_TRUE(answers_.wait_for(4));
  EXPECT_EQ(answers_.line("fits"), "OK");
  EXPECT_EQ(line_of(store().set("too much", std::string(60'000, 'x'), Token{1})), "OK");
}

// --- many threads ---------------------------------------------------------------------------

TEST_F(CommitterTest, NoWriteBelowAFenceSucceedsAfterTheRaiseReturned) {
  store();
  std::atomic<std::uint64_t> next = 1;
  std::atomic<std::uint64_t> raised = 0;
  std::atomic<int> accepted = 0;
  std::atomic<int> refused = 0;
  std::atomic<int> broken = 0;

  const auto raise = [&] {
    for (int i = 0; i < 100; ++i) {
      const auto token = next.fetch_add(1);
      if (!store().execute(Raise{.key = "key", .token = Token{token}, .lease = {}})) continue;
      auto seen = raised.load();
      while (seen < token && !raised.compare_exchange_weak(seen, token)) {
      }
    }
  };
  const auto write = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 100; ++i) {
      const auto fence = raised.load();
      // Around the fence: a few below, a few above.
      const auto token = std::max<std::uint64_t>(fence + random() % 8, 4) - 3;
      const auto version = store().set("key", "v", Token{token});
      if (version && token < fence) ++broken;
      version ? ++accepted : ++refused;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 16; ++i) {
    threads.emplace_back(raise);
    threads.emplace_back(write, i);
  }
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(broken, 0);
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(store().execute(Read{.keys = {"key"}})->front().version,
            static_cast<std::uint64_t>(accepted));
}

TEST_F(CommitterTest, NoTwoThreadsGetTheSameToken) {
  store();
  std::mutex mutex;
  std::map<Token, int> tokens;
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      Token last;
      for (int k = 0; k < 50; ++k) {
        const auto grant = store().acquire(std::to_string(i) + "/" + std::to_string(k), "me", 10s);
        ASSERT_TRUE(grant && *grant);
        EXPECT_GT((*grant)->token, last);
        last = (*grant)->token;
        const std::lock_guard lock(mutex);
        ++tokens[last];
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(tokens.size(), 800U);
  EXPECT_EQ(tokens.rbegin()->first, Token{800});
}

/// Nothing happens but by step(): no answer, no expiry, no recovery.
TEST_F(CommitterTest, WithoutAThreadTheCallerOfStepDoesEverything) {
  options_.unguarded_tokens = UnguardedTokens::any;
  options_.clock = clock_;
  auto made = core::make_driven_store(std::make_unique<ScriptedBackend>(script_), options_);
  ASSERT_TRUE(made.has_value());
  auto [driven, step] = *std::move(made);
  EXPECT_FALSE(step());

  driven->enqueue(acquire_of("name"), answers_.expect("held"));
  EXPECT_EQ(answers_.size(), 0U);
  EXPECT_TRUE(step());
  EXPECT_EQ(answers_.line("held"), "OK");

  Acquire waiting = acquire_of("name");
  waiting.owner = "next";
  waiting.wait = 60s;
  driven->enqueue(waiting, answers_.expect("waits"));
  EXPECT_TRUE(step());
  clock_->advance(11s);
  EXPECT_EQ(answers_.line("waits"), "no answer");
  EXPECT_TRUE(step());
  EXPECT_EQ(answers_.line("waits"), "OK");

  script_->fail_next({.outcome = core::Outcome::unknown, .lands = true});
  driven->enqueue(write_of("key", "v", Token{5}), answers_.expect("in doubt"));
  EXPECT_TRUE(step());
  EXPECT_TRUE(driven->refuses_writes());
  EXPECT_TRUE(step());
  EXPECT_FALSE(driven->refuses_writes());
  while (step()) {
  }
  EXPECT_EQ(driven->get("key")->value_or("(none)"), "v");

  // What is queued when the store ends is answered.
  driven->enqueue(write_of("key", "w", Token{6}), answers_.expect("last"));
  driven.reset();
  EXPECT_EQ(answers_.line("last"), "OK");
}

// A listing waits for the storage and the committer to be at the same group, which it could then
// never see.
TEST_F(CommitterTest, AListingOfLeasesEndsWhereThePositionCannotBeRead) {
  ASSERT_EQ(line_of(store().execute(acquire_of("name"))), "OK");
  auto records = script_->records();
  records.at(std::string(core::kPositionKey)) = "damaged";
  script_->set_records(records);

  const auto page = store().list_leases(std::nullopt, 10);

  ASSERT_TRUE(page) << line_of(page);
  ASSERT_EQ(page->items.size(), 1U);
  EXPECT_EQ(page->items[0].name, "name");
}

}  // namespace
}  // namespace fencekv::testing
