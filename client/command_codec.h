// SPDX-License-Identifier: Apache-2.0
/// Typed commands to the bytes of requests, and replies to typed answers.

#pragma once

#include "fencekv/client.h"
#include "fencekv/result.h"
#include "server/resp/reply_parser.h"

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

namespace fencekv {

/// The request. Errors: invalid, the protocol has no form for what the command asks.
template <class C>
Result<std::string> encode(const C& command);

/// What the reply to a `C` says. Errors: what the server answered; protocol, if the reply is not
/// one that a `C` can have.
template <class C>
Result<AnswerOf<C>> decode(resp::Value&& reply);

/// As waits_for(), of a command that is known by its words only.
std::chrono::milliseconds raw_waits_for(const Raw& command);

/// A change of a lease that was pushed. nullopt: something else was pushed.
std::optional<LeaseEvent> decode_push(resp::Value&& push);

/// The request that starts a watch, or adds to it. 1 to Limits::kKeysPerCommand names.
std::string encode_watch(std::span<const std::string> names);

/// How long the server may keep a `C` waiting; 0: it answers at once.
template <class C>
std::chrono::milliseconds waits_for(const C& command) {
  if constexpr (std::is_same_v<C, Acquire> || std::is_same_v<C, AcquireMany>) {
    return command.wait;
  } else if constexpr (std::is_same_v<C, Await>) {
    return command.timeout;
  } else if constexpr (std::is_same_v<C, Raw>) {
    return raw_waits_for(command);
  } else {
    return std::chrono::milliseconds{0};
  }
}

/// Whether a `C` without an answer leaves a doubt. A plain read does not.
template <class C>
constexpr bool kChanges =
    std::is_same_v<C, Write> || std::is_same_v<C, Raise> || std::is_same_v<C, FencedRead> ||
    std::is_same_v<C, Reset> || std::is_same_v<C, Acquire> || std::is_same_v<C, AcquireMany> ||
    std::is_same_v<C, Renew> || std::is_same_v<C, RenewMany> || std::is_same_v<C, Release> ||
    std::is_same_v<C, ReleaseMany> || std::is_same_v<C, Revoke> || std::is_same_v<C, Raw>;

}  // namespace fencekv

/// Every type of command, for explicit instantiation.
// clang-format off
#define FENCEKV_FOR_EACH_CLIENT_COMMAND(X)                                              \
  X(Write) X(Raise) X(FencedRead) X(Reset) X(Acquire) X(AcquireMany) X(Renew)           \
  X(RenewMany) X(Release) X(ReleaseMany) X(Revoke) X(Inspect) X(ListWaiters) X(Await)   \
  X(Get) X(GetMany) X(GetFenced) X(Describe) X(ListRejections) X(ScanLeases) \
  X(ScanKeys) X(Exists) X(Strlen) X(TypeOf) X(CountKeys) X(Ping) X(Echo) X(Raw)
// clang-format on
