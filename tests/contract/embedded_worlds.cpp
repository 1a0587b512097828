// SPDX-License-Identifier: Apache-2.0
#include "engine/core/make_store.h"
#include "engine/memory/memory_backend.h"
#include "tests/contract/lives.h"
#include "tests/contract/world.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace fencekv::testing {
namespace {

/// The calling thread asks the store itself.
class EmbeddedWorld : public World {
 public:
  using World::World;

  Result<Reply> run(Command command) override { return store_->run(std::move(command)); }

  Result<std::vector<LeaseState>> leases() override {
    return all_of<LeaseState>([this](const auto& after) { return store_->list_leases(after, 2); });
  }
  Result<std::vector<std::string>> keys() override {
    return all_of<std::string>([this](const auto& after) { return store_->list_keys(after, 2); });
  }
  std::vector<Rejection> rejections() override { return store_->rejections(1000); }
  Store& store() override { return *store_; }

 protected:
  void use(Result<std::unique_ptr<Store>> opened) {
    if (!opened) throw std::runtime_error(opened.error().line());
    store_ = *std::move(opened);
  }
  void stop() { store_.reset(); }

 private:
  template <class Item, class NextPage>
  Result<std::vector<Item>> all_of(NextPage next_page) {
    std::vector<Item> items;
    std::optional<std::string> after;
    do {
      auto page = next_page(after);
      if (!page) return std::move(page).error();
      for (auto& item : page->items) items.push_back(std::move(item));
      after = page->next;
    } while (after);
    return items;
  }

  std::unique_ptr<Store> store_;
};

class MemoryWorld final : public EmbeddedWorld {
 public:
  explicit MemoryWorld(Options options) : EmbeddedWorld(std::move(options)) { start(); }
  ~MemoryWorld() override { stop(); }

  void restart() override {
    stop();
    start();
  }

  void crash() override {
    // What was on the disk before the clean stop could write anything.
    auto disk = std::make_shared<memory::MemoryDisk>();
    disk->records = disk_->records;
    disk->reserved = disk_->reserved;
    disk->durability = disk_->durability;
    disk->is_clean = disk_->is_clean;
    disk->boot_id = disk_->boot_id;
    stop();
    disk_ = std::move(disk);
    start();
  }

 private:
  void start() {
    use(core::make_store(
        std::make_unique<memory::MemoryBackend>(disk_, options().durability, clock().boot_id()),
        options()));
  }

  std::shared_ptr<memory::MemoryDisk> disk_ = std::make_shared<memory::MemoryDisk>();
};

class RocksWorld final : public EmbeddedWorld {
 public:
  explicit RocksWorld(Options options) : EmbeddedWorld(std::move(options)) { start(); }
  ~RocksWorld() override { stop(); }

  void restart() override {
    stop();
    start();
  }

  void crash() override {
    lives_.crash([this] { stop(); }, [this] { start(); });
  }

 private:
  void start() { use(open_rocksdb(lives_.directory(), options())); }

  Lives lives_;
};

}  // namespace

std::unique_ptr<World> make_memory_world(Options options) {
  return std::make_unique<MemoryWorld>(std::move(options));
}

std::unique_ptr<World> make_rocksdb_world(Options options) {
  return std::make_unique<RocksWorld>(std::move(options));
}

}  // namespace fencekv::testing
