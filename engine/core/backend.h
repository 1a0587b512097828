// SPDX-License-Identifier: Apache-2.0
/// The narrow waist: an ordered byte map that belongs to one writer at a time. Everything above
/// this seam is the same for every place where bytes can live.
///
/// Every group moves the store's position from (epoch, n) to (epoch, n + 1), in the same atomic
/// step as its puts. That one compare orders the groups and shuts out a writer that was deposed.
/// Exactly one group is in flight per store, so commit() may block its caller: nothing else could
/// be done meanwhile, and commands go on arriving in the committer's queue.

#pragma once

#include "engine/core/record.h"
#include "fencekv/result.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::core {

struct Put {
  std::string place;
  std::string bytes;
};

/// What one group changes. The last put of `puts` is the position record, moved to `position`.
struct Batch {
  std::vector<Put> puts;
  PositionRecord position;
};

/// How a commit ended.
enum class Outcome {
  committed,  ///< In full, and as durable as promised.
  refused,    ///< Certainly nothing happened.
  unknown,    ///< In full or not at all; nobody knows. No further group until settle().
};

/// What a new writer must know beyond the records.
struct Claim {
  /// Tokens up to this one may have been handed out, even if no record says so.
  Token reserved;
  /// Acknowledged groups may be missing, as the promise of Durability::process allows.
  bool may_have_lost = false;
};

/// A view of one point in time. Thread safety: one thread at a time.
class Snapshot {
 public:
  virtual ~Snapshot() = default;

  /// nullopt: no record. Errors: corrupt; misconf when the storage cannot be read at all.
  virtual Result<std::optional<std::string>> read(std::string_view place) = 0;

  /// Visits records in the order of their places, from the first that is not below `from`, until
  /// `visit` returns false or there are no more.
  virtual Result<void> scan(
      std::string_view from,
      const std::function<bool(std::string_view place, std::string_view bytes)>& visit) = 0;
};

/// Thread safety: read() and snapshot() may be called at any time; all else by the one writer.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Becomes the writer. Changes nothing itself: the first group that is committed after it carries
  /// a new epoch, and from then on no group of an older writer lands.
  ///
  /// Errors: corrupt, acknowledged groups are missing that should be there; misconf, the storage
  /// takes no writes now.
  virtual Result<Claim> claim() = 0;

  /// As Snapshot::read(), from what is committed now.
  virtual Result<std::optional<std::string>> read(std::string_view place) = 0;

  virtual std::unique_ptr<Snapshot> snapshot() = 0;

  /// Applies the batch, all or nothing.
  virtual Outcome commit(const Batch& batch) = 0;

  /// Promises, durably and independently of every batch, that no later writer hands out a token up
  /// to `until`. Errors: misconf, nothing was promised.
  virtual Result<void> reserve(Token until) = 0;

  /// After Outcome::unknown, or a claim() that failed with misconf: makes the state certain again,
  /// so that claim() can be tried. Errors: misconf, try again later; corrupt.
  virtual Result<void> settle() = 0;

  /// A clean end: everything is durable from here on, `newest` is all that was handed out.
  virtual void close(Token newest) = 0;
};

}  // namespace fencekv::core
