// SPDX-License-Identifier: Apache-2.0
/// What is compared: stores, and databases of RocksDB that are opened with the same options as the
/// database below a store.

#pragma once

#include "fencekv/store.h"

#include <rocksdb/db.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::bench {

inline constexpr std::size_t kValueBytes = 100;

/// Which store, and which database beside it. Each is a directory of its own, so that what one
/// benchmark leaves behind is no other one's burden.
enum class Field : std::uint8_t {
  process,     ///< Durability::process, and writes that are not synced.
  sync,        ///< Durability::sync, and writes that are.
  growing,     ///< As process; to which only new keys are written.
  forgetting,  ///< As process; the store remembers no fence, and has to read it.
};

/// A store, and two tokens that leases hold.
struct StoreSide {
  std::unique_ptr<Store> store;
  Token older;
  Token newer;  ///< Every key was written with it.
};

/// Both sides of every field, opened and filled when they are first asked for.
///
/// Thread safety: all members may be called concurrently.
class Sides {
 public:
  /// `keys`: how many every side is filled with.
  Sides(std::filesystem::path directory, std::size_t keys);

  StoreSide& store(Field field);
  rocksdb::DB& raw(Field field);

  /// A key that neither side has: `new:` and 12 digits, scattered.
  std::string new_key();
  const std::vector<std::string>& known_keys() const { return known_keys_; }

 private:
  const std::filesystem::path directory_;
  const std::vector<std::string> known_keys_;
  std::mutex mutex_;
  std::map<Field, StoreSide> stores_;                   // guarded by mutex_
  std::map<Field, std::unique_ptr<rocksdb::DB>> raws_;  // guarded by mutex_
  std::atomic<std::uint64_t> news_ = 0;
};

/// Random keys of those that are known, and random values. One a thread.
class Picks {
 public:
  /// `sides` must outlive it.
  explicit Picks(const Sides& sides, int thread = 0);

  const std::string& key();
  /// The key that many steps after the last key(), in an order that scatters them: none comes
  /// twice before all have come, as a write of several needs them.
  const std::string& key_after(std::size_t steps) const;
  std::string_view value();

 private:
  const std::vector<std::string>& keys_;
  std::mt19937_64 random_;
  std::size_t picked_ = 0;
};

}  // namespace fencekv::bench
