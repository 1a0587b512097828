// SPDX-License-Identifier: Apache-2.0
/// What a store does after its files were damaged: engine/SEMANTICS.md, 4.5 and 4.6.
///
/// Each case damages a copy of one sound store, and opens it. Either the opening is refused with a
/// message that names what is damaged, and no file was touched, or everything that was acknowledged
/// is there. A record that turns out unreadable says so; never is it "no record". What was refused
/// is then repaired: 5.6.

#include "engine/rocksdb/file_system.h"
#include "engine/rocksdb/repair.h"
#include "tests/crash/crash_store.h"
#include "tests/support/copy_directory.h"
#include "tests/support/fast_directory.h"
#include "tests/support/file_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;
using std::filesystem::path;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::uint64_t kKeys = 24;
constexpr int kLives = 3;

std::string key_of(std::uint64_t i) {
  return "key-" + std::to_string(i);
}
std::string value_of(std::uint64_t i) {
  return "value " + std::to_string(i) + " " + std::string(40, static_cast<char>('a' + i % 26));
}

/// The clock of all tests here, so that leases stand as they were left.
Options options_with(Durability durability, std::shared_ptr<ManualClock> clock) {
  Options options;
  options.durability = durability;
  options.clock = std::move(clock);
  return options;
}

/// Fills a store over several lives, so that it has tables and a log. Ends with two copies of its
/// files: as a killed process leaves them, and as a clean stop does.
void make_samples(const path& root, Durability durability) {
  auto clock = std::make_shared<ManualClock>();
  const auto store_path = root / "store";
  for (int life = 0; life < kLives; ++life) {
    auto opened = open_rocksdb(store_path, options_with(durability, clock));
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    auto& store = **opened;
    const auto grant = store.acquire("lease", "owner-" + std::to_string(life), 1s);
    ASSERT_TRUE(grant && *grant);
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      if (i % kLives != static_cast<std::uint64_t>(life)) continue;
      const auto version = store.set(key_of(i), value_of(i), (*grant)->token, {.lease = "lease"});
      ASSERT_TRUE(version.has_value()) << line_of(version);
    }
    const auto gone = "gone-" + std::to_string(life);
    ASSERT_TRUE(store.set(gone, "v", (*grant)->token).has_value());
    ASSERT_TRUE(store.remove(gone, (*grant)->token).has_value());
    if (life == kLives - 1) copy_directory(store_path, root / "killed");
    clock->advance(2s);
  }
  copy_tree(store_path, root / "stopped");
}

/// Every fact of the samples is there; or, if that `may_fail`, its record says that it cannot be
/// read.
void expect_every_fact(Store& store, Token newest, bool may_fail) {
  int unreadable = 0;
  const auto is_unreadable = [&](const auto& result) {
    if (result) return false;
    EXPECT_EQ(result.error().code(), Errc::corrupt) << line_of(result);
    EXPECT_TRUE(may_fail) << line_of(result);
    ++unreadable;
    return true;
  };
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const auto state = state_of(store, key_of(i));
    if (is_unreadable(state)) continue;
    EXPECT_EQ(state->value, value_of(i)) << key_of(i);
    EXPECT_EQ(state->version, 1U) << key_of(i);
    EXPECT_EQ(state->guard, "lease") << key_of(i);
    EXPECT_FALSE(state->fence.is_none()) << key_of(i);
  }
  for (int life = 0; life < kLives; ++life) {
    const auto state = state_of(store, "gone-" + std::to_string(life));
    if (is_unreadable(state)) continue;
    EXPECT_EQ(state->value, std::nullopt);
    EXPECT_EQ(state->version, 2U);
    EXPECT_FALSE(state->fence.is_none());
  }
  const auto lease = store.execute(Inspect{.name = "lease"});
  if (!is_unreadable(lease)) {
    EXPECT_EQ(lease->fence, newest);
  }

  std::uint64_t listed = 0;
  std::optional<std::string> after;
  do {
    const auto page = store.list_keys(after, 1000);
    if (is_unreadable(page)) break;
    listed += page->items.size();
    after = page->next;
  } while (after);
  if (unreadable == 0) {
    EXPECT_EQ(listed, kKeys);
    EXPECT_EQ(store.stats().live_keys, kKeys);
    EXPECT_EQ(store.stats().tombstones, static_cast<std::uint64_t>(kLives));
  }

  const auto grant = store.acquire("after the damage", "me", 10s);
  if (grant) {
    ASSERT_TRUE(grant->has_value());
    EXPECT_GT((*grant)->token, newest);
  } else {
    // A compaction may have met the damage meanwhile: then nothing is written any more.
    EXPECT_THAT(grant.error().code(), AnyOf(Errc::corrupt, Errc::in_doubt, Errc::misconf));
    EXPECT_TRUE(may_fail) << line_of(grant);
  }
}

/// A store that was repaired after losses has nothing that was never there, and whoever held a
/// token before is shut out, also from what was lost.
void expect_kept(Store& store, Token newest) {
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const auto state = state_of(store, key_of(i));
    ASSERT_TRUE(state) << line_of(state);
    if (!state->value) continue;
    EXPECT_EQ(state->value, value_of(i)) << key_of(i);
    EXPECT_EQ(state->version, 1U) << key_of(i);
    EXPECT_EQ(state->guard, "lease") << key_of(i);
  }
  EXPECT_GT(store.stats().floor, newest);
  for (std::uint64_t n = 1; n <= newest.number(); ++n) {
    for (const auto* key : {"key-0", "gone-0", "never there"}) {
      EXPECT_THAT(line_of(store.set(key, "late", Token{n})),
                  AllOf(StartsWith("FENCED"), HasSubstr("floor")));
    }
  }
  EXPECT_EQ(line_of(store.renew("lease", "owner-2", newest, 1s)), "LEASELOST unknown");
  const auto grant = store.acquire("lease", "me", 10s);
  ASSERT_TRUE(grant && *grant) << line_of(grant);
  EXPECT_GT((*grant)->token, newest);
  EXPECT_EQ(line_of(store.set(key_of(0), "new", (*grant)->token, {.lease = "lease"})), "OK");
}

/// The highest token that the samples handed out: found in the sound one, before any damage.
Token newest_of(const path& sample) {
  const auto said = in_child([&](int out) {
    const FastDirectory directory;
    copy_tree(sample, directory.path() / "copy");
    auto opened = open_rocksdb(directory.path() / "copy",
                               options_with(Durability::sync, std::make_shared<ManualClock>()));
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    say(out, std::to_string((*opened)->execute(Inspect{.name = "lease"})->fence.number()));
  });
  return Token{parse_decimal(said).value_or(0)};
}

/// A sound store of each kind, made once, and copies of it to damage.
class Damage : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    root_ = std::make_unique<FastDirectory>();
    in_child([](int) { make_samples(root_->path(), Durability::sync); });
  }
  static void TearDownTestSuite() { root_.reset(); }

  Damage() : newest_(newest_of(sample())) { EXPECT_FALSE(newest_.is_none()); }

  path sample() const { return root_->path() / GetParam(); }
  path copy() const { return root_->path() / "copy"; }

  /// What happened to the opening of the damaged copy: `OK` or the refusal. Fails if facts are
  /// missing, if a refusal does not say where, or if it touched anything.
  std::string open_damaged(const std::string& what) {
    SCOPED_TRACE(GetParam() + ": " + what);
    const auto before = tree_of(copy());
    auto said = in_child([&](int out) {
      auto opened =
          open_rocksdb(copy(), options_with(Durability::sync, std::make_shared<ManualClock>()));
      say(out, line_of(opened));
      if (opened)
        return expect_every_fact(**opened, newest_, what.find(".sst") != std::string::npos);
      EXPECT_THAT(opened.error().code(), AnyOf(Errc::corrupt, Errc::newer_format));
      EXPECT_THAT(opened.error().detail(), HasSubstr(copy().string()));
      if (opened.error().code() == Errc::corrupt) {
        EXPECT_THAT(opened.error().detail(),
                    HasSubstr("`fencekv-admin repair " + copy().string() + "`"));
      }
    });
    if (said != "OK") {
      auto after = tree_of(copy());
      // Only its holder's process id changes.
      after["lock"] = before.contains("lock") ? before.at("lock") : "";
      auto had = before;
      had.emplace("lock", "");
      EXPECT_EQ(difference(had, after), "") << "a refused opening changed files; it said " << said;
    }
    if (said.starts_with("CORRUPT")) expect_repairable();
    return said;
  }

  /// What was refused can be repaired: in a copy, with all that can be read of it. If nothing is
  /// said to be lost, every fact is there.
  void expect_repairable() {
    const auto repaired = root_->path() / "repaired";
    std::filesystem::remove_all(repaired);
    const auto before = tree_of(copy());
    in_child([&](int) {
      const auto found = rocks::examine(rocks::posix_files(), copy(), ManualClock().boot_id(),
                                        rocks::LockMode::shared);
      ASSERT_TRUE(found) << line_of(found);
      EXPECT_FALSE(found->damage().empty());
      const auto written = found->write_copy(repaired);
      ASSERT_TRUE(written) << line_of(written);
      auto opened =
          open_rocksdb(repaired, options_with(Durability::sync, std::make_shared<ManualClock>()));
      ASSERT_TRUE(opened) << line_of(opened);
      if (found->may_have_lost()) {
        expect_kept(**opened, newest_);
      } else {
        expect_every_fact(**opened, newest_, false);
      }
    });
    EXPECT_EQ(difference(before, tree_of(copy())), "") << "a repair touched the damaged store";
  }

  /// Damages a fresh copy with `damage` and opens it.
  std::string after(const std::string& what, const std::function<void(const path& store)>& damage) {
    copy_tree(sample(), copy());
    damage(copy());
    return open_damaged(what);
  }

  /// The files of the database whose names begin or end so.
  std::vector<std::string> files(const std::string& front, const std::string& end = "") const {
    std::vector<std::string> names;
    for (const auto& [name, content] : tree_of(sample())) {
      const auto file = path(name).filename().string();
      if (name.ends_with("/") || !file.starts_with(front) || !file.ends_with(end)) continue;
      names.push_back(name);
    }
    return names;
  }
  std::string only(const std::string& front, const std::string& end = "") const {
    const auto names = files(front, end);
    EXPECT_EQ(names.size(), 1U) << front << end;
    return names.empty() ? "none" : names.front();
  }

  /// Deleted, emptied, cut in half, with zeros in the middle, and with single bits flipped: at
  /// every byte or at `flips` of them.
  void expect_harmless(const std::string& name, std::size_t flips) {
    const auto content = content_of(sample() / name);
    after(name + " deleted", [&](const path& store) { std::filesystem::remove(store / name); });
    after(name + " emptied", [&](const path& store) { set_content(store / name, ""); });
    after(name + " cut in half", [&](const path& store) {
      set_content(store / name, content.substr(0, content.size() / 2));
    });
    after(name + " without its last byte", [&](const path& store) {
      set_content(store / name, content.substr(0, content.size() - 1));
    });
    after(name + " with zeros", [&](const path& store) {
      auto zeros = content;
      for (std::size_t i = zeros.size() / 3; i < zeros.size() * 2 / 3; ++i) zeros[i] = '\0';
      set_content(store / name, zeros);
    });
    const auto step = std::max<std::size_t>(content.size() / flips, 1);
    for (std::size_t i = 0; i < content.size(); i += step) {
      const auto bit = static_cast<int>(i / step % 8);
      after(
          name + " with bit " + std::to_string(bit) + " of byte " + std::to_string(i) + " flipped",
          [&](const path& store) { flip_bit(store / name, i, bit); });
    }
  }

  static inline std::unique_ptr<FastDirectory> root_;
  const Token newest_;
};

TEST_P(Damage, ASoundCopyOpens) {
  EXPECT_EQ(after("nothing", [](const path&) {}), "OK");
  // The sample is of use only if it has a table and a log with something in it.
  EXPECT_FALSE(files("", ".sst").empty());
  EXPECT_GT(content_of(sample() / only("", ".log")).size(), 500U);
}

TEST_P(Damage, ALogThatIsGoneOrEmptyIsRefused) {
  const auto log = only("", ".log");
  EXPECT_THAT(
      after("log deleted", [&](const path& store) { std::filesystem::remove(store / log); }),
      StartsWith("CORRUPT"));
  EXPECT_THAT(after("log emptied", [&](const path& store) { set_content(store / log, ""); }),
              AllOf(StartsWith("CORRUPT"), HasSubstr("is behind")));
}

TEST_P(Damage, ALogThatWasCutAnywhereIsRefused) {
  const auto log = only("", ".log");
  const auto content = content_of(sample() / log);
  for (std::size_t size = 0; size < content.size(); size += 149) {
    EXPECT_THAT(
        after("log cut to " + std::to_string(size) + " of " + std::to_string(content.size()),
              [&](const path& store) { set_content(store / log, content.substr(0, size)); }),
        StartsWith("CORRUPT"));
  }
  // Exactly between two records RocksDB sees nothing wrong. Each begins with a checksum, a length
  // of two bytes and a kind (1: whole).
  int records = 0;
  for (std::size_t at = 0; at + 7 <= content.size(); ++records) {
    const auto byte = [&](std::size_t i) {
      return static_cast<std::size_t>(static_cast<unsigned char>(content[at + i]));
    };
    ASSERT_EQ(byte(6), 1U);
    EXPECT_THAT(after("log cut before record " + std::to_string(records),
                      [&](const path& store) { set_content(store / log, content.substr(0, at)); }),
                AllOf(StartsWith("CORRUPT"), HasSubstr("is behind")));
    at += 7 + byte(4) + byte(5) * 256;
  }
  EXPECT_GT(records, 8);
}

TEST_P(Damage, ALogWithAFlippedBitIsRefused) {
  const auto log = only("", ".log");
  const auto size = content_of(sample() / log).size();
  for (std::size_t i = 0; i < size; i += 97) {
    const auto bit = static_cast<int>(i % 8);
    EXPECT_THAT(after("log with byte " + std::to_string(i) + " flipped",
                      [&](const path& store) { flip_bit(store / log, i, bit); }),
                StartsWith("CORRUPT"));
  }
}

TEST_P(Damage, ARecordTornBeforeItWasAcknowledgedIsNoDamage) {
  const auto log = only("", ".log");
  const auto content = content_of(sample() / log);
  for (const std::size_t torn : {1U, 7U, 20U, 60U}) {
    EXPECT_EQ(after("a torn record of " + std::to_string(torn) + " bytes behind the log",
                    [&](const path& store) {
                      // The front of a record of more bytes than there are.
                      auto front = content.substr(0, torn);
                      if (torn >= 6) front[4] = front[5] = '\x70';
                      set_content(store / log, content + front);
                    }),
              "OK");
  }
}

TEST_P(Damage, ThePositionFileDamagedIsRefusedAndOneSlotIsEnough) {
  const auto refused = [&](const std::string& what,
                           const std::function<void(const path&)>& damage) {
    EXPECT_THAT(after(what, damage), AllOf(StartsWith("CORRUPT"), HasSubstr("/position")));
  };
  refused("position deleted", [](const path& s) { std::filesystem::remove(s / "position"); });
  refused("position emptied", [](const path& s) { set_content(s / "position", ""); });
  refused("position zeroed",
          [](const path& s) { set_content(s / "position", std::string(8192, '\0')); });
  refused("position cut", [](const path& s) {
    set_content(s / "position", content_of(s / "position").substr(0, 4096));
  });
  refused("both slots", [](const path& s) {
    flip_bit(s / "position", 40);
    flip_bit(s / "position", 4096 + 48);
  });
  for (const std::size_t slot : {0U, 4096U}) {
    for (std::size_t i = 0; i < 256; i += 42) {
      EXPECT_EQ(after("byte " + std::to_string(slot + i) + " of the position",
                      [&](const path& s) { flip_bit(s / "position", slot + i); }),
                "OK");
    }
  }
}

TEST_P(Damage, ThePositionFileOfAnotherStoreIsRefused) {
  const auto other = root_->path() / "other";
  std::filesystem::remove_all(other);
  in_child([&](int) {
    auto store = open_rocksdb(other, {});
    ASSERT_TRUE(store.has_value()) << line_of(store);
  });
  EXPECT_THAT(
      after("position of another store",
            [&](const path& s) { set_content(s / "position", content_of(other / "position")); }),
      AllOf(StartsWith("CORRUPT"), HasSubstr("belongs to another store")));
}

TEST_P(Damage, TheStampDamagedIsRefused) {
  const auto stamp = content_of(sample() / "FORMAT");
  EXPECT_THAT(after("FORMAT deleted", [](const path& s) { std::filesystem::remove(s / "FORMAT"); }),
              AllOf(StartsWith("CORRUPT"), HasSubstr("FORMAT is missing")));
  EXPECT_THAT(after("FORMAT emptied", [](const path& s) { set_content(s / "FORMAT", ""); }),
              AllOf(StartsWith("CORRUPT"), HasSubstr("FORMAT is damaged")));
  for (std::size_t i = 0; i < stamp.size(); ++i) {
    EXPECT_NE(after("byte " + std::to_string(i) + " of FORMAT",
                    [&](const path& s) { flip_bit(s / "FORMAT", i, static_cast<int>(i % 8)); }),
              "OK");
  }
}

TEST_P(Damage, TheLockFileIsNeededByNobody) {
  EXPECT_EQ(after("lock deleted", [](const path& s) { std::filesystem::remove(s / "lock"); }),
            "OK");
  EXPECT_EQ(after("lock overwritten", [](const path& s) { set_content(s / "lock", "\xff\x01"); }),
            "OK");
}

TEST_P(Damage, CurrentDamagedLosesNothing) {
  EXPECT_THAT(
      after("CURRENT deleted", [](const path& s) { std::filesystem::remove(s / "db/CURRENT"); }),
      AllOf(StartsWith("CORRUPT"), HasSubstr("db/CURRENT is missing")));
  expect_harmless("db/CURRENT", 16);
}

TEST_P(Damage, TheManifestDamagedLosesNothing) {
  for (const auto& name : files("MANIFEST-")) expect_harmless(name, 24);
}

TEST_P(Damage, ATableDamagedLosesNothing) {
  for (const auto& name : files("", ".sst")) {
    expect_harmless(name, 9);
    EXPECT_THAT(after(name + " deleted", [&](const path& s) { std::filesystem::remove(s / name); }),
                StartsWith("CORRUPT"));
  }
}

TEST_P(Damage, OptionsAndIdentityOfRocksDbDamagedLoseNothing) {
  for (const auto& name : files("OPTIONS-")) expect_harmless(name, 2);
  expect_harmless("db/IDENTITY", 3);
}

TEST_P(Damage, TheWholeDatabaseGoneIsRefused) {
  EXPECT_THAT(after("db deleted", [](const path& s) { std::filesystem::remove_all(s / "db"); }),
              StartsWith("CORRUPT"));
  EXPECT_THAT(after("db emptied",
                    [](const path& s) {
                      std::filesystem::remove_all(s / "db");
                      std::filesystem::create_directory(s / "db");
                    }),
              StartsWith("CORRUPT"));
}

INSTANTIATE_TEST_SUITE_P(Samples, Damage, ::testing::Values("killed", "stopped"),
                         [](const auto& entry) { return entry.param; });

// --- a power cut under `process` ------------------------------------------------------------

class PowerCut : public ::testing::Test {
 protected:
  void SetUp() override {
    in_child([this](int) { make_samples(root_.path(), Durability::process); });
  }
  /// Opens a copy of a sample whose log is lost.
  void open_without_log(const std::string& sample, const std::shared_ptr<ManualClock>& clock,
                        const std::function<void(Result<std::unique_ptr<Store>>)>& check,
                        Durability durability = Durability::process) {
    const auto copy = root_.path() / "copy";
    copy_tree(root_.path() / sample, copy);
    for (const auto& entry : std::filesystem::directory_iterator(copy / "db")) {
      if (entry.path().extension() == ".log") set_content(entry.path(), "");
    }
    in_child([&](int) { check(open_rocksdb(copy, options_with(durability, clock))); });
  }

  const FastDirectory root_;
};

TEST_F(PowerCut, OpensInAnotherBootWithTheFloorAboveAllThatWasHandedOut) {
  const auto newest = newest_of(root_.path() / "stopped");
  for (const auto durability : {Durability::process, Durability::sync}) {
    auto clock = std::make_shared<ManualClock>();
    clock->reboot();
    open_without_log(
        "killed", clock,
        [&](auto opened) {
          ASSERT_TRUE(opened.has_value()) << line_of(opened);
          auto& store = **opened;
          EXPECT_GT(store.stats().floor, newest);
          // The tokens of before are over, on keys that are there and on keys that were lost.
          for (std::uint64_t n = 1; n <= newest.number(); ++n) {
            EXPECT_THAT(line_of(store.set("lost", "v", Token{n})),
                        AllOf(StartsWith("FENCED"), HasSubstr("floor")));
          }
          EXPECT_THAT(line_of(store.set(key_of(0), "v", newest, {.lease = "lease"})),
                      AllOf(StartsWith("FENCED"), HasSubstr("floor")));
          EXPECT_EQ(line_of(store.renew("lease", "owner-2", newest, 1s)), "LEASELOST unknown");
          const auto grant = store.acquire("lease", "me", 10s);
          ASSERT_TRUE(grant && *grant) << line_of(grant);
          EXPECT_GE((*grant)->token, store.stats().floor);
          EXPECT_EQ(line_of(store.set(key_of(0), "v", (*grant)->token, {.lease = "lease"})), "OK");
        },
        durability);
  }
}

TEST_F(PowerCut, WithoutALossTheFloorIsLiftedAllTheSame) {
  in_child([&](int) {
    auto clock = std::make_shared<ManualClock>();
    clock->reboot();
    auto opened = open_rocksdb(root_.path() / "killed", options_with(Durability::process, clock));
    ASSERT_TRUE(opened.has_value()) << line_of(opened);
    EXPECT_FALSE((*opened)->stats().floor.is_none());
    EXPECT_EQ((*opened)->stats().live_keys, kKeys);
  });
}

TEST_F(PowerCut, IsNoExcuseInTheSameBoot) {
  open_without_log("killed", std::make_shared<ManualClock>(), [](auto opened) {
    EXPECT_THAT(line_of(opened), AllOf(StartsWith("CORRUPT"), HasSubstr("is behind")));
  });
}

TEST_F(PowerCut, IsNoExcuseAfterACleanStop) {
  auto clock = std::make_shared<ManualClock>();
  clock->reboot();
  open_without_log("stopped", clock, [](auto opened) {
    EXPECT_THAT(line_of(opened), AllOf(StartsWith("CORRUPT"), HasSubstr("is behind")));
  });
}

TEST(PowerCutUnderSync, IsNoExcuse) {
  const FastDirectory root;
  in_child([&](int) { make_samples(root.path(), Durability::sync); });
  in_child([&](int) {
    auto clock = std::make_shared<ManualClock>();
    clock->reboot();
    for (const auto& entry : std::filesystem::directory_iterator(root.path() / "killed/db")) {
      if (entry.path().extension() == ".log") set_content(entry.path(), "");
    }
    EXPECT_THAT(
        line_of(open_rocksdb(root.path() / "killed", options_with(Durability::sync, clock))),
        AllOf(StartsWith("CORRUPT"), HasSubstr("is behind")));
  });
}

}  // namespace
}  // namespace fencekv::testing
