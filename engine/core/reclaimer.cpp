// SPDX-License-Identifier: Apache-2.0
#include "engine/core/reclaimer.h"

#include "engine/core/group.h"
#include "engine/core/lease.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace fencekv::core {
namespace {

// Records looked at in one go, and taken away in one group: nobody is held up by more than this.
constexpr std::size_t kPage = 256;
// The own thread rests after each page, so that it takes a small part of one core.
constexpr std::chrono::milliseconds kPause{2};

}  // namespace

Reclaimer::Reclaimer(Committer& committer, const Options& options)
    : committer_(committer), options_(options) {
  if (options.unguarded_tokens == UnguardedTokens::any) return;
  if (options.reclaim_interval.count() > 0) thread_ = std::thread([this] { work(); });
}

Reclaimer::~Reclaimer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<Reclaimed> Reclaimer::reclaim() {
  return reclaim(Pace::fast);
}

Result<Reclaimed> Reclaimer::reclaim(Pace pace) {
  if (options_.unguarded_tokens == UnguardedTokens::any) {
    return Error(Errc::invalid,
                 "with tokens of an external allocator every tombstone is needed: nothing tells "
                 "which of their holders may come back");
  }
  const std::lock_guard lock(one_at_a_time_);
  const auto floor = lowest_needed(pace);
  if (!floor) return floor.error();
  if (auto lifted = committer_.lift_floor(*floor); !lifted) return lifted.error();

  Reclaimed sum;
  if (auto taken = take_away(sum, pace); !taken) return taken.error();
  return sum;
}

/// Shows the records under `prefix` to `look`, a page at a time, and calls `rest` after each page,
/// when nothing of the storage is held. Every page is of its own moment.
template <class Look, class Rest>
Result<void> Reclaimer::each_page(char prefix, Look look, Rest rest) {
  std::string from(1, prefix);
  for (bool is_done = false; !is_done;) {
    Result<void> looked;
    {
      const auto listing = committer_.listing(std::nullopt, 0);
      std::size_t seen = 0;
      is_done = true;
      const auto scanned =
          listing.snapshot->scan(from, [&](std::string_view place, std::string_view bytes) {
            if (place.front() != prefix) return false;
            if (seen++ == kPage) {
              from = place;
              is_done = false;
              return false;
            }
            looked = look(listing, place, bytes);
            return looked.has_value();
          });
      if (!scanned) return scanned;
    }
    if (!looked) return looked;
    if (auto rested = rest(); !rested) return rested;
  }
  return {};
}

/// The lowest token that may still have to be told from others. Of a name that changes meanwhile,
/// what it holds later is above the newest token of the beginning, and what it held ended lately.
Result<Token> Reclaimer::lowest_needed(Pace pace) {
  auto lowest = committer_.meta().allocator.newest;
  const auto need = [&lowest](Token token) {
    if (!token.is_none()) lowest = std::min(lowest, token);
  };

  const auto look = [&](const Committer::Listing& listing, std::string_view place,
                        std::string_view bytes) -> Result<void> {
    const auto& boots = listing.meta.identity->boots;
    const auto at = listing.circumstances();
    const auto need_grant = [&](const GrantRecord& grant) {
      const bool is_recent = at.now - end_of_time(grant, boots) < options_.fence_retention;
      if (is_recent || standing(grant, at) == GrantEnd::open) need(grant.token);
    };
    auto record = decode_lease(place, bytes);
    if (!record) return record.error();
    if (record->newest.token < at.floor) return {};
    if (record->others > 0) {
      const auto grants = read_grants(*listing.snapshot, place.substr(1), record->others);
      if (!grants) return grants.error();
      std::for_each(grants->begin(), grants->end(), need_grant);
    }
    need_grant(record->newest);
    need(Lease(*std::move(record), {}).lowest_ended(boots, at.now, options_.fence_retention));
    return {};
  };
  const auto looked = each_page(kLeasePrefix, look, [&] { return rest(pace); });
  if (!looked) return looked.error();
  return lowest;
}

Result<void> Reclaimer::take_away(Reclaimed& sum, Pace pace) {
  const auto floor = committer_.meta().allocator.floor;
  sum.floor = floor;
  std::vector<std::string> keys;
  std::vector<std::string> names;

  const auto take = [&]() -> Result<void> {
    if (!keys.empty() || !names.empty()) {
      const auto some = committer_.reclaim(std::exchange(keys, {}), std::exchange(names, {}));
      if (!some) return some.error();
      sum.tombstones += some->tombstones;
      sum.lease_names += some->lease_names;
    }
    return rest(pace);
  };
  // What cannot be read stays.
  const auto look_at_key = [&](const auto&, std::string_view place,
                               std::string_view bytes) -> Result<void> {
    const auto record = decode_key(place, bytes);
    if (record && !record->value && record->fence < floor) keys.emplace_back(place.substr(1));
    return {};
  };
  const auto look_at_lease = [&](const auto&, std::string_view place,
                                 std::string_view bytes) -> Result<void> {
    const auto record = decode_lease(place, bytes);
    if (record && record->newest.token < floor) names.emplace_back(place.substr(1));
    return {};
  };
  if (auto taken = each_page(kKeyPrefix, look_at_key, take); !taken) return taken;
  return each_page(kLeasePrefix, look_at_lease, take);
}

Result<void> Reclaimer::rest(Pace pace) {
  std::unique_lock lock(mutex_);
  const auto is_stopping = [this] { return stopping_; };
  const bool stops = pace == Pace::slow ? stop_.wait_for(lock, kPause, is_stopping) : stopping_;
  if (stops) return Error(Errc::unreachable, "the store is being closed");
  return {};
}

void Reclaimer::work() {
  const auto log = [this](LogLevel level, const std::string& line) {
    if (options_.log) options_.log(level, line);
  };
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, options_.reclaim_interval, [this] { return stopping_; })) {
    lock.unlock();
    const auto reclaimed = reclaim(Pace::slow);
    if (!reclaimed && reclaimed.error().code() != Errc::unreachable) {
      log(LogLevel::warning, "nothing was reclaimed: " + reclaimed.error().line());
    } else if (reclaimed && reclaimed->tombstones + reclaimed->lease_names > 0) {
      log(LogLevel::note, "reclaimed " + std::to_string(reclaimed->tombstones) +
                              " tombstones and " + std::to_string(reclaimed->lease_names) +
                              " lease names below the floor " +
                              std::to_string(reclaimed->floor.number()));
    }
    lock.lock();
  }
}

}  // namespace fencekv::core
