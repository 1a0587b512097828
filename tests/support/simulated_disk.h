// SPDX-License-Identifier: Apache-2.0
/// A disk in memory below a whole store: one set of files with two faces, the engine's own file
/// system and RocksDB's. It knows what was synced, so that a power cut can be tried at any call.
///
///     SimulatedDisk disk;
///     disk.inodes().set_hook([&](const DiskCall& call) -> std::optional<DiskFailure> {
///       if (call.number == 100) return DiskFailure{.number = EIO};
///       if (call.number == 200) image = disk.after_power_loss(random);
///       return std::nullopt;
///     });
///
/// A crash never ends the store that runs: the disk gives an image of what would be left, the
/// running store's answers do not count from there on, and another is opened on the image.

#pragma once

#include "engine/rocksdb/file_system.h"
#include "engine/rocksdb/ordered_env.h"
#include "tests/support/simulated_env.h"
#include "tests/support/simulated_inodes.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace fencekv::testing {

/// Thread safety: all members may be called concurrently, but run_background() from one thread.
/// It must outlive every store on it.
class SimulatedDisk final : public rocks::FileSystem {
 public:
  explicit SimulatedDisk(BackgroundWork background = BackgroundWork::threads);
  ~SimulatedDisk() override;

  /// Hooks, failures, capacity, counting, damage.
  SimulatedInodes& inodes() { return *inodes_; }

  /// SimulatedEnv::run_background().
  bool run_background(std::size_t jobs = SIZE_MAX) { return env_->run_background(jobs); }

  /// What a crash leaves now, with neither locks nor hook. May be called from the hook.
  std::shared_ptr<SimulatedDisk> after_process_crash() const;
  std::shared_ptr<SimulatedDisk> after_power_loss(std::mt19937_64& random) const;

  Result<std::unique_ptr<rocks::File>> create(const std::filesystem::path& path) override;
  Result<std::unique_ptr<rocks::File>> open(const std::filesystem::path& path) override;
  Result<std::optional<std::string>> read(const std::filesystem::path& path) override;
  Result<std::string> read_at(const std::filesystem::path& path, std::uint64_t offset,
                              std::size_t bytes) override;
  Result<std::uint64_t> size(const std::filesystem::path& path) override;
  Result<bool> exists(const std::filesystem::path& path) override;
  Result<bool> is_directory(const std::filesystem::path& path) override;
  Result<std::vector<std::string>> list(const std::filesystem::path& path) override;
  Result<void> make_directory(const std::filesystem::path& path) override;
  Result<void> rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Result<void> link(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Result<void> remove(const std::filesystem::path& path) override;
  Result<void> sync_directory(const std::filesystem::path& path) override;
  std::optional<rocks::FreeSpace> free_space(const std::filesystem::path& path) override;
  bool is_open_to_others(const std::filesystem::path& path) override;
  Result<std::unique_ptr<rocks::FileLock>> lock(const std::filesystem::path& path,
                                                rocks::LockMode mode) override;
  rocksdb::Env* env() override { return &ordered_; }

 private:
  SimulatedDisk(std::unique_ptr<SimulatedInodes> inodes, BackgroundWork background);

  const BackgroundWork background_;
  const std::unique_ptr<SimulatedInodes> inodes_;
  const std::unique_ptr<SimulatedEnv> env_;
  rocks::OrderedEnv ordered_{env_.get()};
};

}  // namespace fencekv::testing
