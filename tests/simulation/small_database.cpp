// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/small_database.h"

#include <rocksdb/cache.h>
#include <rocksdb/memtablerep.h>
#include <rocksdb/table.h>

#include <memory>
#include <utility>

namespace fencekv::testing {
namespace {

/// A skip list that is full after so many entries. How much memory it takes depends on how high its
/// towers are, which RocksDB draws from a generator that no seed reaches.
class CountedTable final : public rocksdb::MemTableRep {
 public:
  CountedTable(std::unique_ptr<rocksdb::MemTableRep> list, rocksdb::Allocator* allocator,
               std::uint64_t entries)
      : rocksdb::MemTableRep(allocator), list_(std::move(list)), left_(entries) {}

  rocksdb::KeyHandle Allocate(const size_t size, char** buffer) override {
    return list_->Allocate(size, buffer);
  }
  void Insert(rocksdb::KeyHandle handle) override {
    count();
    list_->Insert(handle);
  }
  bool InsertKey(rocksdb::KeyHandle handle) override {
    count();
    return list_->InsertKey(handle);
  }
  bool InsertKeyWithHint(rocksdb::KeyHandle handle, void** hint) override {
    count();
    return list_->InsertKeyWithHint(handle, hint);
  }
  bool Contains(const char* key) const override { return list_->Contains(key); }
  void MarkReadOnly() override { list_->MarkReadOnly(); }
  void MarkFlushed() override { list_->MarkFlushed(); }
  void Get(const rocksdb::LookupKey& key, void* arguments,
           bool (*callback)(void*, const char*)) override {
    list_->Get(key, arguments, callback);
  }
  uint64_t ApproximateNumEntries(const rocksdb::Slice& from, const rocksdb::Slice& to) override {
    return list_->ApproximateNumEntries(from, to);
  }
  size_t ApproximateMemoryUsage() override { return left_ == 0 ? kHuge : 0; }
  Iterator* GetIterator(rocksdb::Arena* arena) override { return list_->GetIterator(arena); }

 private:
  static constexpr std::size_t kHuge = std::size_t{1} << 30;

  void count() {
    if (left_ > 0) --left_;
  }

  const std::unique_ptr<rocksdb::MemTableRep> list_;
  std::uint64_t left_;
};

class CountedTables final : public rocksdb::MemTableRepFactory {
 public:
  explicit CountedTables(std::uint64_t entries) : entries_(entries) {}
  const char* Name() const override { return "CountedTables"; }
  using rocksdb::MemTableRepFactory::CreateMemTableRep;
  rocksdb::MemTableRep* CreateMemTableRep(const rocksdb::MemTableRep::KeyComparator& compare,
                                          rocksdb::Allocator* allocator,
                                          const rocksdb::SliceTransform* transform,
                                          rocksdb::Logger* logger) override {
    std::unique_ptr<rocksdb::MemTableRep> list(
        lists_.CreateMemTableRep(compare, allocator, transform, logger));
    return new CountedTable(std::move(list), allocator, entries_);
  }
  bool CanHandleDuplicatedKey() const override { return true; }

 private:
  rocksdb::SkipListFactory lists_;
  const std::uint64_t entries_;
};

}  // namespace

void make_small(rocksdb::Options& options, std::uint64_t entries) {
  options.memtable_factory = std::make_shared<CountedTables>(entries);
  options.allow_concurrent_memtable_write = false;
  options.write_buffer_size = std::size_t{256} * 1024;
  options.arena_block_size = std::size_t{8} * 1024;
  options.target_file_size_base = std::size_t{8} * 1024;
  options.max_bytes_for_level_base = std::size_t{32} * 1024;
  options.level0_file_num_compaction_trigger = 3;
  // A stalled write would wait for work that only the same thread can do.
  options.max_write_buffer_number = 1000;
  options.level0_slowdown_writes_trigger = 1000;
  options.level0_stop_writes_trigger = 1000;
  options.soft_pending_compaction_bytes_limit = 0;
  options.hard_pending_compaction_bytes_limit = 0;
  // No threads, and nothing that depends on their time.
  options.max_file_opening_threads = 1;
  options.max_subcompactions = 1;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  // The ids of a store are random: compressed, they would have another length each time.
  options.compression = rocksdb::kNoCompression;
  if (auto* table = options.table_factory->GetOptions<rocksdb::BlockBasedTableOptions>()) {
    table->block_cache = rocksdb::NewLRUCache(std::size_t{256} * 1024, 0);
  }
}

}  // namespace fencekv::testing
