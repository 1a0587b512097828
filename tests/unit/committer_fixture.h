// SPDX-License-Identifier: Apache-2.0
/// A store whose storage does as it is told, and the answers to what was submitted to it.

#pragma once

#include "engine/core/make_store.h"
#include "tests/support/manual_clock.h"
#include "tests/support/print.h"
#include "tests/support/scripted_backend.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv::testing {

using namespace std::chrono_literals;  // NOLINT: only literals

template <class T>
std::string line_of(const Result<T>& result) {
  return result ? "OK" : result.error().line();
}

inline Write write_of(std::string key, std::string value, Token token) {
  Write write;
  write.entries.push_back({.key = std::move(key), .value = std::move(value)});
  write.token = token;
  return write;
}

inline Acquire acquire_of(std::string name) {
  return {.name = std::move(name), .owner = "me", .ttl = 10s};
}

/// The answers to what was submitted, in the order in which they came.
class Answers {
 public:
  std::function<void(Result<Reply>)> expect(std::string what) {
    return [this, what = std::move(what)](Result<Reply> reply) {
      const std::lock_guard lock(mutex_);
      order_.push_back(what);
      replies_.emplace(what, std::move(reply));
      came_.notify_all();
    };
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return order_.size();
  }
  bool wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, 10s, [&] { return order_.size() >= count; });
  }
  std::vector<std::string> order() const {
    const std::lock_guard lock(mutex_);
    return order_;
  }
  /// `OK`, an error's line, or `no answer`.
  std::string line(const std::string& what) const {
    const std::lock_guard lock(mutex_);
    const auto found = replies_.find(what);
    return found == replies_.end() ? "no answer" : line_of(found->second);
  }
  template <class C>
  typename C::Reply reply(const std::string& what) const {
    const std::lock_guard lock(mutex_);
    return std::get<typename C::Reply>(*replies_.at(what));
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> order_;
  std::map<std::string, Result<Reply>> replies_;
};

class CommitterTest : public ::testing::Test {
 protected:
  ~CommitterTest() override { script_->let_go(); }

  Result<std::unique_ptr<Store>> try_open() {
    return core::make_store(std::make_unique<ScriptedBackend>(script_), options_);
  }
  Store& store() {
    if (store_) return *store_;
    options_.unguarded_tokens = UnguardedTokens::any;
    options_.clock = clock_;
    auto opened = try_open();
    if (!opened) throw std::runtime_error(opened.error().line());
    store_ = *std::move(opened);
    return *store_;
  }
  void submit(std::string what, Command command) {
    store().enqueue(std::move(command), answers_.expect(std::move(what)));
  }
  /// Holds a group of one write, so that what is submitted now becomes one group behind it.
  void collect_a_group() {
    store();
    script_->hold();
    submit("before", write_of("before", "v", Token{1}));
    ASSERT_TRUE(script_->wait_for_commit());
  }
  std::optional<std::string> value_of(const std::string& key) {
    const auto value = store().get(key);
    EXPECT_TRUE(value.has_value()) << line_of(value);
    return value ? *value : std::nullopt;
  }
  /// Asks in the queue, among the writers.
  std::string queued_read(const std::string& key) {
    auto keys = store().execute(Read{.keys = {key}});
    return keys ? keys->front().value.value_or("(none)") : line_of(keys);
  }
  bool recovers() {
    for (int i = 0; i < 2000 && store().refuses_writes(); ++i) std::this_thread::sleep_for(10ms);
    return !store().refuses_writes();
  }
  /// The highest token that any batch so far, landed or not, knew as handed out.
  Token highest_drawn() const {
    Token highest;
    for (const auto& batch : script_->batches()) {
      for (const auto& put : batch.puts) {
        if (put.place != core::kAllocatorKey) continue;
        highest = std::max(highest, core::decode_allocator(put.place, put.bytes)->newest);
      }
    }
    return highest;
  }

  const std::shared_ptr<Script> script_ = std::make_shared<Script>();
  const std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  Options options_;
  Answers answers_;
  std::unique_ptr<Store> store_;
};

}  // namespace fencekv::testing
