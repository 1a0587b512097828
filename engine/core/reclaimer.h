// SPDX-License-Identifier: Apache-2.0
/// Takes away what no accepted token can reach any more: tombstones, and lease names that nobody
/// has held for long.
///
///     1  look at every lease: the lowest token whose holder may still come back
///     2  lift the floor to it, durably
///     3  take away what is below the floor, a few at a time, each looked at once more where
///        everything is serialised
///
/// A token that was handed out after the look is above the newest one of that moment, and the floor
/// never rises above that.

#pragma once

#include "engine/core/committer.h"
#include "fencekv/options.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fencekv::core {

/// Thread safety: all members may be called concurrently, but the destructor.
class Reclaimer {
 public:
  /// Both must outlive it.
  Reclaimer(Committer& committer, const Options& options);
  /// Gives up what it is about.
  ~Reclaimer();
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  /// Errors: invalid, under UnguardedTokens::any; corrupt, a record cannot be read, so nothing was
  /// lifted; misconf; unreachable, the store is being closed.
  Result<Reclaimed> reclaim();

 private:
  enum class Pace { fast, slow };

  Result<Reclaimed> reclaim(Pace pace);
  Result<Token> lowest_needed(Pace pace);
  Result<void> take_away(Reclaimed& sum, Pace pace);
  Result<void> rest(Pace pace);
  template <class Look, class Rest>
  Result<void> each_page(char prefix, Look look, Rest rest);
  void work();

  Committer& committer_;
  const Options& options_;
  std::mutex one_at_a_time_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace fencekv::core
