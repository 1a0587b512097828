// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/record_tally.h"

#include <algorithm>
#include <string>

namespace fencekv::rocks {

Result<void> RecordTally::add(std::string_view place, std::string_view bytes) {
  switch (place.empty() ? '\0' : place.front()) {
    case core::kKeyPrefix: {
      const auto record = core::decode_key(place, bytes);
      if (!record) return record.error();
      ++(record->value ? live_keys_ : tombstones_);
      highest_of_keys_ = std::max({highest_of_keys_, record->fence, record->written_by});
      break;
    }
    case core::kLeasePrefix: {
      const auto record = core::decode_lease(place, bytes);
      if (!record) return record.error();
      ++lease_names_;
      expected_grants_ += record->others;
      see(record->newest);
      highest_of_leases_ = std::max({highest_of_leases_, record->ended, record->ended_before});
      highest_boot_ = std::max({highest_boot_, record->blocked.boot, record->ended_since.boot});
      break;
    }
    case core::kGrantPrefix: {
      const auto record = core::decode_grant(place, bytes);
      if (!record) return record.error();
      ++grants_;
      see(*record);
      break;
    }
    default:
      if (auto added = add_small(place, bytes); !added) return added;
  }
  ++records_;
  return {};
}

Result<void> RecordTally::add_small(std::string_view place, std::string_view bytes) {
  if (place == core::kPositionKey) {
    const auto record = core::decode_position(place, bytes);
    if (!record) return record.error();
    position_ = *record;
    return {};
  }
  if (place == core::kAllocatorKey) {
    const auto record = core::decode_allocator(place, bytes);
    if (!record) return record.error();
    allocator_ = *record;
    return {};
  }
  if (place == core::kIdentityKey) {
    const auto record = core::decode_identity(place, bytes);
    if (!record) return record.error();
    identity_ = *record;
    return {};
  }
  return Error(Errc::corrupt, "record " + escaped(place) + ": unknown kind");
}

void RecordTally::see(const core::GrantRecord& grant) {
  highest_of_leases_ = std::max(highest_of_leases_, grant.token);
  highest_boot_ = std::max(highest_boot_, grant.deadline.boot);
  highest_process_ = std::max(highest_process_, grant.origin.process);
}

Result<core::SmallRecords> RecordTally::whole() const {
  if (!identity_ || !allocator_ || !position_) {
    return Error(Errc::corrupt, "some of the records position, allocator, identity are missing");
  }
  const auto differ = [](std::string_view what, std::uint64_t counted, std::uint64_t found) {
    return Error(Errc::corrupt, "the store has counted " + std::to_string(counted) + " " +
                                    std::string(what) + ", but " + std::to_string(found) +
                                    " are there");
  };
  if (position_->live_keys != live_keys_) {
    return differ("keys with a value", position_->live_keys, live_keys_);
  }
  if (position_->tombstones != tombstones_) {
    return differ("keys without a value", position_->tombstones, tombstones_);
  }
  if (position_->lease_names != lease_names_) {
    return differ("lease names", position_->lease_names, lease_names_);
  }
  if (expected_grants_ != grants_) return differ("further grants", expected_grants_, grants_);
  return core::SmallRecords{
      .identity = *identity_, .allocator = *allocator_, .position = *position_};
}

}  // namespace fencekv::rocks
