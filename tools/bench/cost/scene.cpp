// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cost/scene.h"

#include "engine/rocksdb/directory.h"
#include "engine/rocksdb/file_system.h"
#include "engine/rocksdb/rocksdb_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>

namespace fencekv::bench {
namespace {

/// Goes on by a microsecond whenever somebody looks.
class StepClock final : public Clock {
 public:
  std::chrono::nanoseconds since_boot() const override {
    return std::chrono::microseconds(kBegin + looks_.fetch_add(1));
  }
  std::string boot_id() const override { return "bench"; }
  std::chrono::milliseconds wall() const override { return std::chrono::milliseconds(kBegin); }

 private:
  static constexpr std::int64_t kBegin = 3'600'000'000;
  mutable std::atomic<std::int64_t> looks_ = 0;
};

core::DrivenStore open_store(const std::filesystem::path& directory) {
  Options options;
  options.durability = Durability::process;
  options.clock = std::make_shared<StepClock>();
  auto taken = rocks::Directory::take(rocks::posix_files(), directory);
  require(taken.has_value(), "the directory can be taken");
  constexpr bool kIsNew = true;
  auto backend = rocks::RocksBackend::open(*std::move(taken), kIsNew, options.durability,
                                           options.clock->boot_id(), {}, {}, {0, 0});
  require(backend.has_value(), "the database opens");
  auto driven = core::make_driven_store(*std::move(backend), std::move(options));
  require(driven.has_value(), "the store opens");
  return *std::move(driven);
}

Token acquire(Store& store, std::string_view name) {
  const auto grant = store.acquire(name, kOwner, kTtl);
  require(grant && *grant, "a lease is granted");
  return (*grant)->token;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  // The same in every run, and no line break in it: replies are counted by their lines.
  std::mt19937 random(1);  // NOLINT(cert-msc32-c,cert-msc51-cpp)
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>('0' + random() % 64); });
  return bytes;
}

}  // namespace

Scene::Scene(const std::filesystem::path& directory)
    : driven_(open_store(directory)),
      older_(acquire(store(), "older")),
      newer_(acquire(store(), "newer")),
      value_(random_bytes(100)) {
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    require(store().set(known_key(i), value_, newer_).has_value(), "a key is written");
  }
}

std::string known_key(std::uint64_t number) {
  // Odd, so that every one of a power of two is met once.
  constexpr std::uint64_t kStep = 617;
  return fmt::format("key:{:012}", number * kStep % kKeys);
}

std::string new_key(std::uint64_t number) {
  // Coprime to the modulus, so that no key comes twice.
  constexpr std::uint64_t kStep = 618'033'989;
  constexpr std::uint64_t kModulus = 1'000'000'000;
  return fmt::format("key:one{:09}", number * kStep % kModulus);
}

void require(bool is_true, const char* what) {
  if (is_true) return;
  fmt::print(stderr, "failed: {}\n", what);
  std::exit(1);  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace fencekv::bench
