// SPDX-License-Identifier: Apache-2.0
/// Requests of etcd's API (v3), as gRPC sends them, and what is looked at in the responses.
///
/// A fenced write is one Txn with one comparison and one put, which is the least that etcd can do
/// it with, and it keeps the fence beside the value as it must: in one key.
///
///     stored:  token, 8 bytes, the highest first | one byte, 1 | value
///
///     Txn  if    VALUE(key) > token + 1, 8 bytes      a newer holder has written
///          then  nothing                              stale: succeeded is true
///          else  put key = token | 1 | value          accepted: succeeded is false
///
/// etcd compares values as bytes. What was stored with token + 1 or later is greater than token + 1
/// alone, because something follows it, and what was stored with the token itself or earlier is
/// less. The question is asked the other way round because a comparison of the value of a key that
/// is not there is false: so the first write of a key needs no branch of its own.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fencekv::bench {

/// A method's path, and the message with gRPC's header of five bytes.
struct EtcdCall {
  std::string_view path;
  std::string body;
};

EtcdCall fenced_put(std::string_view key, std::uint64_t token, std::string_view value);

/// What stands in a stored value before the value.
inline constexpr std::size_t kFenceBytes = sizeof(std::uint64_t) + 1;

EtcdCall read_key(std::string_view key);

/// A lease of its own; etcd chooses its number.
EtcdCall grant_lease(std::uint64_t ttl_seconds);

/// Takes `name` if nobody has it, for as long as the lease lasts.
EtcdCall take_name(std::string_view name, std::string_view owner, std::uint64_t lease);

/// Ends the lease, and deletes what is bound to it.
EtcdCall revoke_lease(std::uint64_t lease);

EtcdCall delete_key(std::string_view key);

/// The message in the body of a response; empty if there is no whole one.
std::string_view message_in(std::string_view body);

bool has_succeeded(std::string_view txn_response);
std::uint64_t granted_lease(std::string_view grant_response);
std::uint64_t deleted_keys(std::string_view delete_response);

struct Found {
  bool is_there;
  std::size_t stored_bytes;
};
Found found(std::string_view range_response);

}  // namespace fencekv::bench
