// SPDX-License-Identifier: Apache-2.0
/// Replies to bytes, in RESP2 or RESP3.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fencekv::resp {

enum class Protocol : int { resp2 = 2, resp3 = 3 };

/// Appends replies to a buffer. Aggregates are written as a header, then their parts.
class ReplyWriter {
 public:
  ReplyWriter(std::string& out, Protocol protocol) : out_(out), protocol_(protocol) {}

  Protocol protocol() const { return protocol_; }

  void simple(std::string_view text);         ///< `+OK`
  void error(std::string_view line);          ///< `-CODE …`; line breaks become blanks.
  void integer(std::int64_t number);          ///< `:1`
  void bulk(std::string_view bytes);          ///< `$3 abc`, any bytes.
  void number_as_bulk(std::uint64_t number);  ///< A token: a decimal bulk string.
  void verbatim(std::string_view text);       ///< RESP3 `=…txt:`; RESP2 a bulk.
  void boolean(bool yes);                     ///< RESP3 `#t`; RESP2 `:1`.
  void null();                                ///< RESP3 `_`; RESP2 `$-1`.
  void null_array();                          ///< RESP3 `_`; RESP2 `*-1`.
  void array(std::size_t parts);              ///< Header; `parts` replies follow.
  void map(std::size_t pairs);                ///< RESP3 `%n`; RESP2 `*2n`. 2·pairs replies follow.
  void set(std::size_t parts);                ///< RESP3 `~n`; RESP2 an array.
  /// RESP3 `>n`: no reply, but news that may come before or after any reply. Not for RESP2, whose
  /// clients would take it for the reply to their request.
  void push(std::size_t parts);

 private:
  std::string& out_;
  Protocol protocol_;
};

}  // namespace fencekv::resp
