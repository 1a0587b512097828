// SPDX-License-Identifier: Apache-2.0
/// What was asked of a server, when, and what came of it: one line of a history.

#pragma once

#include "server/resp/reply_parser.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::testing {

/// Since boot (CLOCK_BOOTTIME), all of one machine: the clock by which the server counts leases.
using Time = std::chrono::nanoseconds;
inline constexpr Time kNever = Time::max();

struct Operation {
  enum class Kind : std::uint8_t {
    write,        ///< FENCE.SET, FENCE.DEL, FENCE.MSET
    raise,        ///< FENCE.RAISE
    fenced_read,  ///< FENCE.GET … TOKEN
    read,         ///< FENCE.GET, GET, MGET
    acquire,      ///< LEASE.ACQUIRE, exclusive
    renew,
    release,
    revoke,
    inspect,  ///< LEASE.INFO
  };
  enum class Outcome : std::uint8_t {
    unknown,  ///< No answer, or INDOUBT: at any time from `invoked` to `latest`, or never.
    done,
    refused,       ///< By a rule: `refusal` says which.
    not_executed,  ///< OVERLOADED, MISCONF: certainly nothing happened, for no rule's reason.
  };
  struct Entry {
    std::string key;
    std::optional<std::string> value{};  ///< Of a write; nullopt deletes.

    friend bool operator==(const Entry&, const Entry&) = default;
  };
  /// What a read showed of a key. Plain reads show the value only.
  struct Seen {
    std::optional<std::string> value{};  ///< nullopt: there is none.
    std::optional<std::uint64_t> version{};
    std::uint64_t fence = 0;             ///< With `version`.
    std::optional<std::string> guard{};  ///< With `version`.

    friend bool operator==(const Seen&, const Seen&) = default;
  };

  Kind kind = Kind::read;
  int client = 0;
  Time invoked{0};         ///< Before the first byte was sent.
  Time returned = kNever;  ///< After the answer was read; kNever: there was none.
  Time latest = kNever;    ///< After this it has certainly not happened: every copy of it is gone.

  std::vector<Entry> entries{};  ///< Of commands about keys.
  std::uint64_t token = 0;
  std::string lease{};  ///< The lease named, or the name that a lease command is about.
  std::string owner{};
  std::chrono::milliseconds ttl{0};
  std::chrono::milliseconds wait{0};
  bool once = false;
  bool live = false;
  std::optional<std::uint64_t> if_version{};
  std::string request{};  ///< Empty: none.

  Outcome outcome = Outcome::unknown;
  std::string refusal{};                  ///< The error line.
  std::vector<std::uint64_t> versions{};  ///< Of a write, one an entry.
  std::uint64_t told = 0;    ///< acquire: the token, 0: not acquired. raise: the fence. revoke and
                             ///< inspect: the lease fence.
  std::uint64_t holder = 0;  ///< inspect: the holder's token; 0: nobody.
  std::chrono::milliseconds remaining{0};  ///< acquire, renew, inspect.
  std::vector<Seen> seen{};                ///< fenced_read, read: one an entry.

  friend bool operator==(const Operation&, const Operation&) = default;

  bool is_done() const { return outcome == Outcome::done; }
  bool is_unknown() const { return outcome == Outcome::unknown; }
  bool is_about_lease() const { return kind >= Kind::acquire; }
};

using History = std::vector<Operation>;

/// The operation that a request asks for; nullopt: it is none that a history speaks of.
std::optional<Operation> operation_of(const std::vector<std::string>& words);

/// Fills in what came of `operation`: the reply to it.
void take_reply(Operation& operation, const resp::Value& reply);
/// The same of an error line.
void take_refusal(Operation& operation, std::string_view line);

/// One line without its end, and back; nullopt: it is no such line.
std::string line_of(const Operation& operation);
std::optional<Operation> operation_of_line(std::string_view line);

std::string text_of(const History& history);
/// Stops at the first line that is none; lines that begin with `#` are passed over.
History history_of(std::string_view text);

}  // namespace fencekv::testing
