// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/machine.h"

#include "engine/rocksdb/damage_advice.h"
#include "engine/rocksdb/rocksdb_backend.h"
#include "tests/simulation/small_database.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kJobsOfAStep = 8;

}  // namespace

Result<core::DrivenStore> Machine::open_at(const std::filesystem::path& path) {
  // In the words that whoever opens it with open_rocksdb() reads.
  const auto refused = [&](const Error& error) { return rocks::with_advice(*disk_, path, error); };
  Options options;
  options.clock = clock_;
  options.unguarded_tokens = UnguardedTokens::any;
  auto taken = rocks::Directory::take(*disk_, path);
  if (!taken) return taken.error();
  const auto is_new = taken->is_new();
  if (!is_new) return refused(is_new.error());
  const auto adjust = [this](rocksdb::Options& database) { make_small(database, flush_after_); };
  auto backend = rocks::RocksBackend::open(*std::move(taken), *is_new, options.durability,
                                           clock_->boot_id(), {}, adjust);
  if (!backend) return refused(backend.error());
  auto driven = core::make_driven_store(*std::move(backend), options);
  if (!driven) return refused(driven.error());
  return driven;
}

std::optional<Error> Machine::open() {
  auto opened = open_at(kStore);
  if (!opened) return opened.error();
  driven_ = *std::move(opened);
  return std::nullopt;
}

void Machine::step() {
  // RocksDB tries a failed compaction again, each second, for as long as it fails.
  disk_->run_background(kJobsOfAStep);
  driven_.step();
}

void Machine::advance(std::chrono::milliseconds time) {
  clock_->advance(time);
  step();
}

void Machine::close() {
  driven_.step = {};
  driven_.store.reset();
}

std::unique_ptr<Machine> Machine::with_disk(std::shared_ptr<SimulatedDisk> disk) const {
  auto machine = std::make_unique<Machine>(std::move(disk));
  machine->facts_ = facts_;
  machine->flush_after_ = flush_after_;
  machine->clock_->advance(clock_->since_boot() - machine->clock_->since_boot());
  return machine;
}

std::unique_ptr<Machine> Machine::copy() const {
  return with_disk(disk_->after_process_crash());
}

std::unique_ptr<Machine> Machine::after_power_loss(std::mt19937_64& random) const {
  auto machine = with_disk(disk_->after_power_loss(random));
  machine->clock_->reboot();
  return machine;
}

void must_open(Machine& machine) {
  const auto error = machine.open();
  ASSERT_FALSE(error) << error->line();
}

void prepare_store(Machine& machine) {
  machine.flush_after(20);
  must_open(machine);
  auto& facts = machine.facts();
  for (int i = 0; i < 8; ++i)
    facts.set(machine.store(), "key" + std::to_string(i), "old", Token{10});
  facts.acquire(machine.store(), "held", "me", {.payload = "a label"});
  facts.acquire(machine.store(), "closed", "me");
  facts.release(machine.store(), "closed", "me");
  facts.acquire(machine.store(), "guard", "me");
  facts.set(machine.store(), "guarded", "old", facts.token_of("guard"),
            {.lease = "guard", .request = "request 1"});
  facts.remove(machine.store(), "key3", Token{11});
  // An opening writes what is in the log into a table.
  machine.close();
  must_open(machine);

  for (const auto* owner : {"one", "another"}) {
    facts.acquire(machine.store(), "shared", owner, {.mode = LeaseMode::shared});
    facts.acquire(machine.store(), "permits", owner, {.mode = LeaseMode::permit, .permits = 3});
  }
  facts.acquire_together(machine.store(), {"left hand", "right hand"}, "me");
  facts.acquire(machine.store(), "blocked", "me", {.delay = 60s});
  facts.revoke(machine.store(), "blocked");
  facts.acquire(machine.store(), "shared", "a third", {.mode = LeaseMode::shared});
  facts.acquire(machine.store(), "over", "me", {}, 1s);
  machine.advance(2s);
  facts.has_ended("over");
  facts.set(machine.store(), "guarded", "newer", facts.token_of("guard"),
            {.lease = "guard", .request = "request 2"});
  facts.set(machine.store(), "key4", "newer", Token{12});
  EXPECT_EQ(facts.acknowledged(), 25);
}

}  // namespace fencekv::testing
