// SPDX-License-Identifier: Apache-2.0
/// Which places hold no record, for certain: a write of a new key then reads nothing.
///
/// A Bloom filter in blocks of one cache line (Putze, Sanders, Singler: "Cache-, Hash- and
/// Space-Efficient Bloom Filters", 2007), whose bits within the block come from two halves of one
/// hash (Kirsch, Mitzenmacher: "Less Hashing, Same Performance", 2006). With 10 bits a record about
/// one place in 50 that holds nothing looks as if it did; with more records that share grows, and
/// the storage is asked more often. Records that are taken away leave their bits.
///
/// It says nothing until every record is in it: those of before the opening are added by a scan,
/// those of after it by the writer, before they are committed.

#pragma once

#include "engine/core/backend.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string_view>

namespace fencekv::core {

/// Thread safety: all members may be called concurrently.
class PlaceFilter {
 public:
  /// `bytes`: what it occupies, once it is used. With less than a block it knows nothing.
  explicit PlaceFilter(std::size_t bytes);

  /// There is a record at `place`, or there may soon be one.
  void add(std::string_view place);

  /// Every record has been added.
  void set_complete() { complete_.store(blocks_ > 0, std::memory_order_release); }
  bool is_complete() const { return complete_.load(std::memory_order_acquire); }

  /// False: there is certainly none.
  bool may_hold(std::string_view place) const { return !is_complete() || has(place); }

 private:
  static constexpr std::size_t kWords = 8;  // of a block
  static constexpr std::size_t kBlockBytes = kWords * sizeof(std::uint64_t);

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  std::uint64_t* block_of(std::uint64_t hash) const;
  bool has(std::string_view place) const;

  std::size_t blocks_;
  std::unique_ptr<void, Free> memory_;
  std::uint64_t* words_ = nullptr;  // in memory_, at the beginning of a cache line
  std::atomic<bool> complete_ = false;
};

/// Hears how many bytes the last page had, and may take its time. False: the work ends.
using MayGoOn = std::function<bool(std::size_t bytes)>;

/// Adds what is stored, page by page, and completes the filter. Nothing that is stored after the
/// call began may be missing in it. Errors: of the storage; the filter stays incomplete.
Result<void> add_all(PlaceFilter& filter, Backend& backend, const MayGoOn& may_go_on);

}  // namespace fencekv::core
