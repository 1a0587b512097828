// SPDX-License-Identifier: Apache-2.0
/// Checks that hold in every build, how a fuzz input says where a stream is split, and a file that
/// holds it.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

namespace fencekv::fuzz {

/// Ends the process with `promise` if it is broken: libFuzzer keeps the input then.
inline void require(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

/// The input's first byte seeds how the rest of it is cut.
inline std::vector<std::string_view> pieces_of(const std::uint8_t* bytes, std::size_t size) {
  std::vector<std::string_view> pieces;
  if (size == 0) return pieces;
  std::uint32_t seed = bytes[0];
  std::string_view rest(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  while (!rest.empty()) {
    seed = seed * 1664525 + 1013904223;
    const std::size_t piece = std::min<std::size_t>(1 + (seed >> 16U) % 32, rest.size());
    pieces.push_back(rest.substr(0, piece));
    rest.remove_prefix(piece);
  }
  return pieces;
}

/// A file in memory that is written anew for each input.
class MemoryFile {
 public:
  /// Its name, once it holds `text`.
  std::string holding(std::string_view text) {
    require(::ftruncate(file_, 0) == 0, "the file can be emptied");
    require(::pwrite(file_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()),
            "the file can be written");
    return "/proc/self/fd/" + std::to_string(file_);
  }

 private:
  const int file_ = ::memfd_create("input", MFD_CLOEXEC);
};

}  // namespace fencekv::fuzz
