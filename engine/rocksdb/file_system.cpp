// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/file_system.h"

#include <cerrno>
#include <system_error>

namespace fencekv::rocks {

using std::filesystem::path;

Error file_error(std::string_view action, const path& file, int number) {
  const bool is_full = number == ENOSPC || number == EDQUOT;
  return {is_full ? Errc::no_space : Errc::invalid, "cannot " + std::string(action) + " " +
                                                        file.string() + ": " +
                                                        std::generic_category().message(number)};
}

path without_slash(const path& directory) {
  return directory.has_filename() ? directory : directory.parent_path();
}

Result<void> replace_file(FileSystem& files, const path& file, std::string_view content) {
  auto temporary = file;
  temporary += ".new";
  // A left-over of an earlier try, or a link somebody planted, is never written through.
  if (auto removed = files.remove(temporary); !removed) return removed;
  {
    const auto created = files.create(temporary);
    if (!created) return created.error();
    if (auto written = (*created)->write_at(0, content); !written) return written;
    if (auto synced = (*created)->sync(); !synced) return synced;
  }
  if (auto renamed = files.rename(temporary, file); !renamed) return renamed;
  return files.sync_directory(file.parent_path());
}

Result<void> remove_tree(FileSystem& files, const path& tree) {
  // A link to a directory goes; what it points to stays.
  auto removed = files.remove(tree);
  if (removed) return removed;
  const auto is_directory = files.is_directory(tree);
  if (!is_directory || !*is_directory) return removed;
  const auto names = files.list(tree);
  if (!names) return names.error();
  for (const auto& name : *names) {
    if (auto gone = remove_tree(files, tree / name); !gone) return gone;
  }
  return files.remove(tree);
}

Result<void> make_directories(FileSystem& files, const path& directory) {
  const auto is_directory = files.is_directory(directory);
  if (!is_directory) return is_directory.error();
  if (*is_directory) return {};
  const auto is_there = files.exists(directory);
  if (!is_there) return is_there.error();
  if (*is_there) return Error(Errc::invalid, directory.string() + " is not a directory");

  const auto parent = directory.parent_path();
  if (!parent.empty()) {
    if (auto made = make_directories(files, parent); !made) return made;
  }
  if (auto made = files.make_directory(directory); !made) return made;
  return files.sync_directory(parent.empty() ? "." : parent);
}

}  // namespace fencekv::rocks
