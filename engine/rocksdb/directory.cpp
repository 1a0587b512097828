// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/directory.h"

#include "engine/core/record.h"
#include "fencekv/types.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace fencekv::rocks {
namespace {

constexpr std::string_view kStamp = "FORMAT";
constexpr std::string_view kCreating = "CREATING";
constexpr std::string_view kTitle = "fencekv store\n";
constexpr std::string_view kFormatWord = "format ";

std::string stamp_text() {
  return std::string(kTitle) + std::string(kFormatWord) + std::to_string(core::kFormat) + "\n";
}

/// The number after `format ` in the stamp; nullopt: it is not a stamp. Formats count from 1.
std::optional<std::uint64_t> parse_stamp(std::string_view text) {
  if (!text.starts_with(kTitle)) return std::nullopt;
  text.remove_prefix(kTitle.size());
  if (!text.starts_with(kFormatWord)) return std::nullopt;
  text.remove_prefix(kFormatWord.size());
  const auto end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const auto format = parse_decimal(text.substr(0, end));
  return format && *format >= 1 ? format : std::nullopt;
}

Result<bool> is_there(const std::filesystem::path& path) {
  std::error_code error;
  const bool found = std::filesystem::exists(std::filesystem::symlink_status(path, error));
  if (error && error.value() != ENOENT) return file_error("look at", path, error.value());
  return found;
}

/// Creates the missing directories of `path`; the last one with mode 0700.
Result<void> make_directory(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return {};
  const auto parent = path.parent_path();
  if (!parent.empty()) {
    std::filesystem::create_directories(parent, error);
    if (error) return file_error("create", parent, error.value());
  }
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return file_error("create", path, errno);
  if (!std::filesystem::is_directory(path, error)) {
    return Error(Errc::invalid, path.string() + " is not a directory");
  }
  return sync_directory(parent.empty() ? "." : parent);
}

/// Who holds the lock, as its holder wrote it down.
std::string holder(const std::filesystem::path& lock) {
  const auto content = read_file(lock);
  if (!content || !*content || (*content)->empty()) return "another process";
  return "process " + escaped((*content)->substr(0, (*content)->find('\n')));
}

}  // namespace

std::filesystem::path Directory::stamp() const {
  return path_ / kStamp;
}

std::filesystem::path Directory::creating() const {
  return path_ / kCreating;
}

Result<Directory> Directory::lock(const std::filesystem::path& path, int operation, int flags) {
  const auto lock_path = path / "lock";
  auto file = open_file(lock_path, flags | O_NOFOLLOW);
  if (!file) return file.error();
  if (flock(file->descriptor(), operation | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return file_error("lock", lock_path, errno);
    return Error(Errc::in_use, path.string() + " is in use by " + holder(lock_path) +
                                   ": a store belongs to one process at a time");
  }
  return Directory(path, *std::move(file));
}

Result<Directory> Directory::take(const std::filesystem::path& path) {
  // `store/` and `store` are one directory with one parent.
  const auto plain = path.has_filename() ? path : path.parent_path();
  if (auto made = make_directory(plain); !made) return made.error();
  auto taken = lock(plain, LOCK_EX, O_RDWR | O_CREAT);
  if (!taken) return taken;

  // For the message to the second process only, so a full disk does not matter.
  if (ftruncate(taken->lock_.descriptor(), 0) == 0) {
    const auto noted = write_at(taken->lock_, plain / "lock", std::to_string(getpid()) + "\n", 0);
    static_cast<void>(noted);
  }
  return taken;
}

Result<Directory> Directory::share(const std::filesystem::path& path) {
  const auto plain = path.has_filename() ? path : path.parent_path();
  return lock(plain, LOCK_SH, O_RDONLY);
}

Result<bool> Directory::is_being_created(const std::filesystem::path& path) {
  return is_there(path / kCreating);
}

Result<bool> Directory::has_stamp(const std::filesystem::path& path) {
  const auto stamp = path / kStamp;
  const auto text = read_file(stamp);
  if (!text) return text.error();
  if (!*text) return false;

  const auto format = parse_stamp(**text);
  if (!format) {
    return Error(Errc::corrupt, stamp.string() + " is damaged: it is not a format stamp");
  }
  if (*format > core::kFormat) {
    return Error(Errc::newer_format, path.string() + " has format " + std::to_string(*format) +
                                         "; this build reads up to " +
                                         std::to_string(core::kFormat) + ". Use a newer fencekv");
  }
  return true;
}

Result<bool> Directory::is_new() const {
  const auto is_unfinished = is_being_created(path_);
  if (!is_unfinished) return is_unfinished;
  if (*is_unfinished) return true;

  const auto stamped = has_stamp(path_);
  if (!stamped) return stamped;
  if (*stamped) {
    for (const auto& part : {database() / "CURRENT", position()}) {
      const auto found = is_there(part);
      if (!found) return found;
      if (!*found) return Error(Errc::corrupt, part.string() + " is missing");
    }
    return false;
  }

  for (const auto& part : {database(), position()}) {
    const auto found = is_there(part);
    if (!found) return found;
    if (*found) {
      return Error(Errc::corrupt, stamp().string() + " is missing, but " + part.string() +
                                      " is there: this is not a new store");
    }
  }
  std::error_code error;
  std::filesystem::directory_iterator entry(path_, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const auto name = entry->path().filename().string();
    if (name == "lock" || name == "lost+found" || name == "CREATING.new") continue;
    return Error(Errc::invalid, path_.string() + " holds " + escaped(name) +
                                    " and no store: name an empty or new directory");
  }
  if (error) return file_error("list", path_, error.value());
  return true;
}

Result<void> Directory::begin_creation() const {
  if (auto marked = replace_file(creating(), "this store is being created\n"); !marked) {
    return marked;
  }
  std::error_code error;
  for (const auto& part : {database(), position(), stamp()}) {
    std::filesystem::remove_all(part, error);
    if (error) return file_error("remove", part, error.value());
  }
  if (mkdir(database().c_str(), 0700) != 0) return file_error("create", database(), errno);
  return sync_directory(path_);
}

Result<void> Directory::finish_creation() const {
  if (auto stamped = replace_file(stamp(), stamp_text()); !stamped) return stamped;
  if (unlink(creating().c_str()) != 0) return file_error("remove", creating(), errno);
  return sync_directory(path_);
}

bool Directory::is_open_to_others() const {
  struct stat state {};
  return stat(path_.c_str(), &state) == 0 && (state.st_mode & 0077) != 0;
}

}  // namespace fencekv::rocks
