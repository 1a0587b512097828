// SPDX-License-Identifier: Apache-2.0
/// The lines of a dump, which anybody may have written: each is read in bounded memory and becomes
/// flat fields, whatever is in it.

#pragma once

#include "fencekv/result.h"
#include "tools/admin/digest.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace fencekv::admin {

/// What a line says under one name. `{"value": {"text": "x"}}` is the field `value.text`.
struct DumpField {
  enum class Kind {
    null,
    boolean,
    integer,  ///< Of 64 bits, not negative.
    text,
    list,   ///< What is in it is left out but for the number of its items.
    other,  ///< A negative or broken number.
  };
  Kind kind = Kind::null;
  std::uint64_t number = 0;  ///< Of a boolean, an integer; items of a list.
  std::string text;
};

using DumpFields = std::map<std::string, DumpField, std::less<>>;

/// The fields of one line. Errors: invalid, what is wrong with it as JSON, or as a line of a dump:
/// not one object, too deep, too many fields, or one named twice.
Result<DumpFields> parse_dump_line(std::string_view line);

/// Reads a dump line by line, and hashes what was read. Thread safety: none.
class DumpReader {
 public:
  /// `-` is standard input. Errors: invalid, it cannot be opened.
  static Result<DumpReader> open(const std::string& path);
  DumpReader(DumpReader&& other) noexcept;
  DumpReader& operator=(DumpReader&&) = delete;
  ~DumpReader();

  /// The next line, without its end; nullopt: there is none. The view is good until the next call.
  /// Errors: invalid, the line is longer than kDumpLineBytes; misconf, it cannot be read.
  Result<std::optional<std::string_view>> next();

  /// Whether the last line has no end: the dump stops in it.
  bool is_cut() const { return is_at_end_ && end_ == buffer_.size() && !buffer_.ends_with('\n'); }
  /// Of the last line, from 1.
  std::uint64_t line_number() const { return line_number_; }
  /// Read so far.
  std::uint64_t bytes() const { return bytes_; }
  /// Of the whole dump; 0: not known.
  std::uint64_t total_bytes() const { return total_bytes_; }

  /// The SHA-256 of all lines before the last one that next() gave, with their ends.
  std::string hash_before() const { return digest_.hex(); }

 private:
  DumpReader(int file, std::uint64_t total_bytes) : file_(file), total_bytes_(total_bytes) {}
  Result<void> fill();

  int file_;
  std::uint64_t total_bytes_;
  std::string buffer_;     // what was read, from before the last line on
  std::size_t begin_ = 0;  // of the last line in it
  std::size_t end_ = 0;    // behind the last line
  bool is_at_end_ = false;
  std::uint64_t line_number_ = 0;
  std::uint64_t bytes_ = 0;
  Digest digest_;
};

}  // namespace fencekv::admin
