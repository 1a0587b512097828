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

/// The newest format this build reads and the one it writes.
constexpr std::uint32_t kFormat = 1;

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

/// How the newest grant of a lease stands. The numbers are on disk: never reuse one.
enum class GrantEnd : std::uint8_t {
  open = 0,      ///< Not ended, as far as anybody noticed: its time may be over.
  expired = 1,   ///< Its time was over when somebody looked. Not closed: it may still write.
  released = 2,  ///< Closed from here on.
  revoked = 3,
  disconnected = 4,  ///< For bound leases.
};

/// The newest grant of a lease name.
struct LeaseRecord {
  Token fence;  ///< Its token.
  LeaseMode mode = LeaseMode::exclusive;
  GrantEnd end = GrantEnd::open;
  Deadline deadline;
  std::chrono::milliseconds ttl{0};
  std::string owner;
  std::string client;

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
constexpr char kMetaPrefix = 'm';
constexpr std::string_view kPositionKey = "mposition";
constexpr std::string_view kAllocatorKey = "mallocator";
constexpr std::string_view kIdentityKey = "midentity";

std::string key_place(std::string_view key);
std::string lease_place(std::string_view name);

// `place` is where the record stands: the checksum covers it, so that a record that turns up at
// another place is noticed.
std::string encode(std::string_view place, const KeyRecord& record);
std::string encode(std::string_view place, const LeaseRecord& record);
std::string encode(std::string_view place, const PositionRecord& record);
std::string encode(std::string_view place, const AllocatorRecord& record);
std::string encode(std::string_view place, const IdentityRecord& record);

Result<KeyRecord> decode_key(std::string_view place, std::string_view bytes);
Result<LeaseRecord> decode_lease(std::string_view place, std::string_view bytes);
Result<PositionRecord> decode_position(std::string_view place, std::string_view bytes);
Result<AllocatorRecord> decode_allocator(std::string_view place, std::string_view bytes);
Result<IdentityRecord> decode_identity(std::string_view place, std::string_view bytes);

std::string to_hex(const Incarnation& incarnation);

}  // namespace fencekv::core
