// SPDX-License-Identifier: Apache-2.0
#include "engine/core/group.h"

#include <algorithm>
#include <cassert>
#include <cctype>

namespace fencekv::core {

template <class Record>
Result<Group::Entry<Record>*> Group::entry(Entries<Record>& entries, char prefix,
                                           std::string_view name, Decode<Record> decode) {
  if (const auto known = entries.find(name); known != entries.end()) return &known->second;

  std::string place;
  place.reserve(1 + name.size());
  place.append(1, prefix).append(name);
  auto bytes = backend_.read(place);
  if (!bytes) return bytes.error();

  Entry<Record> found;
  if (*bytes) {
    auto record = decode(place, **bytes);
    if (!record) return record.error();
    found.record = *std::move(record);
  }
  return &entries.emplace(std::string(name), std::move(found)).first->second;
}

Result<const KeyRecord*> Group::key(std::string_view key) {
  const auto found = entry(keys_, kKeyPrefix, key, decode_key);
  if (!found) return found.error();
  return (*found)->record ? &*(*found)->record : nullptr;
}

Result<const LeaseRecord*> Group::lease(std::string_view name) {
  const auto found = entry(leases_, kLeasePrefix, name, decode_lease);
  if (!found) return found.error();
  return (*found)->record ? &*(*found)->record : nullptr;
}

const KeyRecord& Group::put_key(std::string_view key, KeyRecord record) {
  // The rules look before they put, so what was there is known.
  const auto known = keys_.find(key);
  assert(known != keys_.end());
  auto& entry = known->second;

  auto& position = meta_.position;
  if (entry.record) --(entry.record->value ? position.live_keys : position.tombstones);
  ++(record.value ? position.live_keys : position.tombstones);

  changed_ = true;
  entry = {.record = std::move(record), .changed = true};
  return *entry.record;
}

const LeaseRecord& Group::put_lease(std::string_view name, LeaseRecord record) {
  const auto known = leases_.find(name);
  assert(known != leases_.end());
  auto& entry = known->second;

  if (!entry.record) ++meta_.position.lease_names;
  changed_ = true;
  entry = {.record = std::move(record), .changed = true};
  return *entry.record;
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

void Group::lift_floor() {
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

Batch Group::batch(std::uint64_t epoch, std::chrono::nanoseconds clock) {
  Batch batch;
  const auto add = [&batch](std::string place, const auto& record) {
    auto bytes = encode(place, record);
    batch.puts.push_back({.place = std::move(place), .bytes = std::move(bytes)});
  };

  for (const auto& [key, entry] : keys_) {
    if (entry.changed) add(key_place(key), *entry.record);
  }
  for (const auto& [name, entry] : leases_) {
    if (entry.changed) add(lease_place(name), *entry.record);
  }
  if (allocator_changed_) add(std::string(kAllocatorKey), meta_.allocator);
  if (identity_changed_) add(std::string(kIdentityKey), *meta_.identity);

  auto& position = meta_.position;
  position.epoch = epoch;
  ++position.n;
  position.clock = std::max(position.clock, clock);
  add(std::string(kPositionKey), position);
  batch.position = position;
  return batch;
}

}  // namespace fencekv::core
