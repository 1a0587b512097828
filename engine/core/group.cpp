// SPDX-License-Identifier: Apache-2.0
#include "engine/core/group.h"

#include <algorithm>
#include <cassert>
#include <cctype>
#include <iterator>
#include <set>

namespace fencekv::core {

Result<std::vector<GrantRecord>> read_grants(Snapshot& snapshot, std::string_view name,
                                             std::size_t count) {
  std::vector<GrantRecord> grants;
  std::optional<Error> failure;
  const auto prefix = grants_prefix(name);
  const auto scanned = snapshot.scan(prefix, [&](std::string_view place, std::string_view bytes) {
    if (!place.starts_with(prefix)) return false;
    auto grant = decode_grant(place, bytes);
    if (grant) {
      grants.push_back(*std::move(grant));
    } else {
      failure = grant.error();
    }
    return !failure;
  });
  if (!scanned) return scanned.error();
  if (failure) return *std::move(failure);
  if (grants.size() != count) {
    return Error(Errc::corrupt, "the lease " + escaped(name) + " has " +
                                    std::to_string(grants.size()) + " further grants, not " +
                                    std::to_string(count));
  }
  return grants;
}

Group::~Group() {
  for (auto& [name, entry] : leases_) {
    if (entry.record && !entry.changed) memory_.leases.put(name, *std::move(entry.record));
  }
  // Of large values nothing shall stay.
  memory_.batch.puts.clear();
  keys_.clear();
}

Result<const KeyRecord*> Group::key(std::string_view key) {
  return look_up(HashedName(key));
}

Result<const KeyRecord*> Group::fence(std::string_view key) {
  const HashedName name(key);
  auto* known = keys_.find(name);
  if (known == nullptr) {
    auto remembered = memory_.fences.find(name);
    if (!remembered) return look_up(name);
    known = &keys_.add(name);
    known->lacks_value = remembered->value.has_value();
    known->record = std::move(remembered);
  }
  // It may lack its value, and nobody here wants it.
  return known->record ? &*known->record : nullptr;
}

/// With its value, if it has one.
Result<const KeyRecord*> Group::look_up(const HashedName& key) {
  auto* known = keys_.find(key);
  if (known == nullptr || known->lacks_value) {
    auto loaded = load_key(key.name);
    if (!loaded) return loaded.error();
    if (known == nullptr) known = &keys_.add(key);
    known->record = *std::move(loaded);
    known->lacks_value = false;
  }
  return known->record ? &*known->record : nullptr;
}

/// What is committed at `place`.
Result<std::optional<std::string>> Group::read(std::string_view place) {
  if (!memory_.places.may_hold(place)) return std::optional<std::string>{};
  return backend_.read(place);
}

Result<std::optional<KeyRecord>> Group::load_key(std::string_view key) {
  const auto place = key_place(key);
  auto bytes = read(place);
  if (!bytes) return bytes.error();
  if (!*bytes) return std::optional<KeyRecord>{};
  auto record = decode_key(place, **bytes);
  if (!record) return record.error();
  return std::optional(*std::move(record));
}

Result<const Lease*> Group::lease(std::string_view name) {
  auto known = leases_.find(name);
  if (known == leases_.end()) {
    LeaseEntry found;
    found.record = memory_.leases.take(name);
    if (!found.record) {
      const auto place = lease_place(name);
      auto bytes = read(place);
      if (!bytes) return bytes.error();
      if (*bytes) {
        auto record = decode_lease(place, **bytes);
        if (!record) return record.error();
        auto loaded = load_lease(name, *std::move(record));
        if (!loaded) return loaded.error();
        found.record = *std::move(loaded);
      }
    }
    known = leases_.emplace(std::string(name), std::move(found)).first;
  }
  const auto& lease = known->second.record;
  return lease ? &*lease : nullptr;
}

Result<Lease> Group::load_lease(std::string_view name, LeaseRecord record) {
  std::vector<GrantRecord> others;
  if (record.others > 0) {
    // Between two groups: what is committed does not change under this.
    auto read = read_grants(*backend_.snapshot(), name, record.others);
    if (!read) return read.error();
    others = *std::move(read);
  }
  return Lease(std::move(record), std::move(others));
}

const KeyRecord& Group::put_key(std::string_view key, KeyRecord record) {
  // The rules look before they put, so what was there is known.
  auto* const known = keys_.find(HashedName(key));
  assert(known != nullptr);
  auto& entry = *known;

  auto& position = meta_.position;
  if (entry.record) --(entry.record->value ? position.live_keys : position.tombstones);
  ++(record.value ? position.live_keys : position.tombstones);

  changed_ = true;
  entry.changed = true;
  entry.lacks_value = false;
  entry.record = std::move(record);
  return *entry.record;
}

Lease& Group::change_lease(std::string_view name) {
  const auto known = leases_.find(name);
  assert(mode_ == Mode::change && known != leases_.end() && known->second.record);
  changed_ = true;
  known->second.changed = true;
  return *known->second.record;
}

void Group::put_lease(std::string_view name, Lease lease) {
  const auto known = leases_.find(name);
  assert(mode_ == Mode::change && known != leases_.end() && !known->second.record);
  ++meta_.position.lease_names;
  changed_ = true;
  known->second = {.record = std::move(lease), .changed = true};
}

void Group::lift_floor(Token floor) {
  if (floor <= meta_.allocator.floor) return;
  assert(floor <= meta_.allocator.newest);
  meta_.allocator.floor = floor;
  allocator_changed_ = true;
  changed_ = true;
}

void Group::erase_key(std::string_view key) {
  auto* const known = keys_.find(HashedName(key));
  assert(known != nullptr && known->record);
  auto& position = meta_.position;
  --(known->record->value ? position.live_keys : position.tombstones);
  known->record.reset();
  known->changed = true;
  known->lacks_value = false;
  changed_ = true;
}

void Group::erase_lease(std::string_view name) {
  const auto known = leases_.find(name);
  assert(known != leases_.end() && known->second.record);
  assert(known->second.record->others().empty());
  --meta_.position.lease_names;
  // Of further grants that ended in this very group.
  for (const auto token : known->second.record->take_changes()) {
    erased_.push_back(grant_place(name, token));
  }
  known->second = {.record = std::nullopt, .changed = true};
  changed_ = true;
}

Result<Token> Group::draw() {
  const auto last = std::max(meta_.allocator.newest, meta_.skip).number();
  if (last >= Token::kMax) {
    return Error(Errc::invalid, "the token space is used up: no lease can be granted any more");
  }
  const Token token{last + 1};

  if (token > meta_.reserved) {
    const Token until{token.number() + std::min(kReservedTokens - 1, Token::kMax - token.number())};
    if (auto reserved = backend_.reserve(until); !reserved) return reserved.error();
    meta_.reserved = until;
  }

  meta_.allocator.newest = token;
  allocator_changed_ = true;
  changed_ = true;
  return token;
}

void Group::refused(std::string_view key, const std::optional<std::string>& lease, Token offered,
                    const Error& error) {
  constexpr std::array kKept{Errc::fenced,      Errc::unissued, Errc::no_lease,
                             Errc::wrong_lease, Errc::expired,  Errc::version};
  if (std::find(kKept.begin(), kKept.end(), error.code()) == kKept.end()) return;

  auto reason = error.reason();
  if (reason.empty()) {
    for (const char c : to_string(error.code())) reason += static_cast<char>(c | 0x20);
  }
  rejections_.add({.when = wall_,
                   .client = std::string(client_),
                   .key = std::string(key),
                   .lease = lease,
                   .offered = offered,
                   .highest = error.highest(),
                   .reason = std::move(reason)});
}

void Group::lift_floor_over_all() {
  // Above the reservation, since a token that was drawn and lost is not in any record.
  auto& allocator = meta_.allocator;
  allocator.newest = std::max(allocator.newest, meta_.reserved);
  allocator.floor = Token{std::min(allocator.newest.number() + 1, Token::kMax)};
  allocator_changed_ = true;
  changed_ = true;
}

void Group::set_identity(IdentityRecord identity) {
  meta_.identity = std::make_shared<const IdentityRecord>(std::move(identity));
  identity_changed_ = true;
  changed_ = true;
}

void Group::set_allocator(AllocatorRecord allocator) {
  meta_.allocator = allocator;
  allocator_changed_ = true;
  changed_ = true;
}

const Batch& Group::batch(std::uint64_t epoch, std::chrono::nanoseconds clock) {
  auto& batch = memory_.batch;
  batch.puts.clear();
  const auto add = [this, &batch](std::string_view prefix, std::string_view rest,
                                  const auto& record) {
    memory_.places.add(batch.puts.add(prefix, rest, record));
  };

  std::set<std::string> gone(std::make_move_iterator(erased_.begin()),
                             std::make_move_iterator(erased_.end()));
  // In the order of their places: the storage then looks for each from where the one before went.
  std::vector<const KnownKeys::Entry*> changed_keys;
  changed_keys.reserve(keys_.all().size());
  for (const auto& entry : keys_.all()) {
    if (entry->changed) changed_keys.push_back(entry.get());
  }
  std::sort(changed_keys.begin(), changed_keys.end(),
            [](const auto* a, const auto* b) { return a->key < b->key; });
  for (const auto* entry : changed_keys) {
    if (entry->record) {
      add({&kKeyPrefix, 1}, entry->key, *entry->record);
    } else {
      gone.insert(key_place(entry->key));
    }
  }
  std::vector<decltype(leases_)::value_type*> changed_leases;
  for (auto& known : leases_) {
    if (known.second.changed) changed_leases.push_back(&known);
  }
  std::sort(changed_leases.begin(), changed_leases.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
  for (auto* const known : changed_leases) {
    const auto& name = known->first;
    if (!known->second.record) {
      gone.insert(lease_place(name));
      continue;
    }
    auto& lease = *known->second.record;
    add({&kLeasePrefix, 1}, name, lease.record());
    auto tokens = lease.take_changes();
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (const auto token : tokens) {
      const auto* grant = token == lease.fence() ? nullptr : lease.find(token);
      if (grant != nullptr) {
        add(grant_place(name, token), {}, *grant);
      } else {
        gone.insert(grant_place(name, token));
      }
    }
  }
  batch.deletes.assign(gone.begin(), gone.end());
  if (allocator_changed_) add(kAllocatorKey, {}, meta_.allocator);
  if (identity_changed_) add(kIdentityKey, {}, *meta_.identity);

  auto& position = meta_.position;
  position.epoch = epoch;
  ++position.n;
  position.clock = std::max(position.clock, clock);
  add(kPositionKey, {}, position);
  batch.position = position;
  return batch;
}

void Group::committed() {
  for (const auto& entry : keys_.all()) {
    if (entry->lacks_value) continue;  // as it came out of there
    if (entry->record) {
      memory_.fences.put(entry->name(), *entry->record);
    } else if (entry->changed) {
      memory_.fences.forget(entry->name());
    }
  }
  for (auto& [name, entry] : leases_) entry.changed = false;
  for (const auto& gone : unbound_) {
    // It may have come back to the same session in this very group.
    const auto& lease = leases_.find(gone.name)->second.record;
    const auto* grant = lease ? lease->find(gone.token) : nullptr;
    const bool is_bound = grant != nullptr && grant->end == GrantEnd::open && grant->bound &&
                          grant->origin.session == gone.session;
    if (!is_bound) memory_.waiters.unbind(gone.session, gone.name, gone.token);
  }
}

}  // namespace fencekv::core
