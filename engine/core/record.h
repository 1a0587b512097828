// SPDX-License-Identifier: Apache-2.0
/// The records of a store and their bytes: the code twin of engine/FORMAT.md.
///
/// Every record carries a checksum over its own key and bytes. decode functions answer
/// Errc::corrupt for anything that encode did not write; they never guess.

#pragma once

#include "engine/core/boots.h"
#include "fencekv/result.h"
#include "fencekv/types.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::core {

/// The newest format this build reads and the one it writes. Older ones are read for ever; a store
/// is stamped with this one when a writer opens it.
constexpr std::uint32_t kFormat = 2;

/// What is stored under a key. Without a value it is a tombstone (or was only raised).
struct KeyRecord {
  Token fence;
  std::uint64_t version = 0;
  /// The token of the last accepted write. Differs from `fence` after a raise or a reset; a retry
  /// of that write is recognised by it.
  Token written_by;
  std::chrono::milliseconds written{0};
  std::optional<std::string> guard;
  std::optional<std::string> request;
  std::optional<std::string> value;

  friend bool operator==(const KeyRecord&, const KeyRecord&) = default;
};

/// How a grant stands. The numbers are on disk: never reuse one.
enum class GrantEnd : std::uint8_t {
  open = 0,      ///< Not ended, as far as anybody noticed: its time may be over.
  expired = 1,   ///< Its time was over when somebody looked. Not closed: it may still write.
  released = 2,  ///< Closed from here on.
  revoked = 3,
  disconnected = 4,  ///< For bound leases.
};

/// Which session's acquire a grant answered last. A session ends with its process at the latest,
/// and a process is known by the first epoch in which it was the writer.
struct Origin {
  std::uint64_t process = 0;  ///< 0: unknown, of a store written by an older version.
  std::uint64_t session = 0;

  friend bool operator==(const Origin&, const Origin&) = default;
};

/// One grant of a lease name.
struct GrantRecord {
  Token token;
  LeaseMode mode = LeaseMode::exclusive;
  GrantEnd end = GrantEnd::open;
  Deadline deadline;
  std::chrono::milliseconds ttl{0};
  std::chrono::milliseconds delay{0};
  bool bound = false;  ///< It ends with its origin.
  bool again = false;  ///< More than one acquire was answered with it: nobody may give it back.
  Origin origin;
  std::string owner;
  std::string client;
  std::optional<std::string> payload;

  friend bool operator==(const GrantRecord&, const GrantRecord&) = default;
};

/// A lease name. Its further current grants, of a shared lease or of permits, are records of their
/// own, so that a name with many holders does not make each of their renewals long. They are open
/// and have the mode of the newest one; of permits, they are fewer than `permits`.
struct LeaseRecord {
  GrantRecord newest;         ///< Held or ended. Its token is the lease fence.
  std::uint32_t others = 0;   ///< Further grants; each is older, and was held when last looked at.
  std::uint32_t permits = 0;  ///< How many at once; 0 unless the newest grant is a permit.
  /// Nobody new is granted the name before `blocked`; `block` is the whole length of that time,
  /// for a reboot; zero: it is not blocked, and `blocked` is not kept.
  Deadline blocked;
  std::chrono::milliseconds block{0};
  /// The lowest tokens of grants that made room for newer ones: of those that ended since
  /// `ended_since`, and of those that ended before. The floor may not rise above them as long as
  /// their holders may come back.
  Deadline ended_since;
  Token ended;         ///< None: none ended lately; then the other two say nothing.
  Token ended_before;  ///< None: none.

  friend bool operator==(const LeaseRecord&, const LeaseRecord&) = default;
};

/// Where the store's history stands. Moves with every group commit.
struct PositionRecord {
  std::uint64_t epoch = 0;            ///< How often a process became the writer.
  std::uint64_t n = 0;                ///< Groups so far.
  std::chrono::nanoseconds clock{0};  ///< The last reading of since_boot() in the running boot.
  std::uint64_t live_keys = 0;
  std::uint64_t tombstones = 0;
  std::uint64_t lease_names = 0;

  friend bool operator==(const PositionRecord&, const PositionRecord&) = default;
};

/// The token allocator.
struct AllocatorRecord {
  Token newest;  ///< The newest token handed out.
  Token floor;   ///< A token below it is refused on every key.

  friend bool operator==(const AllocatorRecord&, const AllocatorRecord&) = default;
};

using Incarnation = std::array<std::uint8_t, 16>;

struct IdentityRecord {
  Incarnation incarnation{};
  Boots boots;

  friend bool operator==(const IdentityRecord&, const IdentityRecord&) = default;
};

// Where each record stands in the ordered byte map of the backend. The first byte is its kind.
constexpr char kKeyPrefix = 'k';
constexpr char kLeasePrefix = 'l';
constexpr char kGrantPrefix = 'g';
constexpr char kMetaPrefix = 'm';
constexpr std::string_view kPositionKey = "mposition";
constexpr std::string_view kAllocatorKey = "mallocator";
constexpr std::string_view kIdentityKey = "midentity";

std::string key_place(std::string_view key);
std::string lease_place(std::string_view name);
/// Where all further grants of `name` are: their places begin with it, and no others do.
std::string grants_prefix(std::string_view name);
/// They stand in the order of their tokens.
std::string grant_place(std::string_view name, Token token);

struct GrantPlace {
  std::string_view name;  ///< Part of the place that was parsed.
  Token token;
};
/// nullopt: it is no place of a further grant.
std::optional<GrantPlace> parse_grant_place(std::string_view place);

// encode() appends the bytes of a record to `to`. `place` is where the record stands, and no part
// of `to`: the checksum covers it, so that a record that turns up at another place is noticed. The
// record must be one that can be (see LeaseRecord): asserted.
void encode(std::string_view place, const KeyRecord& record, std::string& to);
void encode(std::string_view place, const LeaseRecord& record, std::string& to);
void encode(std::string_view place, const GrantRecord& record, std::string& to);
void encode(std::string_view place, const PositionRecord& record, std::string& to);
void encode(std::string_view place, const AllocatorRecord& record, std::string& to);
void encode(std::string_view place, const IdentityRecord& record, std::string& to);

/// The bytes of one record.
template <class Record>
std::string encode(std::string_view place, const Record& record) {
  std::string bytes;
  encode(place, record, bytes);
  return bytes;
}

Result<KeyRecord> decode_key(std::string_view place, std::string_view bytes);
Result<LeaseRecord> decode_lease(std::string_view place, std::string_view bytes);
Result<GrantRecord> decode_grant(std::string_view place, std::string_view bytes);
Result<PositionRecord> decode_position(std::string_view place, std::string_view bytes);
Result<AllocatorRecord> decode_allocator(std::string_view place, std::string_view bytes);
Result<IdentityRecord> decode_identity(std::string_view place, std::string_view bytes);

std::string to_hex(const Incarnation& incarnation);

}  // namespace fencekv::core
