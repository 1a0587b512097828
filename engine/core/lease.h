// SPDX-License-Identifier: Apache-2.0
/// A lease name in memory, and how its grants stand at a moment.

#pragma once

#include "engine/core/boots.h"
#include "engine/core/record.h"
#include "engine/core/sessions.h"
#include "fencekv/types.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::core {

/// A name that was granted at least once: its lease record and the records of its further grants.
///
/// It notes which further grants change, so that a commit writes those and no others.
class Lease {
 public:
  /// The first grant of a name.
  Lease(GrantRecord first, std::uint64_t permits) : newest_(std::move(first)), permits_(permits) {}
  /// As stored. `others` are in the order of their tokens.
  Lease(LeaseRecord record, std::vector<GrantRecord> others);

  Token fence() const { return newest_.token; }
  /// Held or ended.
  const GrantRecord& newest() const { return newest_; }
  /// Older ones, in the order of their tokens. Held, once those that are over have been ended.
  const std::vector<GrantRecord>& others() const { return others_; }
  /// How many permits there are, if the newest grant is one.
  std::uint64_t permits() const { return permits_; }
  /// Until when nobody new is granted the name, and how long that time is in all; zero: no block.
  Deadline blocked() const { return blocked_; }
  std::chrono::milliseconds block() const { return block_; }

  const GrantRecord* find(Token token) const;

  /// The lowest token of a grant that has made room for a newer one, ended less than `retention`
  /// ago (it may remember some that are up to twice as old); none: there is none.
  Token lowest_ended(const Boots& boots, std::chrono::nanoseconds now,
                     std::chrono::nanoseconds retention) const;

  /// The same, to be changed.
  GrantRecord& change(Token token);
  /// `grant` is the newest from here on. The one before it stays beside it if it is still open. A
  /// block is over.
  void grant(GrantRecord grant, std::uint64_t permits);
  /// Ends an open grant. The newest one stays, and says how it ended.
  void end(Token token, GrantEnd how);
  /// Takes a grant away without a trace: another took its place.
  void forget(Token token);
  void block_until(Deadline end, std::chrono::milliseconds length);
  /// Remembers that the grant with `token` has ended and makes room.
  void remember(Token token, const Boots& boots, std::chrono::nanoseconds now,
                std::chrono::nanoseconds retention);

  // For the storage.

  LeaseRecord record() const;
  /// The further grants that were put or taken away since the last call. May name one twice.
  std::vector<Token> take_changes() { return std::exchange(changes_, {}); }

 private:
  std::vector<GrantRecord>::iterator other(Token token);

  GrantRecord newest_;
  std::vector<GrantRecord> others_;
  std::uint64_t permits_ = 0;
  Deadline blocked_;
  std::chrono::milliseconds block_{0};
  Deadline ended_since_;
  Token ended_;
  Token ended_before_;
  std::vector<Token> changes_;
};

/// How long ago `then` was, at least: of a time in an earlier boot nobody knows more than that it
/// was before this one.
std::chrono::nanoseconds age(Deadline then, const Boots& boots, std::chrono::nanoseconds now);

/// What decides how a grant stands.
struct Circumstances {
  Token floor;
  const Boots& boots;
  const OpenSessions& sessions;
  std::uint64_t process = 0;  ///< The running process, as in Origin. 0: it never was the writer.
  std::chrono::nanoseconds process_began{0};  ///< When it became the writer for the first time.
  std::chrono::nanoseconds now{0};
};

/// How a grant stands, whether or not anybody noticed before: GrantEnd::open means that it is held.
/// A grant below the floor has ended without a word: it is `revoked`.
GrantEnd standing(const GrantRecord& grant, const Circumstances& at);

/// When the grant's time is over, on the running boot's clock. One that was over before this boot
/// counts from the boot's first opening: nobody knows better.
std::chrono::nanoseconds end_of_time(const GrantRecord& grant, const Boots& boots);

/// Until when a grant that ends thus keeps others out, by its delay; nullopt: it does not, or not
/// any more.
std::optional<std::chrono::nanoseconds> end_of_delay(const GrantRecord& grant, GrantEnd how,
                                                     const Circumstances& at);

/// Until when the name is blocked, also by ends that nobody noticed yet; nullopt: it is not.
std::optional<std::chrono::nanoseconds> end_of_block(const Lease& lease, const Circumstances& at);

/// A grant that may not write any more although nobody else came.
bool is_closed(GrantEnd end);

LeaseChange change_of(GrantEnd end);

/// The word for a grant that does not run any more.
std::string_view reason_of(GrantEnd end);

/// What listings show of a lease; nullptr: never granted.
LeaseState describe(std::string_view name, const Lease* lease, std::size_t waiters,
                    const Circumstances& at);

}  // namespace fencekv::core
