// SPDX-License-Identifier: Apache-2.0
#include "engine/memory/memory_backend.h"

#include "engine/core/make_store.h"

#include <algorithm>
#include <cassert>
#include <mutex>
#include <utility>

namespace fencekv {
namespace memory {
namespace {

class MemorySnapshot final : public core::Snapshot {
 public:
  explicit MemorySnapshot(std::shared_ptr<MemoryDisk> disk)
      : disk_(std::move(disk)), lock_(disk_->mutex) {}

  Result<std::optional<std::string>> read(std::string_view place) override {
    const auto found = disk_->records.find(place);
    if (found == disk_->records.end()) return std::optional<std::string>{};
    return std::optional(found->second);
  }

  Result<void> scan(std::string_view from,
                    const std::function<bool(std::string_view, std::string_view)>& visit) override {
    for (auto next = disk_->records.lower_bound(from); next != disk_->records.end(); ++next) {
      if (!visit(next->first, next->second)) break;
    }
    return {};
  }

 private:
  std::shared_ptr<MemoryDisk> disk_;
  std::shared_lock<std::shared_mutex> lock_;
};

}  // namespace

Result<core::Claim> MemoryBackend::claim() {
  const bool may_have_lost =
      disk_->durability == Durability::process && !disk_->is_clean && disk_->boot_id != boot_id_;
  return core::Claim{.reserved = disk_->reserved, .may_have_lost = may_have_lost};
}

Result<std::optional<std::string>> MemoryBackend::read(std::string_view place) {
  return snapshot()->read(place);
}

std::unique_ptr<core::Snapshot> MemoryBackend::snapshot() {
  return std::make_unique<MemorySnapshot>(disk_);
}

core::Outcome MemoryBackend::commit(const core::Batch& batch) {
  const std::lock_guard lock(disk_->mutex);
  for (const auto& put : batch.puts) {
    disk_->records.insert_or_assign(std::string(put.place), std::string(put.bytes));
  }
  for (const auto& place : batch.deletes) disk_->records.erase(place);
  disk_->durability = durability_;
  disk_->is_clean = false;
  disk_->boot_id = boot_id_;
  return core::Outcome::committed;
}

Result<void> MemoryBackend::reserve(Token until) {
  disk_->reserved = std::max(disk_->reserved, until);
  return {};
}

Result<void> MemoryBackend::settle() {
  return {};
}

void MemoryBackend::close(Token newest) {
  disk_->reserved = newest;
  disk_->is_clean = true;
}

}  // namespace memory

std::unique_ptr<Store> open_memory(const Options& options) {
  auto given = options;
  if (!given.clock) given.clock = system_clock();
  auto backend = std::make_unique<memory::MemoryBackend>(std::make_shared<memory::MemoryDisk>(),
                                                         given.durability, given.clock->boot_id());
  auto store = core::make_store(std::move(backend), std::move(given));
  assert(store.has_value());  // nothing can fail in memory
  return *std::move(store);
}

}  // namespace fencekv
