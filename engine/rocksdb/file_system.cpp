// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/file_system.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>

namespace fencekv::rocks {

File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

Error file_error(std::string_view action, const std::filesystem::path& path, int number) {
  const bool is_full = number == ENOSPC || number == EDQUOT;
  return {is_full ? Errc::no_space : Errc::invalid, "cannot " + std::string(action) + " " +
                                                        path.string() + ": " +
                                                        std::generic_category().message(number)};
}

Result<File> open_file(const std::filesystem::path& path, int flags) {
  const int descriptor = open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (descriptor < 0) return file_error("open", path, errno);
  return File(descriptor);
}

Result<std::optional<std::string>> read_file(const std::filesystem::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 && errno == ENOENT) return std::optional<std::string>{};
  if (descriptor < 0) return file_error("open", path, errno);

  const File file(descriptor);
  std::string content;
  std::array<char, 8192> chunk{};
  while (true) {
    const auto size = read(file.descriptor(), chunk.data(), chunk.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return file_error("read", path, errno);
    if (size == 0) return std::optional(std::move(content));
    content.append(chunk.data(), static_cast<std::size_t>(size));
  }
}

Result<void> write_at(const File& file, const std::filesystem::path& path, std::string_view bytes,
                      std::uint64_t offset) {
  while (!bytes.empty()) {
    const auto size =
        pwrite(file.descriptor(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return file_error("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(size));
    offset += static_cast<std::uint64_t>(size);
  }
  return {};
}

Result<void> sync_file(const File& file, const std::filesystem::path& path) {
  if (fsync(file.descriptor()) != 0) return file_error("sync", path, errno);
  return {};
}

Result<void> sync_directory(const std::filesystem::path& path) {
  const auto directory = open_file(path, O_RDONLY | O_DIRECTORY);
  if (!directory) return directory.error();
  return sync_file(*directory, path);
}

Result<void> replace_file(const std::filesystem::path& path, std::string_view content) {
  auto temporary = path;
  temporary += ".new";
  // A left-over of an earlier try, or a link somebody planted, is never written through.
  unlink(temporary.c_str());
  const auto file = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (!file) return file.error();
  if (auto written = write_at(*file, temporary, content, 0); !written) return written;
  if (auto synced = sync_file(*file, temporary); !synced) return synced;
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return file_error("rename", path, errno);
  return sync_directory(path.parent_path());
}

std::uint64_t free_bytes(const std::filesystem::path& path) {
  struct statvfs state {};
  if (statvfs(path.c_str(), &state) != 0) return UINT64_MAX;
  return std::uint64_t{state.f_bavail} * state.f_frsize;
}

}  // namespace fencekv::rocks
