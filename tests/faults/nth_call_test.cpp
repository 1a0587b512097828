// SPDX-License-Identifier: Apache-2.0
// For each scenario: call 1 of the disk fails, then call 2, and so on until the scenario is through
// before any fails; with each errno, once and for good. Whatever happens then, the process goes on,
// no answer is wrong, and on a disk that works again, and after a power cut on top, everything that
// was acknowledged is there, and what is in doubt is there in full or not at all.
//
// All calls take minutes (FENCEKV_EVERY=1, tools/soak/faults.sh); without it every eighth is tried,
// from a random one. A failure prints how to have it again:
//
//     FENCEKV_SEED=7 fencekv_faults_tests --gtest_filter='*FailsAndNothing*/LoadEIO'
//
// The method is SQLite's ("I/O error testing", sqlite.org/testing.html).

#include "engine/rocksdb/backup.h"
#include "engine/rocksdb/repair.h"
#include "engine/rocksdb/restore.h"
#include "tests/faults/machine.h"
#include "tests/support/seed_from_environment.h"
#include "tests/support/simulated_disk.h"
#include "tests/support/temporary_directory.h"
#include "tools/admin/digest.h"
#include "tools/admin/load.h"
#include "tools/admin/output.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

constexpr std::uint64_t kEvery = 8;

constexpr const char* kBackup = "/backups/one";
constexpr const char* kRestored = "/restored";
constexpr const char* kLoaded = "/loaded";

/// What is tried right now, for who reads that the process died of it.
std::array<char, 128> now_trying{};

void tell_what_was_tried(int signal) {
  static_cast<void>(write(STDERR_FILENO, now_trying.data(), std::strlen(now_trying.data())));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// How a call fails.
struct Fault {
  const char* name;
  int number;
  bool is_short;  ///< A write arrives by half.
};

constexpr std::array<Fault, 5> kFaults{{
    {.name = "EIO", .number = EIO, .is_short = false},
    {.name = "ENOSPC", .number = ENOSPC, .is_short = true},
    {.name = "EDQUOT", .number = EDQUOT, .is_short = false},
    {.name = "EMFILE", .number = EMFILE, .is_short = false},
    {.name = "ShortWrite", .number = EIO, .is_short = true},
}};

/// Something that a store does, and where it begins.
struct Scenario {
  const char* name;
  bool begins_open = false;  ///< The store is opened before anything fails.
  bool is_damaged = false;   ///< The store cannot be opened before it is repaired.
  /// Makes what is there before; nothing fails.
  std::function<void(Machine&)> prepare;
  /// While a call fails. May leave the store open, closed, or not opened.
  std::function<void(Machine&)> act;
  /// Beyond what is true of every store: with a disk that works again.
  std::function<void(Machine&)> check = [](Machine&) {};
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) {
  return out << fault.name;
}

std::ostream& operator<<(std::ostream& out, const Scenario& scenario) {
  return out << scenario.name;
}

void prepare_closed_store(Machine& machine) {
  prepare_store(machine);
  machine.close();
}

/// A killed process's store: its log is not in tables yet. (Machines are switched off by copying.)
void prepare_killed_store(Machine& machine) {
  prepare_store(machine);
}

/// One that a power cut leaves where it is.
void make_backup_root(Machine& machine) {
  ASSERT_TRUE(machine.disk().make_directory("/backups").has_value());
  ASSERT_TRUE(machine.disk().sync_directory("/").has_value());
}

void prepare_backup(Machine& machine) {
  prepare_store(machine);
  make_backup_root(machine);
  const auto made = machine.store().backup(kBackup);
  ASSERT_TRUE(made.has_value()) << made.error().line();
  machine.close();
}

void write_everything(Machine& machine) {
  auto& store = machine.store();
  auto& facts = machine.facts();
  facts.set(store, "key0", "new", Token{20});
  facts.set(store, "fresh", "new", Token{20});
  facts.set_both(store, "left", "right", "both", Token{21});
  facts.remove(store, "key1", Token{22});
  facts.acquire(store, "free", "me");
  facts.acquire(store, "closed", "another");
  facts.look(store);
  facts.release(store, "held", "me");
  facts.acquire_together(store, {"upper", "lower"}, "me");
  facts.set(store, "guarded", "new", facts.token_of("guard"),
            {.lease = "guard", .request = "request 3"});
  facts.set(store, "key0", "newest", Token{23});
  // A failed write closes the database and opens it again; more may fail then.
  for (int i = 0; i < 4; ++i) machine.step();
  facts.set(store, "key2", "after", Token{24});
  facts.look(store);
}

void open_and_write(Machine& machine) {
  if (machine.open()) return;
  auto& facts = machine.facts();
  facts.look(machine.store());
  facts.set(machine.store(), "key0", "new", Token{30});
  facts.acquire(machine.store(), "free", "me");
  machine.close();
}

/// Until tables are written, and those merged.
void write_much(Machine& machine) {
  auto& facts = machine.facts();
  for (int i = 0; i < 40; ++i) {
    const auto token = Token{100 + static_cast<std::uint64_t>(i)};
    facts.set(machine.store(), "key" + std::to_string(i % 8), std::string(200, 'x'), token);
    if (i % 4 == 0) machine.step();
  }
  for (int i = 0; i < 3; ++i) machine.step();
  facts.look(machine.store());
}

void make_backup(Machine& machine) {
  const auto made = machine.store().backup("/backups/two");
  machine.facts().set(machine.store(), "key0", "while a backup fails", Token{40});
  if (!made) return;
  // What is called complete is complete.
  machine.disk().inodes().set_hook({});
  const auto whole = rocks::verify_backup(machine.disk(), "/backups/two", {});
  EXPECT_TRUE(whole.has_value()) << whole.error().line();
}

/// There is a whole backup, or none, and it can be made now.
void check_backup(Machine& machine) {
  auto& disk = machine.disk();
  const auto is_there = disk.exists("/backups/two");
  ASSERT_TRUE(is_there.has_value());
  if (!*is_there) {
    must_open(machine);
    const auto made = machine.store().backup("/backups/two");
    ASSERT_TRUE(made.has_value()) << made.error().line();
    machine.close();
  }
  const auto whole = rocks::verify_backup(disk, "/backups/two", {});
  EXPECT_TRUE(whole.has_value()) << whole.error().line();
  // Nothing is left of tries that failed.
  EXPECT_EQ(*disk.list("/backups"), std::vector<std::string>{"two"});
}

void restore_backup(Machine& machine) {
  const auto restored = rocks::restore(machine.disk(), kBackup, kRestored, {});
  if (!restored) return;
  machine.disk().inodes().set_hook({});
  EXPECT_TRUE(*machine.disk().exists(std::string(kRestored) + "/FORMAT"));
}

/// What is made at `path` is complete or absent, never half.
bool is_there(Machine& machine, const std::filesystem::path& path) {
  const auto is_begun = machine.disk().exists(path);
  const auto is_whole = machine.disk().exists(path / "FORMAT");
  EXPECT_TRUE(is_begun && is_whole);
  EXPECT_EQ(*is_begun, *is_whole) << path;
  return *is_whole;
}

/// The store at `path` has the facts of that before, in a history of its own.
void check_new_history(Machine& machine, const char* path) {
  auto opened = machine.open_at(path);
  ASSERT_TRUE(opened.has_value()) << opened.error().line();
  auto facts = machine.facts();
  facts.check_restored(*opened->store);
  EXPECT_EQ(facts.problems(), std::vector<std::string>());
}

void check_restored(Machine& machine) {
  if (!is_there(machine, kRestored)) {
    const auto restored = rocks::restore(machine.disk(), kBackup, kRestored, {});
    ASSERT_TRUE(restored.has_value()) << restored.error().line();
  }
  check_new_history(machine, kRestored);
}

/// On the disk of this machine, from which a dump is read: that does not fail here.
std::string dump_file() {
  static const TemporaryDirectory folder;
  return (folder.path() / "dump").string();
}

void prepare_dump(Machine& machine) {
  prepare_closed_store(machine);
  const auto& facts = machine.facts();
  const auto newest = std::to_string(facts.highest().number());
  std::string lines = R"({"dump":"fencekv","dump_format":2,"format":2,"newest":")" + newest +
                      R"(","floor":"0","reserved":")" + newest +
                      R"(","incarnation":"00112233445566778899aabbccddeeff","what":"all",)"
                      R"("prefix":"","digest":"sha256"})"
                      "\n";
  for (const auto& line : facts.dump_lines()) lines += line + "\n";
  admin::Digest digest;
  digest.add(lines);
  lines += R"({"kind":"end","keys":)" + std::to_string(facts.live_keys()) + R"(,"tombstones":)" +
           std::to_string(facts.tombstones()) + R"(,"leases":0,"holders":0,"sha256":")" +
           digest.hex() + "\"}\n";
  std::ofstream(dump_file()) << lines;
}

Result<void> load_dump(Machine& machine) {
  admin::Output output;  // Never finished, so nothing is written.
  return admin::load(machine.disk(), {.dump = dump_file(), .directory = kLoaded}, output);
}

void load(Machine& machine) {
  const auto loaded = load_dump(machine);
  if (!loaded) return;
  machine.disk().inodes().set_hook({});
  EXPECT_TRUE(is_there(machine, kLoaded));
}

void check_loaded(Machine& machine) {
  if (!is_there(machine, kLoaded)) {
    const auto loaded = load_dump(machine);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().line();
  }
  check_new_history(machine, kLoaded);
}

constexpr const char* kBoot = "boot-1";
constexpr const char* kRepaired = "/repaired";

/// What is damaged is needed by RocksDB and can be known without it: nothing is lost.
void prepare_damaged_store(Machine& machine) {
  prepare_store(machine);
  machine.close();
  ASSERT_TRUE(machine.disk().inodes().replace(std::string(kStore) + "/db/CURRENT", "nothing\n"));
}

void repair_into_copy(Machine& machine) {
  const auto looked = rocks::examine(machine.disk(), kStore, kBoot, rocks::LockMode::shared);
  if (!looked) return;
  const auto written = looked->write_copy(kRepaired);
  static_cast<void>(written);
}

/// The store at `path` is that of before, and goes on.
void check_repaired(Machine& machine, const char* path) {
  auto opened = machine.open_at(path);
  ASSERT_TRUE(opened.has_value()) << opened.error().line();
  machine.facts().check(*opened->store);
  EXPECT_EQ(machine.facts().problems(), std::vector<std::string>());
}

void check_copy(Machine& machine) {
  auto& disk = machine.disk();
  if (!*disk.exists(kRepaired)) {
    const auto looked = rocks::examine(disk, kStore, kBoot, rocks::LockMode::shared);
    ASSERT_TRUE(looked.has_value()) << looked.error().line();
    const auto written = looked->write_copy(kRepaired);
    ASSERT_TRUE(written.has_value()) << written.error().line();
  }
  check_repaired(machine, kRepaired);
}

void repair_in_place(Machine& machine) {
  const auto looked = rocks::examine(machine.disk(), kStore, kBoot, rocks::LockMode::exclusive);
  if (!looked) return;
  const auto written = looked->write_in_place();
  static_cast<void>(written);
}

void check_in_place(Machine& machine) {
  auto& disk = machine.disk();
  const auto is_half = rocks::is_half_repaired(disk, kStore);
  ASSERT_TRUE(is_half.has_value()) << is_half.error().line();
  if (*is_half) {
    // Refused by every opening, never taken for an empty store.
    const auto refused = machine.open_at(kStore);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Errc::corrupt) << refused.error().line();
    const auto finished = rocks::finish_repair(disk, kStore);
    ASSERT_TRUE(finished.has_value()) << finished.error().line();
  } else {
    const auto looked = rocks::examine(disk, kStore, kBoot, rocks::LockMode::exclusive);
    ASSERT_TRUE(looked.has_value()) << looked.error().line();
    if (!looked->damage().empty()) {
      const auto written = looked->write_in_place();
      ASSERT_TRUE(written.has_value()) << written.error().line();
    }
  }
  check_repaired(machine, kStore);
}

const std::array kScenarios{
    Scenario{.name = "Create",
             .prepare = [](Machine&) {},
             .act =
                 [](Machine& machine) {
                   if (machine.open()) return;
                   machine.facts().set(machine.store(), "first", "v", Token{1});
                   machine.facts().acquire(machine.store(), "name", "me");
                   machine.close();
                 }},
    Scenario{.name = "Open", .prepare = prepare_closed_store, .act = open_and_write},
    Scenario{.name = "OpenAfterKill", .prepare = prepare_killed_store, .act = open_and_write},
    Scenario{.name = "Write",
             .begins_open = true,
             .prepare = prepare_closed_store,
             .act = write_everything},
    Scenario{.name = "FlushAndCompact",
             .begins_open = true,
             .prepare =
                 [](Machine& machine) {
                   prepare_closed_store(machine);
                   machine.flush_after(12);
                 },
             .act = write_much},
    Scenario{.name = "Close",
             .begins_open = true,
             .prepare = prepare_closed_store,
             .act = [](Machine& machine) { machine.close(); }},
    Scenario{.name = "Backup",
             .begins_open = true,
             .prepare =
                 [](Machine& machine) {
                   prepare_closed_store(machine);
                   make_backup_root(machine);
                 },
             .act = make_backup,
             .check = check_backup},
    Scenario{.name = "Restore",
             .prepare = prepare_backup,
             .act = restore_backup,
             .check = check_restored},
    Scenario{.name = "Load", .prepare = prepare_dump, .act = load, .check = check_loaded},
    Scenario{.name = "RepairIntoCopy",
             .is_damaged = true,
             .prepare = prepare_damaged_store,
             .act = repair_into_copy,
             .check = check_copy},
    Scenario{.name = "RepairInPlace",
             .is_damaged = true,
             .prepare = prepare_damaged_store,
             .act = repair_in_place,
             .check = check_in_place},
};

class NthCall : public ::testing::TestWithParam<std::tuple<Scenario, Fault>> {
 protected:
  NthCall() {
    for (const int signal : {SIGABRT, SIGSEGV}) std::signal(signal, tell_what_was_tried);
  }

  /// Runs the scenario with call `n` failing. Whether any did.
  bool fails(const Machine& prepared, std::uint64_t n, bool for_good) {
    const auto& [scenario, fault] = GetParam();
    const auto number = fault.number;
    const auto is_short = fault.is_short;
    std::snprintf(now_trying.data(), now_trying.size(), "FENCEKV_SEED=%llu: %s, call %llu: %s%s\n",
                  static_cast<unsigned long long>(seed_), scenario.name,
                  static_cast<unsigned long long>(n), fault.name, for_good ? " for good" : "");
    SCOPED_TRACE(std::string(now_trying.data()));

    auto machine = prepared.copy();
    auto& inodes = machine->disk().inodes();
    if (scenario.begins_open) must_open(*machine);
    const auto first = inodes.calls() + n;
    bool has_failed = false;
    inodes.set_hook([&](const DiskCall& call) -> std::optional<DiskFailure> {
      if (call.number < first || (call.number > first && !for_good)) return std::nullopt;
      has_failed = true;
      const bool is_write = call.operation == DiskOperation::write;
      return DiskFailure{.number = number,
                         .written = is_short && is_write ? call.bytes.size() / 2 : 0};
    });
    scenario.act(*machine);
    inodes.set_hook({});
    check_after(*machine, n);
    return has_failed;
  }

  void check_after(Machine& machine, std::uint64_t seed) {
    // The disk works again: so does the store, by itself. A failed flush is noticed by the next
    // write, whatever that is.
    if (machine.is_open()) {
      machine.facts().set(machine.store(), "after the fault", "v", Token{1000});
      for (int i = 0; i < 10 && machine.store().refuses_writes(); ++i) machine.step();
      EXPECT_EQ(machine.store().refuses_writes(), std::nullopt);
      check_store(machine, "after the fault");
    }
    const auto& scenario = std::get<Scenario>(GetParam());
    std::mt19937_64 random(seed);
    if (scenario.is_damaged) {
      const auto cut = machine.after_power_loss(random);
      scenario.check(*cut);
      scenario.check(machine);
      return;
    }
    // Whatever was going on, the power may be cut now.
    const auto cut = machine.after_power_loss(random);
    machine.close();
    for (auto* after : {cut.get(), &machine}) {
      must_open(*after);
      if (!after->is_open()) continue;
      check_store(*after, after == &machine ? "after a stop" : "after a power cut");
      after->close();
      scenario.check(*after);
    }
  }

  static void check_store(Machine& machine, const char* when) {
    machine.facts().check(machine.store());
    EXPECT_EQ(machine.facts().problems(), std::vector<std::string>()) << when;
  }

  /// Decides with which call a sweep begins; a power cut is decided by the number of the call.
  const std::uint64_t seed_ = seed_from_environment("FENCEKV_SEED");
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, "FENCEKV_SEED=" + std::to_string(seed_)};
};

TEST_P(NthCall, FailsAndNothingAcknowledgedIsLost) {
  const auto& scenario = std::get<Scenario>(GetParam());
  Machine prepared(std::make_shared<SimulatedDisk>(BackgroundWork::queued));
  scenario.prepare(prepared);
  ASSERT_EQ(prepared.facts().problems(), std::vector<std::string>());

  const auto every = number_from_environment("FENCEKV_EVERY").value_or(kEvery);
  std::mt19937_64 random(seed_);
  std::uint64_t runs = 0;
  for (const bool for_good : {false, true}) {
    const auto first = 1 + random() % every;
    auto n = first;
    for (; fails(prepared, n, for_good); n += every) {
      ++runs;
      if (HasFailure()) return;
    }
    EXPECT_TRUE(n > first || every > 1) << "nothing was tried";
  }
  std::printf("%s: %llu calls failed\n", scenario.name, static_cast<unsigned long long>(runs));
}

INSTANTIATE_TEST_SUITE_P(Scenarios, NthCall,
                         ::testing::Combine(::testing::ValuesIn(kScenarios),
                                            ::testing::ValuesIn(kFaults)),
                         [](const auto& of) {
                           return std::string(std::get<0>(of.param).name) +
                                  std::get<1>(of.param).name;
                         });

/// The names of a directory may arrive in any order. RocksDB syncs that of the database only after
/// its CURRENT names the new manifest.
TEST(PowerCutWhileOpening, LeavesAStoreThatOpens) {
  Machine prepared(std::make_shared<SimulatedDisk>(BackgroundWork::queued));
  prepare_killed_store(prepared);
  const auto machine = prepared.copy();
  std::vector<std::unique_ptr<Machine>> cuts;
  machine->disk().inodes().set_hook([&](const DiskCall& call) -> std::optional<DiskFailure> {
    // Before each call that makes names durable all of them are still to arrive.
    if (call.operation != DiskOperation::sync_directory) return std::nullopt;
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
      std::mt19937_64 random(seed);
      cuts.push_back(machine->after_power_loss(random));
    }
    return std::nullopt;
  });
  must_open(*machine);
  machine->disk().inodes().set_hook({});

  EXPECT_GT(cuts.size(), 16U);
  for (const auto& cut : cuts) {
    must_open(*cut);
    if (!cut->is_open()) continue;
    cut->facts().check(cut->store());
    EXPECT_EQ(cut->facts().problems(), std::vector<std::string>());
  }
}

/// A group whose sync failed may be in the memory of the system only. While the disk takes no
/// writes, the store is read as it is found, but that group is not shown: a power cut could undo
/// it.
TEST(ReadOnlyService, ShowsNoGroupThatAPowerCutCouldUndo) {
  Machine machine(std::make_shared<SimulatedDisk>(BackgroundWork::queued));
  must_open(machine);
  machine.facts().set(machine.store(), "key", "acknowledged", Token{1});
  bool has_failed = false;
  machine.disk().inodes().set_hook([&](const DiskCall& call) -> std::optional<DiskFailure> {
    if (call.operation == DiskOperation::sync && call.path.ends_with(".log")) has_failed = true;
    if (has_failed && is_change(call.operation)) return DiskFailure{.number = ENOSPC};
    return std::nullopt;
  });
  machine.facts().set(machine.store(), "key", "in doubt", Token{2});
  ASSERT_TRUE(has_failed);

  for (int i = 0; i < 3; ++i) {
    machine.step();
    EXPECT_TRUE(machine.store().refuses_writes());
    const auto read = machine.store().get("key");
    ASSERT_TRUE(read.has_value()) << read.error().line();
    EXPECT_EQ(read->value_or("(none)"), "acknowledged");
  }
  machine.disk().inodes().set_hook({});
  machine.step();
  EXPECT_FALSE(machine.store().refuses_writes());
  machine.facts().check(machine.store());
  EXPECT_EQ(machine.facts().problems(), std::vector<std::string>());
}

}  // namespace
}  // namespace fencekv::testing
