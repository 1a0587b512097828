// SPDX-License-Identifier: Apache-2.0
#include "fencekv/store.h"

#include "engine/core/committer.h"
#include "engine/core/make_store.h"
#include "engine/core/record.h"
#include "engine/core/rules.h"

#include <algorithm>
#include <utility>

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
  const core::RejectionLog& rejections() const { return rejections_; }

 private:
  const Options options_;
  const std::unique_ptr<core::Backend> backend_;
  core::RejectionLog rejections_;
  core::Committer committer_;  // last: it ends first, and uses all of the above
};

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
  auto keys = read_committed({.keys = {std::string(key)}});
  if (!keys) return std::move(keys).error();
  return std::move(keys->front().value);
}

Result<std::optional<Grant>> Store::acquire(std::string_view name, std::string_view owner,
                                            std::chrono::milliseconds ttl) {
  return execute(Acquire{.name = std::string(name), .owner = std::string(owner), .ttl = ttl});
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

Result<Reply> Store::run(Command command, ClientName client) {
  return core_->committer().run(std::move(command), std::move(client));
}

void Store::enqueue(Command command, std::function<void(Result<Reply>)> done, ClientName client) {
  core_->committer().enqueue(std::move(command), std::move(done), std::move(client));
}

Result<Read::Reply> Store::read_committed(const Read& command) {
  // One key is at one point in time without a snapshot.
  const auto snapshot = command.keys.size() > 1 ? core_->backend().snapshot() : nullptr;
  Read::Reply keys;
  std::size_t size = 0;
  for (const auto& key : command.keys) {
    auto in_limits = core::check_length("key", key, Limits::kNameBytes);
    if (!in_limits) return in_limits.error();

    const auto place = core::key_place(key);
    auto bytes = snapshot ? snapshot->read(place) : core_->backend().read(place);
    if (!bytes) return std::move(bytes).error();
    KeyState state;
    if (*bytes) {
      const auto record = core::decode_key(place, **bytes);
      if (!record) return record.error();
      state = core::describe(&*record);
    }
    if (auto added = core::add_key(keys, std::move(state), size); !added) return added.error();
  }
  return keys;
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
  const auto snapshot = core_->backend().snapshot();
  const auto meta = core_->committer().meta();
  const auto now = core_->committer().moment().since_boot;
  const auto take = [&](std::string_view place,
                        std::string_view bytes) -> Result<std::optional<LeaseState>> {
    const auto record = core::decode_lease(place, bytes);
    if (!record) return record.error();
    auto state =
        core::describe(place.substr(1), &*record, meta.allocator.floor, meta.identity->boots, now);
    if (state.holders.empty()) return std::optional<LeaseState>{};
    return std::optional(std::move(state));
  };
  return list<LeaseState>(*snapshot, core::kLeasePrefix, after, examine, take);
}

std::vector<Rejection> Store::rejections(std::size_t count) const {
  return core_->rejections().newest(count);
}

StoreStats Store::stats() const {
  const auto meta = core_->committer().meta();
  return {.incarnation = core::to_hex(meta.identity->incarnation),
          .newest = meta.allocator.newest,
          .floor = meta.allocator.floor,
          .live_keys = meta.position.live_keys,
          .tombstones = meta.position.tombstones,
          .lease_names = meta.position.lease_names,
          .epoch = meta.position.epoch,
          .groups = meta.position.n};
}

std::optional<std::string> Store::refuses_writes() const {
  return core_->committer().refuses_writes();
}

const Options& Store::options() const {
  return core_->options();
}

namespace core {

Result<std::unique_ptr<Store>> make_store(std::unique_ptr<Backend> backend, Options options) {
  if (!options.clock) options.clock = system_clock();
  auto state = std::make_unique<Store::Core>(std::move(backend), std::move(options));
  if (auto opened = state->committer().open(); !opened) return opened.error();
  return std::make_unique<Store>(std::move(state));
}

}  // namespace core
}  // namespace fencekv
