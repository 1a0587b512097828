// SPDX-License-Identifier: Apache-2.0
/// Bytes of a server to replies: the client's side of the protocol, RESP2 and RESP3.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::resp {

/// One reply, as a tree.
struct Value {
  enum class Kind { simple, error, integer, bulk, null, array, map, set, boolean, real, push };

  Kind kind = Kind::null;
  std::string text;          ///< simple, error, bulk (also verbatim), real, big numbers.
  std::int64_t integer = 0;  ///< integer, boolean (1 or 0).
  std::vector<Value> parts;  ///< array, set, push; map: key, value, key, value …

  bool is_null() const { return kind == Kind::null; }
  bool is_error() const { return kind == Kind::error; }
  /// The value under `key` of a map or of a flat array of pairs; nullptr if there is none.
  const Value* at(std::string_view key) const;

  friend bool operator==(const Value&, const Value&) = default;
};

struct ReplyLimits {
  std::size_t reply_bytes = std::size_t{128} * 1024 * 1024;
  std::size_t depth = 16;
};

class ReplyParser {
 public:
  enum class Status { need_more, reply, protocol_error };

  explicit ReplyParser(ReplyLimits limits = {}) : limits_(limits) {}

  void feed(std::string_view bytes);
  /// Goes on to the next complete reply, then in reply().
  Status next();
  Value& reply() { return reply_; }
  const std::string& error() const { return error_; }

 private:
  // the resp author fills this in
};

}  // namespace fencekv::resp
