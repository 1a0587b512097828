// SPDX-License-Identifier: Apache-2.0
/// What can be asked of a store, one type a command. Each names the type of its answer `Reply`.
/// The rules by which each is accepted are in engine/SEMANTICS.md.

#pragma once

#include "fencekv/result.h"
#include "fencekv/types.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace fencekv {

/// Writes or deletes one key or many, all or nothing (FENCE.SET, FENCE.DEL, FENCE.MSET).
struct Write {
  struct Entry {
    std::string key;
    std::optional<std::string> value;  ///< nullopt deletes, and leaves a tombstone.
  };
  using Reply = std::vector<std::uint64_t>;  ///< The new version of each entry, in order.

  std::vector<Entry> entries;  ///< 1 to Limits::kKeysPerCommand; no key twice.
  Token token;
  std::optional<std::string> lease;         ///< Check under this lease; binds unguarded keys to it.
  bool once = false;                        ///< Refuse a token that already wrote. Single key only.
  bool live = false;                        ///< Refuse after the lease's time is over.
  std::optional<std::uint64_t> if_version;  ///< Only if the key's version is this; 0: only if it
                                            ///< has no value. Single key only.
  std::optional<std::string> request;       ///< Identity of this request, for safe retries.
};

/// What a Write may carry besides entries and token, named as in the protocol.
struct WriteOptions {
  std::optional<std::string> lease{};
  bool once = false;
  bool live = false;
  std::optional<std::uint64_t> if_version{};
  std::optional<std::string> request{};
};

Write make_write(std::vector<Write::Entry> entries, Token token, WriteOptions options = {});

/// Lifts a key's fence without writing (FENCE.RAISE).
struct Raise {
  using Reply = Token;  ///< The fence.

  std::string key;
  Token token;
  std::optional<std::string> lease;
};

/// Reads a key and lifts its fence, durably before the reply: an older holder cannot change what
/// was just read (FENCE.GET … TOKEN).
struct FencedRead {
  using Reply = KeyState;

  std::string key;
  Token token;
  std::optional<std::string> lease;
};

/// Sets a key's fence, down too: repairs a poisoned one. For an administrator (FENCE.RESET).
struct Reset {
  enum class Guard : std::uint8_t { keep, set, clear };
  struct Reply {
    Token before;
    Token after;
    friend bool operator==(const Reply&, const Reply&) = default;
  };

  std::string key;
  Token token;
  Guard guard = Guard::keep;
  std::string guard_name;  ///< With Guard::set.
};

/// Reads keys at one point in time. Lifts nothing (GET, MGET, FENCE.GET, FENCE.INFO …).
struct Read {
  using Reply = std::vector<KeyState>;  ///< One a key, in order. Several together may not exceed
                                        ///< Limits::kReadBytes: too_big.

  std::vector<std::string> keys;
};

/// Takes a lease if it is free, or if `owner` holds it (LEASE.ACQUIRE).
struct Acquire {
  using Reply = std::optional<Grant>;  ///< nullopt: not acquired within `wait`.

  std::string name;
  std::string owner;  ///< Best a new UUID for every acquisition.
  std::chrono::milliseconds ttl{0};
  std::chrono::milliseconds wait{0};  ///< How long to queue; 0: not at all.
  LeaseMode mode = LeaseMode::exclusive;
  std::uint64_t permits = 0;  ///< How many at once; with LeaseMode::permit only.
  bool bind = false;          ///< The grant ends with the caller's session, too.
  /// If the grant ends otherwise than by release, nobody gets the name for this long after it.
  /// nullopt: of a lease held already, as it was; else none.
  std::optional<std::chrono::milliseconds> delay{};
  std::optional<std::string> payload{};  ///< A label for people. nullopt: as with `delay`.
};

/// What an Acquire may carry besides name, owner and ttl, named as in the protocol.
struct AcquireOptions {
  std::chrono::milliseconds wait{0};
  LeaseMode mode = LeaseMode::exclusive;
  std::uint64_t permits = 0;
  bool bind = false;
  std::optional<std::chrono::milliseconds> delay{};
  std::optional<std::string> payload{};
};

Acquire make_acquire(std::string_view name, std::string_view owner, std::chrono::milliseconds ttl,
                     AcquireOptions options = {});

/// Takes several leases in one step, all or none, with one token (LEASE.MACQUIRE). Granted, each is
/// a lease of its own.
struct AcquireMany {
  using Reply = Acquire::Reply;

  std::vector<std::string> names;  ///< 1 to Limits::kKeysPerCommand; none twice.
  std::string owner;
  std::chrono::milliseconds ttl{0};
  std::chrono::milliseconds wait{0};
};

/// Gives a current grant its time again (LEASE.RENEW).
struct Renew {
  using Reply = std::chrono::milliseconds;  ///< Remaining.

  std::string name;
  std::string owner;
  Token token;
  std::chrono::milliseconds ttl{0};
};

/// Ends a grant and closes its token (LEASE.RELEASE).
struct Release {
  using Reply = std::monostate;

  std::string name;
  std::string owner;
  Token token;
};

/// A grant as its holder names it.
struct Holding {
  std::string name;
  std::string owner;
  Token token;
};

/// Renews many grants at once (LEASE.MRENEW).
struct RenewMany {
  /// For each what Renew answers.
  using Reply = std::vector<Result<std::chrono::milliseconds>>;

  std::vector<Holding> grants;  ///< 1 to Limits::kKeysPerCommand.
  std::chrono::milliseconds ttl{0};
};

/// Releases many grants at once (LEASE.MRELEASE).
struct ReleaseMany {
  /// For each what Release answers.
  using Reply = std::vector<Result<std::monostate>>;

  std::vector<Holding> grants;  ///< 1 to Limits::kKeysPerCommand.
};

/// Gives back a grant that could not be handed to who asked for it, unless its owner has acquired
/// it once more by another session since. For what stands between the store and its clients.
struct GiveBack {
  using Reply = std::monostate;

  std::vector<std::string> names;
  std::string owner;
  Token token;
};

/// Closes the newest grants of a name, whoever holds them. For an administrator (LEASE.REVOKE).
struct Revoke {
  using Reply = Token;  ///< The lease fence.

  std::string name;
};

/// Looks at a lease (LEASE.INFO).
struct Inspect {
  using Reply = LeaseState;

  std::string name;
};

/// Looks at the queue of a lease (LEASE.WAITERS).
struct ListWaiters {
  using Reply = std::vector<LeaseWaiter>;  ///< In the order of the queue.

  std::string name;
};

/// Waits until the grant with `token` is over or a newer one exists (LEASE.WAIT). Without a token:
/// until somebody holds the name. With one that the name never had: until a newer one exists.
struct Await {
  /// What the newest grant is then, with its token; nullopt: the time was over first.
  using Reply = std::optional<LeaseEvent>;

  std::string name;
  Token token;
  std::chrono::milliseconds timeout{0};
};

/// From here on, the session that asks is told of every change of the names (LEASE.WATCH). Names
/// add up.
struct Watch {
  using Reply = std::monostate;

  std::vector<std::string> names;  ///< 1 to Limits::kKeysPerCommand.
};

/// Ends all watches of the session that asks (LEASE.UNWATCH).
struct Unwatch {
  using Reply = std::monostate;
};

using Command = std::variant<Write, Raise, FencedRead, Reset, Read, Acquire, AcquireMany, Renew,
                             RenewMany, Release, ReleaseMany, GiveBack, Revoke, Inspect,
                             ListWaiters, Await, Watch, Unwatch>;

/// Any command's answer: the `Reply` of the command asked.
using Reply = std::variant<Write::Reply, Token, KeyState, Reset::Reply, Read::Reply, Acquire::Reply,
                           std::chrono::milliseconds, RenewMany::Reply, ReleaseMany::Reply,
                           std::monostate, LeaseState, ListWaiters::Reply, Await::Reply>;

}  // namespace fencekv
