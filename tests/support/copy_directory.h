// SPDX-License-Identifier: Apache-2.0
/// The files of a store as a killed process would leave them.

#pragma once

#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace fencekv::testing {

/// Copies the directory of an open store at which nothing is being written. RocksDB may still be
/// deleting files that it does not need any more, so a copy that misses one is made again.
inline void copy_directory(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::error_code error;
    std::filesystem::copy(from, to, std::filesystem::copy_options::recursive, error);
    if (!error) return;
    std::filesystem::remove_all(to);
  }
  throw std::runtime_error("cannot copy " + from.string());
}

}  // namespace fencekv::testing
