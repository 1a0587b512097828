// SPDX-License-Identifier: Apache-2.0
#include "engine/core/make_store.h"
#include "engine/memory/memory_backend.h"
#include "tests/contract/lives.h"
#include "tests/contract/world.h"

#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

class EmbeddedUser final : public User {
 public:
  EmbeddedUser(Store& store, const std::string& name)
      : store_(store), name_(std::make_shared<const std::string>(name)) {
    session_.emplace(store, [this](const LeaseEvent& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
      ++events_so_far_;
    });
    id_ = session_->id();
  }

  Result<Reply> run(Command command) override {
    return store_.run(std::move(command), {.name = name_, .session = id_});
  }

  Submitted submit(Command command) override {
    Submitted submitted;
    submitted.ticket = store_.enqueue(
        std::move(command),
        [answer = submitted.answer](Result<Reply> reply) { answer->set(std::move(reply)); },
        {.name = name_, .session = id_});
    return submitted;
  }

  void cancel(const Submitted& submitted) override { store_.cancel(submitted.ticket); }

  std::vector<LeaseEvent> take_events() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  std::size_t events_so_far() const override {
    const std::lock_guard lock(mutex_);
    return events_so_far_;
  }

  void leave() override { session_.reset(); }

 private:
  Store& store_;
  const ClientName name_;
  std::uint64_t id_ = 0;
  mutable std::mutex mutex_;
  std::vector<LeaseEvent> events_;  // guarded by mutex_
  std::size_t events_so_far_ = 0;   // guarded by mutex_
  std::optional<Session> session_;  // Last: ends before what its events go to.
};

/// The calling thread asks the store itself.
class EmbeddedWorld : public World {
 public:
  using World::World;

  Result<Reply> run(Command command) override { return store_->run(std::move(command)); }

  Result<std::vector<LeaseState>> leases() override {
    return all_of<LeaseState>([this](const auto& after) { return store_->list_leases(after, 2); });
  }
  Result<std::vector<LeaseState>> page_of_leases(std::size_t examine) override {
    auto page = store_->list_leases(std::nullopt, examine);
    if (!page) return std::move(page).error();
    return std::move(page->items);
  }
  Result<std::vector<std::string>> keys() override {
    return all_of<std::string>([this](const auto& after) { return store_->list_keys(after, 2); });
  }
  std::vector<Rejection> rejections() override { return store_->rejections(1000); }
  Store& store() override { return *store_; }

  User& add_user(const std::string& name) override {
    users_.push_back(std::make_unique<EmbeddedUser>(*store_, name));
    return *users_.back();
  }
  bool can_cancel() const override { return true; }

 protected:
  void use(Result<std::unique_ptr<Store>> opened) {
    if (!opened) throw std::runtime_error(opened.error().line());
    store_ = *std::move(opened);
  }
  void stop() {
    for (const auto& user : users_) user->leave();
    store_.reset();
  }

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
  std::vector<std::unique_ptr<EmbeddedUser>> users_;  // Gone ones, too: a test may still look.
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
