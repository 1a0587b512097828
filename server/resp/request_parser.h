// SPDX-License-Identifier: Apache-2.0
/// Bytes of a Redis client to requests. Never sees a socket, so it can be fuzzed.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::resp {

/// The arguments of one request, the command's name first. They point into the parser's buffer and
/// live until the next call of next() or feed().
using Request = std::vector<std::string_view>;

/// What a request may measure. The session tightens it until the client has authenticated.
struct RequestLimits {
  std::size_t request_bytes = std::size_t{64} * 1024 * 1024;
  std::size_t arguments = std::size_t{1024} * 1024;
  std::size_t argument_bytes = std::size_t{64} * 1024 * 1024;
  std::size_t inline_bytes = std::size_t{64} * 1024;
};

/// Finds requests (RESP arrays of bulk strings, and inline commands with redis-cli's quoting) in a
/// stream of bytes that arrives in any pieces.
///
/// Framing follows Redis 7.0 to the byte, its tolerance included: in the headers of an array a CR
/// ends the line whatever the byte after it is, and the two bytes that follow an argument are not
/// looked at. Inline lines end with LF, a CR before it is dropped. What is answered depends on the
/// bytes alone, not on the pieces in which they arrive.
///
/// Memory: grows with what was received, never with what a header announces; what an unusually long
/// request took is given back once it is consumed.
/// Time: linear in the bytes fed, in however many pieces.
/// Thread safety: none; a parser belongs to one connection.
class RequestParser {
 public:
  enum class Status {
    need_more,       ///< No complete request yet.
    request,         ///< One is in request().
    protocol_error,  ///< The stream cannot be followed any more; error() says why. Final.
    too_big,         ///< A limit is exceeded; error() says which. Final.
  };

  explicit RequestParser(RequestLimits limits) : limits_(limits) {}

  void set_limits(RequestLimits limits) { limits_ = limits; }

  /// Appends what arrived.
  void feed(std::string_view bytes);

  /// Goes on to the next request. Empty requests (`*0`, `*-1`, empty lines) are skipped.
  Status next();

  const Request& request() const { return request_; }

  /// The error line for the client, without the leading `-`: `ERR Protocol error: …` or `TOOBIG …`.
  const std::string& error() const { return error_; }

  /// Bytes held that next() has not consumed.
  std::size_t buffered() const;

 private:
  // Offsets instead of views while a request is incomplete: the buffer still moves.
  struct Span {
    std::size_t begin;
    std::size_t size;
  };

  std::optional<Status> step();
  std::optional<Status> read_line();
  std::optional<Status> read_count();
  std::optional<Status> read_argument();
  /// Finds `end` at or after scan_, remembering how far it looked. nullopt and no failure: more
  /// bytes are needed.
  std::optional<std::size_t> find(char end, std::string_view too_long);
  bool split_line(std::size_t end);
  void consume_previous();
  Status finish();
  Status fail(Status status, std::string line);
  Status fail_request_bytes();

  RequestLimits limits_;
  std::string buffer_;
  std::size_t start_ = 0;     ///< The current request begins here; all before is consumed.
  std::size_t scan_ = 0;      ///< Everything before this is understood.
  std::size_t searched_ = 0;  ///< find() has looked at everything before this.
  std::size_t awaited_ = 0;   ///< Arguments still to come; 0: between requests.
  std::optional<std::size_t> argument_;  ///< Length of the argument whose header was read.
  std::vector<Span> spans_;
  Request request_;
  std::string error_;
  std::optional<Status> failed_;
};

}  // namespace fencekv::resp
