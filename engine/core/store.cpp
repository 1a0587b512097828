// SPDX-License-Identifier: Apache-2.0
#include "fencekv/store.h"

#include "engine/core/committer.h"
#include "engine/core/group.h"
#include "engine/core/lease.h"
#include "engine/core/make_store.h"
#include "engine/core/memory_shares.h"
#include "engine/core/read_cache.h"
#include "engine/core/reclaimer.h"
#include "engine/core/record.h"
#include "engine/core/rules.h"
#include "engine/core/scrubber.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv {

class Store::Core {
 public:
  Core(std::unique_ptr<core::Backend> backend, Options options)
      : options_(std::move(options)),
        backend_(std::move(backend)),
        committer_(*backend_, options_, rejections_) {}

  const Options& options() const { return options_; }
  core::Backend& backend() { return *backend_; }
  core::Committer& committer() { return committer_; }

  Result<void> open(core::OwnThread own_thread) {
    if (auto opened = committer_.open(own_thread); !opened) return opened;
    reclaimer_.emplace(committer_, options_);
    scrubber_.emplace(*backend_, options_, own_thread == core::OwnThread::yes);
    if (committer_.places().is_complete()) return {};
    if (own_thread == core::OwnThread::yes) {
      place_scan_ = std::jthread([this](const std::stop_token& stop) { learn_places(stop); });
    } else {
      (void)core::add_all(committer_.places(), *backend_, [](std::size_t) { return true; });
    }
    return {};
  }
  Result<KeyState> read(std::string_view key);
  Result<Read::Reply> read(const std::vector<std::string>& keys);

  Result<Reclaimed> reclaim() { return reclaimer_->reclaim(); }
  core::Scrubber& scrubber() { return *scrubber_; }

  const core::RejectionLog& rejections() const { return rejections_; }

 private:
  template <class Source>
  Result<KeyState> read_from(Source& source, std::string_view key,
                             const core::ReadCache::Look& look);
  void learn_places(const std::stop_token& stop);

  const Options options_;
  const std::unique_ptr<core::Backend> backend_;
  core::RejectionLog rejections_;
  // In this order: what comes later uses what is above it, and ends first.
  core::Committer committer_;
  std::optional<core::Reclaimer> reclaimer_;
  std::optional<core::Scrubber> scrubber_;
  std::jthread place_scan_;
};

/// A key that was not found in the cache. `source` is as the storage is at one moment since the
/// `look`: the storage itself, or a snapshot of it.
template <class Source>
Result<KeyState> Store::Core::read_from(Source& source, std::string_view key,
                                        const core::ReadCache::Look& look) {
  const auto place = core::key_place(key);
  // A record is in the filter since before it was committed, and for good: there is none now, and
  // there was none before, when a snapshot was taken.
  if (!committer_.places().may_hold(place)) return KeyState();
  auto bytes = source.read(place);
  if (!bytes) return std::move(bytes).error();
  if (!*bytes) return KeyState();
  const auto record = core::decode_key(place, **bytes);
  if (!record) return record.error();
  auto state = core::describe(&*record);
  committer_.reads().keep(key, look, state);
  return state;
}

Result<KeyState> Store::Core::read(std::string_view key) {
  auto in_limits = core::check_length("key", key, Limits::kNameBytes);
  if (!in_limits) return std::move(in_limits).error();
  const auto look = committer_.reads().find(key);
  if (look.record) return look.record->state();
  // One key is at one point in time without a snapshot.
  return read_from(*backend_, key, look);
}

Result<Read::Reply> Store::Core::read(const std::vector<std::string>& keys) {
  for (const auto& key : keys) {
    auto in_limits = core::check_length("key", key, Limits::kNameBytes);
    if (!in_limits) return std::move(in_limits).error();
  }
  const auto looks = committer_.reads().find_together(keys);
  const bool has_all = std::all_of(looks.begin(), looks.end(),
                                   [](const auto& look) { return static_cast<bool>(look.record); });
  // What was found was true when it was looked for, and may not go with what is read later.
  const auto snapshot = has_all ? nullptr : backend_->snapshot();
  Read::Reply states;
  states.reserve(keys.size());
  std::size_t size = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    auto state = has_all ? Result<KeyState>(looks[i].record->state())
                         : read_from(*snapshot, keys[i], looks[i]);
    if (!state) return std::move(state).error();
    if (auto added = core::add_key(states, *std::move(state), size); !added) return added.error();
  }
  return states;
}

/// Until it is through, or if it never gets there, the storage is asked for each record.
void Store::Core::learn_places(const std::stop_token& stop) {
  // A store that takes longer to read than that gains less by it than it costs.
  constexpr std::uint64_t kMostBytes = std::uint64_t{4} * 1024 * 1024 * 1024;
  constexpr std::chrono::milliseconds kBreath{100};

  const auto clock = [] { return std::chrono::steady_clock::now(); };
  while (!stop.stop_requested()) {
    std::uint64_t bytes_read = 0;
    auto began = clock();
    // Half of the time is for others.
    const auto learned = core::add_all(committer_.places(), *backend_, [&](std::size_t bytes) {
      bytes_read += bytes;
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(clock() - began, kBreath));
      began = clock();
      return !stop.stop_requested() && bytes_read < kMostBytes;
    });
    // Anew only if it is being reopened: what is damaged stays so.
    if (learned || learned.error().code() != Errc::misconf) return;
    std::this_thread::sleep_for(kBreath);
  }
}

namespace {

Result<std::uint64_t> only_version(Result<Write::Reply> reply) {
  if (!reply) return std::move(reply).error();
  return reply->front();
}

/// The first place of a listing under `prefix` that comes after the name `after`.
std::string start_of(char prefix, const std::optional<std::string>& after) {
  std::string place(1, prefix);
  // No name is empty, so the bare prefix comes before all; and nothing is between a name and the
  // same name with a zero byte behind it.
  if (after) place.append(*after).append(1, '\0');
  return place;
}

/// Walks the records under `prefix`, and shows each to `take` until it has seen `examine`.
template <class Item, class Take>
Result<Page<Item>> list(core::Snapshot& snapshot, char prefix,
                        const std::optional<std::string>& after, std::size_t examine, Take take) {
  Page<Item> page;
  std::optional<Error> failure;
  std::size_t seen = 0;
  std::string last;

  auto scanned =
      snapshot.scan(start_of(prefix, after), [&](std::string_view place, std::string_view bytes) {
        if (place.front() != prefix) return false;
        if (seen == std::max(examine, std::size_t{1})) {
          page.next = last;
          return false;
        }
        ++seen;
        last = place.substr(1);
        auto item = take(place, bytes);
        if (!item) {
          failure = item.error();
          return false;
        }
        if (*item) page.items.push_back(**std::move(item));
        return true;
      });
  if (!scanned) return scanned.error();
  if (failure) return *std::move(failure);
  return page;
}

}  // namespace

Store::Store(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Store::~Store() = default;

Result<std::uint64_t> Store::set(std::string_view key, std::string_view value, Token token,
                                 WriteOptions options) {
  Write::Entry entry{.key = std::string(key), .value = std::string(value)};
  return only_version(execute(make_write({std::move(entry)}, token, std::move(options))));
}

Result<std::uint64_t> Store::remove(std::string_view key, Token token, WriteOptions options) {
  Write::Entry entry{.key = std::string(key), .value = std::nullopt};
  return only_version(execute(make_write({std::move(entry)}, token, std::move(options))));
}

Result<std::optional<std::string>> Store::get(std::string_view key) {
  auto state = core_->read(key);
  if (!state) return std::move(state).error();
  return std::move(state->value);
}

Result<std::optional<Grant>> Store::acquire(std::string_view name, std::string_view owner,
                                            std::chrono::milliseconds ttl, AcquireOptions options,
                                            Caller caller, std::stop_token cancel) {
  return execute(make_acquire(name, owner, ttl, std::move(options)), std::move(caller),
                 std::move(cancel));
}

Result<std::chrono::milliseconds> Store::renew(std::string_view name, std::string_view owner,
                                               Token token, std::chrono::milliseconds ttl) {
  return execute(
      Renew{.name = std::string(name), .owner = std::string(owner), .token = token, .ttl = ttl});
}

Result<void> Store::release(std::string_view name, std::string_view owner, Token token) {
  auto released =
      execute(Release{.name = std::string(name), .owner = std::string(owner), .token = token});
  if (!released) return std::move(released).error();
  return {};
}

Result<Reply> Store::run(Command command, Caller caller, std::stop_token cancel) {
  return core_->committer().run(std::move(command), std::move(caller), std::move(cancel));
}

Ticket Store::enqueue(Command command, std::function<void(Result<Reply>)> done, Caller caller) {
  return core_->committer().enqueue(std::move(command), std::move(done), std::move(caller));
}

void Store::enqueue(std::vector<Submission>& submissions, std::size_t lead_most) {
  core_->committer().enqueue(submissions, lead_most);
}

void Store::cancel(Ticket ticket) {
  core_->committer().cancel(ticket);
}

Session::Session(Store& store, std::function<void(const LeaseEvent&)> on_event)
    : store_(store), id_(store.core_->committer().enter(std::move(on_event))) {}

Session::~Session() {
  store_.core_->committer().leave(id_);
}

Result<Read::Reply> Store::read_committed(const Read& command) {
  if (command.keys.size() != 1) return core_->read(command.keys);
  auto state = core_->read(command.keys.front());
  if (!state) return std::move(state).error();
  Read::Reply states;
  states.push_back(*std::move(state));
  return states;
}

Result<Page<std::string>> Store::list_keys(const std::optional<std::string>& after,
                                           std::size_t examine) {
  const auto take = [](std::string_view place,
                       std::string_view bytes) -> Result<std::optional<std::string>> {
    const auto record = core::decode_key(place, bytes);
    if (!record) return record.error();
    if (!record->value) return std::optional<std::string>{};
    return std::optional(std::string(place.substr(1)));
  };
  const auto snapshot = core_->backend().snapshot();
  return list<std::string>(*snapshot, core::kKeyPrefix, after, examine, take);
}

Result<Page<LeaseState>> Store::list_leases(const std::optional<std::string>& after,
                                            std::size_t examine) {
  examine = std::max(examine, std::size_t{1});
  auto listing = core_->committer().listing(after, examine);
  auto& snapshot = *listing.snapshot;
  auto& queues = listing.queues;
  const auto last_queue =
      queues.size() == examine ? std::optional(queues.rbegin()->first) : std::nullopt;
  const auto at = listing.circumstances();
  const auto take = [&](std::string_view place,
                        std::string_view bytes) -> Result<std::optional<LeaseState>> {
    const std::string name(place.substr(1));
    auto record = core::decode_lease(place, bytes);
    if (!record) return record.error();
    std::vector<core::GrantRecord> others;
    if (record->others > 0) {
      auto grants = core::read_grants(snapshot, name, record->others);
      if (!grants) return grants.error();
      others = *std::move(grants);
    }
    const core::Lease lease(*std::move(record), std::move(others));
    const auto queue = queues.extract(name);
    auto state = core::describe(name, &lease, queue.empty() ? 0 : queue.mapped(), at);
    if (state.holders.empty() && state.waiters == 0) return std::optional<LeaseState>{};
    return std::optional(std::move(state));
  };
  auto page = list<LeaseState>(snapshot, core::kLeasePrefix, after, examine, take);
  if (!page) return page;

  // What is left of the queues is of names that were never granted: they stand beside others that
  // an acquire of several names waits for.
  for (const auto& [name, waiters] : queues) {
    if (page->next && name > *page->next) break;
    page->items.push_back(core::describe(name, nullptr, waiters, at));
  }
  std::sort(page->items.begin(), page->items.end(),
            [](const LeaseState& a, const LeaseState& b) { return a.name < b.name; });
  if (last_queue && (!page->next || *page->next > *last_queue)) {
    // There may be more queues behind it.
    page->next = *last_queue;
    std::erase_if(page->items, [&](const LeaseState& lease) { return lease.name > *page->next; });
  }
  return page;
}

std::vector<Rejection> Store::rejections(std::size_t count) const {
  return core_->rejections().newest(count);
}

StoreStats Store::stats() const {
  auto& committer = core_->committer();
  const auto meta = committer.meta();
  const auto now = committer.moment();
  const auto space = core_->backend().space(now.since_boot);
  const auto scrub = core_->scrubber().last();
  return {.incarnation = core::to_hex(meta.identity->incarnation),
          .newest = meta.allocator.newest,
          .floor = meta.allocator.floor,
          .live_keys = meta.position.live_keys,
          .tombstones = meta.position.tombstones,
          .lease_names = meta.position.lease_names,
          .epoch = meta.position.epoch,
          .groups = meta.position.n,
          .waiting = committer.waiting(),
          .sessions = committer.sessions().size(),
          .space = space.level,
          .free_bytes = space.free,
          .soft_disk_floor = space.soft_floor,
          .hard_disk_floor = space.hard_floor,
          .in_flight = committer.in_flight(),
          .clock_stands_still = now.stands_still,
          .ailment = core_->backend().ailment(),
          .scrubbed = scrub.ended,
          .scrubbed_records = scrub.found.records,
          .scrubbed_bytes = scrub.found.bytes,
          .scrub_problems = scrub.found.problems};
}

std::chrono::milliseconds Store::in_flight() const {
  return core_->committer().in_flight();
}

bool Store::clock_stands_still() const {
  return core_->committer().moment().stands_still;
}

Result<Scrubbed> Store::scrub() {
  return core_->scrubber().scrub();
}

Result<Reclaimed> Store::reclaim() {
  return core_->reclaim();
}

Result<Backup> Store::backup(const std::filesystem::path& target, std::stop_token cancel) {
  const auto interrupt = [&cancel]() -> std::optional<Error> {
    if (!cancel.stop_requested()) return std::nullopt;
    return Error(Errc::unreachable, "the backup was cancelled, and nothing is left of it");
  };
  return core_->backend().backup(target, core_->options().clock->wall(), interrupt);
}

std::optional<std::string> Store::refuses_writes() const {
  return core_->committer().refuses_writes();
}

const Options& Store::options() const {
  return core_->options();
}

namespace core {
namespace {

/// With what was left to the store.
Options completed(Options options) {
  const auto shares = shares_of(options);
  options.fence_cache_bytes = shares.fences + shares.places;
  options.read_cache_bytes = shares.records;
  if (!options.clock) options.clock = system_clock();
  return options;
}

}  // namespace

Result<std::unique_ptr<Store>> make_store(std::unique_ptr<Backend> backend, Options options) {
  auto state = std::make_unique<Store::Core>(std::move(backend), completed(std::move(options)));
  if (auto opened = state->open(OwnThread::yes); !opened) return opened.error();
  return std::make_unique<Store>(std::move(state));
}

Result<DrivenStore> make_driven_store(std::unique_ptr<Backend> backend, Options options) {
  options.reclaim_interval = {};
  auto state = std::make_unique<Store::Core>(std::move(backend), completed(std::move(options)));
  if (auto opened = state->open(OwnThread::no); !opened) return opened.error();
  auto step = [&committer = state->committer()] { return committer.step(); };
  return DrivenStore{.store = std::make_unique<Store>(std::move(state)), .step = std::move(step)};
}

}  // namespace core
}  // namespace fencekv
