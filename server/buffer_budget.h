// SPDX-License-Identifier: Apache-2.0
/// Keeps the buffers of all connections together within bounds. One connection is bounded by the
/// limits of a request and of a round; thousands of them, each with a large request that never ends
/// or a large reply that is never read, are bounded here.

#pragma once

#include <atomic>
#include <cstddef>

namespace fencekv::server {

/// Thread safety: all members may be called concurrently.
class BufferBudget {
 public:
  explicit BufferBudget(std::size_t most) : most_(most) {}

  std::size_t most() const { return most_; }
  /// Who would take much has to give up then; who takes little is served all the same.
  bool is_exceeded() const { return taken_.load(std::memory_order_relaxed) > most_; }

 private:
  friend class BufferShare;

  const std::size_t most_;
  std::atomic<std::size_t> taken_ = 0;
};

/// What one connection takes of it. Thread safety: none. Lifetime: within that of the budget.
class BufferShare {
 public:
  /// So much costs nothing: most connections never touch what all of them share.
  static constexpr std::size_t kFreeBytes = std::size_t{64} * 1024;

  explicit BufferShare(BufferBudget& budget) : budget_(budget) {}
  ~BufferShare() { set(0); }
  BufferShare(const BufferShare&) = delete;
  BufferShare& operator=(const BufferShare&) = delete;

  /// The connection's buffers hold `bytes` now.
  void set(std::size_t bytes) {
    const std::size_t taken = bytes > kFreeBytes ? bytes : 0;
    if (taken == taken_) return;
    // Unsigned numbers wrap around: one addition serves for more and for less.
    budget_.taken_.fetch_add(taken - taken_, std::memory_order_relaxed);
    taken_ = taken;
  }

 private:
  BufferBudget& budget_;
  std::size_t taken_ = 0;
};

}  // namespace fencekv::server
