// SPDX-License-Identifier: Apache-2.0
/// Who uses the store now, and how each is told of what it watches.

#pragma once

#include "fencekv/types.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

namespace fencekv::core {

/// Which sessions are open: now, or at a moment.
///
/// Thread safety: all members may be called concurrently.
class OpenSessions {
 public:
  virtual ~OpenSessions() = default;
  /// The process itself, session 0, is there to the end.
  virtual bool is_open(std::uint64_t id) const = 0;
};

/// Thread safety: all members may be called concurrently.
class Sessions final : public OpenSessions {
 public:
  using OnEvent = std::function<void(const LeaseEvent&)>;

  /// Those that were open when it was made, for as long as it lives. It copies nothing, however
  /// many they are: whoever leaves meanwhile is remembered for it. Ends before the sessions.
  class View final : public OpenSessions {
   public:
    explicit View(Sessions& sessions) : sessions_(sessions), departures_(sessions.begin_view()) {}
    ~View() override { sessions_.end_view(departures_); }
    View(const View&) = delete;
    View& operator=(const View&) = delete;

    /// One that entered later may count as open: nothing that is looked at beside the view was
    /// granted to it.
    bool is_open(std::uint64_t id) const override { return sessions_.was_open(id, departures_); }
    /// Whether nobody has left since. Waits for no lock.
    bool is_current() const { return sessions_.departures_ == departures_; }

   private:
    Sessions& sessions_;
    const std::uint64_t departures_;
  };

  std::uint64_t enter(OnEvent on_event) {
    const std::unique_lock lock(mutex_);
    open_.emplace(++newest_, std::move(on_event));
    return newest_;
  }

  /// Once it has returned, the session is told nothing more.
  void leave(std::uint64_t id) {
    const std::unique_lock lock(mutex_);
    open_.erase(id);
    const auto departure = ++departures_;
    if (!views_.empty()) departed_.emplace(id, departure);
  }

  bool is_open(std::uint64_t id) const override {
    if (id == 0) return true;
    const std::shared_lock lock(mutex_);
    return open_.contains(id);
  }

  void tell(std::uint64_t id, const LeaseEvent& event) const {
    // Under the lock, so that leave() waits for it.
    const std::shared_lock lock(mutex_);
    const auto found = open_.find(id);
    if (found != open_.end() && found->second) found->second(event);
  }

  std::size_t size() const {
    const std::shared_lock lock(mutex_);
    return open_.size();
  }

  /// How many are remembered for views only.
  std::size_t remembered() const {
    const std::shared_lock lock(mutex_);
    return departed_.size();
  }

 private:
  std::uint64_t begin_view() {
    const std::unique_lock lock(mutex_);
    views_.insert(departures_);
    return departures_;
  }

  void end_view(std::uint64_t departures) {
    const std::unique_lock lock(mutex_);
    views_.erase(views_.find(departures));
    if (departed_.empty()) return;
    // Views that overlap without end must not keep all who ever left.
    const auto oldest = views_.empty() ? departures_.load() : *views_.begin();
    std::erase_if(departed_, [oldest](const auto& entry) { return entry.second <= oldest; });
  }

  /// Whether it was open after so many departures, which some view began with.
  bool was_open(std::uint64_t id, std::uint64_t departures) const {
    if (id == 0) return true;
    const std::shared_lock lock(mutex_);
    if (open_.contains(id)) return true;
    const auto departed = departed_.find(id);
    return departed != departed_.end() && departed->second > departures;
  }

  mutable std::shared_mutex mutex_;
  std::uint64_t newest_ = 0;                         // guarded by mutex_
  std::unordered_map<std::uint64_t, OnEvent> open_;  // guarded by mutex_
  std::atomic<std::uint64_t> departures_ = 0;        // written under mutex_
  std::multiset<std::uint64_t> views_;               // guarded by mutex_; the departures of each
  /// Who has left while there are views, and after how many departures, its own included.
  std::unordered_map<std::uint64_t, std::uint64_t> departed_;  // guarded by mutex_
};

}  // namespace fencekv::core
