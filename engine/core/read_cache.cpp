// SPDX-License-Identifier: Apache-2.0
#include "engine/core/read_cache.h"

#include "engine/core/record.h"
#include "engine/core/rules.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

namespace fencekv::core {
namespace {

std::string_view view_of(const std::optional<std::string>& string) {
  return string ? std::string_view(*string) : std::string_view();
}

}  // namespace

CachedRecord::CachedRecord(std::size_t hash, std::string_view key, const KeyState& state)
    : has_value_(state.value.has_value()),
      has_guard_(state.guard.has_value()),
      has_request_(state.request.has_value()),
      key_size_(static_cast<std::uint32_t>(key.size())),
      value_size_(static_cast<std::uint32_t>(view_of(state.value).size())),
      guard_size_(static_cast<std::uint32_t>(view_of(state.guard).size())),
      request_size_(static_cast<std::uint32_t>(view_of(state.request).size())),
      hash_(hash),
      fence_(state.fence),
      version_(state.version),
      written_(state.written) {
  auto* end = reinterpret_cast<char*>(this + 1);
  for (const auto part :
       {key, view_of(state.value), view_of(state.guard), view_of(state.request)}) {
    end = std::copy(part.begin(), part.end(), end);
  }
}

CachedRecord::Ref CachedRecord::make(std::size_t hash, std::string_view key,
                                     const KeyState& state) {
  const auto size = key.size() + view_of(state.value).size() + view_of(state.guard).size() +
                    view_of(state.request).size();
  void* memory = ::operator new(sizeof(CachedRecord) + size, std::nothrow);
  return memory == nullptr ? Ref() : Ref(new (memory) CachedRecord(hash, key, state));
}

void CachedRecord::let_go() const {
  // Who lets go last has seen what all others did with it.
  if (references_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  this->~CachedRecord();
  ::operator delete(const_cast<CachedRecord*>(this));
}

KeyState CachedRecord::state() const {
  KeyState state;
  const char* next = bytes() + key_size_;
  if (has_value_) state.value.emplace(next, value_size_);
  next += value_size_;
  if (has_guard_) state.guard.emplace(next, guard_size_);
  next += guard_size_;
  if (has_request_) state.request.emplace(next, request_size_);
  state.version = version_;
  state.fence = fence_;
  state.written = written_;
  return state;
}

ReadCache::ReadCache(std::size_t bytes)
    : shard_count_(shard_count(bytes)),
      shard_shift_(64U - static_cast<unsigned>(std::countr_zero(shard_count_))),
      shard_bytes_(bytes / shard_count_ / 2),
      shards_(shard_bytes_ > kRecordBytes ? std::make_unique<Shard[]>(shard_count_) : nullptr) {}

ReadCache::Look ReadCache::find(std::string_view key) {
  if (!shards_) return {};
  const Sought sought{.hash = hash_of(key), .key = key};
  auto& shard = shards_[shard_number(sought.hash)];
  Dropped dropped;
  const std::lock_guard lock(shard.mutex);
  return find_locked(shard, sought, dropped);
}

std::vector<ReadCache::Look> ReadCache::find_together(const std::vector<std::string>& keys) {
  std::vector<Look> looks(keys.size());
  if (!shards_ || keys.size() > kMostTogether) return looks;
  std::array<std::size_t, kMostTogether> concerned{};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    looks[i].hash = hash_of(keys[i]);
    concerned[i] = shard_number(looks[i].hash);
  }
  // In one order, so that no two wait for each other.
  auto* const end = concerned.begin() + keys.size();
  std::sort(concerned.begin(), end);
  auto* const last = std::unique(concerned.begin(), end);

  Dropped dropped;
  std::array<std::unique_lock<std::mutex>, kMostTogether> locks;
  std::transform(concerned.begin(), last, locks.begin(),
                 [this](std::size_t number) { return std::unique_lock(shards_[number].mutex); });
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto hash = looks[i].hash;
    looks[i] = find_locked(shards_[shard_number(hash)], {.hash = hash, .key = keys[i]}, dropped);
  }
  return looks;
}

void ReadCache::keep(std::string_view key, const Look& look, const KeyState& state) {
  if (!shards_ || look.record || !look.begun) return;
  const Sought sought{.hash = look.hash, .key = key};
  auto record = record_of(sought, state);
  if (!record) return;

  auto& shard = shards_[shard_number(look.hash)];
  Dropped dropped;
  const std::lock_guard lock(shard.mutex);
  // None was under way then, and none has begun since.
  if (commits_of(shard, look.hash).begun != *look.begun) return;
  // Two readers may have missed it: what is there is the same.
  if (shard.young.contains(sought) || shard.old.contains(sought)) return;
  put_locked(shard, std::move(record), dropped);
}

void ReadCache::begin(const Batch& batch) {
  if (!shards_) return;
  assert(written_.empty());
  const auto take_out = [this](std::string_view place, const std::optional<Puts::View>& put) {
    if (place.front() != kKeyPrefix) return;
    const auto key = place.substr(1);
    const Sought sought{.hash = hash_of(key), .key = key};
    auto& shard = shards_[shard_number(sought.hash)];
    written_.push_back({.hash = sought.hash, .put = std::nullopt});
    const std::lock_guard lock(shard.mutex);
    ++commits_of(shard, sought.hash).begun;
    if (take_out_locked(shard, sought)) written_.back().put = put;
  };
  for (const auto put : batch.puts) take_out(put.place, put);
  for (const auto& place : batch.deletes) take_out(place, std::nullopt);
}

void ReadCache::end(Outcome outcome) {
  if (!shards_) return;
  // Before the marks of this group go, so that there is no moment between.
  if (outcome == Outcome::unknown) stop();
  for (const auto& [hash, put] : written_) {
    // What nobody reads is not kept for having been written.
    const bool goes_back = put && outcome == Outcome::committed && !stopped_;
    auto record = goes_back ? record_of(hash, *put) : CachedRecord::Ref();
    auto& shard = shards_[shard_number(hash)];
    Dropped dropped;
    const std::lock_guard lock(shard.mutex);
    ++commits_of(shard, hash).ended;
    if (record) put_locked(shard, std::move(record), dropped);
  }
  written_.clear();
}

void ReadCache::stop() {
  if (!shards_ || std::exchange(stopped_, true)) return;
  for (std::size_t number = 0; number < shard_count_; ++number) {
    auto& shard = shards_[number];
    Generation young;
    Generation old;
    const std::lock_guard lock(shard.mutex);
    for (auto& commits : shard.commits) ++commits.begun;
    young.swap(shard.young);
    old.swap(shard.old);
    shard.bytes = 0;
  }
}

void ReadCache::resume() {
  if (!shards_ || !std::exchange(stopped_, false)) return;
  for (std::size_t number = 0; number < shard_count_; ++number) {
    auto& shard = shards_[number];
    const std::lock_guard lock(shard.mutex);
    for (auto& commits : shard.commits) ++commits.ended;
  }
}

std::size_t ReadCache::size() const {
  std::size_t records = 0;
  for (std::size_t number = 0; shards_ && number < shard_count_; ++number) {
    const auto& shard = shards_[number];
    const std::lock_guard lock(shard.mutex);
    records += shard.young.size() + shard.old.size();
  }
  return records;
}

ReadCache::Look ReadCache::find_locked(Shard& shard, const Sought& sought, Dropped& dropped) const {
  Look look{.record = {}, .hash = sought.hash, .begun = std::nullopt};
  if (const auto young = shard.young.find(sought); young != shard.young.end()) {
    look.record = *young;
    return look;
  }
  if (const auto old = shard.old.find(sought); old != shard.old.end()) {
    look.record = *old;
    shard.old.erase(old);
    put_locked(shard, look.record, dropped);
    return look;
  }
  const auto& commits = commits_of(shard, sought.hash);
  if (commits.begun == commits.ended) look.begun = commits.begun;
  return look;
}

/// A key that is in neither generation.
void ReadCache::put_locked(Shard& shard, CachedRecord::Ref record, Dropped& dropped) const {
  const auto bytes = weight(*record);
  try {
    if (shard.bytes + bytes > shard_bytes_) {
      dropped.push_back(std::exchange(shard.old, {}));
      shard.old.swap(shard.young);
      shard.bytes = 0;
    }
    shard.young.insert(std::move(record));
    shard.bytes += bytes;
  } catch (const std::bad_alloc&) {
    // It is as good as forgotten.
  }
}

bool ReadCache::take_out_locked(Shard& shard, const Sought& sought) {
  if (const auto young = shard.young.find(sought); young != shard.young.end()) {
    shard.bytes -= weight(**young);
    shard.young.erase(young);
    return true;
  }
  const auto old = shard.old.find(sought);
  if (old == shard.old.end()) return false;
  shard.old.erase(old);
  return true;
}

/// None: it is not to be kept.
CachedRecord::Ref ReadCache::record_of(const Sought& sought, const KeyState& state) const {
  if (state.value && state.value->size() > kLongestValue) return {};
  auto record = CachedRecord::make(sought.hash, sought.key, state);
  return record && weight(*record) <= shard_bytes_ ? record : CachedRecord::Ref();
}

CachedRecord::Ref ReadCache::record_of(std::size_t hash, const Puts::View& put) const {
  const auto record = decode_key(put.place, put.bytes);
  if (!record) return {};
  return record_of({.hash = hash, .key = put.place.substr(1)}, describe(&*record));
}

}  // namespace fencekv::core
