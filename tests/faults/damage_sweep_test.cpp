// SPDX-License-Identifier: Apache-2.0
// Every byte of every file of a small store is flipped, every file is cut at every length, emptied
// and taken away. Either the store is refused, in words that name the place and the command to run,
// or every fact is there; a record that cannot be read says so. Never a crash, and never a store
// that is shorter in silence.
//
// FENCEKV_EVERY=k: every k-th byte only, from a random one (FENCEKV_SEED).

#include "tests/faults/machine.h"
#include "tests/support/seed_from_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using ::testing::HasSubstr;

/// A whole sweep takes minutes: outside the long script, a part of it, another one each time.
constexpr std::uint64_t kEvery = 17;

constexpr const char* kTakenAway = " taken away";

class DamageSweep : public ::testing::Test {
 protected:
  DamageSweep() {
    Machine machine(std::make_shared<SimulatedDisk>(BackgroundWork::queued));
    prepare_store(machine);
    // As after a kill: there is a log beside the tables. Its disk is looked at, not changed.
    killed_ = machine.copy();
    EXPECT_EQ(killed_->facts().problems(), std::vector<std::string>());
    // Else a sweep would say nothing about what it does not meet: a table, a log that the manifest
    // knows, and one that it does not.
    EXPECT_GE(count(".sst"), 1);
    EXPECT_GE(count(".log"), 2);
  }

  std::ptrdiff_t count(const std::string& end) {
    const auto all = files();
    return std::count_if(all.begin(), all.end(),
                         [&](const auto& file) { return file.ends_with(end); });
  }

  /// Files in which every byte may matter to what was acknowledged.
  std::vector<std::string> files() {
    std::vector<std::string> files;
    for (const auto& file : killed_->disk().inodes().files()) {
      if (file.ends_with("/lock") || file.ends_with("/LOCK")) continue;
      files.push_back(file);
    }
    return files;
  }
  std::string content(const std::string& file) {
    return killed_->disk().inodes().content(file).value_or("");
  }

  /// Opens a copy of the store in which `change` was done to `file`.
  template <class Change>
  void try_damaged(const std::string& file, const std::string& what, Change change) {
    SCOPED_TRACE(file + what);
    const auto machine = killed_->copy();
    change(machine->disk().inodes());
    ++tried_;
    if (const auto error = machine->open()) {
      ++refused_;
      expect_clear(file, what, *error);
      return;
    }
    machine->facts().look_at_damaged(machine->store());
    EXPECT_EQ(machine->facts().problems(), std::vector<std::string>());
    machine->close();
  }

  /// Whoever reads it knows what to look at, and what to do.
  static void expect_clear(const std::string& file, const std::string& what, const Error& error) {
    const auto line = error.line();
    if (error.code() == Errc::newer_format) {
      EXPECT_EQ(file, std::string(kStore) + "/FORMAT") << line;
      EXPECT_THAT(line, HasSubstr(kStore));
      return;
    }
    EXPECT_EQ(error.code(), Errc::corrupt) << line;
    EXPECT_THAT(line, HasSubstr(std::string("`fencekv-admin repair ") + kStore + "`"));
    // Only of a log that is gone nobody can tell the name: what it held is missing.
    const bool is_gone = what == kTakenAway && file.ends_with(".log");
    if (is_gone && line.find("/db is behind: ") != std::string::npos) return;
    EXPECT_THAT(line, HasSubstr(std::filesystem::path(file).filename().string()));
  }

  /// The first offset and the step of a sweep.
  std::pair<std::uint64_t, std::uint64_t> some() {
    const auto every = number_from_environment("FENCEKV_EVERY").value_or(kEvery);
    return {random_() % every, every};
  }
  void report(const char* how) const {
    std::printf("%s: %d damages, %d of them refused\n", how, tried_, refused_);
    EXPECT_GT(refused_, 0);
  }

  const std::uint64_t seed_ = seed_from_environment("FENCEKV_SEED");
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, "FENCEKV_SEED=" + std::to_string(seed_)};
  std::mt19937_64 random_{seed_};
  std::unique_ptr<Machine> killed_;
  int tried_ = 0;
  int refused_ = 0;
};

TEST_F(DamageSweep, AFlippedBitAnywhere) {
  const auto [first, every] = some();
  for (const auto& file : files()) {
    auto bytes = content(file);
    for (std::uint64_t at = first; at < bytes.size(); at += every) {
      const auto bit = static_cast<char>(1U << (random_() % 8));
      try_damaged(file, ", byte " + std::to_string(at), [&](SimulatedInodes& inodes) {
        bytes[at] = static_cast<char>(bytes[at] ^ bit);
        inodes.replace(file, bytes);
        bytes[at] = static_cast<char>(bytes[at] ^ bit);
      });
      if (HasFailure()) return;
    }
  }
  report("flipped");
}

TEST_F(DamageSweep, AFileCutAnywhere) {
  const auto [first, every] = some();
  for (const auto& file : files()) {
    const auto bytes = content(file);
    for (std::uint64_t size = first; size < bytes.size(); size += every) {
      try_damaged(file, " cut to " + std::to_string(size), [&](SimulatedInodes& inodes) {
        inodes.replace(file, std::string_view(bytes).substr(0, size));
      });
      if (HasFailure()) return;
    }
  }
  report("cut");
}

TEST_F(DamageSweep, AFileEmptiedOrTakenAway) {
  for (const auto& file : files()) {
    try_damaged(file, " emptied", [&](SimulatedInodes& inodes) { inodes.replace(file, ""); });
    try_damaged(file, kTakenAway, [&](SimulatedInodes& inodes) { inodes.erase(file); });
  }
  report("emptied or taken away");
}

/// A sector of zeros, as a disk gives that lost it.
TEST_F(DamageSweep, ASectorOfZerosAnywhere) {
  constexpr std::size_t kSector = 512;
  for (const auto& file : files()) {
    const auto bytes = content(file);
    for (std::size_t at = 0; at < bytes.size(); at += kSector) {
      auto damaged = bytes;
      const auto size = std::min(kSector, damaged.size() - at);
      damaged.replace(at, size, size, '\0');
      if (damaged == bytes) continue;
      try_damaged(file, ", zeros at " + std::to_string(at),
                  [&](SimulatedInodes& inodes) { inodes.replace(file, damaged); });
      if (HasFailure()) return;
    }
  }
  report("zeroed");
}

}  // namespace
}  // namespace fencekv::testing
