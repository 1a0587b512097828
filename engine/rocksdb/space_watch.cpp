// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/space_watch.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace fencekv::rocks {
namespace {

/// A table of fewer bytes is not worth making.
constexpr std::uint64_t kSmallLog = std::uint64_t{64} * 1024;

/// Bytes in RocksDB's logs. What cannot be read counts nothing: the disk has other troubles then.
std::uint64_t bytes_in_logs(FileSystem& files, const std::filesystem::path& database) {
  const auto names = files.list(database);
  if (!names) return 0;
  std::uint64_t bytes = 0;
  for (const auto& name : *names) {
    if (!name.ends_with(".log")) continue;
    if (const auto size = files.size(database / name)) bytes += *size;
  }
  return bytes;
}

/// Whether there is less than `floor`; once so, until there is a quarter of it more.
bool is_below(std::uint64_t room, std::uint64_t floor, bool was_below) {
  return room < (was_below ? floor + floor / 4 : floor);
}

}  // namespace

core::Space SpaceWatch::look(std::chrono::nanoseconds now) {
  const std::unique_lock asking(asking_, std::try_to_lock);
  auto before = SpaceLevel::enough;
  {
    const std::lock_guard lock(mutex_);
    // A clock that was set back asks at once.
    const bool is_fresh =
        asked_ && now >= *asked_ && now - *asked_ < kInterval && unseen_ < found_.good_for;
    if (is_fresh || !asking) return found_.space;
    asked_ = now;
    unseen_ = 0;
    before = found_.space.level;
  }
  const auto found = ask(before);
  {
    const std::lock_guard lock(mutex_);
    found_ = found;
  }
  tell(found.space, before);
  return found.space;
}

core::Space SpaceWatch::last() {
  const std::lock_guard lock(mutex_);
  return found_.space;
}

bool SpaceWatch::should_flush() {
  const std::lock_guard lock(mutex_);
  return std::exchange(found_.may_flush, false);
}

SpaceWatch::Found SpaceWatch::ask(SpaceLevel before) const {
  const auto disk = files_.free_space(database_);
  // Nothing is known, so nothing is refused: the disk itself says no.
  if (!disk) return {};

  Found found;
  auto& space = found.space;
  space.free = disk->free;
  space.soft_floor = choice_.soft.value_or(std::min(kSoftFloor, disk->total / kSoftPart));
  space.hard_floor = choice_.hard.value_or(std::min(kHardFloor, disk->total / kHardPart));
  // Far above the floors the logs need not be counted: they are never this big.
  constexpr std::uint64_t kMostInLogs = std::uint64_t{1024} * 1024 * 1024;
  const auto highest = std::max(space.soft_floor, space.hard_floor);
  const bool is_far = highest == 0 || disk->free > highest + highest / 4 + kMostInLogs;
  const auto log_bytes = is_far ? 0 : bytes_in_logs(files_, database_);
  space.room = disk->free - std::min(disk->free, log_bytes);

  if (is_below(space.room, space.hard_floor, before == SpaceLevel::out)) {
    space.level = SpaceLevel::out;
  } else if (is_below(space.room, space.soft_floor, before != SpaceLevel::enough)) {
    space.level = SpaceLevel::low;
  }
  // What is written takes its room twice, so this goes half the way to the floor at most.
  const auto floor = space.level == SpaceLevel::enough ? space.soft_floor : space.hard_floor;
  const auto above = space.room - std::min(space.room, std::max(floor, space.hard_floor));
  found.good_for = std::clamp(above / 4, kLeastBytes, kMostBytes);
  found.may_flush = space.level != SpaceLevel::enough && log_bytes >= kSmallLog &&
                    log_bytes >= space.soft_floor / 4 && disk->free > log_bytes + kSmallLog;
  return found;
}

void SpaceWatch::tell(const core::Space& space, SpaceLevel before) const {
  if (space.level == before || !log_) return;
  constexpr std::array kConsequences{
      ": all writes are taken again",
      ": keys take no new values; leases and deletions go on",
      ": no writes are taken until there is more",
  };
  log_(space.level == SpaceLevel::enough ? LogLevel::note : LogLevel::error,
       "disk of " + database_.parent_path().string() + ": " + core::describe(space) +
           kConsequences[static_cast<std::size_t>(space.level)]);
}

}  // namespace fencekv::rocks
