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
  std::size_t arguments = 1024 * 1024;
  std::size_t argument_bytes = std::size_t{64} * 1024 * 1024;
  std::size_t inline_bytes = 64 * 1024;
};

/// Finds requests (RESP arrays of bulk strings, and inline commands with redis-cli's quoting) in a
/// stream of bytes that arrives in any pieces.
///
/// Memory: grows with what was received, never with what a header announces.
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
  // the resp author fills this in
};

}  // namespace fencekv::resp
