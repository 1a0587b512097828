// SPDX-License-Identifier: Apache-2.0
/// The cursors of SCAN and LEASE.SCAN.

#pragma once

#include "fencekv/result.h"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::server {

/// What a cursor walks through. One of keys is none of leases.
enum class Listing : std::uint8_t { keys, leases };

/// Gives positions (names of up to 1 KiB) the numbers that every Redis client expects of a cursor.
///
/// A cursor stays good when it is used, so that a client may ask again after a lost reply. The
/// newest kCapacity of the server are kept; an older one is answered with an error, never with a
/// wrong position: numbers only grow, by random steps, and are not handed out twice.
///
/// Thread safety: all members may be called concurrently.
class CursorTable {
 public:
  static constexpr std::size_t kCapacity = 16384;

  CursorTable();

  /// A new cursor for `position`; below 2^53, since JavaScript reads it as a number.
  std::uint64_t remember(Listing listing, std::string position);

  /// The position of the cursor as the client wrote it; nullopt for `0`, the beginning.
  /// Errors: invalid, not a cursor of this server, or of this listing, or too old.
  Result<std::optional<std::string>> position(Listing listing, std::string_view cursor);

 private:
  struct Entry {
    std::uint64_t id = 0;  // 0: unused
    Listing listing = Listing::keys;
    std::string position;
  };

  std::mutex mutex_;
  std::minstd_rand random_;                                        // guarded by mutex_
  std::uint64_t newest_;                                           // guarded by mutex_
  std::vector<Entry> ring_;                                        // guarded by mutex_
  std::size_t next_slot_ = 0;                                      // guarded by mutex_
  boost::unordered_flat_map<std::uint64_t, std::size_t> slot_of_;  // guarded by mutex_
};

}  // namespace fencekv::server
