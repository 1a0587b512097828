// SPDX-License-Identifier: Apache-2.0
/// The words of fencekv as types: tokens, limits, and what the store knows about a key or a lease.

#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv {

/// A fencing token: 1 to 2^63-1, bigger means newer. The default value is "none yet" and is
/// written as 0; it is smaller than every token, and no command accepts it as one.
class Token {
 public:
  static constexpr std::uint64_t kMax = (std::uint64_t{1} << 63) - 1;

  constexpr Token() = default;
  constexpr explicit Token(std::uint64_t number) : number_(number) {}

  constexpr std::uint64_t number() const { return number_; }
  constexpr bool is_none() const { return number_ == 0; }
  constexpr bool is_valid() const { return number_ >= 1 && number_ <= kMax; }

  friend constexpr auto operator<=>(Token, Token) = default;

 private:
  std::uint64_t number_ = 0;
};

/// Reads a plain decimal of at most `max`: digits only, no sign, no blank, no leading zero.
/// Everything else (`+5`, ` 5`, `5.0`, `1e3`, `0x10`, `007`, the empty string) gives nullopt.
std::optional<std::uint64_t> parse_decimal(std::string_view text, std::uint64_t max = UINT64_MAX);

/// What an input may measure. A longer one is an error; nothing is ever cut silently.
struct Limits {
  static constexpr std::size_t kNameBytes = 1024;  ///< Key, lease name: 1 to this many bytes.
  static constexpr std::size_t kOwnerBytes = 256;  ///< Owner, request id: 1 to this many bytes.
  static constexpr std::size_t kKeysPerCommand = 1024;  ///< Keys of one multi-key command.
  /// Values that one read of several keys may return together, in bytes.
  static constexpr std::size_t kReadBytes = std::size_t{64} * 1024 * 1024;
  static constexpr std::chrono::milliseconds kMaxTtl = std::chrono::hours{24 * 7};
  static constexpr std::chrono::milliseconds kMaxDelay = std::chrono::hours{24 * 7};
  static constexpr std::chrono::milliseconds kMaxWait = std::chrono::hours{24};
  static constexpr std::size_t kPayloadBytes = 1024;
  static constexpr std::uint64_t kMaxPermits = 1'000'000;
  /// Acquires that wait for one name, and, counted apart, waits for a change of it.
  static constexpr std::size_t kWaitersPerName = 10'000;
  /// Lease names that one session watches.
  static constexpr std::size_t kWatchesPerSession = 10'000;
};

/// Everything the store knows about one key, at one point in time.
struct KeyState {
  std::optional<std::string> value;      ///< nullopt: never written, or deleted.
  std::uint64_t version = 0;             ///< Accepted writes so far, deletions included.
  Token fence;                           ///< The highest token ever accepted; none: no record.
  std::optional<std::string> guard;      ///< The lease name the key is bound to.
  std::optional<std::string> request;    ///< The REQ id of the last accepted write.
  std::chrono::milliseconds written{0};  ///< Wall clock of the last accepted write since 1970;
                                         ///< zero: never. For people; nothing is decided by it.

  friend bool operator==(const KeyState&, const KeyState&) = default;
};

/// How several holders of one lease name exclude each other.
enum class LeaseMode : std::uint8_t {
  exclusive = 1,  ///< One holder, who may write.
  shared = 2,     ///< Any number, who may only read; they keep an exclusive holder out.
  permit = 3,     ///< Up to n at once. Neither may they write under the lease.
};

std::string_view to_string(LeaseMode mode);

/// One current holder of a lease, as listings show it.
struct LeaseHolder {
  std::string owner;  ///< Fingerprint: first 8 hex digits of SHA-256(owner).
                      ///< The owner itself is a secret and shown to nobody.
  Token token;
  LeaseMode mode = LeaseMode::exclusive;
  std::chrono::milliseconds remaining{0};  ///< In (0, ttl], rounded up.
  std::string client;                      ///< Where the acquire came from.
  bool bound = false;                      ///< Ends with its session, too.

  friend bool operator==(const LeaseHolder&, const LeaseHolder&) = default;
};

/// Everything the store knows about one lease name, at one point in time.
struct LeaseState {
  std::string name;
  Token fence;                       ///< The token of the newest grant; none: never held.
  std::vector<LeaseHolder> holders;  ///< Empty: free. An expired grant is not held. In the order of
                                     ///< their tokens.
  std::uint64_t waiters = 0;         ///< Acquires that wait for it.
  /// How long nobody new can be granted it, whoever asks: the DELAY of a grant that ended without
  /// a release.
  std::chrono::milliseconds blocked{0};
  std::optional<std::string> payload;  ///< The label that the newest holder gave.

  /// nullopt: free.
  std::optional<LeaseMode> mode() const {
    return holders.empty() ? std::nullopt : std::optional(holders.back().mode);
  }

  friend bool operator==(const LeaseState&, const LeaseState&) = default;
};

/// One acquire that waits, as listings show it.
struct LeaseWaiter {
  std::string owner;  ///< Fingerprint, as in LeaseHolder.
  LeaseMode mode = LeaseMode::exclusive;
  std::chrono::milliseconds waited{0};
  std::chrono::milliseconds remaining{0};  ///< Until it gives up. In (0, wait], rounded up.
  std::string client;

  friend bool operator==(const LeaseWaiter&, const LeaseWaiter&) = default;
};

/// What happened to a grant.
enum class LeaseChange : std::uint8_t {
  granted,
  released,
  expired,
  revoked,
  disconnected,  ///< Its session ended.
  missed,        ///< Changes that are not told one by one. Look at the lease.
};

std::string_view to_string(LeaseChange change);

struct LeaseEvent {
  LeaseChange change = LeaseChange::missed;
  std::string name;
  Token token;  ///< Of that grant; with `missed`, of the newest one.

  friend bool operator==(const LeaseEvent&, const LeaseEvent&) = default;
};

/// A lease that was granted, or re-acquired by the owner that holds it.
struct Grant {
  Token token;
  std::chrono::milliseconds remaining{0};

  friend bool operator==(const Grant&, const Grant&) = default;
};

/// One refused write, kept for the person who asks why.
struct Rejection {
  std::chrono::milliseconds when{0};  ///< Wall clock since 1970.
  std::string client;
  std::string key;
  std::optional<std::string> lease;  ///< The lease named, else the key's guard.
  Token offered;
  Token highest;       ///< What the offered token was compared with.
  std::string reason;  ///< `stale`, `superseded` …, or the code in lower case.
};

/// What was taken away because it is of no use any more.
struct Reclaimed {
  std::uint64_t tombstones = 0;   ///< Keys without a value.
  std::uint64_t lease_names = 0;  ///< Names that nobody held for long.
  Token floor;                    ///< It was all below this.

  friend bool operator==(const Reclaimed&, const Reclaimed&) = default;
};

/// How much space is left on the disk of a store.
enum class SpaceLevel : std::uint8_t {
  enough,
  low,  ///< Below Options::soft_disk_floor: what makes keys grow is refused.
  out,  ///< Below Options::hard_disk_floor: every write is refused.
};

std::string_view to_string(SpaceLevel level);

/// What a look at everything that is stored has found.
struct Scrubbed {
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;     ///< Of records, and of the files below them.
  std::uint64_t problems = 0;  ///< Records and files that are damaged.
  /// The first 100 of them, one sentence each, which names the key or the file.
  std::vector<std::string> findings;
};

/// Numbers about a store, at one point in time. All of them cost next to nothing to ask for.
struct StoreStats {
  std::string incarnation;        ///< 32 hex digits; changes when history may have been lost.
  Token newest;                   ///< The newest token this store's allocator handed out.
  Token floor;                    ///< A token below it is refused on every key.
  std::uint64_t live_keys = 0;    ///< Keys with a value.
  std::uint64_t tombstones = 0;   ///< Keys without a value whose fence is kept.
  std::uint64_t lease_names = 0;  ///< Lease names that were ever granted.
  std::uint64_t epoch = 0;        ///< How often a process became this store's writer.
  std::uint64_t groups = 0;       ///< Group commits so far; never goes back.
  std::uint64_t waiting = 0;      ///< Commands that wait for a lease now.
  std::uint64_t sessions = 0;     ///< Sessions that are open now.

  // The storage.

  SpaceLevel space = SpaceLevel::enough;
  std::uint64_t free_bytes = 0;       ///< On the disk; 0 in memory.
  std::uint64_t soft_disk_floor = 0;  ///< As it counts for this disk; 0: none.
  std::uint64_t hard_disk_floor = 0;
  /// As Store::in_flight().
  std::chrono::milliseconds in_flight{0};
  /// As Store::clock_stands_still().
  bool clock_stands_still = false;
  /// Damage that the storage keeps clear of, in words; nullopt: none is known.
  std::optional<std::string> ailment;

  // The last complete scrub (Store::scrub()) of this process.

  std::chrono::milliseconds scrubbed{0};  ///< When it ended, wall clock since 1970; zero: none yet.
  std::uint64_t scrubbed_records = 0;
  std::uint64_t scrubbed_bytes = 0;
  std::uint64_t scrub_problems = 0;  ///< Found in it.
};

}  // namespace fencekv
