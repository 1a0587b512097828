// SPDX-License-Identifier: Apache-2.0
/// Files as a test looks at them and damages them.

#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fencekv::testing {

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

/// Replaces what the file holds; its name stays the same file.
inline void set_content(const std::filesystem::path& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

inline void flip_bit(const std::filesystem::path& path, std::size_t offset, int bit = 0) {
  auto content = content_of(path);
  content.at(offset) = static_cast<char>(content.at(offset) ^ (1 << bit));
  set_content(path, content);
}

/// Every file below `root` with its content, by its path from there; directories end in a slash,
/// links show where they lead.
using FileTree = std::map<std::string, std::string>;

inline FileTree tree_of(const std::filesystem::path& root) {
  FileTree tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    auto name = std::filesystem::relative(entry.path(), root).string();
    if (entry.is_symlink()) {
      tree[name] = "-> " + std::filesystem::read_symlink(entry.path()).string();
    } else if (entry.is_directory()) {
      tree[name + "/"] = "";
    } else {
      tree[name] = content_of(entry.path());
    }
  }
  return tree;
}

/// The names that differ between two trees, one a line; empty: there are none.
inline std::string difference(const FileTree& before, const FileTree& after) {
  std::string text;
  for (const auto& [name, content] : before) {
    const auto found = after.find(name);
    if (found == after.end()) text += name + " is gone\n";
    if (found != after.end() && found->second != content) text += name + " has changed\n";
  }
  for (const auto& [name, content] : after) {
    if (!before.contains(name)) text += name + " is new\n";
  }
  return text;
}

inline void copy_tree(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::remove_all(to);
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

}  // namespace fencekv::testing
