// SPDX-License-Identifier: Apache-2.0
#include "engine/core/place_filter.h"

#include <xxhash.h>

#include <algorithm>
#include <new>
#include <string>

namespace fencekv::core {
namespace {

constexpr int kBits = 8;  // of a record, in its block

// A page ends at either: a snapshot lives no longer than reading so much takes.
constexpr std::size_t kPageRecords = 4096;
constexpr std::size_t kPageBytes = std::size_t{1024} * 1024;

std::uint64_t hash_of(std::string_view place) {
  return XXH3_64bits(place.data(), place.size());
}

/// Calls `visit(word, mask)` for each bit of a record, until that returns false.
template <class Visit>
bool visit_bits(std::uint64_t* block, std::uint64_t hash, Visit visit) {
  auto at = static_cast<std::uint32_t>(hash);
  const auto step = static_cast<std::uint32_t>(hash >> 17U) | 1U;
  for (int bit = 0; bit < kBits; ++bit, at += step) {
    const auto place = at >> 23U;  // 9 bits
    if (!visit(std::atomic_ref(block[place >> 6U]), std::uint64_t{1} << (place & 63U))) {
      return false;
    }
  }
  return true;
}

}  // namespace

PlaceFilter::PlaceFilter(std::size_t bytes) : blocks_(bytes / kBlockBytes) {
  if (blocks_ == 0) return;
  // calloc(): what is never touched costs no memory.
  auto size = (blocks_ + 1) * kBlockBytes;
  memory_.reset(std::calloc(1, size));
  void* begin = memory_.get();
  if (begin == nullptr) throw std::bad_alloc();
  words_ = static_cast<std::uint64_t*>(std::align(kBlockBytes, blocks_ * kBlockBytes, begin, size));
}

std::uint64_t* PlaceFilter::block_of(std::uint64_t hash) const {
  const auto index = ((hash >> 32U) * blocks_) >> 32U;
  return words_ + index * kWords;
}

void PlaceFilter::add(std::string_view place) {
  if (blocks_ == 0) return;
  const auto hash = hash_of(place);
  visit_bits(block_of(hash), hash, [](std::atomic_ref<std::uint64_t> word, std::uint64_t mask) {
    // Most are there already when a key is written again.
    if ((word.load(std::memory_order_relaxed) & mask) == 0) {
      word.fetch_or(mask, std::memory_order_relaxed);
    }
    return true;
  });
}

bool PlaceFilter::has(std::string_view place) const {
  const auto hash = hash_of(place);
  return visit_bits(block_of(hash), hash,
                    [](std::atomic_ref<std::uint64_t> word, std::uint64_t mask) {
                      return (word.load(std::memory_order_relaxed) & mask) != 0;
                    });
}

Result<void> add_all(PlaceFilter& filter, Backend& backend, const MayGoOn& may_go_on) {
  std::string from;
  for (bool is_done = false; !is_done;) {
    std::size_t records = 0;
    std::size_t bytes_read = 0;
    is_done = true;
    const auto scanned =
        backend.snapshot()->scan(from, [&](std::string_view place, std::string_view bytes) {
          if (records == kPageRecords || bytes_read >= kPageBytes) {
            from = place;
            is_done = false;
            return false;
          }
          filter.add(place);
          ++records;
          bytes_read += place.size() + bytes.size();
          return true;
        });
    if (!scanned) return scanned;
    if (!is_done && !may_go_on(bytes_read)) return {};
  }
  filter.set_complete();
  return {};
}

}  // namespace fencekv::core
