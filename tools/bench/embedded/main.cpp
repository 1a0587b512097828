// SPDX-License-Identifier: Apache-2.0
/// fencekv_bench_embedded DIRECTORY KEYS [flags of Google Benchmark]: the embedded store through
/// its public interface, and raw RocksDB with the same database options, in one process.
/// tools/bench/embedded.sh runs it, pair by pair, and compares.
///
/// Raw writes use RocksDB's default WriteOptions: what an application would write without us. The
/// checksums that a store lets RocksDB carry along with each record are part of what we cost.

#include "tools/bench/embedded/sides.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <rocksdb/write_batch.h>

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::bench {
namespace {

bool is_synced(Field field) {
  return field == Field::sync;
}

void finish(benchmark::State& state, std::size_t together = 1) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(together));
}

/// Repeats `once`, which says whether it came out right.
template <class Once>
void repeat(benchmark::State& state, Once once) {
  for ([[maybe_unused]] auto _ : state) {
    if (once()) continue;
    state.SkipWithError("a command was not answered as it must be");
    break;
  }
}

void raw_put(benchmark::State& state, Sides& sides, Field field) {
  auto& raw = sides.raw(field);
  Picks picks(sides, state.thread_index());
  rocksdb::WriteOptions options;
  options.sync = is_synced(field);
  repeat(state, [&] { return raw.Put(options, picks.key(), picks.value()).ok(); });
  finish(state);
}

void raw_put_new(benchmark::State& state, Sides& sides) {
  auto& raw = sides.raw(Field::growing);
  Picks picks(sides, state.thread_index());
  repeat(state, [&] { return raw.Put({}, sides.new_key(), picks.value()).ok(); });
  finish(state);
}

/// What an application does that keeps a fence beside its value, without a lock.
void raw_get_and_put(benchmark::State& state, Sides& sides) {
  auto& raw = sides.raw(Field::process);
  Picks picks(sides, state.thread_index());
  std::string before;
  repeat(state, [&] {
    const auto& key = picks.key();
    return raw.Get({}, key, &before).ok() && raw.Put({}, key, picks.value()).ok();
  });
  finish(state);
}

void raw_batch(benchmark::State& state, Sides& sides, std::size_t together) {
  auto& raw = sides.raw(Field::process);
  Picks picks(sides, state.thread_index());
  repeat(state, [&] {
    rocksdb::WriteBatch batch;
    picks.key();
    for (std::size_t i = 0; i < together; ++i) {
      if (!batch.Put(picks.key_after(i), picks.value()).ok()) return false;
    }
    return raw.Write({}, &batch).ok();
  });
  finish(state, together);
}

void raw_get(benchmark::State& state, Sides& sides) {
  auto& raw = sides.raw(Field::process);
  Picks picks(sides, state.thread_index());
  repeat(state, [&] {
    // As the store gives it: a string of the caller's own.
    std::string value;
    return raw.Get({}, picks.key(), &value).ok();
  });
  finish(state);
}

void store_write(benchmark::State& state, Sides& sides, Field field) {
  auto& side = sides.store(field);
  Picks picks(sides, state.thread_index());
  repeat(state,
         [&] { return side.store->set(picks.key(), picks.value(), side.newer).has_value(); });
  finish(state);
}

void store_write_new(benchmark::State& state, Sides& sides) {
  auto& side = sides.store(Field::growing);
  Picks picks(sides, state.thread_index());
  repeat(state,
         [&] { return side.store->set(sides.new_key(), picks.value(), side.newer).has_value(); });
  finish(state);
}

void store_write_many(benchmark::State& state, Sides& sides, std::size_t together) {
  auto& side = sides.store(Field::process);
  Picks picks(sides, state.thread_index());
  repeat(state, [&] {
    std::vector<Write::Entry> entries;
    entries.reserve(together);
    picks.key();
    for (std::size_t i = 0; i < together; ++i) {
      entries.push_back({.key = picks.key_after(i), .value = std::string(picks.value())});
    }
    return side.store->execute(make_write(std::move(entries), side.newer, {})).has_value();
  });
  finish(state, together);
}

void store_stale(benchmark::State& state, Sides& sides) {
  auto& side = sides.store(Field::process);
  Picks picks(sides, state.thread_index());
  repeat(state, [&] {
    const auto refused = side.store->set(picks.key(), picks.value(), side.older);
    return !refused && refused.error().code() == Errc::fenced;
  });
  finish(state);
}

void store_get(benchmark::State& state, Sides& sides) {
  auto& side = sides.store(Field::process);
  Picks picks(sides, state.thread_index());
  repeat(state, [&] {
    const auto value = side.store->get(picks.key());
    return value && value->has_value();
  });
  finish(state);
}

/// By the wall clock, since threads wait for each other and for the disk.
template <class Body>
void add(const std::string& name, int threads, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->Threads(threads)->UseRealTime();
}

void add_all(Sides& sides) {
  struct Shape {
    const char* name;
    Field field;
    int threads;
  };
  for (const auto& [name, field, threads] :
       {Shape{"process/1", Field::process, 1}, Shape{"process/64", Field::process, 64},
        Shape{"sync/1", Field::sync, 1}, Shape{"sync/64", Field::sync, 64}}) {
    add(fmt::format("raw/put/{}", name), threads,
        [&sides, field = field](auto& state) { raw_put(state, sides, field); });
    add(fmt::format("store/write/{}", name), threads,
        [&sides, field = field](auto& state) { store_write(state, sides, field); });
  }
  for (const std::size_t together : {1, 10, 100}) {
    add(fmt::format("raw/batch/{}", together), 1,
        [&sides, together](auto& state) { raw_batch(state, sides, together); });
    add(fmt::format("store/write-many/{}", together), 1,
        [&sides, together](auto& state) { store_write_many(state, sides, together); });
  }
  add("raw/put-new", 1, [&sides](auto& state) { raw_put_new(state, sides); });
  add("store/write-new", 1, [&sides](auto& state) { store_write_new(state, sides); });
  add("raw/get-and-put", 1, [&sides](auto& state) { raw_get_and_put(state, sides); });
  add("store/write-forgotten", 1,
      [&sides](auto& state) { store_write(state, sides, Field::forgetting); });
  add("raw/get", 1, [&sides](auto& state) { raw_get(state, sides); });
  add("store/get", 1, [&sides](auto& state) { store_get(state, sides); });
  add("store/stale", 1, [&sides](auto& state) { store_stale(state, sides); });
}

}  // namespace
}  // namespace fencekv::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  // A write of a hundred keys takes a hundred.
  const auto keys = argc == 3 ? fencekv::parse_decimal(argv[2]) : std::nullopt;
  if (!keys || *keys < 100 || !std::filesystem::is_directory(argv[1])) {
    fmt::print(stderr, "usage: fencekv_bench_embedded DIRECTORY KEYS [--benchmark_…]\n");
    return 2;
  }
  fencekv::bench::Sides sides(argv[1], *keys);
  fencekv::bench::add_all(sides);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
