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

/// One reply, as a tree. The null bulk string, the null array and RESP3's null are all Kind::null;
/// an attribute is dropped; a blob error is an error, a verbatim string a bulk string without its
/// prefix, a big number a real.
struct Value {
  enum class Kind { simple, error, integer, bulk, null, array, map, set, boolean, real, push };

  Kind kind = Kind::null;
  std::string text;          ///< simple, error, bulk (also verbatim), real, big numbers.
  std::int64_t integer = 0;  ///< integer, boolean (1 or 0).
  std::vector<Value> parts;  ///< array, set, push; map: key, value, key, value …

  bool is_null() const { return kind == Kind::null; }
  bool is_error() const { return kind == Kind::error; }
  /// The value under `key` of a map or of a flat array of pairs; nullptr if there is none, or if
  /// this is neither.
  const Value* at(std::string_view key) const;

  friend bool operator==(const Value&, const Value&) = default;
};

/// What a reply may measure; beyond it, the stream is given up.
struct ReplyLimits {
  /// Memory of one reply: its strings, and sizeof(Value) for each value in it.
  std::size_t reply_bytes = std::size_t{128} * 1024 * 1024;
  std::size_t depth = 16;  ///< Aggregates within each other.
};

/// Finds replies in a stream of bytes that arrives in any pieces. Strict: what is not RESP2 or
/// RESP3 to the byte ends the stream, for a client that guesses would give one command another's
/// answer. Streamed strings and aggregates (`$?`, `*?`) are not understood.
///
/// Memory: grows with what was received, never with what a header announces.
/// Time: linear in the bytes fed, in however many pieces.
/// Thread safety: none; a parser belongs to one connection.
class ReplyParser {
 public:
  enum class Status {
    need_more,       ///< No complete reply yet.
    reply,           ///< One is in reply().
    protocol_error,  ///< The stream cannot be followed any more; error() says why. Final.
  };

  explicit ReplyParser(ReplyLimits limits = {}) : limits_(limits) {}

  void feed(std::string_view bytes);
  /// Goes on to the next complete reply, then in reply(). Pushes are replies of Kind::push.
  Status next();
  /// Valid until the next call of next(); may be moved from.
  Value& reply() { return reply_; }
  const std::string& error() const { return error_; }

 private:
  /// An aggregate whose parts are still arriving.
  struct Open {
    Value value;
    std::size_t awaited;
    bool attribute;  ///< Dropped when complete: it only describes the value after it.
  };

  std::optional<Status> step();
  std::optional<Status> read_header(std::string_view line);
  std::optional<Status> read_blob();
  std::optional<Status> open(char type, std::string_view count);
  /// Puts a complete value where it belongs; Status::reply once the outermost is complete.
  std::optional<Status> place(Value value);
  bool charge(std::size_t bytes);
  Status fail(std::string_view why);

  ReplyLimits limits_;
  std::string buffer_;
  std::size_t scan_ = 0;             ///< Everything before this is understood and consumed.
  std::size_t searched_ = 0;         ///< No line end before this.
  std::size_t charged_ = 0;          ///< Of limits_.reply_bytes, by the reply that is arriving.
  std::optional<std::size_t> blob_;  ///< Length of the blob whose header was read.
  char blob_type_ = 0;
  std::vector<Open> open_;
  Value reply_;
  std::string error_;
  bool failed_ = false;
};

}  // namespace fencekv::resp
