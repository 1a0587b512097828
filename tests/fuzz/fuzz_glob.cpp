// SPDX-License-Identifier: Apache-2.0
/// Any pattern on any text: the same verdict as a matcher that is written as plainly as possible,
/// within the number of steps that is promised.
#include "server/commands/glob.h"
#include "tests/fuzz/pieces.h"

#include <bitset>
#include <string>
#include <utility>
#include <vector>

namespace {

using fencekv::fuzz::require;
using fencekv::server::Glob;

/// What one element of a pattern takes: any run of bytes, or one byte of a set.
struct Element {
  bool is_star = false;
  std::bitset<256> bytes;
};

std::vector<Element> elements_of(std::string_view pattern) {
  std::vector<Element> elements;
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(pattern[i]); };
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    Element element;
    if (pattern[i] == '*') {
      element.is_star = true;
    } else if (pattern[i] == '?') {
      element.bytes.set();
    } else if (pattern[i] == '[') {
      ++i;
      const bool inverted = i < pattern.size() && pattern[i] == '^';
      if (inverted) ++i;
      const auto one = [&] {
        if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
        return at(i++);
      };
      while (i < pattern.size() && pattern[i] != ']') {
        unsigned char low = one();
        unsigned char high = low;
        if (i + 1 < pattern.size() && pattern[i] == '-' && pattern[i + 1] != ']') {
          ++i;
          high = one();
        }
        if (low > high) std::swap(low, high);
        for (unsigned byte = low; byte <= high; ++byte) element.bytes.set(byte);
      }
      if (inverted) element.bytes.flip();
    } else {
      if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
      element.bytes.set(at(i));
    }
    elements.push_back(element);
  }
  return elements;
}

/// Which beginnings of the text all elements so far can take.
bool matches_plainly(std::string_view pattern, std::string_view text) {
  std::vector<bool> reached(text.size() + 1, false);
  reached[0] = true;
  for (const auto& element : elements_of(pattern)) {
    std::vector<bool> next(text.size() + 1, false);
    for (std::size_t i = 0; i <= text.size(); ++i) {
      if (element.is_star) {
        next[i] = reached[i] || (i > 0 && next[i - 1]);
      } else if (i > 0) {
        next[i] = reached[i - 1] && element.bytes[static_cast<unsigned char>(text[i - 1])];
      }
    }
    reached = std::move(next);
  }
  return reached[text.size()];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  // PATTERN NUL TEXT.
  const std::string_view all(reinterpret_cast<const char*>(bytes), size);
  const auto split = all.find('\0');
  const auto pattern = all.substr(0, split).substr(0, Glob::kMaxBytes);
  const auto text = split == std::string_view::npos ? "" : all.substr(split + 1, 1024);

  std::size_t steps = 0;
  const bool verdict = Glob(pattern).matches(text, steps);

  require(verdict == matches_plainly(pattern, text), "the pattern means what Redis means");
  require(steps <= 2 * (pattern.size() + 1) * (text.size() + 1), "pattern times text steps");
  return 0;
}
