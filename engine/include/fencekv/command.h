// SPDX-License-Identifier: Apache-2.0
/// What can be asked of a store, one type a command. Each names the type of its answer `Reply`.
/// The rules by which each is accepted are in engine/SEMANTICS.md.

#pragma once

#include "fencekv/types.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
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
  using Reply = std::optional<Grant>;  ///< nullopt: another owner holds it.

  std::string name;
  std::string owner;  ///< Best a new UUID for every acquisition.
  std::chrono::milliseconds ttl{0};
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

/// Closes the newest grant of a name, whoever holds it. For an administrator (LEASE.REVOKE).
struct Revoke {
  using Reply = Token;  ///< The lease fence.

  std::string name;
};

/// Looks at a lease (LEASE.INFO).
struct Inspect {
  using Reply = LeaseState;

  std::string name;
};

using Command =
    std::variant<Write, Raise, FencedRead, Reset, Read, Acquire, Renew, Release, Revoke, Inspect>;

/// Any command's answer: the `Reply` of the command asked.
using Reply = std::variant<Write::Reply, Token, KeyState, Reset::Reply, Read::Reply, Acquire::Reply,
                           std::chrono::milliseconds, std::monostate, LeaseState>;

}  // namespace fencekv
