// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/embedded/sides.h"

#include "engine/rocksdb/database_options.h"

#include <fmt/format.h>
#include <rocksdb/env.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace fencekv::bench {
namespace {

constexpr std::string_view kOwner = "bench-owner-0001";
/// As many as are written in one go while a side is filled.
constexpr std::size_t kTogether = 1000;

void require(bool is_true, const std::string& what) {
  if (is_true) return;
  fmt::print(stderr, "failed: {}\n", what);
  std::exit(1);  // NOLINT(concurrency-mt-unsafe)
}

std::vector<std::string> numbered_keys(std::size_t count) {
  std::vector<std::string> keys;
  keys.reserve(count);
  for (std::size_t i = 0; i < count; ++i) keys.push_back(fmt::format("key:{:012}", i));
  return keys;
}

/// Random, so that nobody gains by compressing them.
const std::string& value_pool() {
  static const auto kPool = [] {
    std::string pool((std::size_t{1} << 20) + kValueBytes, '\0');
    std::mt19937_64 random(1);  // NOLINT(cert-msc32-c,cert-msc51-cpp)
    std::generate(pool.begin(), pool.end(), [&] { return static_cast<char>(random() >> 56); });
    return pool;
  }();
  return kPool;
}

std::string_view name_of(Field field) {
  switch (field) {
    case Field::process:
      return "process";
    case Field::sync:
      return "sync";
    case Field::growing:
      return "growing";
    case Field::forgetting:
      return "forgetting";
  }
  return {};
}

Token acquire(Store& store, std::string_view name) {
  const auto grant = store.acquire(name, kOwner, Limits::kMaxTtl);
  require(grant && *grant, "a lease is granted");
  return (*grant)->token;
}

StoreSide open_store(const std::filesystem::path& directory, Field field, const Sides& sides) {
  Options options;
  options.durability = field == Field::sync ? Durability::sync : Durability::process;
  if (field == Field::forgetting) options.fence_cache_bytes = 0;
  // What comes now and then would come into one side only.
  options.reclaim_interval = {};
  options.scrub_interval = {};
  auto opened = open_rocksdb(directory / fmt::format("store-{}", name_of(field)), options);
  require(opened.has_value(), opened ? "" : opened.error().line());

  StoreSide side{.store = *std::move(opened), .older = {}, .newer = {}};
  side.older = acquire(*side.store, "older");
  side.newer = acquire(*side.store, "newer");
  Picks picks(sides);
  const auto& keys = sides.known_keys();
  for (std::size_t i = 0; i < keys.size(); i += kTogether) {
    std::vector<Write::Entry> entries;
    entries.reserve(kTogether);
    for (std::size_t j = i; j < std::min(i + kTogether, keys.size()); ++j) {
      entries.push_back({.key = keys[j], .value = std::string(picks.value())});
    }
    const auto written = side.store->execute(make_write(std::move(entries), side.newer, {}));
    require(written.has_value(), "the store is filled");
  }
  return side;
}

std::unique_ptr<rocksdb::DB> open_raw(const std::filesystem::path& directory, Field field,
                                      const Sides& sides) {
  auto options = rocks::database_options(rocksdb::Env::Default(), {});
  options.create_if_missing = true;
  rocksdb::DB* database = nullptr;
  const auto path = directory / fmt::format("raw-{}", name_of(field));
  const auto opened = rocksdb::DB::Open(options, path.string(), &database);
  require(opened.ok(), opened.ToString());

  std::unique_ptr<rocksdb::DB> raw(database);
  Picks picks(sides);
  const auto& keys = sides.known_keys();
  for (std::size_t i = 0; i < keys.size(); i += kTogether) {
    rocksdb::WriteBatch batch;
    for (std::size_t j = i; j < std::min(i + kTogether, keys.size()); ++j) {
      require(batch.Put(keys[j], picks.value()).ok(), "the batch is filled");
    }
    require(raw->Write({}, &batch).ok(), "the database is filled");
  }
  return raw;
}

}  // namespace

Sides::Sides(std::filesystem::path directory, std::size_t keys)
    : directory_(std::move(directory)), known_keys_(numbered_keys(keys)) {}

StoreSide& Sides::store(Field field) {
  const std::lock_guard lock(mutex_);
  auto side = stores_.find(field);
  if (side == stores_.end())
    side = stores_.emplace(field, open_store(directory_, field, *this)).first;
  return side->second;
}

rocksdb::DB& Sides::raw(Field field) {
  const std::lock_guard lock(mutex_);
  auto side = raws_.find(field);
  if (side == raws_.end()) side = raws_.emplace(field, open_raw(directory_, field, *this)).first;
  return *side->second;
}

std::string Sides::new_key() {
  // Coprime to the modulus: no key comes twice.
  constexpr std::uint64_t kStep = 618'033'989;
  constexpr std::uint64_t kModulus = 1'000'000'000'000;
  return fmt::format("new:{:012}", news_.fetch_add(1) * kStep % kModulus);
}

Picks::Picks(const Sides& sides, int thread)
    : keys_(sides.known_keys()), random_(static_cast<std::uint64_t>(thread) + 1) {}

const std::string& Picks::key() {
  picked_ = random_() % keys_.size();
  return keys_[picked_];
}

const std::string& Picks::key_after(std::size_t steps) const {
  // A prime: coprime to every number of keys that is no multiple of it.
  constexpr std::size_t kStep = 618'041;
  return keys_[(picked_ + steps * kStep) % keys_.size()];
}

std::string_view Picks::value() {
  const auto& pool = value_pool();
  return std::string_view(pool).substr(random_() % (pool.size() - kValueBytes), kValueBytes);
}

}  // namespace fencekv::bench
