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
    is_held_at_end_ = false;
    changed_.notify_all();
  }
  /// Commits stop once they are done, before they say how: what they changed can be read.
  void hold_at_end() {
    const std::lock_guard lock(mutex_);
    is_held_at_end_ = true;
  }
  /// Waits until a commit is held at its end.
  bool wait_for_end() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [this] { return is_at_end_; });
  }
  /// Reads of single records stop once they have their answer, until let_reads_go().
  void hold_reads() {
    const std::lock_guard lock(mutex_);
    are_reads_held_ = true;
  }
  bool wait_for_read() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [this] { return held_reads_ > 0; });
  }
  void let_reads_go() {
    const std::lock_guard lock(mutex_);
    are_reads_held_ = false;
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

  void set_space(core::Space space) { set(space_, space); }
  /// Until it is settled.
  void fail_behind(std::string why) { set(failed_behind_, std::optional(std::move(why))); }

  void set_reserved(Token token) { set(reserved_, token); }
  Token reserved() const { return get(reserved_); }
  int commits() const { return get(commits_); }
  int settles() const { return get(settles_); }
  /// Of single records, by the store.
  int reads() const { return get(reads_); }
  int snapshots() const { return get(snapshots_); }
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
    for (const auto& put : batch.puts) {
      records_.insert_or_assign(std::string(put.place), std::string(put.bytes));
    }
    for (const auto& place : batch.deletes) records_.erase(place);
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
  std::optional<std::string> failed_behind_;
  core::Space space_;
  std::optional<Token> closed_;
  std::chrono::milliseconds takes_{0};
  Token reserved_;
  int commits_ = 0;
  int settles_ = 0;
  int reads_ = 0;
  int snapshots_ = 0;
  int held_reads_ = 0;
  int passes_ = 0;
  bool is_held_ = false;
  bool is_waiting_ = false;
  bool is_held_at_end_ = false;
  bool is_at_end_ = false;
  bool are_reads_held_ = false;
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
    auto& script = *script_;
    std::unique_lock lock(script.mutex_);
    ++script.reads_;
    auto found = find(script.records_, place);
    if (!script.are_reads_held_) return found;
    ++script.held_reads_;
    script.changed_.notify_all();
    script.changed_.wait(lock, [&] { return !script.are_reads_held_; });
    --script.held_reads_;
    return found;
  }

  std::unique_ptr<core::Snapshot> snapshot() override {
    const std::lock_guard lock(script_->mutex_);
    ++script_->snapshots_;
    return std::make_unique<Copy>(script_->records_);
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
    const auto outcome = finish(batch);
    script.is_at_end_ = script.is_held_at_end_;
    script.changed_.notify_all();
    script.changed_.wait(lock, [&] { return !script.is_held_at_end_; });
    script.is_at_end_ = false;
    return outcome;
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
    script_->failed_behind_.reset();
    if (script_->in_doubt_) script_->apply(*script_->in_doubt_);
    script_->in_doubt_.reset();
    return {};
  }

  core::Space space(std::chrono::nanoseconds /*now*/) override {
    const std::lock_guard lock(script_->mutex_);
    return script_->space_;
  }
  std::optional<std::string> failed_behind() override {
    const std::lock_guard lock(script_->mutex_);
    return script_->failed_behind_;
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

  core::Outcome finish(const core::Batch& batch) {
    auto& script = *script_;
    if (script.failures_.empty()) {
      script.apply(batch);
      return core::Outcome::committed;
    }
    const auto failure = script.failures_.front();
    script.failures_.pop_front();
    if (failure.lands) script.in_doubt_ = batch;
    return failure.outcome;
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
