// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/load/etcd_messages.h"

#include "tools/bench/load/protobuf.h"

#include <utility>

namespace fencekv::bench {

namespace {

constexpr std::string_view kTxnPath = "/etcdserverpb.KV/Txn";
constexpr std::string_view kRangePath = "/etcdserverpb.KV/Range";
constexpr std::string_view kDeletePath = "/etcdserverpb.KV/DeleteRange";
constexpr std::string_view kGrantPath = "/etcdserverpb.Lease/LeaseGrant";
constexpr std::string_view kRevokePath = "/etcdserverpb.Lease/LeaseRevoke";

// Numbers of fields and enumerators, by message: etcd's rpc.proto and kv.proto.
namespace txn_request {
constexpr std::uint32_t kCompare = 1;
constexpr std::uint32_t kSuccess = 2;
constexpr std::uint32_t kFailure = 3;
}  // namespace txn_request
namespace compare {
constexpr std::uint32_t kResult = 1;
constexpr std::uint32_t kTarget = 2;
constexpr std::uint32_t kKey = 3;
constexpr std::uint32_t kVersion = 4;
constexpr std::uint32_t kValue = 7;
constexpr std::uint64_t kResultEqual = 0;
constexpr std::uint64_t kResultGreater = 1;
constexpr std::uint64_t kTargetVersion = 0;
constexpr std::uint64_t kTargetValue = 3;
}  // namespace compare
namespace request_op {
constexpr std::uint32_t kPut = 2;
}  // namespace request_op
namespace put_request {
constexpr std::uint32_t kKey = 1;
constexpr std::uint32_t kValue = 2;
constexpr std::uint32_t kLease = 3;
}  // namespace put_request
namespace range_request {
constexpr std::uint32_t kKey = 1;
}  // namespace range_request
namespace delete_request {
constexpr std::uint32_t kKey = 1;
}  // namespace delete_request
namespace lease_request {
constexpr std::uint32_t kGrantTtl = 1;
constexpr std::uint32_t kRevokeId = 1;
}  // namespace lease_request
namespace response {
constexpr std::uint32_t kTxnSucceeded = 2;
constexpr std::uint32_t kRangeKvs = 2;
constexpr std::uint32_t kKeyValueValue = 5;
constexpr std::uint32_t kGrantId = 2;
constexpr std::uint32_t kDeleteDeleted = 2;
}  // namespace response

constexpr unsigned kByteBits = 8;
// gRPC: whether the message is compressed, one byte, and how long it is, four bytes.
constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kHeaderBytes = 1 + kLengthBytes;

std::string big_endian(std::uint64_t number, std::size_t bytes) {
  std::string out(bytes, '\0');
  for (std::size_t i = bytes; i-- > 0; number >>= kByteBits) out[i] = static_cast<char>(number);
  return out;
}

EtcdCall call(std::string_view path, std::string_view message) {
  std::string body(1, '\0');
  body += big_endian(message.size(), kLengthBytes);
  body += message;
  return {path, std::move(body)};
}

std::string put_op(std::string_view put) {
  std::string op;
  append_bytes(op, request_op::kPut, put);
  return op;
}

}  // namespace

EtcdCall fenced_put(std::string_view key, std::uint64_t token, std::string_view value) {
  std::string is_stale;
  append_number(is_stale, compare::kResult, compare::kResultGreater);
  append_number(is_stale, compare::kTarget, compare::kTargetValue);
  append_bytes(is_stale, compare::kKey, key);
  append_bytes(is_stale, compare::kValue, big_endian(token + 1, sizeof(token)));

  auto stored = big_endian(token, sizeof(token));
  stored += '\1';
  stored += value;
  std::string put;
  append_bytes(put, put_request::kKey, key);
  append_bytes(put, put_request::kValue, stored);

  std::string txn;
  append_bytes(txn, txn_request::kCompare, is_stale);
  append_bytes(txn, txn_request::kFailure, put_op(put));
  return call(kTxnPath, txn);
}

EtcdCall read_key(std::string_view key) {
  std::string range;
  append_bytes(range, range_request::kKey, key);
  return call(kRangePath, range);
}

EtcdCall grant_lease(std::uint64_t ttl_seconds) {
  std::string grant;
  append_number(grant, lease_request::kGrantTtl, ttl_seconds);
  return call(kGrantPath, grant);
}

EtcdCall take_name(std::string_view name, std::string_view owner, std::uint64_t lease) {
  std::string is_free;
  append_number(is_free, compare::kResult, compare::kResultEqual);
  append_number(is_free, compare::kTarget, compare::kTargetVersion);
  append_bytes(is_free, compare::kKey, name);
  append_number(is_free, compare::kVersion, 0);

  std::string put;
  append_bytes(put, put_request::kKey, name);
  append_bytes(put, put_request::kValue, owner);
  append_number(put, put_request::kLease, lease);

  std::string txn;
  append_bytes(txn, txn_request::kCompare, is_free);
  append_bytes(txn, txn_request::kSuccess, put_op(put));
  return call(kTxnPath, txn);
}

EtcdCall revoke_lease(std::uint64_t lease) {
  std::string revoke;
  append_number(revoke, lease_request::kRevokeId, lease);
  return call(kRevokePath, revoke);
}

EtcdCall delete_key(std::string_view key) {
  std::string request;
  append_bytes(request, delete_request::kKey, key);
  return call(kDeletePath, request);
}

std::string_view message_in(std::string_view body) {
  if (body.size() < kHeaderBytes || body[0] != '\0') return {};
  std::size_t length = 0;
  for (std::size_t i = 1; i < kHeaderBytes; ++i) {
    length = length << kByteBits | static_cast<unsigned char>(body[i]);
  }
  if (body.size() - kHeaderBytes != length) return {};
  return body.substr(kHeaderBytes);
}

bool has_succeeded(std::string_view txn_response) {
  return number_of(txn_response, response::kTxnSucceeded) != 0;
}

std::uint64_t granted_lease(std::string_view grant_response) {
  return number_of(grant_response, response::kGrantId);
}

std::uint64_t deleted_keys(std::string_view delete_response) {
  return number_of(delete_response, response::kDeleteDeleted);
}

Found found(std::string_view range_response) {
  const auto pair = bytes_of(range_response, response::kRangeKvs);
  return {!pair.empty(), bytes_of(pair, response::kKeyValueValue).size()};
}

}  // namespace fencekv::bench
