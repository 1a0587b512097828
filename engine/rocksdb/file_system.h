// SPDX-License-Identifier: Apache-2.0
/// The few file operations of our own files beside the database, with errors as values.

#pragma once

#include "fencekv/result.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fencekv::rocks {

/// An open file descriptor.
class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~File();

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

/// An error about `path` from errno: no_space for a full disk or quota, invalid otherwise.
Error file_error(std::string_view action, const std::filesystem::path& path, int number);

/// open(2) with O_CLOEXEC; a created file has mode 0600.
Result<File> open_file(const std::filesystem::path& path, int flags);

/// The whole file; nullopt: there is none.
Result<std::optional<std::string>> read_file(const std::filesystem::path& path);

/// Writes all of `bytes` at `offset`. Nothing is durable before sync_file().
Result<void> write_at(const File& file, const std::filesystem::path& path, std::string_view bytes,
                      std::uint64_t offset);

Result<void> sync_file(const File& file, const std::filesystem::path& path);

/// Makes the names in a directory durable: created, renamed and removed files.
Result<void> sync_directory(const std::filesystem::path& path);

/// Puts a file with this content in place, durably, all or nothing.
Result<void> replace_file(const std::filesystem::path& path, std::string_view content);

/// Bytes that an unprivileged process may still write where `path` is; UINT64_MAX: not known.
std::uint64_t free_bytes(const std::filesystem::path& path);

}  // namespace fencekv::rocks
