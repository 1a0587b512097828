// SPDX-License-Identifier: Apache-2.0

#include "server/commands/cursor_table.h"

#include <utility>

namespace fencekv::server {
namespace {

// Numbers stay below 2^53 for the first 2^36 cursors: 19 hours at a million a second.
constexpr std::uint64_t kMaxStep = std::uint64_t{1} << 18;

}  // namespace

// The beginning differs from start to start, so that a cursor of the previous process is unknown
// to this one and does not mean another place.
CursorTable::CursorTable()
    : random_(std::random_device{}()), newest_(std::random_device{}()), ring_(kCapacity) {
  slot_of_.reserve(kCapacity);
}

std::uint64_t CursorTable::remember(Listing listing, std::string position) {
  const std::lock_guard lock(mutex_);
  newest_ += 1 + random_() % kMaxStep;
  Entry& entry = ring_[next_slot_];
  if (entry.id != 0) slot_of_.erase(entry.id);
  entry = Entry{newest_, listing, std::move(position)};
  slot_of_[newest_] = next_slot_;
  next_slot_ = (next_slot_ + 1) % ring_.size();
  return newest_;
}

Result<std::optional<std::string>> CursorTable::position(Listing listing, std::string_view cursor) {
  if (cursor == "0") return std::optional<std::string>();
  if (const auto id = parse_decimal(cursor)) {
    const std::lock_guard lock(mutex_);
    const auto slot = slot_of_.find(*id);
    if (slot != slot_of_.end() && ring_[slot->second].listing == listing) {
      return std::optional<std::string>(ring_[slot->second].position);
    }
  }
  return Error(Errc::invalid, "invalid cursor '" + escaped(cursor) +
                                  "', expected one of this server's newest; start again with 0");
}

}  // namespace fencekv::server
