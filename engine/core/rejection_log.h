// SPDX-License-Identifier: Apache-2.0
/// The newest refused writes, for the person who asks why.

#pragma once

#include "fencekv/types.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace fencekv::core {

/// Thread safety: all members may be called concurrently.
class RejectionLog {
 public:
  static constexpr std::size_t kKept = 1024;

  void add(Rejection rejection) {
    const std::lock_guard lock(mutex_);
    if (kept_.size() == kKept) kept_.pop_back();
    kept_.push_front(std::move(rejection));
  }

  /// Newest first.
  std::vector<Rejection> newest(std::size_t count) const {
    const std::lock_guard lock(mutex_);
    const auto shown = static_cast<std::ptrdiff_t>(std::min(count, kept_.size()));
    return {kept_.begin(), kept_.begin() + shown};
  }

 private:
  mutable std::mutex mutex_;
  std::deque<Rejection> kept_;  // guarded by mutex_
};

}  // namespace fencekv::core
