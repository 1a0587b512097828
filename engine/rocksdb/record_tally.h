// SPDX-License-Identifier: Apache-2.0
/// Looks at all records of a store as they pass by, and knows at the end whether they are a whole.

#pragma once

#include "engine/core/new_history.h"
#include "engine/core/record.h"
#include "fencekv/result.h"
#include "fencekv/types.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace fencekv::rocks {

/// Thread safety: none.
class RecordTally {
 public:
  /// Proves a record by its own checksum, and counts it. Errors: corrupt, the detail names it; then
  /// it is not counted.
  Result<void> add(std::string_view place, std::string_view bytes);

  /// The small records, if what was counted is what they say. Errors: corrupt.
  Result<core::SmallRecords> whole() const;

  std::uint64_t records() const { return records_; }
  std::uint64_t live_keys() const { return live_keys_; }
  std::uint64_t tombstones() const { return tombstones_; }
  std::uint64_t lease_names() const { return lease_names_; }

  /// The small records, as far as they were there.
  const std::optional<core::IdentityRecord>& identity() const { return identity_; }
  const std::optional<core::AllocatorRecord>& allocator() const { return allocator_; }
  const std::optional<core::PositionRecord>& position() const { return position_; }

  /// The highest token of any lease record: this store handed it out.
  Token highest_of_leases() const { return highest_of_leases_; }
  /// The highest token of any key. Tokens of an external allocator may be among them.
  Token highest_of_keys() const { return highest_of_keys_; }
  /// The highest ordinal of a boot that a lease record names.
  std::uint32_t highest_boot() const { return highest_boot_; }
  /// The highest process (an epoch) that one names.
  std::uint64_t highest_process() const { return highest_process_; }

 private:
  void see(const core::GrantRecord& grant);
  Result<void> add_small(std::string_view place, std::string_view bytes);

  std::uint64_t records_ = 0;
  std::uint64_t live_keys_ = 0;
  std::uint64_t tombstones_ = 0;
  std::uint64_t lease_names_ = 0;
  std::uint64_t expected_grants_ = 0;
  std::uint64_t grants_ = 0;
  std::optional<core::IdentityRecord> identity_;
  std::optional<core::AllocatorRecord> allocator_;
  std::optional<core::PositionRecord> position_;
  Token highest_of_leases_;
  Token highest_of_keys_;
  std::uint32_t highest_boot_ = 0;
  std::uint64_t highest_process_ = 0;
};

}  // namespace fencekv::rocks
