// SPDX-License-Identifier: Apache-2.0
/// The files below a store, as everything in this folder sees them: the real ones, or those of a
/// simulated disk that knows what was synced. Errors are values.

#pragma once

#include "fencekv/result.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace fencekv::rocks {

/// A file that is open for reading and writing. Thread safety: none.
class File {
 public:
  virtual ~File() = default;

  /// Writes all of `bytes` at `offset`. Nothing is durable before sync(). After an error any part
  /// of it may be there.
  virtual Result<void> write_at(std::uint64_t offset, std::string_view bytes) = 0;

  /// Appends are write_at(size); this one makes bytes and size durable.
  virtual Result<void> sync() = 0;
};

/// Held for as long as the object lives, at the latest until the process ends.
class FileLock {
 public:
  virtual ~FileLock() = default;

  /// Writes down in the file who holds it, for the message to the next one.
  virtual void note_holder() = 0;
};

enum class LockMode : std::uint8_t {
  shared,     ///< With other readers; the file must be there.
  exclusive,  ///< Alone; the file is created if there is none.
};

/// Bytes on the file system where a path is.
struct FreeSpace {
  std::uint64_t free = 0;   ///< What an unprivileged process may still write.
  std::uint64_t total = 0;  ///< Its size.
};

/// What a created, renamed or removed name is called is durable only after sync_directory() of the
/// directory it is in. Files are created with mode 0600, directories with 0700.
///
/// Errors: no_space for a full disk or quota, invalid for all else, each with the path and the
/// system's words.
/// Thread safety: all members may be called concurrently.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// A new, empty file. Never one that is there already, nor what a link points to.
  virtual Result<std::unique_ptr<File>> create(const std::filesystem::path& path) = 0;

  /// One that is there. Not through a link.
  virtual Result<std::unique_ptr<File>> open(const std::filesystem::path& path) = 0;

  /// The whole file; nullopt: there is none.
  virtual Result<std::optional<std::string>> read(const std::filesystem::path& path) = 0;

  /// At most `bytes` from `offset`; fewer only at the end of the file.
  virtual Result<std::string> read_at(const std::filesystem::path& path, std::uint64_t offset,
                                      std::size_t bytes) = 0;

  /// Bytes in the file.
  virtual Result<std::uint64_t> size(const std::filesystem::path& path) = 0;

  /// Whether there is anything of that name, be it a link to nowhere.
  virtual Result<bool> exists(const std::filesystem::path& path) = 0;

  virtual Result<bool> is_directory(const std::filesystem::path& path) = 0;

  /// The names in a directory, without `.` and `..`, in order.
  virtual Result<std::vector<std::string>> list(const std::filesystem::path& path) = 0;

  /// One directory whose parent is there. One that is there already is no error.
  virtual Result<void> make_directory(const std::filesystem::path& path) = 0;

  /// Replaces what `to` names, if there is anything, in one step.
  virtual Result<void> rename(const std::filesystem::path& from,
                              const std::filesystem::path& to) = 0;

  /// A second name for a file on the same file system.
  virtual Result<void> link(const std::filesystem::path& from, const std::filesystem::path& to) = 0;

  /// A file, or an empty directory. One that is not there is no error.
  virtual Result<void> remove(const std::filesystem::path& path) = 0;

  /// Makes the names in a directory durable.
  virtual Result<void> sync_directory(const std::filesystem::path& path) = 0;

  /// nullopt: it is not known.
  virtual std::optional<FreeSpace> free_space(const std::filesystem::path& path) = 0;

  /// Whether anybody but the owner can use what `path` names.
  virtual bool is_open_to_others(const std::filesystem::path& path) = 0;

  /// nullptr: somebody else holds it in a way that excludes `mode`.
  virtual Result<std::unique_ptr<FileLock>> lock(const std::filesystem::path& path,
                                                 LockMode mode) = 0;

  /// The same disk as RocksDB sees it, an OrderedEnv. It lives as long as the file system.
  virtual rocksdb::Env* env() = 0;
};

/// The files of this machine.
FileSystem& posix_files();

/// An error about `path` from errno.
Error file_error(std::string_view action, const std::filesystem::path& path, int number);

/// `store/` and `store` are one directory with one parent: without the slash.
std::filesystem::path without_slash(const std::filesystem::path& directory);

/// Puts a file with this content in place, durably, all or nothing.
Result<void> replace_file(FileSystem& files, const std::filesystem::path& path,
                          std::string_view content);

/// Removes a directory with all that is in it; one that is not there is no error.
Result<void> remove_tree(FileSystem& files, const std::filesystem::path& path);

/// Creates the directories of `path` that are missing, durably.
Result<void> make_directories(FileSystem& files, const std::filesystem::path& path);

}  // namespace fencekv::rocks
