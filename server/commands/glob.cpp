// SPDX-License-Identifier: Apache-2.0

#include "server/commands/glob.h"

#include <optional>
#include <utility>

namespace fencekv::server {
namespace {

/// Reads one element of a pattern that is not a star, at `at`; moves `at` behind it. Says whether
/// `byte` fits.
bool fits(std::string_view pattern, std::size_t& at, unsigned char byte) {
  const auto take = [&] { return static_cast<unsigned char>(pattern[at++]); };
  const auto take_escaped = [&] {
    if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
    return take();
  };

  if (pattern[at] == '?') {
    ++at;
    return true;
  }
  if (pattern[at] != '[') return take_escaped() == byte;

  ++at;
  const bool inverted = at < pattern.size() && pattern[at] == '^';
  if (inverted) ++at;
  bool found = false;
  while (at < pattern.size() && pattern[at] != ']') {
    unsigned char low = take_escaped();
    unsigned char high = low;
    if (at + 1 < pattern.size() && pattern[at] == '-' && pattern[at + 1] != ']') {
      ++at;
      high = take_escaped();
      if (low > high) std::swap(low, high);
    }
    if (byte >= low && byte <= high) found = true;
  }
  if (at < pattern.size()) ++at;
  return found != inverted;
}

}  // namespace

bool Glob::matches(std::string_view text) const {
  std::size_t steps = 0;
  return matches(text, steps);
}

bool Glob::matches(std::string_view text, std::size_t& steps) const {
  struct Fallback {
    std::size_t pattern_at;  // behind the star
    std::size_t text_at;     // the first byte that the star does not cover yet
  };
  std::optional<Fallback> star;
  std::size_t pattern_at = 0;
  std::size_t text_at = 0;

  while (text_at < text.size() || pattern_at < pattern_.size()) {
    ++steps;
    if (pattern_at < pattern_.size() && pattern_[pattern_at] == '*') {
      ++pattern_at;
      if (pattern_at == pattern_.size()) return true;
      star = Fallback{pattern_at, text_at};
      continue;
    }
    if (pattern_at < pattern_.size() && text_at < text.size()) {
      const std::size_t before = pattern_at;
      const bool fit = fits(pattern_, pattern_at, static_cast<unsigned char>(text[text_at]));
      steps += pattern_at - before;
      if (fit) {
        ++text_at;
        continue;
      }
    }
    if (!star || star->text_at >= text.size()) return false;
    ++star->text_at;
    text_at = star->text_at;
    pattern_at = star->pattern_at;
  }
  return true;
}

}  // namespace fencekv::server
