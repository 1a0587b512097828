// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/lease_wire.h"

#include <array>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace fencekv::testing {
namespace {

using resp::Value;
using std::chrono::milliseconds;
using Words = std::vector<std::string>;

/// What a reply must not look like. Ends the test, for nothing after it makes sense.
[[noreturn]] void unexpected(const std::string& what) {
  throw std::runtime_error("unexpected reply: " + what);
}

std::string number(std::uint64_t n) {
  return std::to_string(n);
}
std::string number(milliseconds ms) {
  return std::to_string(ms.count());
}
std::string number(Token token) {
  return std::to_string(token.number());
}

std::int64_t integer_of(const Value& value) {
  if (value.kind != Value::Kind::integer) unexpected("no integer");
  return value.integer;
}
const std::string& text_of(const Value& value) {
  if (value.kind != Value::Kind::bulk) unexpected("no bulk string");
  return value.text;
}
Token token_of(const Value& value) {
  const auto decimal = parse_decimal(text_of(value), Token::kMax);
  if (!decimal) unexpected("no token: " + value.text);
  return Token{*decimal};
}
const Value& part_of(const Value& map, std::string_view key) {
  if (map.kind != Value::Kind::map) unexpected("no map");
  const auto* value = map.at(key);
  if (value == nullptr) unexpected("no " + std::string(key));
  return *value;
}
const std::vector<Value>& parts_of(const Value& value) {
  if (value.kind != Value::Kind::array) unexpected("no array");
  return value.parts;
}

template <class Enum>
Enum word_of(const Value& value, std::initializer_list<Enum> all) {
  for (const auto one : all) {
    if (to_string(one) == text_of(value)) return one;
  }
  unexpected("the word " + value.text);
}
LeaseMode mode_of(const Value& value) {
  return word_of(value, {LeaseMode::exclusive, LeaseMode::shared, LeaseMode::permit});
}
LeaseChange change_of(const Value& value) {
  return word_of(value, {LeaseChange::granted, LeaseChange::released, LeaseChange::expired,
                         LeaseChange::revoked, LeaseChange::disconnected, LeaseChange::missed});
}

Result<Reply> grant_of(const Value& value) {
  if (value.is_null()) return Reply(Acquire::Reply{});
  const auto& parts = parts_of(value);
  if (parts.size() != 2) unexpected("a grant of another length");
  return Reply(Acquire::Reply{
      Grant{.token = token_of(parts[0]), .remaining = milliseconds(integer_of(parts[1]))}});
}

LeaseState state_of(const Value& map) {
  LeaseState state;
  state.name = text_of(part_of(map, "name"));
  const auto& fence = text_of(part_of(map, "fence"));
  state.fence = fence == "0" ? Token{} : token_of(part_of(map, "fence"));
  for (const auto& holder : parts_of(part_of(map, "holders"))) {
    state.holders.push_back({.owner = text_of(part_of(holder, "owner")),
                             .token = token_of(part_of(holder, "token")),
                             .mode = mode_of(part_of(holder, "mode")),
                             .remaining = milliseconds(integer_of(part_of(holder, "remaining"))),
                             .client = text_of(part_of(holder, "client")),
                             .bound = integer_of(part_of(holder, "bound")) == 1});
  }
  const auto& mode = part_of(map, "mode");
  if (mode.is_null() != state.holders.empty() ||
      (!mode.is_null() && mode_of(mode) != state.mode())) {
    unexpected("a mode that is not the holders'");
  }
  state.waiters = static_cast<std::uint64_t>(integer_of(part_of(map, "waiters")));
  state.blocked = milliseconds(integer_of(part_of(map, "blocked")));
  const auto& payload = part_of(map, "payload");
  if (!payload.is_null()) state.payload = text_of(payload);
  return state;
}

Result<Reply> milliseconds_of(const Value& value) {
  return Reply(milliseconds(integer_of(value)));
}
Result<Reply> ok_of(const Value& value) {
  if (value.kind != Value::Kind::simple || value.text != "OK") unexpected("not OK");
  return Reply(std::monostate{});
}

/// An array in which each part is an answer of its own.
template <class Item, class Decode>
Result<Reply> each_of(const Value& value, Decode decode) {
  std::vector<Result<Item>> items;
  for (const auto& part : parts_of(value)) {
    if (part.is_error()) {
      items.push_back(parse_error_line(part.text));
    } else {
      items.push_back(std::get<Item>(*decode(part)));
    }
  }
  return Reply(std::move(items));
}

void append(Words& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}
void append(Words& words, const std::vector<Holding>& grants) {
  words.push_back(number(grants.size()));
  for (const auto& grant : grants) append(words, {grant.name, grant.owner, number(grant.token)});
}

struct Spell {
  std::optional<LeaseRequest> operator()(const Acquire& c) const {
    Words words{"LEASE.ACQUIRE", c.name, c.owner, number(c.ttl)};
    if (c.wait != milliseconds(0)) append(words, {"WAIT", number(c.wait)});
    if (c.mode == LeaseMode::shared) words.emplace_back("SHARED");
    if (c.mode == LeaseMode::permit) append(words, {"PERMITS", number(c.permits)});
    if (c.bind) words.emplace_back("BIND");
    if (c.delay) append(words, {"DELAY", number(*c.delay)});
    if (c.payload) append(words, {"PAYLOAD", *c.payload});
    return LeaseRequest{std::move(words), grant_of};
  }
  std::optional<LeaseRequest> operator()(const AcquireMany& c) const {
    Words words{"LEASE.MACQUIRE", number(c.names.size())};
    append(words, c.names);
    append(words, {c.owner, number(c.ttl)});
    if (c.wait != milliseconds(0)) append(words, {"WAIT", number(c.wait)});
    return LeaseRequest{std::move(words), grant_of};
  }
  std::optional<LeaseRequest> operator()(const Renew& c) const {
    return LeaseRequest{{"LEASE.RENEW", c.name, c.owner, number(c.token), number(c.ttl)},
                        milliseconds_of};
  }
  std::optional<LeaseRequest> operator()(const RenewMany& c) const {
    Words words{"LEASE.MRENEW", number(c.ttl)};
    append(words, c.grants);
    return LeaseRequest{std::move(words), [](const Value& value) {
                          return each_of<milliseconds>(value, milliseconds_of);
                        }};
  }
  std::optional<LeaseRequest> operator()(const Release& c) const {
    return LeaseRequest{{"LEASE.RELEASE", c.name, c.owner, number(c.token)}, ok_of};
  }
  std::optional<LeaseRequest> operator()(const ReleaseMany& c) const {
    Words words{"LEASE.MRELEASE"};
    append(words, c.grants);
    return LeaseRequest{std::move(words),
                        [](const Value& value) { return each_of<std::monostate>(value, ok_of); }};
  }
  std::optional<LeaseRequest> operator()(const Revoke& c) const {
    return LeaseRequest{{"LEASE.REVOKE", c.name},
                        [](const Value& value) { return Result<Reply>(Reply(token_of(value))); }};
  }
  std::optional<LeaseRequest> operator()(const Inspect& c) const {
    return LeaseRequest{{"LEASE.INFO", c.name},
                        [](const Value& value) { return Result<Reply>(Reply(state_of(value))); }};
  }
  std::optional<LeaseRequest> operator()(const ListWaiters& c) const {
    return LeaseRequest{
        {"LEASE.WAITERS", c.name}, [](const Value& value) -> Result<Reply> {
          ListWaiters::Reply waiters;
          for (const auto& map : parts_of(value)) {
            waiters.push_back({.owner = text_of(part_of(map, "owner")),
                               .mode = mode_of(part_of(map, "mode")),
                               .waited = milliseconds(integer_of(part_of(map, "waited"))),
                               .remaining = milliseconds(integer_of(part_of(map, "remaining"))),
                               .client = text_of(part_of(map, "client"))});
          }
          return Reply(std::move(waiters));
        }};
  }
  std::optional<LeaseRequest> operator()(const Await& c) const {
    return LeaseRequest{{"LEASE.WAIT", c.name, number(c.token), number(c.timeout)},
                        [](const Value& value) -> Result<Reply> {
                          if (value.is_null()) return Reply(Await::Reply{});
                          const auto& parts = parts_of(value);
                          if (parts.size() != 3) unexpected("an event of another length");
                          return Reply(Await::Reply{LeaseEvent{.change = change_of(parts[0]),
                                                               .name = text_of(parts[1]),
                                                               .token = token_of(parts[2])}});
                        }};
  }
  std::optional<LeaseRequest> operator()(const Watch& c) const {
    Words words{"LEASE.WATCH"};
    append(words, c.names);
    return LeaseRequest{std::move(words), ok_of};
  }
  std::optional<LeaseRequest> operator()(const Unwatch&) const {
    return LeaseRequest{{"LEASE.UNWATCH"}, ok_of};
  }

  template <class Other>
  std::optional<LeaseRequest> operator()(const Other&) const {
    return std::nullopt;
  }
};

}  // namespace

std::optional<LeaseRequest> lease_request(const Command& command) {
  auto request = std::visit(Spell{}, command);
  if (!request) return std::nullopt;
  request->decode = [decode = std::move(request->decode)](const Value& value) -> Result<Reply> {
    if (value.is_error()) return parse_error_line(value.text);
    return decode(value);
  };
  return request;
}

std::optional<LeaseEvent> lease_event(const Value& push) {
  if (push.kind != Value::Kind::push || push.parts.size() != 4) return std::nullopt;
  if (text_of(push.parts[0]) != "lease") return std::nullopt;
  return LeaseEvent{.change = change_of(push.parts[1]),
                    .name = text_of(push.parts[2]),
                    .token = token_of(push.parts[3])};
}

}  // namespace fencekv::testing
