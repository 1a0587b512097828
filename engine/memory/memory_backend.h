// SPDX-License-Identifier: Apache-2.0
/// A backend that lives in memory: for tests, and for embedders' tests.

#pragma once

#include "engine/core/backend.h"
#include "fencekv/options.h"

#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <utility>

namespace fencekv::memory {

/// What stays when a MemoryBackend is gone, so that a test can open it again.
struct MemoryDisk {
  std::shared_mutex mutex;
  std::map<std::string, std::string, std::less<>> records;  // guarded by mutex

  // What the last writer left behind; the next one's to read.
  Token reserved;
  Durability durability = Durability::sync;
  bool is_clean = true;
  std::string boot_id;
};

/// Everything is durable at once. A start in another boot after an unclean stop says all the same
/// what RocksDB would have to say, so that the rules for it can be tested here.
class MemoryBackend final : public core::Backend {
 public:
  MemoryBackend(std::shared_ptr<MemoryDisk> disk, Durability durability, std::string boot_id)
      : disk_(std::move(disk)), durability_(durability), boot_id_(std::move(boot_id)) {}

  Result<core::Claim> claim() override;
  Result<std::optional<std::string>> read(std::string_view place) override;
  /// Holds the disk as it is: no commit proceeds while a snapshot lives.
  std::unique_ptr<core::Snapshot> snapshot() override;
  core::Outcome commit(const core::Batch& batch) override;
  Result<void> reserve(Token until) override;
  Result<void> settle() override;
  void close(Token newest) override;

 private:
  const std::shared_ptr<MemoryDisk> disk_;
  const Durability durability_;
  const std::string boot_id_;
};

}  // namespace fencekv::memory
