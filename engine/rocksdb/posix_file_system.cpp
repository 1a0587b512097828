// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/file_system.h"
#include "engine/rocksdb/ordered_env.h"

#include <rocksdb/env.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace fencekv::rocks {
namespace {

using std::filesystem::path;

/// An open file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }

  int number() const { return number_; }

 private:
  int number_;
};

Result<Descriptor> open_descriptor(const path& file, int flags) {
  while (true) {
    const int number = open(file.c_str(), flags | O_CLOEXEC, 0600);
    if (number >= 0) return Descriptor(number);
    if (errno != EINTR) return file_error("open", file, errno);
  }
}

Result<void> write_all(const Descriptor& descriptor, const path& file, std::string_view bytes,
                       std::uint64_t offset) {
  while (!bytes.empty()) {
    const auto size =
        pwrite(descriptor.number(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return file_error("write", file, errno);
    bytes.remove_prefix(static_cast<std::size_t>(size));
    offset += static_cast<std::uint64_t>(size);
  }
  return {};
}

Result<void> sync_descriptor(const Descriptor& descriptor, const path& file) {
  // Not tried again: after a failed fsync the kernel may have dropped what was not written.
  if (fsync(descriptor.number()) != 0) return file_error("sync", file, errno);
  return {};
}

class PosixFile final : public File {
 public:
  PosixFile(path path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  Result<void> write_at(std::uint64_t offset, std::string_view bytes) override {
    return write_all(descriptor_, path_, bytes, offset);
  }

  Result<void> sync() override { return sync_descriptor(descriptor_, path_); }

 private:
  const path path_;
  const Descriptor descriptor_;
};

class PosixLock final : public FileLock {
 public:
  PosixLock(path path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  void note_holder() override {
    // Only a message depends on it, so a full disk does not matter.
    if (ftruncate(descriptor_.number(), 0) != 0) return;
    const auto noted = write_all(descriptor_, path_, std::to_string(getpid()) + "\n", 0);
    static_cast<void>(noted);
  }

 private:
  const path path_;
  const Descriptor descriptor_;
};

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> create(const path& file) override {
    return open_as_file(file, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
  }

  Result<std::unique_ptr<File>> open(const path& file) override {
    return open_as_file(file, O_RDWR | O_NOFOLLOW);
  }

  Result<std::optional<std::string>> read(const path& file) override {
    const int number = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (number < 0 && errno == ENOENT) return std::optional<std::string>{};
    if (number < 0) return file_error("open", file, errno);

    const Descriptor descriptor(number);
    std::string content;
    std::array<char, 8192> chunk{};
    while (true) {
      const auto size = ::read(descriptor.number(), chunk.data(), chunk.size());
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return file_error("read", file, errno);
      if (size == 0) return std::optional(std::move(content));
      content.append(chunk.data(), static_cast<std::size_t>(size));
    }
  }

  Result<std::string> read_at(const path& file, std::uint64_t offset, std::size_t bytes) override {
    const auto descriptor = open_descriptor(file, O_RDONLY);
    if (!descriptor) return descriptor.error();
    std::string content(bytes, '\0');
    std::size_t filled = 0;
    while (filled < bytes) {
      const auto size = pread(descriptor->number(), content.data() + filled, bytes - filled,
                              static_cast<off_t>(offset + filled));
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return file_error("read", file, errno);
      if (size == 0) break;
      filled += static_cast<std::size_t>(size);
    }
    content.resize(filled);
    return content;
  }

  Result<std::uint64_t> size(const path& file) override {
    struct stat state {};
    if (stat(file.c_str(), &state) != 0) return file_error("look at", file, errno);
    return static_cast<std::uint64_t>(state.st_size);
  }

  Result<bool> exists(const path& file) override {
    struct stat state {};
    if (lstat(file.c_str(), &state) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    return file_error("look at", file, errno);
  }

  Result<bool> is_directory(const path& file) override {
    struct stat state {};
    if (stat(file.c_str(), &state) == 0) return S_ISDIR(state.st_mode);
    if (errno == ENOENT || errno == ENOTDIR) return false;
    return file_error("look at", file, errno);
  }

  Result<std::vector<std::string>> list(const path& directory) override {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator entry(directory, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error) return file_error("list", directory, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<void> make_directory(const path& directory) override {
    if (mkdir(directory.c_str(), 0700) == 0) return {};
    const int failure = errno;
    const auto is_there = is_directory(directory);
    if (failure == EEXIST && is_there && *is_there) return {};
    return file_error("create", directory, failure);
  }

  Result<void> rename(const path& from, const path& to) override {
    if (std::rename(from.c_str(), to.c_str()) != 0) return file_error("rename", from, errno);
    return {};
  }

  Result<void> link(const path& from, const path& to) override {
    if (::link(from.c_str(), to.c_str()) != 0) return file_error("create", to, errno);
    return {};
  }

  Result<void> remove(const path& file) override {
    if (std::remove(file.c_str()) != 0 && errno != ENOENT) {
      return file_error("remove", file, errno);
    }
    return {};
  }

  Result<void> sync_directory(const path& directory) override {
    const auto descriptor = open_descriptor(directory, O_RDONLY | O_DIRECTORY);
    if (!descriptor) return descriptor.error();
    return sync_descriptor(*descriptor, directory);
  }

  std::optional<FreeSpace> free_space(const path& file) override {
    struct statvfs state {};
    if (statvfs(file.c_str(), &state) != 0) return std::nullopt;
    return FreeSpace{.free = std::uint64_t{state.f_bavail} * state.f_frsize,
                     .total = std::uint64_t{state.f_blocks} * state.f_frsize};
  }

  bool is_open_to_others(const path& file) override {
    struct stat state {};
    return stat(file.c_str(), &state) == 0 && (state.st_mode & 0077) != 0;
  }

  Result<std::unique_ptr<FileLock>> lock(const path& file, LockMode mode) override {
    const bool is_shared = mode == LockMode::shared;
    auto descriptor = open_descriptor(file, (is_shared ? O_RDONLY : O_RDWR | O_CREAT) | O_NOFOLLOW);
    if (!descriptor) return descriptor.error();
    // Not RocksDB's way, fcntl(2): whoever closed the file in this process would drop it.
    if (flock(descriptor->number(), (is_shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::unique_ptr<FileLock>();
      return file_error("lock", file, errno);
    }
    return std::unique_ptr<FileLock>(std::make_unique<PosixLock>(file, *std::move(descriptor)));
  }

  rocksdb::Env* env() override {
    // Never destroyed: databases may outlive what is destroyed at the end of the process.
    static auto* const ordered = new OrderedEnv(rocksdb::Env::Default());
    return ordered;
  }

 private:
  static Result<std::unique_ptr<File>> open_as_file(const path& file, int flags) {
    auto descriptor = open_descriptor(file, flags);
    if (!descriptor) return descriptor.error();
    return std::unique_ptr<File>(std::make_unique<PosixFile>(file, *std::move(descriptor)));
  }
};

}  // namespace

FileSystem& posix_files() {
  static PosixFileSystem files;
  return files;
}

}  // namespace fencekv::rocks
