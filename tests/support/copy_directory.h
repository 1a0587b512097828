// SPDX-License-Identifier: Apache-2.0
/// The files of a store as a killed process would leave them.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

namespace fencekv::testing {

/// Names and sizes of all files below a directory.
inline std::map<std::string, std::uintmax_t> sizes_below(const std::filesystem::path& directory) {
  std::map<std::string, std::uintmax_t> sizes;
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::recursive_directory_iterator();
       entry.increment(error)) {
    std::error_code gone;
    sizes[entry->path().string()] = std::filesystem::file_size(entry->path(), gone);
  }
  return sizes;
}

/// Copies the directory of an open store at which nothing is being written. RocksDB may still be
/// merging tables and deleting what it does not need any more: a copy during which any file came,
/// went or grew is no state that a killed process could leave, and is made again.
inline void copy_directory(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto before = sizes_below(from);
    std::error_code error;
    std::filesystem::copy(from, to, std::filesystem::copy_options::recursive, error);
    if (!error && sizes_below(from) == before) return;
    std::filesystem::remove_all(to);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw std::runtime_error("cannot copy " + from.string());
}

}  // namespace fencekv::testing
