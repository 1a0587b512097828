// SPDX-License-Identifier: Apache-2.0
/// A backend in memory whose every step a test can hold back, let fail, and look at.

#pragma once

#include "engine/core/backend.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::testing {

/// What a commit shall do that does not simply work.
struct Failure {
  core::Outcome outcome = core::Outcome::unknown;
  /// After Outcome::unknown: whether the group turns out to be there once settled.
  bool lands = false;
};

/// The test's side. Outlives the backend. Thread safety: all members may be called concurrently.
class Script {
 public:
  using Records = std::map<std::string, std::string, std::less<>>;

  /// Commits stop before they do anything, until let_go().
  void hold() {
    const std::lock_guard lock(mutex_);
    is_held_ = true;
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    is_held_ = false;
    changed_.notify_all();
  }
  /// Lets exactly the commit go that is held now, and returns once the next one is held.
  void step() {
    std::unique_lock lock(mutex_);
    ++passes_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return passes_ == 0 && is_waiting_; });
  }
  /// Waits until a commit is held.
  bool wait_for_commit() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [this] { return is_waiting_; });
  }

  /// The next commit fails so; calls queue up.
  void fail_next(Failure failure) {
    const std::lock_guard lock(mutex_);
    failures_.push_back(failure);
  }
  /// Every commit takes this long.
  void slow(std::chrono::milliseconds time) {
    const std::lock_guard lock(mutex_);
    takes_ = time;
  }

  // nullopt: works.
  void fail_claim(std::optional<Error> error) { set(claim_error_, std::move(error)); }
  void fail_reserve(std::optional<Error> error) { set(reserve_error_, std::move(error)); }
  void fail_settle(std::optional<Error> error) { set(settle_error_, std::move(error)); }

  void set_reserved(Token token) { set(reserved_, token); }
  Token reserved() const { return get(reserved_); }
  int commits() const { return get(commits_); }
  int settles() const { return get(settles_); }
  std::optional<Token> closed() const { return get(closed_); }
  Records records() const { return get(records_); }
  void set_records(Records records) { set(records_, std::move(records)); }
  std::vector<core::Batch> batches() const { return get(batches_); }

 private:
  friend class ScriptedBackend;

  template <class T, class U>
  void set(T& member, U value) {
    const std::lock_guard lock(mutex_);
    member = std::move(value);
  }
  template <class T>
  T get(const T& member) const {
    const std::lock_guard lock(mutex_);
    return member;
  }
  void apply(const core::Batch& batch) {
    for (const auto& put : batch.puts) records_.insert_or_assign(put.place, put.bytes);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  Records records_;
  std::vector<core::Batch> batches_;  // asked for, whether they landed or not
  std::optional<core::Batch> in_doubt_;
  std::deque<Failure> failures_;
  std::optional<Error> claim_error_;
  std::optional<Error> reserve_error_;
  std::optional<Error> settle_error_;
  std::optional<Token> closed_;
  std::chrono::milliseconds takes_{0};
  Token reserved_;
  int commits_ = 0;
  int settles_ = 0;
  int passes_ = 0;
  bool is_held_ = false;
  bool is_waiting_ = false;
};

class ScriptedBackend final : public core::Backend {
 public:
  explicit ScriptedBackend(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  Result<core::Claim> claim() override {
    const std::lock_guard lock(script_->mutex_);
    if (script_->claim_error_) return *script_->claim_error_;
    return core::Claim{.reserved = script_->reserved_, .may_have_lost = false};
  }

  Result<std::optional<std::string>> read(std::string_view place) override {
    const std::lock_guard lock(script_->mutex_);
    return find(script_->records_, place);
  }

  std::unique_ptr<core::Snapshot> snapshot() override {
    return std::make_unique<Copy>(script_->records());
  }

  core::Outcome commit(const core::Batch& batch) override {
    auto& script = *script_;
    std::unique_lock lock(script.mutex_);
    script.is_waiting_ = script.is_held_;
    script.changed_.notify_all();
    script.changed_.wait(lock, [&] { return !script.is_held_ || script.passes_ > 0; });
    if (script.passes_ > 0) --script.passes_;
    script.is_waiting_ = false;
    if (script.takes_.count() > 0) script.changed_.wait_for(lock, script.takes_);

    script.batches_.push_back(batch);
    ++script.commits_;
    script.closed_.reset();
    if (script.failures_.empty()) {
      script.apply(batch);
      return core::Outcome::committed;
    }
    const auto failure = script.failures_.front();
    script.failures_.pop_front();
    if (failure.lands) script.in_doubt_ = batch;
    return failure.outcome;
  }

  Result<void> reserve(Token until) override {
    const std::lock_guard lock(script_->mutex_);
    if (script_->reserve_error_) return *script_->reserve_error_;
    script_->reserved_ = std::max(script_->reserved_, until);
    return {};
  }

  Result<void> settle() override {
    const std::lock_guard lock(script_->mutex_);
    ++script_->settles_;
    if (script_->settle_error_) return *script_->settle_error_;
    if (script_->in_doubt_) script_->apply(*script_->in_doubt_);
    script_->in_doubt_.reset();
    return {};
  }

  void close(Token newest) override {
    const std::lock_guard lock(script_->mutex_);
    script_->reserved_ = newest;
    script_->closed_ = newest;
  }

 private:
  static Result<std::optional<std::string>> find(const Script::Records& records,
                                                 std::string_view place) {
    const auto found = records.find(place);
    if (found == records.end()) return std::optional<std::string>{};
    return std::optional(found->second);
  }

  class Copy final : public core::Snapshot {
   public:
    explicit Copy(Script::Records records) : records_(std::move(records)) {}
    Result<std::optional<std::string>> read(std::string_view place) override {
      return find(records_, place);
    }
    Result<void> scan(
        std::string_view from,
        const std::function<bool(std::string_view, std::string_view)>& visit) override {
      for (auto next = records_.lower_bound(from); next != records_.end(); ++next) {
        if (!visit(next->first, next->second)) break;
      }
      return {};
    }

   private:
    const Script::Records records_;
  };

  const std::shared_ptr<Script> script_;
};

}  // namespace fencekv::testing
