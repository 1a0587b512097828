// SPDX-License-Identifier: Apache-2.0
/// The patterns of MATCH and of CONFIG GET.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fencekv::server {

/// A pattern as Redis reads it: `*` any bytes, `?` one byte, `[abc]`, `[a-z]`, `[^abc]` one byte of
/// a set, `\x` the byte x itself. An unclosed `[` ends with the pattern.
///
/// Matching takes at most pattern times text steps and no recursion, whatever the pattern: a star
/// only ever falls back to the newest star, because the newest can do all that an older one could.
class Glob {
 public:
  static constexpr std::size_t kMaxBytes = 1024;

  explicit Glob(std::string_view pattern) : pattern_(pattern) {}

  bool matches(std::string_view text) const;

  /// The same, and adds to `steps` what it cost, so that a caller can stop in time.
  bool matches(std::string_view text, std::size_t& steps) const;

 private:
  std::string pattern_;
};

}  // namespace fencekv::server
