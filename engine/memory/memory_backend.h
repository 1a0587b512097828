// SPDX-License-Identifier: Apache-2.0
/// A backend that lives in memory: for tests, and for embedders' tests.

#pragma once

#include "engine/core/backend.h"

#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>

namespace fencekv::memory {

/// What stays when a MemoryBackend is gone, so that a test can open it again.
struct MemoryDisk {
  std::shared_mutex mutex;
  std::map<std::string, std::string, std::less<>> records;  // guarded by mutex
  Token reserved;                                           // the writer's
};

/// Everything is durable at once.
class MemoryBackend final : public core::Backend {
 public:
  explicit MemoryBackend(std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>())
      : disk_(std::move(disk)) {}

  Result<core::Claim> claim() override;
  Result<std::optional<std::string>> read(std::string_view place) override;
  /// Holds the disk as it is: no commit proceeds while a snapshot lives.
  std::unique_ptr<core::Snapshot> snapshot() override;
  core::Outcome commit(const core::Batch& batch) override;
  Result<void> reserve(Token until) override;
  Result<void> settle() override;
  void close(Token newest) override;

 private:
  std::shared_ptr<MemoryDisk> disk_;
};

}  // namespace fencekv::memory
