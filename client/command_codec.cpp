// SPDX-License-Identifier: Apache-2.0
#include "client/command_codec.h"

#include "server/resp/request_writer.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv {
namespace {

using namespace std::chrono_literals;
using resp::Value;
using Kind = resp::Value::Kind;

/// Collects the words of a request. Texts are borrowed until bytes().
class Words {
 public:
  Words(std::initializer_list<std::string_view> words) : words_(words) {}

  Words& text(std::string_view word) {
    words_.push_back(word);
    return *this;
  }
  template <class Number>
  Words& number(Number number) {
    return text(numbers_.emplace_back(std::to_string(number)));
  }
  Words& token(Token token) { return number(token.number()); }
  Words& option(std::string_view name, const std::optional<std::string>& value) {
    if (value) text(name).text(*value);
    return *this;
  }
  Words& option(std::string_view name, const std::optional<std::uint64_t>& value) {
    if (value) text(name).number(*value);
    return *this;
  }
  Words& option(std::string_view name, std::chrono::milliseconds time) {
    if (time.count() != 0) text(name).number(time.count());
    return *this;
  }
  Words& holdings(const std::vector<Holding>& grants) {
    number(grants.size());
    for (const auto& [name, owner, grant] : grants) text(name).text(owner).token(grant);
    return *this;
  }
  Words& flag(std::string_view name, bool given) {
    if (given) text(name);
    return *this;
  }
  Words& texts(const std::vector<std::string>& words) {
    words_.insert(words_.end(), words.begin(), words.end());
    return *this;
  }

  std::string bytes() const {
    std::string out;
    resp::write_request(out, words_);
    return out;
  }

 private:
  std::vector<std::string_view> words_;
  std::deque<std::string> numbers_;  // a deque: words_ refers to its strings
};

// ---- Reading parts of replies. nullopt: not what was expected. --------------------------------

std::optional<std::string> as_text(Value* value) {
  if (value == nullptr) return std::nullopt;
  if (value->kind != Kind::bulk && value->kind != Kind::simple) return std::nullopt;
  return std::move(value->text);
}

std::optional<std::optional<std::string>> as_text_or_null(Value* value) {
  if (value == nullptr) return std::nullopt;
  if (value->is_null()) return std::optional<std::string>{};
  if (auto text = as_text(value)) return text;
  return std::nullopt;
}

std::optional<std::uint64_t> as_count(Value* value) {
  if (value == nullptr || value->kind != Kind::integer || value->integer < 0) return std::nullopt;
  return static_cast<std::uint64_t>(value->integer);
}

std::optional<std::chrono::milliseconds> as_milliseconds(Value* value) {
  const auto count = as_count(value);
  if (!count) return std::nullopt;
  return std::chrono::milliseconds(static_cast<std::int64_t>(*count));
}

std::optional<Token> as_token(Value* value) {
  if (value == nullptr || value->kind != Kind::bulk) return std::nullopt;
  const auto number = parse_decimal(value->text, Token::kMax);
  if (!number) return std::nullopt;
  return Token{*number};
}

std::optional<std::vector<std::string>> as_texts(Value* value) {
  if (value == nullptr || value->kind != Kind::array) return std::nullopt;
  std::vector<std::string> texts;
  for (auto& part : value->parts) {
    auto text = as_text(&part);
    if (!text) return std::nullopt;
    texts.push_back(*std::move(text));
  }
  return texts;
}

Value* field(Value& map, std::string_view name) {
  return const_cast<Value*>(map.at(name));
}

/// The parts of an array of exactly `size`.
Value* part(Value& array, std::size_t at, std::size_t size) {
  if (array.kind != Kind::array || array.parts.size() != size) return nullptr;
  return &array.parts[at];
}

std::optional<LeaseMode> as_mode(Value* value) {
  const auto word = as_text(value);
  for (const auto mode : {LeaseMode::exclusive, LeaseMode::shared, LeaseMode::permit}) {
    if (word == to_string(mode)) return mode;
  }
  return std::nullopt;
}

std::optional<LeaseChange> as_change(Value* value) {
  const auto word = as_text(value);
  for (const auto change : {LeaseChange::granted, LeaseChange::released, LeaseChange::expired,
                            LeaseChange::revoked, LeaseChange::disconnected, LeaseChange::missed}) {
    if (word == to_string(change)) return change;
  }
  return std::nullopt;
}

/// `event name token`, from the `at`th part on to the last.
std::optional<LeaseEvent> as_event(Value& list, std::size_t at) {
  if (list.parts.size() != at + 3) return std::nullopt;
  const auto change = as_change(&list.parts[at]);
  auto name = as_text(&list.parts[at + 1]);
  const auto token = as_token(&list.parts[at + 2]);
  if (!change || !name || !token) return std::nullopt;
  return LeaseEvent{.change = *change, .name = *std::move(name), .token = *token};
}

// ---- Reading whole answers, one overload a type -----------------------------------------------

template <class T>
struct As {};

std::optional<std::uint64_t> read(Value& reply, As<std::uint64_t>) {
  return as_count(&reply);
}
std::optional<Token> read(Value& reply, As<Token>) {
  return as_token(&reply);
}
std::optional<std::string> read(Value& reply, As<std::string>) {
  return as_text(&reply);
}

std::optional<std::chrono::milliseconds> read(Value& reply, As<std::chrono::milliseconds>) {
  return as_milliseconds(&reply);
}

std::optional<std::monostate> read(Value& reply, As<std::monostate>) {
  if (as_text(&reply) != "OK") return std::nullopt;
  return std::monostate{};
}

std::optional<std::optional<std::string>> read(Value& reply, As<std::optional<std::string>>) {
  return as_text_or_null(&reply);
}

std::optional<std::vector<std::uint64_t>> read(Value& reply, As<Write::Reply>) {
  if (reply.kind == Kind::integer) {
    const auto version = as_count(&reply);
    if (!version) return std::nullopt;
    return std::vector{*version};
  }
  if (reply.kind != Kind::array) return std::nullopt;
  std::vector<std::uint64_t> versions;
  for (auto& one : reply.parts) {
    const auto version = as_count(&one);
    if (!version) return std::nullopt;
    versions.push_back(*version);
  }
  return versions;
}

std::optional<GetMany::Reply> read(Value& reply, As<GetMany::Reply>) {
  if (reply.kind != Kind::array) return std::nullopt;
  GetMany::Reply values;
  for (auto& one : reply.parts) {
    auto value = as_text_or_null(&one);
    if (!value) return std::nullopt;
    values.push_back(*std::move(value));
  }
  return values;
}

std::optional<KeyState> read(Value& reply, As<KeyState>) {
  auto value = as_text_or_null(field(reply, "value"));
  const auto version = as_count(field(reply, "version"));
  const auto fence = as_token(field(reply, "fence"));
  auto guard = as_text_or_null(field(reply, "guard"));
  if (!value || !version || !fence || !guard) return std::nullopt;
  return KeyState{.value = *std::move(value),
                  .version = *version,
                  .fence = *fence,
                  .guard = *std::move(guard),
                  .request = std::nullopt};
}

std::optional<KeyDescription> read(Value& reply, As<KeyDescription>) {
  const auto version = as_count(field(reply, "version"));
  const auto fence = as_token(field(reply, "fence"));
  auto guard = as_text_or_null(field(reply, "guard"));
  const auto exists = as_count(field(reply, "exists"));
  const auto size = as_count(field(reply, "size"));
  auto request = as_text_or_null(field(reply, "request"));
  const auto written = as_milliseconds(field(reply, "written"));
  if (!version || !fence || !guard || !exists || !size || !request || !written) return std::nullopt;
  return KeyDescription{.version = *version,
                        .fence = *fence,
                        .guard = *std::move(guard),
                        .exists = *exists != 0,
                        .size = *size,
                        .request = *std::move(request),
                        .written = *written};
}

std::optional<std::optional<Grant>> read(Value& reply, As<std::optional<Grant>>) {
  if (reply.is_null()) return std::optional<Grant>{};
  const auto token = as_token(part(reply, 0, 2));
  const auto remaining = as_milliseconds(part(reply, 1, 2));
  if (!token || !token->is_valid() || !remaining) return std::nullopt;
  return Grant{*token, *remaining};
}

std::optional<LeaseHolder> read_holder(Value& map) {
  auto owner = as_text(field(map, "owner"));
  const auto token = as_token(field(map, "token"));
  const auto mode = as_mode(field(map, "mode"));
  const auto remaining = as_milliseconds(field(map, "remaining"));
  auto client = as_text(field(map, "client"));
  const auto bound = as_count(field(map, "bound"));
  if (!owner || !token || !mode || !remaining || !client || !bound) return std::nullopt;
  return LeaseHolder{.owner = *std::move(owner),
                     .token = *token,
                     .mode = *mode,
                     .remaining = *remaining,
                     .client = *std::move(client),
                     .bound = *bound != 0};
}

std::optional<LeaseState> read(Value& reply, As<LeaseState>) {
  auto name = as_text(field(reply, "name"));
  const auto fence = as_token(field(reply, "fence"));
  Value* const holders = field(reply, "holders");
  const auto waiters = as_count(field(reply, "waiters"));
  const auto blocked = as_milliseconds(field(reply, "blocked"));
  auto payload = as_text_or_null(field(reply, "payload"));
  if (!name || !fence || !waiters || !blocked || !payload) return std::nullopt;
  if (holders == nullptr || holders->kind != Kind::array) return std::nullopt;
  LeaseState state{.name = *std::move(name),
                   .fence = *fence,
                   .holders = {},
                   .waiters = *waiters,
                   .blocked = *blocked,
                   .payload = *std::move(payload)};
  for (auto& one : holders->parts) {
    auto holder = read_holder(one);
    if (!holder) return std::nullopt;
    state.holders.push_back(*std::move(holder));
  }
  return state;
}

std::optional<std::vector<LeaseWaiter>> read(Value& reply, As<std::vector<LeaseWaiter>>) {
  if (reply.kind != Kind::array) return std::nullopt;
  std::vector<LeaseWaiter> waiters;
  for (auto& one : reply.parts) {
    auto owner = as_text(field(one, "owner"));
    const auto mode = as_mode(field(one, "mode"));
    const auto waited = as_milliseconds(field(one, "waited"));
    const auto remaining = as_milliseconds(field(one, "remaining"));
    auto client = as_text(field(one, "client"));
    if (!owner || !mode || !waited || !remaining || !client) return std::nullopt;
    waiters.push_back({.owner = *std::move(owner),
                       .mode = *mode,
                       .waited = *waited,
                       .remaining = *remaining,
                       .client = *std::move(client)});
  }
  return waiters;
}

std::optional<std::optional<LeaseEvent>> read(Value& reply, As<std::optional<LeaseEvent>>) {
  if (reply.is_null()) return std::optional<LeaseEvent>{};
  if (reply.kind != Kind::array) return std::nullopt;
  if (auto event = as_event(reply, 0)) return event;
  return std::nullopt;
}

/// Of a command about many grants: for each what the command about one would be answered.
template <class One>
std::optional<std::vector<Result<One>>> read(Value& reply, As<std::vector<Result<One>>>) {
  if (reply.kind != Kind::array) return std::nullopt;
  std::vector<Result<One>> answers;
  for (auto& one : reply.parts) {
    if (one.is_error()) {
      answers.push_back(parse_error_line(one.text));
      continue;
    }
    auto answer = read(one, As<One>{});
    if (!answer) return std::nullopt;
    answers.push_back(*std::move(answer));
  }
  return answers;
}

std::optional<ScanLeases::Reply> read(Value& reply, As<ScanLeases::Reply>) {
  auto cursor = as_text(part(reply, 0, 2));
  Value* const leases = part(reply, 1, 2);
  if (!cursor || leases == nullptr || leases->kind != Kind::array) return std::nullopt;
  ScanLeases::Reply page{.cursor = *std::move(cursor), .leases = {}};
  for (auto& one : leases->parts) {
    auto state = read(one, As<LeaseState>{});
    if (!state) return std::nullopt;
    page.leases.push_back(*std::move(state));
  }
  return page;
}

std::optional<ScanKeys::Reply> read(Value& reply, As<ScanKeys::Reply>) {
  auto cursor = as_text(part(reply, 0, 2));
  auto keys = as_texts(part(reply, 1, 2));
  if (!cursor || !keys) return std::nullopt;
  return ScanKeys::Reply{*std::move(cursor), *std::move(keys)};
}

std::optional<std::vector<Rejection>> read(Value& reply, As<std::vector<Rejection>>) {
  if (reply.kind != Kind::array) return std::nullopt;
  std::vector<Rejection> rejections;
  for (auto& one : reply.parts) {
    const auto when = as_milliseconds(field(one, "when"));
    auto client = as_text(field(one, "client"));
    auto key = as_text(field(one, "key"));
    auto lease = as_text_or_null(field(one, "lease"));
    const auto offered = as_token(field(one, "offered"));
    const auto highest = as_token(field(one, "highest"));
    auto reason = as_text(field(one, "reason"));
    if (!when || !client || !key || !lease || !offered || !highest || !reason) return std::nullopt;
    rejections.push_back({.when = *when,
                          .client = *std::move(client),
                          .key = *std::move(key),
                          .lease = *std::move(lease),
                          .offered = *offered,
                          .highest = *highest,
                          .reason = *std::move(reason)});
  }
  return rejections;
}

RawReply raw(Value& value) {
  RawReply reply{.kind = RawReply::Kind::null,
                 .text = std::move(value.text),
                 .integer = value.integer,
                 .parts = {}};
  switch (value.kind) {
    case Kind::null:
      break;
    case Kind::error:
      reply.kind = RawReply::Kind::error;
      break;
    case Kind::simple:
    case Kind::bulk:
    case Kind::real:
      reply.kind = RawReply::Kind::text;
      break;
    case Kind::integer:
    case Kind::boolean:
      reply.kind = RawReply::Kind::integer;
      break;
    case Kind::map:
      reply.kind = RawReply::Kind::map;
      break;
    case Kind::array:
    case Kind::set:
    case Kind::push:
      reply.kind = RawReply::Kind::array;
      break;
  }
  for (auto& one : value.parts) reply.parts.push_back(raw(one));
  return reply;
}

std::optional<RawReply> read(Value& reply, As<RawReply>) {
  return raw(reply);
}

}  // namespace

template <class C>
Result<AnswerOf<C>> decode(Value&& reply) {
  if (reply.is_error()) return parse_error_line(reply.text);
  if (auto answer = read(reply, As<AnswerOf<C>>{})) return *std::move(answer);
  return Error(Errc::protocol, "a reply that this command cannot have");
}

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type.
#define FENCEKV_INSTANTIATE(C) template Result<AnswerOf<C>> decode<C>(Value &&);
FENCEKV_FOR_EACH_CLIENT_COMMAND(FENCEKV_INSTANTIATE)
#undef FENCEKV_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

// ---- Requests ---------------------------------------------------------------------------------

template <>
Result<std::string> encode(const Write& write) {
  if (write.entries.size() == 1) {
    const auto& [key, value] = write.entries.front();
    Words words{value ? "FENCE.SET" : "FENCE.DEL", key};
    words.token(write.token);
    if (value) words.text(*value);
    return words.option("LEASE", write.lease)
        .flag("ONCE", write.once)
        .option("IFVER", write.if_version)
        .flag("LIVE", write.live)
        .option("REQ", write.request)
        .bytes();
  }

  Words words{"FENCE.MSET"};
  words.token(write.token).number(write.entries.size());
  for (const auto& entry : write.entries) {
    if (!entry.value) return Error(Errc::invalid, "several keys can be set together, not deleted");
    words.text(entry.key).text(*entry.value);
  }
  return words.option("LEASE", write.lease)
      .flag("ONCE", write.once)
      .option("IFVER", write.if_version)
      .flag("LIVE", write.live)
      .option("REQ", write.request)
      .bytes();
}

template <>
Result<std::string> encode(const Raise& raise) {
  return Words{"FENCE.RAISE", raise.key}.token(raise.token).option("LEASE", raise.lease).bytes();
}

template <>
Result<std::string> encode(const FencedRead& read) {
  return Words{"FENCE.GET", read.key, "TOKEN"}
      .token(read.token)
      .option("LEASE", read.lease)
      .bytes();
}

template <>
Result<std::string> encode(const Reset& reset) {
  Words words{"FENCE.RESET", reset.key};
  words.token(reset.token).flag("NOGUARD", reset.guard == Reset::Guard::clear);
  if (reset.guard == Reset::Guard::set) words.text("GUARD").text(reset.guard_name);
  return words.bytes();
}

template <>
Result<std::string> encode(const Acquire& acquire) {
  const bool permit = acquire.mode == LeaseMode::permit;
  if (acquire.permits != 0 && !permit) {
    return Error(Errc::invalid, "permits go with the mode permit only");
  }
  Words words{"LEASE.ACQUIRE", acquire.name, acquire.owner};
  words.number(acquire.ttl.count()).option("WAIT", acquire.wait);
  words.flag("SHARED", acquire.mode == LeaseMode::shared);
  if (permit) words.text("PERMITS").number(acquire.permits);
  words.flag("BIND", acquire.bind);
  // A delay of 0 is not the same as none: it takes away the one that a holder gave before.
  if (acquire.delay) words.text("DELAY").number(acquire.delay->count());
  return words.option("PAYLOAD", acquire.payload).bytes();
}

template <>
Result<std::string> encode(const AcquireMany& acquire) {
  return Words{"LEASE.MACQUIRE"}
      .number(acquire.names.size())
      .texts(acquire.names)
      .text(acquire.owner)
      .number(acquire.ttl.count())
      .option("WAIT", acquire.wait)
      .bytes();
}

template <>
Result<std::string> encode(const RenewMany& renew) {
  return Words{"LEASE.MRENEW"}.number(renew.ttl.count()).holdings(renew.grants).bytes();
}

template <>
Result<std::string> encode(const ReleaseMany& release) {
  return Words{"LEASE.MRELEASE"}.holdings(release.grants).bytes();
}

template <>
Result<std::string> encode(const ListWaiters& list) {
  return Words{"LEASE.WAITERS", list.name}.bytes();
}

template <>
Result<std::string> encode(const Await& await) {
  return Words{"LEASE.WAIT", await.name}.token(await.token).number(await.timeout.count()).bytes();
}

std::string encode_watch(std::span<const std::string> names) {
  Words words{"LEASE.WATCH"};
  for (const auto& name : names) words.text(name);
  return words.bytes();
}

template <>
Result<std::string> encode(const Renew& renew) {
  return Words{"LEASE.RENEW", renew.name, renew.owner}
      .token(renew.token)
      .number(renew.ttl.count())
      .bytes();
}

template <>
Result<std::string> encode(const Release& release) {
  return Words{"LEASE.RELEASE", release.name, release.owner}.token(release.token).bytes();
}

template <>
Result<std::string> encode(const Revoke& revoke) {
  return Words{"LEASE.REVOKE", revoke.name}.bytes();
}

template <>
Result<std::string> encode(const Inspect& inspect) {
  return Words{"LEASE.INFO", inspect.name}.bytes();
}

template <>
Result<std::string> encode(const Get& get) {
  return Words{"GET", get.key}.bytes();
}

template <>
Result<std::string> encode(const GetMany& get) {
  return Words{"MGET"}.texts(get.keys).bytes();
}

template <>
Result<std::string> encode(const GetFenced& get) {
  return Words{"FENCE.GET", get.key}.bytes();
}

template <>
Result<std::string> encode(const Describe& describe) {
  return Words{"FENCE.INFO", describe.key}.bytes();
}

template <>
Result<std::string> encode(const ListRejections& list) {
  return Words{"FENCE.REJECTIONS", "COUNT"}.number(list.count).bytes();
}

template <>
Result<std::string> encode(const ScanLeases& scan) {
  return Words{"LEASE.SCAN", scan.cursor}
      .option("MATCH", scan.match)
      .option("COUNT", scan.count)
      .bytes();
}

template <>
Result<std::string> encode(const ScanKeys& scan) {
  return Words{"SCAN", scan.cursor}.option("MATCH", scan.match).option("COUNT", scan.count).bytes();
}

template <>
Result<std::string> encode(const Exists& exists) {
  return Words{"EXISTS"}.texts(exists.keys).bytes();
}

template <>
Result<std::string> encode(const Strlen& strlen) {
  return Words{"STRLEN", strlen.key}.bytes();
}

template <>
Result<std::string> encode(const TypeOf& type) {
  return Words{"TYPE", type.key}.bytes();
}

template <>
Result<std::string> encode(const CountKeys&) {
  return Words{"DBSIZE"}.bytes();
}

template <>
Result<std::string> encode(const Ping& ping) {
  Words words{"PING"};
  if (ping.message) words.text(*ping.message);
  return words.bytes();
}

template <>
Result<std::string> encode(const Echo& echo) {
  return Words{"ECHO", echo.message}.bytes();
}

template <>
Result<std::string> encode(const Raw& command) {
  if (command.words.empty()) return Error(Errc::invalid, "a command needs a name");
  return Words{}.texts(command.words).bytes();
}

// ---- Beyond requests and replies --------------------------------------------------------------

std::optional<LeaseEvent> decode_push(Value&& push) {
  if (push.kind != Kind::push || push.parts.empty()) return std::nullopt;
  if (as_text(&push.parts[0]) != "lease") return std::nullopt;
  return as_event(push, 1);
}

std::chrono::milliseconds raw_waits_for(const Raw& command) {
  const auto is = [](std::string_view word, std::string_view upper) {
    return std::equal(word.begin(), word.end(), upper.begin(), upper.end(),
                      [](char a, char b) { return (a >= 'a' && a <= 'z' ? a - 32 : a) == b; });
  };
  const auto& words = command.words;
  if (words.empty()) return 0ms;
  const auto milliseconds = [](const std::string& word) {
    const auto max = static_cast<std::uint64_t>(Limits::kMaxWait.count());
    return std::chrono::milliseconds(
        static_cast<std::int64_t>(parse_decimal(word, max).value_or(0)));
  };
  if (is(words[0], "LEASE.WAIT")) return words.size() == 4 ? milliseconds(words[3]) : 0ms;
  if (!is(words[0], "LEASE.ACQUIRE") && !is(words[0], "LEASE.MACQUIRE")) return 0ms;
  // A name may spell WAIT, too. Then a connection is used that was not needed.
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    if (is(words[i], "WAIT") && milliseconds(words[i + 1]) > 0ms) return milliseconds(words[i + 1]);
  }
  return 0ms;
}

}  // namespace fencekv
