// SPDX-License-Identifier: Apache-2.0
#include "tests/history/operation.h"

#include "fencekv/types.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <sstream>
#include <utility>

namespace fencekv::testing {
namespace {

using std::chrono::milliseconds;
using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

constexpr std::array<std::string_view, 9> kKinds{
    "write", "raise", "fenced_read", "read", "acquire", "renew", "release", "revoke", "inspect"};
constexpr std::array<std::string_view, 4> kOutcomes{"unknown", "done", "refused", "not_executed"};

std::uint64_t number(std::string_view text) {
  return parse_decimal(text).value_or(0);
}

milliseconds time_in_ms(std::string_view text) {
  return milliseconds(static_cast<std::int64_t>(number(text)));
}

/// Options of a command, from words[first] on.
bool take_options(Operation& operation, const std::vector<std::string>& words, std::size_t first) {
  for (auto i = first; i < words.size(); ++i) {
    const auto& word = words[i];
    if (word == "ONCE") {
      operation.once = true;
    } else if (word == "LIVE") {
      operation.live = true;
    } else if (i + 1 == words.size()) {
      return false;
    } else if (word == "LEASE") {
      operation.lease = words[++i];
    } else if (word == "REQ") {
      operation.request = words[++i];
    } else if (word == "IFVER") {
      operation.if_version = number(words[++i]);
    } else if (word == "TOKEN") {
      operation.token = number(words[++i]);
      operation.kind = Kind::fenced_read;
    } else if (word == "WAIT") {
      operation.wait = time_in_ms(words[++i]);
    } else {
      return false;
    }
  }
  return true;
}

std::uint64_t number_at(const resp::Value& reply, std::string_view key) {
  const auto* value = reply.at(key);
  if (value == nullptr) return 0;
  return value->kind == resp::Value::Kind::integer ? static_cast<std::uint64_t>(value->integer)
                                                   : number(value->text);
}

std::optional<std::string> text_at(const resp::Value& reply, std::string_view key) {
  const auto* value = reply.at(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return value->text;
}

std::optional<std::string> text_of_value(const resp::Value& reply) {
  return reply.is_null() ? std::nullopt : std::optional(reply.text);
}

/// All but letters, digits and a few signs as %HH; a leading `+` tells an empty text from none.
std::string quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string line = "+";
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    if (std::isalnum(code) != 0 || std::string_view("-_./:").find(byte) != std::string_view::npos) {
      line += byte;
    } else {
      line += '%';
      line += kDigits[code >> 4];
      line += kDigits[code & 15];
    }
  }
  return line;
}

std::string quoted(const std::optional<std::string>& text) {
  return text ? quoted(std::string_view(*text)) : "-";
}

std::optional<std::string> unquoted(std::string_view line) {
  if (!line.starts_with('+')) return std::nullopt;
  std::string text;
  for (std::size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '%' && i + 2 < line.size()) {
      text += static_cast<char>(std::stoi(std::string(line.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      text += line[i];
    }
  }
  return text;
}

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = text.find(by);
    parts.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  return parts;
}

template <std::size_t n>
std::size_t index_in(const std::array<std::string_view, n>& words, std::string_view word) {
  return static_cast<std::size_t>(std::find(words.begin(), words.end(), word) - words.begin());
}

Time time_of(const std::string& text) {
  return text.empty() ? kNever : Time(static_cast<std::int64_t>(number(text)));
}

}  // namespace

std::optional<Operation> operation_of(const std::vector<std::string>& words) {
  Operation operation;
  const auto is = [&](std::string_view command, std::size_t at_least) {
    return !words.empty() && words[0] == command && words.size() >= at_least;
  };
  std::size_t options = 0;
  if (is("FENCE.SET", 4)) {
    operation.kind = Kind::write;
    operation.entries.push_back({.key = words[1], .value = words[3]});
    operation.token = number(words[2]);
    options = 4;
  } else if (is("FENCE.DEL", 3)) {
    operation.kind = Kind::write;
    operation.entries.push_back({.key = words[1]});
    operation.token = number(words[2]);
    options = 3;
  } else if (is("FENCE.MSET", 5)) {
    operation.kind = Kind::write;
    operation.token = number(words[1]);
    options = 3 + 2 * number(words[2]);
    if (options > words.size()) return std::nullopt;
    for (std::size_t i = 3; i < options; i += 2) {
      operation.entries.push_back({.key = words[i], .value = words[i + 1]});
    }
  } else if (is("FENCE.RAISE", 3)) {
    operation.kind = Kind::raise;
    operation.entries.push_back({.key = words[1]});
    operation.token = number(words[2]);
    options = 3;
  } else if (is("FENCE.GET", 2)) {
    operation.entries.push_back({.key = words[1]});
    options = 2;
  } else if (is("GET", 2) || is("MGET", 2)) {
    for (std::size_t i = 1; i < words.size(); ++i) operation.entries.push_back({.key = words[i]});
    options = words.size();
  } else if (is("LEASE.ACQUIRE", 4)) {
    operation.kind = Kind::acquire;
    operation.owner = words[2];
    operation.ttl = time_in_ms(words[3]);
    options = 4;
  } else if (is("LEASE.RENEW", 5) || is("LEASE.RELEASE", 4)) {
    operation.kind = words[0] == "LEASE.RENEW" ? Kind::renew : Kind::release;
    operation.owner = words[2];
    operation.token = number(words[3]);
    if (operation.kind == Kind::renew) operation.ttl = time_in_ms(words[4]);
    options = words.size();
  } else if (is("LEASE.REVOKE", 2) || is("LEASE.INFO", 2)) {
    operation.kind = words[0] == "LEASE.REVOKE" ? Kind::revoke : Kind::inspect;
    options = words.size();
  } else {
    return std::nullopt;
  }
  if (operation.is_about_lease()) operation.lease = words[1];
  if (!take_options(operation, words, options)) return std::nullopt;
  return operation;
}

void take_refusal(Operation& operation, std::string_view line) {
  operation.refusal = line;
  if (line.starts_with("INDOUBT")) {
    operation.outcome = Outcome::unknown;
  } else if (line.starts_with("OVERLOADED") || line.starts_with("MISCONF")) {
    operation.outcome = Outcome::not_executed;
  } else {
    operation.outcome = Outcome::refused;
  }
}

void take_reply(Operation& operation, const resp::Value& reply) {
  if (reply.is_error()) return take_refusal(operation, reply.text);
  operation.outcome = Outcome::done;
  switch (operation.kind) {
    case Kind::write:
      if (reply.parts.empty()) {
        operation.versions.push_back(static_cast<std::uint64_t>(reply.integer));
      }
      for (const auto& part : reply.parts) {
        operation.versions.push_back(static_cast<std::uint64_t>(part.integer));
      }
      return;
    case Kind::raise:
    case Kind::revoke:
      operation.told = number(reply.text);
      return;
    case Kind::fenced_read:
    case Kind::read:
      if (reply.at("fence") != nullptr) {
        operation.seen.push_back({.value = text_at(reply, "value"),
                                  .version = number_at(reply, "version"),
                                  .fence = number_at(reply, "fence"),
                                  .guard = text_at(reply, "guard")});
      } else if (reply.kind == resp::Value::Kind::array) {
        for (const auto& part : reply.parts)
          operation.seen.push_back({.value = text_of_value(part)});
      } else {
        operation.seen.push_back({.value = text_of_value(reply)});
      }
      return;
    case Kind::acquire:
      if (reply.parts.size() != 2) return;  // Not acquired.
      operation.told = number(reply.parts[0].text);
      operation.remaining = milliseconds(reply.parts[1].integer);
      return;
    case Kind::renew:
      operation.remaining = milliseconds(reply.integer);
      return;
    case Kind::release:
      return;
    case Kind::inspect:
      operation.told = number_at(reply, "fence");
      if (const auto* holders = reply.at("holders");
          holders != nullptr && !holders->parts.empty()) {
        const auto& holder = holders->parts.back();
        operation.holder = number_at(holder, "token");
        operation.remaining =
            milliseconds(static_cast<std::int64_t>(number_at(holder, "remaining")));
      }
      return;
  }
}

std::string line_of(const Operation& operation) {
  std::string line;
  const auto add = [&](std::string_view name, const std::string& value) {
    line += (line.empty() ? "" : " ") + std::string(name) + "=" + value;
  };
  const auto add_number = [&](std::string_view name, auto value) {
    if (value != 0) add(name, std::to_string(value));
  };
  add("kind", std::string(kKinds[static_cast<std::size_t>(operation.kind)]));
  add("client", std::to_string(operation.client));
  add("invoked", std::to_string(operation.invoked.count()));
  if (operation.returned != kNever) add("returned", std::to_string(operation.returned.count()));
  if (operation.latest != kNever) add("latest", std::to_string(operation.latest.count()));
  for (const auto& entry : operation.entries) {
    add("entry", quoted(std::string_view(entry.key)) + "," + quoted(entry.value));
  }
  add_number("token", operation.token);
  if (!operation.lease.empty()) add("lease", quoted(std::string_view(operation.lease)));
  if (!operation.owner.empty()) add("owner", quoted(std::string_view(operation.owner)));
  add_number("ttl", operation.ttl.count());
  add_number("wait", operation.wait.count());
  add_number("once", static_cast<int>(operation.once));
  add_number("live", static_cast<int>(operation.live));
  if (operation.if_version) add("if_version", std::to_string(*operation.if_version));
  if (!operation.request.empty()) add("request", quoted(std::string_view(operation.request)));

  add("outcome", std::string(kOutcomes[static_cast<std::size_t>(operation.outcome)]));
  if (!operation.refusal.empty()) add("refusal", quoted(std::string_view(operation.refusal)));
  for (const auto version : operation.versions) add("version", std::to_string(version));
  add_number("told", operation.told);
  add_number("holder", operation.holder);
  add_number("remaining", operation.remaining.count());
  for (const auto& seen : operation.seen) {
    add("seen", quoted(seen.value) + "," + (seen.version ? std::to_string(*seen.version) : "-") +
                    "," + std::to_string(seen.fence) + "," + quoted(seen.guard));
  }
  return line;
}

std::optional<Operation> operation_of_line(std::string_view line) {
  Operation operation;
  bool has_kind = false;
  for (const auto& word : split(line, ' ')) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) return std::nullopt;
    const auto name = word.substr(0, equals);
    const auto value = word.substr(equals + 1);
    const auto parts = split(value, ',');
    if (parts.empty()) return std::nullopt;
    if (name == "kind") {
      const auto index = index_in(kKinds, value);
      if (index == kKinds.size()) return std::nullopt;
      operation.kind = static_cast<Kind>(index);
      has_kind = true;
    } else if (name == "outcome") {
      const auto index = index_in(kOutcomes, value);
      if (index == kOutcomes.size()) return std::nullopt;
      operation.outcome = static_cast<Outcome>(index);
    } else if (name == "client") {
      operation.client = std::stoi(value);
    } else if (name == "invoked") {
      operation.invoked = time_of(value);
    } else if (name == "returned") {
      operation.returned = time_of(value);
    } else if (name == "latest") {
      operation.latest = time_of(value);
    } else if (name == "entry" && parts.size() == 2) {
      operation.entries.push_back(
          {.key = unquoted(parts[0]).value_or(""), .value = unquoted(parts[1])});
    } else if (name == "token") {
      operation.token = number(value);
    } else if (name == "lease") {
      operation.lease = unquoted(value).value_or("");
    } else if (name == "owner") {
      operation.owner = unquoted(value).value_or("");
    } else if (name == "ttl") {
      operation.ttl = time_in_ms(value);
    } else if (name == "wait") {
      operation.wait = time_in_ms(value);
    } else if (name == "once") {
      operation.once = true;
    } else if (name == "live") {
      operation.live = true;
    } else if (name == "if_version") {
      operation.if_version = number(value);
    } else if (name == "request") {
      operation.request = unquoted(value).value_or("");
    } else if (name == "refusal") {
      operation.refusal = unquoted(value).value_or("");
    } else if (name == "version") {
      operation.versions.push_back(number(value));
    } else if (name == "told") {
      operation.told = number(value);
    } else if (name == "holder") {
      operation.holder = number(value);
    } else if (name == "remaining") {
      operation.remaining = time_in_ms(value);
    } else if (name == "seen" && parts.size() == 4) {
      operation.seen.push_back({.value = unquoted(parts[0]),
                                .version = parse_decimal(parts[1]),
                                .fence = number(parts[2]),
                                .guard = unquoted(parts[3])});
    } else {
      return std::nullopt;
    }
  }
  if (!has_kind) return std::nullopt;
  return operation;
}

std::string text_of(const History& history) {
  std::string text;
  for (const auto& operation : history) text += line_of(operation) + "\n";
  return text;
}

History history_of(std::string_view text) {
  History history;
  for (const auto& line : split(text, '\n')) {
    if (line.starts_with('#')) continue;
    auto operation = operation_of_line(line);
    if (!operation) break;
    history.push_back(*std::move(operation));
  }
  return history;
}

}  // namespace fencekv::testing
