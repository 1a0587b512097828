// SPDX-License-Identifier: Apache-2.0
/// What fencekv-admin verify finds, and what every command says to a damaged store.
#include "engine/core/record.h"
#include "engine/rocksdb/directory.h"
#include "engine/rocksdb/position_file.h"
#include "tests/admin/scene.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

namespace fencekv::admin_test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace fs = std::filesystem;

/// A stopped store with records in a table and in the log.
class Verifying : public testing::Test {
 protected:
  Verifying() {
    {
      const auto store = open_store(directory_);
      token_ = (**store->acquire("nightly", "owner", 1h)).token;
      fill(*store, "old/");
    }
    move_into_tables(directory_);
    fill(*open_store(directory_), "new/");
  }

  void fill(Store& store, const std::string& prefix) const {
    for (int i = 0; i < 20; ++i) {
      const auto written = store.set(prefix + std::to_string(i), std::string(200, 'v'), token_,
                                     {.lease = "nightly"});
      if (!written) ADD_FAILURE() << written.error().line();
    }
  }

  Ended verify() const { return run_admin({"verify", "--dir", directory_.string()}); }

  void expect(int code, const std::string& text) const {
    const auto ended = verify();
    EXPECT_EQ(ended.code, code) << ended.out << ended.err;
    EXPECT_THAT(ended.out, HasSubstr(text)) << ended.err;
  }

  /// Damage that keeps a server from opening the store: no command takes it for an empty or shorter
  /// one.
  void expect_damage(const std::string& text) const {
    expect(4, "damage: ");
    expect(4, text);
    for (const auto* command : {"dump", "stat"}) {
      const auto ended = run_admin({command, directory_.string()});
      EXPECT_EQ(ended.code, 4) << command;
      EXPECT_THAT(ended.out, Not(HasSubstr("\"end\""))) << command;
      EXPECT_THAT(ended.err, HasSubstr(text)) << command;
      EXPECT_THAT(ended.err, HasSubstr("restore a backup")) << command;
    }
  }

  void plant_key(const std::string& key, const core::KeyRecord& record) const {
    const auto place = core::key_place(key);
    plant(directory_, {{.place = place, .bytes = core::encode(place, record)}});
  }
  void plant_lease(const std::string& name, const core::LeaseRecord& record) const {
    const auto place = core::lease_place(name);
    plant(directory_, {{.place = place, .bytes = core::encode(place, record)}});
  }

  static core::KeyRecord sound_key() {
    return {.fence = Token{1}, .version = 1, .written_by = Token{1}, .written = 1s, .value = "v"};
  }
  static core::LeaseRecord sound_lease() {
    return {.newest = {.token = Token{1},
                       .end = core::GrantEnd::released,
                       .deadline = {.boot = 0, .at = 1s},
                       .ttl = 1s,
                       .owner = "o",
                       .client = "c"}};
  }
  /// A shared lease whose newest grant has token 1, but that counts further grants.
  static core::LeaseRecord shared_lease(std::uint32_t others, Token fence = Token{1}) {
    auto lease = sound_lease();
    lease.newest.mode = LeaseMode::shared;
    lease.newest.token = fence;
    lease.others = others;
    return lease;
  }
  void plant_grant(const std::string& name, Token token, LeaseMode mode = LeaseMode::shared,
                   std::chrono::milliseconds ttl = 1s) const {
    const auto place = core::grant_place(name, token);
    const core::GrantRecord grant{.token = token,
                                  .mode = mode,
                                  .deadline = {.boot = 0, .at = 1s},
                                  .ttl = ttl,
                                  .owner = "o",
                                  .client = "c"};
    plant(directory_, {{.place = place, .bytes = core::encode(place, grant)}});
  }

  void rewrite_position(const std::function<void(rocks::PositionSlot&)>& change) const {
    auto file = rocks::PositionFile::open(rocks::posix_files(), directory_ / "position");
    ASSERT_TRUE(file);
    auto slot = file->current();
    change(slot);
    ASSERT_TRUE(file->write_durably(slot));
  }

  const Folder folder_;
  const fs::path directory_ = folder_.path() / "store";
  Token token_;
};

// --- What is sound
// --------------------------------------------------------------------------------

TEST_F(Verifying, FindsNothingInASoundStore) {
  const auto ended = verify();

  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, HasSubstr(": no problems (40 keys with a value, 0 without, 1 lease names; "
                                   "2 table files, "));
  EXPECT_THAT(ended.err, IsEmpty());
}

TEST_F(Verifying, FindsNothingInAStoreWhoseServerWasKilled) {
  const auto killed = folder_.path() / "killed";
  {
    const auto store = open_store(directory_);
    fill(*store, "newer/");
    fs::copy(directory_, killed, fs::copy_options::recursive);
  }

  const auto verified = run_admin({"verify", killed.string()});
  const auto stat = run_admin({"stat", killed.string()});

  EXPECT_EQ(verified.code, 0) << verified.out;
  EXPECT_THAT(verified.out, HasSubstr("60 keys with a value"));
  EXPECT_THAT(stat.out, HasSubstr("stopped without closing"));
}

TEST_F(Verifying, ToleratesALogRecordTornBeforeItWasAcknowledged) {
  const auto log = database_files(directory_, ".log").back();
  // The beginning of a record that says it has 100 bytes, and has 3.
  write_whole(log, read_whole(log) + std::string("\x01\x02\x03\x04\x64\x00\x01"
                                                 "abc",
                                                 10));

  EXPECT_EQ(verify().code, 0);
}

/// A power cut may leave the file's new size, and of a record one sector and not another: to every
/// tool it is what it is to the server, the end of the history.
TEST_F(Verifying, ToleratesALogRecordOfWhichASectorIsMissing) {
  const auto log = database_files(directory_, ".log").back();
  const auto before = read_whole(log);
  const auto sound = run_admin({"dump", directory_.string()});
  write_whole(log, before + std::string("\x01\x02\x03\x04\x64\x00\x01", 7) + std::string(100, 'x'));

  const auto verified = verify();
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  const auto dumped = run_admin({"dump", directory_.string()});
  EXPECT_EQ(dumped.code, 0);
  EXPECT_EQ(parse_dump(dumped.out).keys, parse_dump(sound.out).keys);
  const auto repaired = run_admin({"repair", directory_.string(), "--dry-run"});
  EXPECT_THAT(repaired.out, HasSubstr("nothing to repair")) << repaired.out << repaired.err;
}

// --- Damaged files
// --------------------------------------------------------------------------------

TEST_F(Verifying, FindsAFlippedByteInATable) {
  const auto table = database_files(directory_, ".sst").front();
  flip_byte(table, 30);

  expect(1, table.string() + ": ");
  const auto dumped = run_admin({"dump", directory_.string()});
  EXPECT_EQ(dumped.code, 4);
  EXPECT_THAT(dumped.out, Not(HasSubstr("\"end\"")));
}

TEST_F(Verifying, FindsAFlippedByteInTheLog) {
  const auto log = database_files(directory_, ".log").back();
  flip_byte(log, read_whole(log).size() / 2);

  expect_damage((directory_ / "db").string());
}

TEST_F(Verifying, FindsAFlippedByteWhereverItIs) {
  struct Sort {
    std::string_view extension;
    std::size_t samples;
  };
  for (const auto& [extension, samples] : {Sort{".sst", 40}, Sort{".log", 20}}) {
    const auto file = database_files(directory_, extension).back();
    const auto content = read_whole(file);
    // The footer of a table is filled up with bytes that nobody reads.
    const auto guarded = content.size() - (extension == ".sst" ? 53 : 0);
    for (std::size_t i = 0; i < samples; ++i) {
      const auto offset = guarded * (2 * i + 1) / (2 * samples);
      flip_byte(file, offset);
      const auto ended = verify();
      EXPECT_TRUE(ended.code == 1 || ended.code == 4)
          << file << " at " << offset << ": " << ended.code << "\n"
          << ended.out << ended.err;
      write_whole(file, content);
    }
  }
  EXPECT_EQ(verify().code, 0);
}

TEST_F(Verifying, NeverTakesADamagedManifestForAnOlderOne) {
  for (const auto& entry : fs::directory_iterator(directory_ / "db")) {
    if (!entry.path().filename().string().starts_with("MANIFEST")) continue;
    const auto content = read_whole(entry.path());
    for (std::size_t offset = 0; offset < content.size(); offset += 7) {
      flip_byte(entry.path(), offset);
      const auto ended = verify();
      EXPECT_TRUE(ended.code == 1 || ended.code == 4)
          << "at " << offset << " of " << content.size() << ": " << ended.code << "\n"
          << ended.out << ended.err;
      write_whole(entry.path(), content);
    }
  }
}

TEST_F(Verifying, NotesADamagedSlotOfThePositionFile) {
  flip_byte(directory_ / "position", 10);

  expect(0, "note: " + (directory_ / "position").string() + ": one of its two slots is damaged");
  EXPECT_EQ(run_admin({"dump", directory_.string()}).code, 0);
}

TEST_F(Verifying, FindsBothSlotsOfThePositionFileDamaged) {
  flip_byte(directory_ / "position", 10);
  flip_byte(directory_ / "position", rocks::PositionFile::kPageBytes + 10);

  expect_damage((directory_ / "position").string());
  // What can be checked all the same was checked.
  EXPECT_THAT(verify().out, HasSubstr("40 keys with a value"));
}

TEST_F(Verifying, FindsAMissingPositionFile) {
  fs::remove(directory_ / "position");

  expect_damage((directory_ / "position").string() + " is missing");
}

TEST_F(Verifying, FindsADeletedLog) {
  fs::remove(database_files(directory_, ".log").back());

  expect_damage("db is behind: it ends at group ");
}

TEST_F(Verifying, FindsAnEmptiedLog) {
  write_whole(database_files(directory_, ".log").back(), "");

  expect_damage("db is behind: it ends at group ");
}

TEST_F(Verifying, FindsAMissingTable) {
  fs::remove(database_files(directory_, ".sst").front());

  expect_damage((directory_ / "db").string());
}

TEST_F(Verifying, FindsAMissingAndAnEmptyCurrent) {
  write_whole(directory_ / "db" / "CURRENT", "");
  expect_damage((directory_ / "db").string());
  fs::remove(directory_ / "db" / "CURRENT");
  expect_damage((directory_ / "db" / "CURRENT").string() + " is missing");
}

TEST_F(Verifying, FindsADamagedStamp) {
  write_whole(directory_ / "FORMAT", "something else");
  expect_damage((directory_ / "FORMAT").string());
  fs::remove(directory_ / "FORMAT");
  expect_damage((directory_ / "FORMAT").string() + " is missing");
}

TEST_F(Verifying, RefusesANewerFormat) {
  write_whole(directory_ / "FORMAT", "fencekv store\nformat 3\n");

  for (const auto* command : {"dump", "stat", "verify"}) {
    const auto ended = run_admin({command, directory_.string()});
    EXPECT_EQ(ended.code, 5);
    EXPECT_THAT(ended.err, HasSubstr("has format 3"));
  }
  // The same while a newer server is using it.
  const auto taken = rocks::Directory::take(rocks::posix_files(), directory_);
  EXPECT_EQ(verify().code, 5);
}

TEST_F(Verifying, SaysWhenTheStoreIsJustBeingCreated) {
  const auto fresh = folder_.path() / "fresh";
  const auto taken = rocks::Directory::take(rocks::posix_files(), fresh);
  ASSERT_TRUE(taken);
  ASSERT_TRUE(taken->begin_creation());

  const auto ended = run_admin({"stat", fresh.string()});

  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(ended.err, HasSubstr("is being created"));
}

TEST_F(Verifying, FindsDamageOfALiveStoreToo) {
  // A table that cannot be opened any more, while a server that has opened it goes on.
  const auto store = open_store(directory_);
  const auto table = database_files(directory_, ".sst").front();
  fs::resize_file(table, 100);

  for (const auto* command : {"dump", "verify"}) {
    const auto ended = run_admin({command, directory_.string()});
    EXPECT_EQ(ended.code, 4) << ended.out;
    EXPECT_THAT(ended.out + ended.err, HasSubstr(table.string())) << command;
  }
}

TEST_F(Verifying, FindsAFlippedByteInATableOfALiveStore) {
  const auto store = open_store(directory_);
  const auto table = database_files(directory_, ".sst").front();
  flip_byte(table, 30);

  expect(1, table.string() + ": ");
}

// --- Positions
// ------------------------------------------------------------------------------------

TEST_F(Verifying, FindsThePositionFileOfAnotherStore) {
  rewrite_position([](rocks::PositionSlot& slot) { slot.incarnation[3] ^= 1; });

  expect_damage((directory_ / "position").string() + " belongs to another store");
}

TEST_F(Verifying, FindsAcknowledgedGroupsMissing) {
  rewrite_position([](rocks::PositionSlot& slot) {
    slot.n += 3;
    slot.is_clean = false;
  });

  expect_damage("A log file is missing or cut short");
}

TEST_F(Verifying, NotesWhatAPowerCutMayDoToDurabilityProcess) {
  rewrite_position([](rocks::PositionSlot& slot) {
    slot.n += 3;
    slot.is_clean = false;
    slot.durability = Durability::process;
    slot.boot_id = "another boot";
  });

  expect(0, "note: the machine stopped while durability was `process`");
  EXPECT_EQ(run_admin({"dump", directory_.string()}).code, 0);
}

// --- Planted records
// ------------------------------------------------------------------------------

TEST_F(Verifying, FindsRecordsThatCannotBeDecoded) {
  auto damaged = core::encode(core::key_place("damaged"), sound_key());
  damaged[9] = static_cast<char>(damaged[9] ^ 1);
  plant(directory_, {{.place = core::key_place("damaged"), .bytes = damaged},
                     {.place = core::key_place("moved"),
                      .bytes = core::encode(core::key_place("from"), sound_key())},
                     {.place = core::lease_place("short"), .bytes = "x"}});

  expect(1, "problem: record kdamaged: checksum does not match");
  expect(1, "problem: record kmoved: checksum does not match");
  expect(1, "problem: record lshort: too short");
  const auto dumped = run_admin({"dump", directory_.string()});
  EXPECT_EQ(dumped.code, 4);
  EXPECT_THAT(dumped.err, HasSubstr("record kdamaged: checksum does not match"));
  EXPECT_THAT(dumped.out, Not(HasSubstr("\"end\"")));
  // What is sound can still be looked at.
  EXPECT_EQ(run_admin({"dump", directory_.string(), "--prefix", "new/"}).code, 0);
}

TEST_F(Verifying, FindsUnknownKindsOfRecords) {
  plant(directory_, {{.place = "zebra", .bytes = "x"},
                     {.place = "mother", .bytes = "x"},
                     {.place = std::string("\x00", 1), .bytes = ""}});

  expect(1, "problem: record zebra: unknown kind");
  expect(1, "problem: record mother: unknown kind");
  expect(1, "problem: record \\x00: unknown kind");
}

TEST_F(Verifying, FindsNamesOutsideTheLimits) {
  const std::string long_name(Limits::kNameBytes + 1, 'n');
  auto key = sound_key();
  key.guard = long_name;
  key.request = "";
  plant_key(long_name, key);
  plant_key("", sound_key());
  auto lease = sound_lease();
  lease.newest.owner = std::string(Limits::kOwnerBytes + 1, 'o');
  plant_lease(long_name, lease);

  expect(1, ": its name has 1025 bytes, not 1 to 1024");
  expect(1, ": its name has 0 bytes, not 1 to 1024");
  expect(1, ": its guard has 1025 bytes, not 1 to 1024");
  expect(1, ": its request has 0 bytes, not 1 to 256");
  expect(1, ": its owner has 257 bytes, not 1 to 256");
}

TEST_F(Verifying, FindsAWrittenKeyOfVersion0) {
  auto key = sound_key();
  key.version = 0;
  plant_key("wrong", key);

  expect(1, "problem: key wrong: was written, but its version is 0");
}

TEST_F(Verifying, FindsAKeyWrittenByNobody) {
  auto key = sound_key();
  key.written_by = Token{};
  plant_key("wrong", key);

  expect(1, "problem: key wrong: was written by a token that is none");
}

TEST_F(Verifying, FindsLeasesThatNobodyCanHaveGranted) {
  auto lease = sound_lease();
  lease.newest.token = Token{1000};
  plant_lease("fence", lease);
  lease = sound_lease();
  lease.newest.deadline.boot = 7;
  plant_lease("boot", lease);
  lease = sound_lease();
  lease.newest.ttl = 0ms;
  plant_lease("ttl", lease);
  lease = sound_lease();
  lease.newest.deadline.at = std::chrono::hours(1'000'000);
  plant_lease("time", lease);

  expect(1, "problem: lease fence: its fence 1000 is above the newest token 1");
  expect(1, "problem: lease boot: it runs in boot 7, but the store saw only 0");
  expect(1, "problem: lease ttl: its ttl is not 1 ms to 7 days");
  expect(1, "problem: lease time: it ends later than its ttl allows");
}

TEST_F(Verifying, FindsNumbersOfALeaseOutsideTheLimits) {
  auto lease = sound_lease();
  lease.newest.delay = Limits::kMaxDelay + 1ms;
  plant_lease("delay", lease);
  lease = sound_lease();
  lease.newest.payload = std::string(Limits::kPayloadBytes + 1, 'p');
  plant_lease("payload", lease);
  lease = sound_lease();
  lease.block = -1ms;
  plant_lease("block", lease);
  lease = sound_lease();
  lease.block = 1ms;
  lease.blocked.boot = 7;
  plant_lease("later", lease);
  lease = sound_lease();
  lease.newest.token = Token{2};
  lease.ended = Token{1};
  lease.ended_since.boot = 7;
  plant_lease("ended", lease);
  lease = sound_lease();
  lease.newest.origin.process = 1000;
  plant_lease("origin", lease);

  expect(1, "problem: lease delay: its delay is not 0 to 7 days");
  expect(1, "problem: lease payload: its payload has 1025 bytes, not 0 to 1024");
  expect(1, "problem: lease block: it is blocked for longer than 7 days");
  expect(1, "problem: lease later: it runs in boot 7, but the store saw only 0");
  expect(1, "problem: lease ended: it runs in boot 7, but the store saw only 0");
  expect(1, "problem: lease origin: it was acquired in epoch 1000, but the store is in ");
}

TEST_F(Verifying, FindsFurtherGrantsOfALeaseThatIsNotThere) {
  plant_grant("orphan", Token{1});

  expect(1, "problem: lease orphan: it was never granted, but has further grants");
}

TEST_F(Verifying, FindsFurtherGrantsThatAreNotAsManyAsCounted) {
  plant_lease("more", shared_lease(1, Token{5}));
  plant_grant("more", Token{1});
  plant_grant("more", Token{2});
  plant_lease("fewer", shared_lease(2, Token{5}));
  plant_grant("fewer", Token{1});
  plant_lease("none", shared_lease(2));

  expect(1, "problem: lease more: it counts 1 further grants, but 2 are there");
  expect(1, "problem: lease fewer: it counts 2 further grants, but 1 are there");
  expect(1, "problem: lease none: it counts 2 further grants, but 0 are there");
  // A dump that would leave grants out is none.
  const auto dumped = run_admin({"dump", directory_.string()});
  EXPECT_EQ(dumped.code, 4);
  EXPECT_THAT(dumped.err, HasSubstr("record lfewer counts 2 further grants, but 1 are there"));
  EXPECT_THAT(dumped.out, Not(HasSubstr("\"end\"")));
  EXPECT_EQ(run_admin({"stat", directory_.string(), "--leases"}).code, 4);
  EXPECT_EQ(run_admin({"stat", directory_.string()}).code, 0);
}

TEST_F(Verifying, FindsFurtherGrantsThatDoNotBelongToTheirLease) {
  plant_lease("newer", shared_lease(1));
  plant_grant("newer", Token{1});
  auto exclusive = sound_lease();
  exclusive.newest.token = Token{5};
  plant_lease("exclusive", exclusive);
  plant_grant("exclusive", Token{1});
  plant_lease("mixed", shared_lease(1, Token{5}));
  plant_grant("mixed", Token{1}, LeaseMode::permit);
  plant_lease("ttl", shared_lease(1, Token{5}));
  plant_grant("ttl", Token{2}, LeaseMode::shared, 0ms);

  expect(1, "problem: lease newer: its fence 1 is not above that of its grant 1");
  expect(1, "problem: lease exclusive: it counts 0 further grants, but 1 are there");
  expect(1, "problem: lease exclusive: it is exclusive, but has further grants of another mode");
  expect(1, "problem: lease mixed: it is shared, but has further grants of another mode");
  expect(1, "problem: lease ttl, grant 2: its ttl is not 1 ms to 7 days");
}

TEST_F(Verifying, FindsFurtherGrantsThatCannotBeDecoded) {
  const auto place = core::grant_place("nightly", Token{1});
  plant(directory_, {{.place = place, .bytes = "something"}, {.place = "gone", .bytes = "x"}});

  expect(1, "problem: record g\\x00\\x07nightly\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01: ");
  expect(1, "problem: record gone: unknown kind");
}

TEST_F(Verifying, FindsAnAllocatorThatContradictsItself) {
  const auto put = [](const core::AllocatorRecord& record) {
    return core::Put{.place = std::string(core::kAllocatorKey),
                     .bytes = core::encode(core::kAllocatorKey, record)};
  };
  plant(directory_, {put({.newest = Token{70'000}, .floor = Token{70'001}})});
  expect(1, "problem: allocator: the newest token 70000 was never reserved: only ");
  EXPECT_THAT(verify().out, Not(HasSubstr("the floor")));

  plant(directory_, {put({.newest = Token{1}, .floor = Token{3}})});
  expect(1, "problem: allocator: the floor 3 is above the newest token 1");
}

TEST_F(Verifying, FindsCountsThatDoNotFit) {
  plant_key("more", sound_key());
  plant_lease("more", sound_lease());

  expect(1, "problem: counts: 41 keys with a value are there, but the store has counted 40");
  expect(1, "problem: counts: 2 lease names are there, but the store has counted 1");
  const auto dumped = run_admin({"dump", directory_.string()});
  EXPECT_EQ(dumped.code, 4);
  EXPECT_THAT(dumped.err, HasSubstr("41 keys with a value were read, but the store has 40"));
  EXPECT_THAT(dumped.out, Not(HasSubstr("\"end\"")));
}

TEST_F(Verifying, FindsDamagedSmallRecords) {
  plant(directory_, {{.place = std::string(core::kAllocatorKey), .bytes = "nothing sensible"}});

  expect_damage("record mallocator: checksum does not match");
}

TEST_F(Verifying, NotesWhatMayBeMeant) {
  {
    const auto store = open_store(directory_, {.unguarded_tokens = UnguardedTokens::any});
    ASSERT_TRUE(store->set("external", "x", Token{5'000}));
    ASSERT_TRUE(store->set("lowered", "x", Token{5'000}));
    ASSERT_TRUE(store->execute(Reset{.key = "lowered", .token = Token{2}}));
    ASSERT_TRUE(store->execute(Reset{.key = "lonely",
                                     .token = Token{1},
                                     .guard = Reset::Guard::set,
                                     .guard_name = "never granted"}));
    ASSERT_TRUE(store->execute(Reset{.key = "poisoned",
                                     .token = Token{9},
                                     .guard = Reset::Guard::set,
                                     .guard_name = "nightly"}));
  }

  expect(0,
         "note: 3 keys have a fence above the newest token, as tokens of an external allocator "
         "have, first external");
  expect(0,
         "note: 1 keys have a fence below the token that wrote them, as FENCE.RESET does, first "
         "lowered");
  expect(0,
         "note: 1 keys are guarded by a lease that was never granted, as FENCE.RESET allows, "
         "first lonely");
  expect(0, "note: 1 keys have a fence above that of their guard");
}

}  // namespace
}  // namespace fencekv::admin_test
