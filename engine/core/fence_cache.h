// SPDX-License-Identifier: Apache-2.0
/// What the rules need to know of keys that were written or looked at lately, as it is committed:
/// all but their values. A write of such a key reads nothing from the storage.

#pragma once

#include "engine/core/name_hash.h"
#include "engine/core/record.h"
#include "engine/core/shard_count.h"

#include <boost/unordered/unordered_flat_map.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::core {

/// Keys that have no record are not remembered: the storage's filters know them as cheaply.
///
/// Bounded by two generations, as LeaseCache: what was not used while the younger one filled up is
/// forgotten. In many shards, so that what grows, or is forgotten at once, is never much; nor are
/// the keys that somebody could choose for having the same hash.
///
/// Thread safety: none; it belongs to whoever leads the committer.
class FenceCache {
 public:
  /// What a key and its node occupy beyond the bytes of long names, about.
  static constexpr std::size_t kKeyBytes = 128;

  /// `bytes`: how much it may occupy, about. 0: it knows nothing.
  explicit FenceCache(std::size_t bytes = 0)
      : shards_(shard_count(bytes)), shard_bytes_(bytes / shards_.size() / 2) {}

  /// The record as it is committed, with an empty value if it has one. nullopt: not known.
  std::optional<KeyRecord> find(const HashedName& key) {
    auto& shard = shard_of(key);
    if (const auto young = shard.young.find(key); young != shard.young.end()) {
      return record_of(young->second);
    }
    const auto old = shard.old.find(key);
    if (old == shard.old.end()) return std::nullopt;
    auto record = record_of(old->second);
    auto fence = std::move(old->second);
    shard.old.erase(old);
    put(shard, key, std::move(fence));
    return record;
  }

  std::optional<KeyRecord> find(std::string_view key) { return find(HashedName(key)); }

  /// Remembers the record, as it is committed now.
  void put(const HashedName& key, const KeyRecord& record) {
    if (shard_bytes_ == 0) return;
    auto& shard = shard_of(key);
    Fence fence{.fence = record.fence,
                .version = record.version,
                .written_by = record.written_by,
                .written = record.written,
                .has_value = record.value.has_value(),
                .names = nullptr};
    if (record.guard || record.request) {
      fence.names = std::make_unique<Names>(Names{record.guard, record.request});
    }
    const auto young = shard.young.find(key);
    if (young != shard.young.end()) {
      shard.bytes -= weight(key.name, young->second);
      shard.bytes += weight(key.name, fence);
      young->second = std::move(fence);
      return;
    }
    shard.old.erase(key);
    put(shard, key, std::move(fence));
  }

  void put(std::string_view key, const KeyRecord& record) { put(HashedName(key), record); }

  void forget(const HashedName& key) {
    auto& shard = shard_of(key);
    if (const auto young = shard.young.find(key); young != shard.young.end()) {
      shard.bytes -= weight(key.name, young->second);
      shard.young.erase(young);
    }
    shard.old.erase(key);
  }

  void forget(std::string_view key) { forget(HashedName(key)); }

  void clear() {
    for (auto& shard : shards_) shard = {};
  }

  std::size_t size() const {
    std::size_t keys = 0;
    for (const auto& shard : shards_) keys += shard.young.size() + shard.old.size();
    return keys;
  }

 private:
  /// Few keys have them.
  struct Names {
    std::optional<std::string> guard;
    std::optional<std::string> request;
  };
  struct Fence {
    Token fence;
    std::uint64_t version = 0;
    Token written_by;
    std::chrono::milliseconds written{0};
    bool has_value = false;
    std::unique_ptr<Names> names;
  };
  using Generation = boost::unordered_flat_map<std::string, Fence, NameHash, NameEqual>;
  struct Shard {
    Generation young;
    Generation old;
    std::size_t bytes = 0;  // of the young one
  };

  static std::size_t weight(std::string_view key, const Fence& fence) {
    std::size_t bytes = kKeyBytes + key.size();
    if (fence.names) {
      bytes += sizeof(Names);
      bytes += fence.names->guard ? fence.names->guard->size() : 0;
      bytes += fence.names->request ? fence.names->request->size() : 0;
    }
    return bytes;
  }

  static KeyRecord record_of(const Fence& fence) {
    KeyRecord record;
    record.fence = fence.fence;
    record.version = fence.version;
    record.written_by = fence.written_by;
    record.written = fence.written;
    if (fence.names) {
      record.guard = fence.names->guard;
      record.request = fence.names->request;
    }
    if (fence.has_value) record.value.emplace();
    return record;
  }

  /// By bits that the table of a shard does not look at: it takes the highest and the lowest ones,
  /// and would be of one bucket in as many as there are shards if its keys had those in common.
  Shard& shard_of(const HashedName& key) {
    return shards_[(key.hash >> 24U) & (shards_.size() - 1)];
  }

  /// A key that is in neither generation.
  void put(Shard& shard, const HashedName& key, Fence fence) {
    if (shard.bytes >= shard_bytes_) {
      shard.old = std::exchange(shard.young, {});
      shard.bytes = 0;
    }
    shard.bytes += weight(key.name, fence);
    shard.young.emplace(std::string(key.name), std::move(fence));
  }

  std::vector<Shard> shards_;  // a power of two
  std::size_t shard_bytes_;
};

}  // namespace fencekv::core
