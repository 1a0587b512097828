// SPDX-License-Identifier: Apache-2.0
/// The store that is kept as files of every format: what is written into it.

#pragma once

#include "fencekv/store.h"
#include "tests/support/manual_clock.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace fencekv::testing {

/// What format 2 added: shared leases, permits, bound and blocked ones, labels. Begins with
/// token 6.
inline std::string write_content_of_format_2(Store& store, ManualClock& clock) {
  using namespace std::chrono_literals;
  std::string failure;
  const auto expect = [&failure](const auto& result) {
    if (!result && failure.empty()) failure = result.error().line();
    return static_cast<bool>(result);
  };
  const auto take = [&](const std::string& name, const std::string& owner,
                        std::chrono::milliseconds ttl, AcquireOptions options, Caller caller = {}) {
    const auto grant = store.acquire(name, owner, ttl, std::move(options), std::move(caller));
    return expect(grant) && *grant ? (*grant)->token : Token{};
  };
  const auto host = std::make_shared<const std::string>("10.0.0.1:4711");
  take("readers", "reader 1", 1h, {.mode = LeaseMode::shared, .payload = "host a"},
       {.name = host});                                                             // token 6
  take("readers", "reader 2", 1h, {.mode = LeaseMode::shared});                     // token 7
  const auto third = take("readers", "reader 3", 1h, {.mode = LeaseMode::shared});  // token 8
  expect(store.release("readers", "reader 3", third));
  take("seats", "guest 1", 1h, {.mode = LeaseMode::permit, .permits = 3});  // token 9
  take("seats", "guest 2", 2h,
       {.mode = LeaseMode::permit, .permits = 3, .delay = 5s, .payload = "host b"});  // token 10
  {
    const Session session(store);
    take("bound", "owner", 1h, {.bind = true}, {.session = session.id()});  // token 11
  }
  take("bound to the process", "owner", 1h, {.bind = true});  // token 12
  take("blocked", "owner", 1s, {.delay = 1h});                // token 13
  expect(store.execute(AcquireMany{
      .names = {"many/a", "many/b"}, .owner = "owner of many", .ttl = 1h}));  // token 14
  const auto before = take("again", "owner before", 1h, {});                  // token 15
  expect(store.release("again", "owner before", before));
  take("again", "owner after", 1h, {});  // token 16
  clock.advance(2s);
  expect(store.execute(Inspect{.name = "blocked"}));
  return failure;
}

/// Writes the golden store of this version into `directory`, over two lives, so that it has a table
/// and a log. Returns the first error, as a line; empty: there was none.
inline std::string write_golden_store(const std::filesystem::path& directory) {
  using namespace std::chrono_literals;
  std::string failure;
  const auto expect = [&failure](const auto& result) {
    if (!result && failure.empty()) failure = result.error().line();
    return static_cast<bool>(result);
  };
  const auto clock = std::make_shared<ManualClock>();
  Options options;
  options.clock = clock;

  {
    auto opened = open_rocksdb(directory, options);
    if (!expect(opened)) return failure;
    auto& store = **opened;
    const auto take = [&](const std::string& name, const std::string& owner,
                          std::chrono::milliseconds ttl) {
      const auto grant = store.acquire(name, owner, ttl);
      return expect(grant) && *grant ? (*grant)->token : Token{};
    };
    const auto first = take("jobs/first", "owner of the first", 1h);  // token 1
    const auto released = take("jobs/released", "owner", 1h);         // token 2
    expect(store.release("jobs/released", "owner", released));
    take("jobs/revoked", "owner", 1h);  // token 3
    expect(store.execute(Revoke{.name = "jobs/revoked"}));
    const auto expired = take("jobs/expired", "owner", 1s);  // token 4

    expect(store.set("plain", "value", first));
    expect(store.set("guarded", "by a lease", first, {.lease = "jobs/first"}));
    expect(store.set("asked", "with an id", first, {.request = "request-1"}));
    expect(store.set(std::string("\0\xff binary", 9), std::string("\0\r\n\xff", 4), first));
    expect(store.set("empty", "", first));
    expect(store.set("gone", "soon", first));
    expect(store.remove("gone", expired));
    expect(store.execute(Raise{.key = "raised only", .token = expired, .lease = {}}));
    expect(store.set("large", std::string(5000, 'x'), first));
    clock->advance(2s);
    expect(store.execute(Inspect{.name = "jobs/expired"}));
  }
  {
    auto opened = open_rocksdb(directory, options);
    if (!expect(opened)) return failure;
    auto& store = **opened;
    const auto grant = store.acquire("jobs/second", "owner of the second", 1h);  // token 5
    if (!expect(grant) || !*grant) return failure;
    clock->advance(1s);
    expect(store.set("plain", "value of the second life", (*grant)->token));
    expect(store.set("second", "life", (*grant)->token, {.lease = "jobs/second"}));
    expect(store.execute(
        Reset{.key = "second", .token = Token{2}, .guard = Reset::Guard::clear, .guard_name = {}}));
    if (failure.empty()) failure = write_content_of_format_2(store, *clock);
  }
  return failure;
}

}  // namespace fencekv::testing
