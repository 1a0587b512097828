// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/directory.h"

#include "engine/core/record.h"
#include "fencekv/types.h"

#include <optional>
#include <string_view>
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

/// Makes the names that lead to `path` durable: whoever created them may have died before they
/// were.
Result<void> sync_way_to(FileSystem& files, const std::filesystem::path& path) {
  auto directory = path;
  do {
    directory = directory.has_parent_path() ? directory.parent_path() : ".";
    // One that this user may pass through and not read was not created by it either.
    if (!files.list(directory)) continue;
    if (auto synced = files.sync_directory(directory); !synced) return synced;
  } while (directory.has_relative_path() && directory != ".");
  return {};
}

/// Who holds the lock, as its holder wrote it down.
std::string holder(FileSystem& files, const std::filesystem::path& lock) {
  const auto content = files.read(lock);
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

Result<Directory> Directory::lock(FileSystem& files, const std::filesystem::path& path,
                                  LockMode mode) {
  const auto lock_path = path / "lock";
  auto lock = files.lock(lock_path, mode);
  if (!lock) return lock.error();
  if (*lock) return Directory(files, path, *std::move(lock));
  return Error(Errc::in_use, path.string() + " is in use by " + holder(files, lock_path) +
                                 ": a store belongs to one process at a time");
}

Result<Directory> Directory::take(FileSystem& files, const std::filesystem::path& path) {
  const auto plain = without_slash(path);
  if (auto made = make_directories(files, plain); !made) return made.error();
  auto taken = lock(files, plain, LockMode::exclusive);
  if (taken) taken->lock_->note_holder();
  return taken;
}

Result<Directory> Directory::share(FileSystem& files, const std::filesystem::path& path) {
  const auto plain = without_slash(path);
  return lock(files, plain, LockMode::shared);
}

Result<bool> Directory::is_being_created(FileSystem& files, const std::filesystem::path& path) {
  return files.exists(path / kCreating);
}

Result<std::optional<std::uint64_t>> Directory::format(FileSystem& files,
                                                       const std::filesystem::path& path) {
  const auto stamp = path / kStamp;
  const auto text = files.read(stamp);
  if (!text) return text.error();
  if (!*text) return std::optional<std::uint64_t>{};

  const auto format = parse_stamp(**text);
  if (!format) {
    return Error(Errc::corrupt, stamp.string() + " is damaged: it is not a format stamp");
  }
  if (*format > core::kFormat) {
    return Error(Errc::newer_format, path.string() + " has format " + std::to_string(*format) +
                                         "; this build reads up to " +
                                         std::to_string(core::kFormat) + ". Use a newer fencekv");
  }
  return format;
}

std::filesystem::path Directory::unfinished(const std::filesystem::path& target) {
  return target.parent_path() / ("." + target.filename().string() + ".fencekv-unfinished");
}

Result<bool> Directory::is_new() const {
  const auto is_half_repaired = files_->exists(path_ / "repaired" / "COMPLETE");
  if (!is_half_repaired) return is_half_repaired;
  if (*is_half_repaired) {
    return Error(Errc::corrupt, path_.string() + " is half repaired: the repair was cut short");
  }
  const auto is_unfinished = is_being_created(*files_, path_);
  if (!is_unfinished) return is_unfinished;
  if (*is_unfinished) return true;

  const auto is_backup = files_->exists(path_ / "MANIFEST.backup");
  if (!is_backup) return is_backup;
  if (*is_backup) {
    return Error(Errc::invalid,
                 path_.string() + " is a backup: `fencekv-admin restore` makes a store of it");
  }

  const auto stamped = format(*files_, path_);
  if (!stamped) return stamped.error();
  if (*stamped) {
    for (const auto& part : {database() / "CURRENT", position()}) {
      const auto found = files_->exists(part);
      if (!found) return found;
      if (!*found) return Error(Errc::corrupt, part.string() + " is missing");
    }
    return false;
  }

  for (const auto& part : {database(), position()}) {
    const auto found = files_->exists(part);
    if (!found) return found;
    if (*found) {
      return Error(Errc::corrupt, stamp().string() + " is missing, but " + part.string() +
                                      " is there: this is not a new store");
    }
  }
  const auto names = files_->list(path_);
  if (!names) return names.error();
  for (const auto& name : *names) {
    if (name == "lock" || name == "lost+found" || name == "CREATING.new") continue;
    return Error(Errc::invalid, path_.string() + " holds " + escaped(name) +
                                    " and no store: name an empty or new directory");
  }
  const auto half = unfinished(path_);
  const auto is_half_made = files_->exists(half);
  if (!is_half_made) return is_half_made;
  if (*is_half_made) {
    // Whoever wanted the old data here must not get an empty store.
    return Error(Errc::invalid, half.string() +
                                    " is a store that was being made for this directory, and is "
                                    "not complete: do again what made it, or remove it");
  }
  return true;
}

Result<void> Directory::begin_creation() const {
  if (auto synced = sync_way_to(*files_, path_); !synced) return synced;
  if (auto marked = replace_file(*files_, creating(), "this store is being created\n"); !marked) {
    return marked;
  }
  for (const auto& part : {database(), position(), stamp()}) {
    if (auto removed = remove_tree(*files_, part); !removed) return removed;
  }
  if (auto made = files_->make_directory(database()); !made) return made;
  return files_->sync_directory(path_);
}

Result<void> Directory::finish_creation() const {
  if (auto stamped = replace_file(*files_, stamp(), stamp_text()); !stamped) return stamped;
  if (auto removed = files_->remove(creating()); !removed) return removed;
  return files_->sync_directory(path_);
}

Result<void> Directory::bring_stamp_up_to_date() const {
  const auto stamped = format(*files_, path_);
  if (!stamped) return stamped.error();
  if (*stamped != core::kFormat) return replace_file(*files_, stamp(), stamp_text());
  // Whoever put it there may have died before its name was durable.
  return files_->sync_directory(path_);
}

bool Directory::is_open_to_others() const {
  return files_->is_open_to_others(path_);
}

}  // namespace fencekv::rocks
