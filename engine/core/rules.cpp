// SPDX-License-Identifier: Apache-2.0
#include "engine/core/rules.h"

#include "engine/core/overloaded.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace fencekv::core {
namespace {

/// What a command asks of one key.
struct Ask {
  std::string_view key;
  Token token;
  const std::optional<std::string>& lease;
  bool once = false;
  bool live = false;
  std::optional<std::uint64_t> if_version{};
};

/// The name whose lease decides: the guard, else the lease named, else none.
const std::optional<std::string>& governing(const Ask& ask, const KeyRecord* record) {
  return record != nullptr && record->guard ? record->guard : ask.lease;
}

/// Check 3. Tokens of an external allocator have no floor.
Result<void> check_floor(const State& state, const Policy& policy, const Ask& ask, bool governed) {
  if (!governed && policy.unguarded_tokens == UnguardedTokens::any) return {};
  if (kCompareFences && ask.token < state.floor())
    return Error::fenced(state.floor(), ask.token, "floor");
  return {};
}

/// Check 5: a write that no lease protects.
Result<void> check_ungoverned(const State& state, const Policy& policy, const Ask& ask) {
  if (policy.unguarded_tokens == UnguardedTokens::any) return {};
  if (policy.unguarded_tokens == UnguardedTokens::refuse) {
    return Error(Errc::invalid, "this store takes no write without a lease: name it with LEASE");
  }
  if (ask.token > state.newest()) return Error::unissued(state.newest(), ask.token);
  return {};
}

/// Check 6. Equal is not stale: one holder writes many times under one lease.
Result<void> check_fence(const Ask& ask, const KeyRecord* record) {
  if (!kCompareFences || record == nullptr) return {};
  if (ask.token < record->fence) return Error::fenced(record->fence, ask.token, "stale");
  if (ask.once && ask.token == record->fence) {
    return Error::fenced(record->fence, ask.token, "once");
  }
  return {};
}

/// Check 7. It comes after the fence: a stale holder in a compare-and-set loop must be told to
/// stop, not to retry.
Result<void> check_version(const Ask& ask, const KeyRecord* record) {
  if (!ask.if_version) return {};

  const auto version = record == nullptr ? 0 : record->version;
  const bool has_value = record != nullptr && record->value;
  const bool as_expected = *ask.if_version == 0 ? !has_value : *ask.if_version == version;
  if (!as_expected) return Error::version(version, *ask.if_version);
  return {};
}

/// Checks 3 to 7, in their order.
Result<void> admit(State& state, const Policy& policy, const Ask& ask, const KeyRecord* record,
                   const Moment& moment) {
  const auto& lease = governing(ask, record);
  if (auto floor = check_floor(state, policy, ask, lease.has_value()); !floor) return floor;

  if (lease) {
    if (ask.lease && *ask.lease != *lease) return Error::wrong_lease(*lease);
    auto current = check_lease(state, *lease, ask.token, ask.live, moment);
    if (!current) return current;
  } else {
    if (auto issued = check_ungoverned(state, policy, ask); !issued) return issued;
  }

  if (auto fence = check_fence(ask, record); !fence) return fence;
  return check_version(ask, record);
}

Error refuse(State& state, const Ask& ask, const KeyRecord* record, Error error) {
  state.refused(ask.key, ask.lease ? ask.lease : governing(ask, record), ask.token, error);
  return error;
}

Result<void> check_key_and_lease(std::string_view key, const std::optional<std::string>& lease,
                                 Token token) {
  if (auto ok = check_length("key", key, Limits::kNameBytes); !ok) return ok;
  if (auto ok = check_token(token); !ok) return ok;
  if (lease) return check_length("lease name", *lease, Limits::kNameBytes);
  return {};
}

// --- Write ------------------------------------------------------------------------------------

/// Check 1, as far as it needs no record.
Result<void> check_syntax(const Write& write, const Policy& policy) {
  if (write.entries.empty() || write.entries.size() > Limits::kKeysPerCommand) {
    return Error(Errc::invalid, "a write takes 1 to 1024 keys");
  }
  for (const auto& entry : write.entries) {
    if (auto ok = check_key_and_lease(entry.key, write.lease, write.token); !ok) return ok;
    if (entry.value && entry.value->size() > policy.max_value_bytes) {
      return Error(Errc::too_big, "value of " + std::to_string(entry.value->size()) +
                                      " bytes; max_value_bytes is " +
                                      std::to_string(policy.max_value_bytes));
    }
    if (write.once && !entry.value) return Error(Errc::invalid, "ONCE is not for deletions");
  }
  if (write.request) {
    auto ok = check_length("request id", *write.request, Limits::kOwnerBytes);
    if (!ok) return ok;
  }
  if (write.entries.size() == 1) return {};

  if (write.once || write.if_version) {
    return Error(Errc::invalid, "ONCE and IFVER are for writes of one key");
  }
  std::vector<std::string_view> keys;
  for (const auto& entry : write.entries) keys.push_back(entry.key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) {
    return Error(Errc::invalid, "key " + escaped(*twice) + " is named twice");
  }
  return {};
}

Ask ask_of(const Write& write, const Write::Entry& entry) {
  return {.key = entry.key,
          .token = write.token,
          .lease = write.lease,
          .once = write.once,
          .live = write.live,
          .if_version = write.if_version};
}

/// One a key, in the order of the entries.
using Records = std::span<const KeyRecord* const>;

/// The place of so many. Nearly every write is of one key, and allocates nothing for it.
class RecordList {
 public:
  explicit RecordList(std::size_t size) : many_(size == 1 ? 0 : size) {}

  std::span<const KeyRecord*> all() {
    return many_.empty() ? std::span(&one_, 1) : std::span(many_);
  }

 private:
  const KeyRecord* one_ = nullptr;
  std::vector<const KeyRecord*> many_;
};

Result<RecordList> read_records(State& state, const Write& write) {
  RecordList records(write.entries.size());
  for (std::size_t i = 0; i < write.entries.size(); ++i) {
    const auto record = state.fence(write.entries[i].key);
    if (!record) return record.error();
    records.all()[i] = *record;
  }
  return records;
}

/// The rest of check 1: LIVE where nothing could expire means that the caller believes in a
/// protection that is not there.
Result<void> check_live(const Write& write, Records records) {
  if (!write.live || write.lease) return {};
  const auto is_unguarded = [](const KeyRecord* record) {
    return record == nullptr || !record->guard;
  };
  if (std::any_of(records.begin(), records.end(), is_unguarded)) {
    return Error(Errc::invalid,
                 "LIVE needs a lease: name it with LEASE, or write a key that has a guard");
  }
  return {};
}

/// Check 2: the versions that this very request was answered with; nullopt: it is not a retry.
Result<std::optional<Write::Reply>> find_replay(const Write& write, Records records) {
  if (!write.request) return std::nullopt;

  Write::Reply versions;
  for (const auto* record : records) {
    const bool remembers =
        record != nullptr && record->written_by == write.token && record->request == write.request;
    if (remembers) versions.push_back(record->version);
  }
  if (versions.empty()) return std::nullopt;
  if (versions.size() < records.size()) {
    return Error(Errc::invalid, "request " + escaped(*write.request) +
                                    " ran, and some of its keys were written again since");
  }
  return versions;
}

/// The numbers of the first offending key, then every offending key with its fence.
Error refuse_all(State& state, const Write& write, Records records,
                 const std::vector<std::size_t>& offending, Error first) {
  constexpr std::size_t kListed = 16;

  const auto& entry = write.entries[offending.front()];
  auto error = refuse(state, ask_of(write, entry), records[offending.front()], std::move(first));
  if (write.entries.size() == 1) return error;

  for (std::size_t i = 0; i < offending.size() && i < kListed; ++i) {
    const auto* record = records[offending[i]];
    const auto fence = record == nullptr ? Token{} : record->fence;
    error.append(escaped(write.entries[offending[i]].key) + "=" + std::to_string(fence.number()));
  }
  if (offending.size() > kListed) {
    const auto more = std::to_string(offending.size() - kListed);
    error.append("and " + more + " more");
  }
  return error;
}

/// Check 8.
std::uint64_t accept(State& state, const Write& write, Write::Entry& entry, const KeyRecord* before,
                     const Moment& moment) {
  KeyRecord after;
  after.fence = write.token;
  after.version = (before == nullptr ? 0 : before->version) + 1;
  after.written_by = write.token;
  after.written = moment.wall;
  after.guard = before != nullptr && before->guard ? before->guard : write.lease;
  after.request = write.request;
  after.value = std::move(entry.value);

  return state.put_key(entry.key, std::move(after)).version;
}

Result<Reply> decide_write(State& state, const Policy& policy, Write& write, const Moment& moment) {
  if (auto ok = check_syntax(write, policy); !ok) return ok.error();
  auto read = read_records(state, write);
  if (!read) return read.error();
  const Records records = read->all();
  if (auto ok = check_live(write, records); !ok) return ok.error();

  auto replay = find_replay(write, records);
  if (!replay) return replay.error();
  if (*replay) return Reply(**std::move(replay));

  std::vector<std::size_t> offending;
  std::optional<Error> first;
  for (std::size_t i = 0; i < records.size(); ++i) {
    auto admitted = admit(state, policy, ask_of(write, write.entries[i]), records[i], moment);
    if (admitted) continue;
    // A record that cannot be read is no refusal by the rules, and not for their listing.
    if (admitted.error().code() == Errc::corrupt) return admitted.error();
    offending.push_back(i);
    if (!first) first = admitted.error();
  }
  if (first) return refuse_all(state, write, records, offending, *std::move(first));

  // The keys differ, so a put leaves the other records where they are.
  Write::Reply versions;
  versions.reserve(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    versions.push_back(accept(state, write, write.entries[i], records[i], moment));
  }
  return Reply(std::move(versions));
}

// --- Raise, fenced read, reset, read ----------------------------------------------------------

/// Lifts the fence of `key` to `token`, and returns the record as it is then.
Result<const KeyRecord*> lift(State& state, const Policy& policy, const Ask& ask,
                              const Moment& moment) {
  if (auto ok = check_key_and_lease(ask.key, ask.lease, ask.token); !ok) return ok.error();
  const auto record = state.key(ask.key);
  if (!record) return record.error();

  auto admitted = admit(state, policy, ask, *record, moment);
  if (!admitted) return refuse(state, ask, *record, admitted.error());

  if (*record != nullptr && (*record)->fence >= ask.token) return *record;
  auto lifted = *record == nullptr ? KeyRecord{} : **record;
  lifted.fence = ask.token;
  return &state.put_key(ask.key, std::move(lifted));
}

Result<Reply> decide_raise(State& state, const Policy& policy, const Raise& command,
                           const Moment& moment) {
  const auto record = lift(
      state, policy, {.key = command.key, .token = command.token, .lease = command.lease}, moment);
  if (!record) return record.error();
  return Reply((*record)->fence);
}

Result<Reply> decide_fenced_read(State& state, const Policy& policy, const FencedRead& command,
                                 const Moment& moment) {
  const auto record = lift(
      state, policy, {.key = command.key, .token = command.token, .lease = command.lease}, moment);
  if (!record) return record.error();
  return Reply(describe(*record));
}

Result<Reply> decide_reset(State& state, const Policy& policy, const Reset& command) {
  const std::optional<std::string> no_lease;
  const Ask ask{.key = command.key, .token = command.token, .lease = no_lease};
  if (auto ok = check_key_and_lease(ask.key, no_lease, ask.token); !ok) return ok.error();
  if (command.guard == Reset::Guard::set) {
    auto ok = check_length("guard", command.guard_name, Limits::kNameBytes);
    if (!ok) return ok.error();
  }
  const auto record = state.key(command.key);
  if (!record) return record.error();
  if (policy.unguarded_tokens != UnguardedTokens::any && command.token > state.newest()) {
    return refuse(state, ask, *record, Error::unissued(state.newest(), command.token));
  }

  auto after = *record == nullptr ? KeyRecord{} : **record;
  const Reset::Reply reply{.before = after.fence, .after = command.token};
  after.fence = command.token;
  if (command.guard == Reset::Guard::set) after.guard = command.guard_name;
  if (command.guard == Reset::Guard::clear) after.guard.reset();
  state.put_key(command.key, std::move(after));
  return Reply(reply);
}

Result<Reply> decide_read(State& state, const Read& command) {
  Read::Reply keys;
  std::size_t bytes = 0;
  for (const auto& key : command.keys) {
    if (auto ok = check_length("key", key, Limits::kNameBytes); !ok) return ok.error();
    const auto record = state.key(key);
    if (!record) return record.error();
    if (auto ok = add_key(keys, describe(*record), bytes); !ok) return ok.error();
  }
  return Reply(std::move(keys));
}

}  // namespace

Result<void> check_length(std::string_view what, std::string_view bytes, std::size_t max_bytes) {
  if (bytes.empty()) return Error(Errc::invalid, std::string(what) + " must not be empty");
  if (bytes.size() > max_bytes) {
    return Error(Errc::invalid, std::string(what) + " of " + std::to_string(bytes.size()) +
                                    " bytes; at most " + std::to_string(max_bytes));
  }
  return {};
}

Result<void> check_token(Token token) {
  if (token.is_valid()) return {};
  return Error(Errc::invalid, "invalid token '" + std::to_string(token.number()) +
                                  "', expected a decimal number from 1 to " +
                                  std::to_string(Token::kMax));
}

Result<void> add_key(Read::Reply& keys, KeyState state, std::size_t& bytes) {
  if (state.value) bytes += state.value->size();
  if (!keys.empty() && bytes > Limits::kReadBytes) {
    return Error(Errc::too_big, "the values of these keys have more than " +
                                    std::to_string(Limits::kReadBytes) +
                                    " bytes together: read fewer at once");
  }
  keys.push_back(std::move(state));
  return {};
}

KeyState describe(const KeyRecord* record) {
  if (record == nullptr) return {};
  return {.value = record->value,
          .version = record->version,
          .fence = record->fence,
          .guard = record->guard,
          .request = record->request,
          .written = record->written};
}

bool is_read(const Command& command) {
  return std::visit(Overloaded{
                        [](const Read&) { return true; },
                        [](const Inspect&) { return true; },
                        [](const ListWaiters&) { return true; },
                        [](const Await&) { return true; },
                        [](const Watch&) { return true; },
                        [](const Unwatch&) { return true; },
                        [](const auto&) { return false; },
                    },
                    command);
}

Decision decide(State& state, const Policy& policy, Command& command, const Moment& moment,
                const Asker& asker) {
  return std::visit(
      Overloaded{
          [&](Write& write) -> Decision { return decide_write(state, policy, write, moment); },
          [&](Raise& raise) -> Decision { return decide_raise(state, policy, raise, moment); },
          [&](FencedRead& read) -> Decision {
            return decide_fenced_read(state, policy, read, moment);
          },
          [&](Reset& reset) -> Decision { return decide_reset(state, policy, reset); },
          [&](const Read& read) -> Decision { return decide_read(state, read); },
          [&](Acquire& acquire) { return decide(state, policy, acquire, moment, asker); },
          [&](AcquireMany& acquire) { return decide(state, policy, acquire, moment, asker); },
          [&](Renew& renew) -> Decision { return decide(state, renew, moment); },
          [&](RenewMany& renew) -> Decision { return decide(state, renew, moment); },
          [&](Release& release) -> Decision { return decide(state, release, moment); },
          [&](ReleaseMany& release) -> Decision { return decide(state, release, moment); },
          [&](GiveBack& back) -> Decision { return decide(state, back, moment, asker); },
          [&](Revoke& revoke) -> Decision { return decide(state, revoke, moment); },
          [&](const Inspect& inspect) -> Decision { return decide(state, inspect, moment); },
          [&](const ListWaiters& list) -> Decision { return decide(state, list, moment); },
          [&](const Await& await) { return decide(state, policy, await, moment, asker); },
          [&](const Watch& watch) -> Decision { return decide(state, watch, moment, asker); },
          [&](const Unwatch& unwatch) -> Decision { return decide(state, unwatch, asker); },
      },
      command);
}

}  // namespace fencekv::core
