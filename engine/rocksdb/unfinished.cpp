// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/unfinished.h"

#include "fencekv/types.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::rocks {
namespace {

using std::filesystem::path;

constexpr std::string_view kEnding = ".fencekv-unfinished";

/// All that anything in the making may hold. What holds more is not ours to remove.
constexpr std::array<std::string_view, 9> kParts{"CREATING",   "CREATING.new",        "FORMAT",
                                                 "FORMAT.new", "MANIFEST.backup",     "db",
                                                 "lock",       "MANIFEST.backup.new", "position"};

path folder_of(const path& target) {
  return target.has_parent_path() ? target.parent_path() : path(".");
}

bool is_unfinished_name(std::string_view name) {
  return name.starts_with('.') && name.ends_with(kEnding) && name.size() > kEnding.size() + 1;
}

Error not_ours(const path& unfinished, const std::string& name) {
  return {Errc::invalid, unfinished.string() + " holds " + escaped(name) +
                             ", which fencekv did not put there: move it away"};
}

/// Removes what an earlier one left at `unfinished`. Errors: in_use, it is being built now;
/// invalid, something else is there.
Result<void> clear(FileSystem& files, const path& unfinished) {
  // An empty directory, or a link that somebody planted: what it points to stays.
  if (files.remove(unfinished)) return {};
  const auto names = files.list(unfinished);
  if (!names) return names.error();
  for (const auto& name : *names) {
    if (std::find(kParts.begin(), kParts.end(), name) == kParts.end()) {
      return not_ours(unfinished, name);
    }
  }
  const auto taken = Directory::take(files, unfinished);
  if (!taken) return taken.error();
  return remove_tree(files, unfinished);
}

/// Removes what was left beside, of other names. What cannot be removed is nobody's hindrance here.
void clear_others(FileSystem& files, const path& folder) {
  const auto names = files.list(folder);
  if (!names) return;
  for (const auto& name : *names) {
    if (!is_unfinished_name(name)) continue;
    const auto cleared = clear(files, folder / name);
    static_cast<void>(cleared);
  }
}

Result<void> check_target(FileSystem& files, const path& target, Unfinished::Target allowed) {
  const auto is_there = files.exists(target);
  if (!is_there) return is_there.error();
  if (!*is_there) return {};
  if (allowed == Unfinished::Target::absent) {
    return Error(Errc::invalid, target.string() + " is there already");
  }
  const auto is_directory = files.is_directory(target);
  if (!is_directory) return is_directory.error();
  if (!*is_directory) return Error(Errc::invalid, target.string() + " is not a directory");
  const auto names = files.list(target);
  if (!names) return names.error();
  if (names->empty()) return {};
  return Error(Errc::invalid, target.string() + " holds " + escaped(names->front()) +
                                  ": name an empty or new directory");
}

}  // namespace

Result<Unfinished> Unfinished::begin(FileSystem& files, const path& target, Target allowed) {
  const auto plain = without_slash(target);
  const auto name = plain.filename();
  if (name.empty() || name == "." || name == "..") {
    return Error(Errc::invalid, "not the name of a new directory: " + escaped(target.string()));
  }
  const auto folder = folder_of(plain);
  const auto has_folder = files.is_directory(folder);
  if (!has_folder) return has_folder.error();
  if (!*has_folder) return Error(Errc::invalid, folder.string() + " is not a directory");
  if (auto checked = check_target(files, plain, allowed); !checked) return checked.error();

  const auto unfinished = Directory::unfinished(folder / name);
  if (auto cleared = clear(files, unfinished); !cleared) return cleared.error();
  clear_others(files, folder);
  auto taken = Directory::take(files, unfinished);
  if (!taken) return std::move(taken).error();
  return Unfinished(files, plain, *std::move(taken));
}

Unfinished::~Unfinished() {
  if (!directory_) return;
  const auto removed = remove_tree(*files_, where());
  static_cast<void>(removed);
}

Result<void> Unfinished::publish() {
  if (auto synced = files_->sync_directory(where()); !synced) return synced;
  if (auto renamed = files_->rename(where(), target_); !renamed) return renamed;
  directory_.reset();
  return files_->sync_directory(folder_of(target_));
}

}  // namespace fencekv::rocks
