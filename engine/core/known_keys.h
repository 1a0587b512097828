// SPDX-License-Identifier: Apache-2.0
/// The keys that a group has looked at.

#pragma once

#include "engine/core/name_hash.h"
#include "engine/core/record.h"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cassert>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::core {

/// A table whose entries stay where they are, and whose memory serves one group after the other: a
/// group of ordinary size allocates nothing for it.
///
/// Thread safety: none; it belongs to whoever leads the committer.
class KnownKeys {
 public:
  struct Entry {
    std::string key;
    std::size_t hash = 0;
    std::optional<KeyRecord> record;
    bool changed = false;
    bool lacks_value = false;  // of a record out of the cache

    HashedName name() const { return HashedName(key, hash); }
  };

  /// nullptr: not known. Stays valid until clear().
  Entry* find(const HashedName& key) {
    const auto found = table_.find(key);
    return found == table_.end() ? nullptr : found->second;
  }

  /// A key that is not known yet, without a record.
  Entry& add(const HashedName& key) {
    if (size_ == entries_.size()) entries_.push_back(std::make_unique<Entry>());
    auto& entry = *entries_[size_];
    entry.key = key.name;
    entry.hash = key.hash;
    const bool is_new = table_.emplace(entry.name(), &entry).second;
    assert(is_new);
    static_cast<void>(is_new);
    ++size_;
    return entry;
  }

  /// In the order in which they became known.
  std::span<const std::unique_ptr<Entry>> all() const { return {entries_.data(), size_}; }
  bool empty() const { return size_ == 0; }

  /// Keeps the memory of a group of ordinary size.
  void clear() {
    constexpr std::size_t kKept = 1024;
    constexpr std::size_t kKeptBytes = 128;

    if (size_ > kKept) {
      *this = {};
      return;
    }
    for (std::size_t i = 0; i < size_; ++i) {
      auto& entry = *entries_[i];
      if (entry.key.capacity() > kKeptBytes) std::string().swap(entry.key);
      entry.record.reset();
      entry.changed = false;
      entry.lacks_value = false;
    }
    table_.clear();
    size_ = 0;
  }

 private:
  std::vector<std::unique_ptr<Entry>> entries_;  // the first size_ ones are in use
  std::size_t size_ = 0;
  boost::unordered_flat_map<HashedName, Entry*, NameHash, NameEqual> table_;  // names of entries
};

}  // namespace fencekv::core
