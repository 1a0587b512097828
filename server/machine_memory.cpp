// SPDX-License-Identifier: Apache-2.0
#include "server/machine_memory.h"

#include "fencekv/options.h"
#include "fencekv/types.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace fencekv::server {
namespace {

namespace fs = std::filesystem;

using Limit = std::optional<std::uint64_t>;

Limit smaller(Limit a, Limit b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

/// `MemTotal:       16316412 kB`
Limit physical_memory(const fs::path& root) {
  constexpr std::string_view kName = "MemTotal:";
  constexpr std::string_view kUnit = " kB";
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kName)) continue;
    if (!line.ends_with(kUnit)) return std::nullopt;
    const auto begin = std::min(line.find_first_not_of(' ', kName.size()), line.size());
    const auto digits =
        std::string_view(line).substr(begin, std::max(line.size() - kUnit.size(), begin) - begin);
    const auto kibibytes = parse_decimal(digits, UINT64_MAX / 1024);
    if (!kibibytes) return std::nullopt;
    return *kibibytes * 1024;
  }
  return std::nullopt;
}

/// `Max address space         unlimited            unlimited            bytes`: the soft one. The
/// process would end at it as for want of memory.
Limit address_space(const fs::path& root) {
  constexpr std::string_view kName = "Max address space ";
  std::ifstream file(root / "proc/self/limits");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kName)) continue;
    const auto begin = std::min(line.find_first_not_of(' ', kName.size()), line.size());
    const auto end = std::min(line.find(' ', begin), line.size());
    return parse_decimal(std::string_view(line).substr(begin, end - begin));
  }
  return std::nullopt;
}

/// One number on one line; `max` of version 2 is none.
Limit number_in(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return parse_decimal(line);
}

/// Of the group and of all above it. In a container its own group may be mounted as the topmost
/// one, while it is called by its name outside: then nothing is found but there.
Limit limit_of(const fs::path& mount, const fs::path& group, const char* name) {
  Limit limit = number_in(mount / name);
  auto directory = mount;
  for (const auto& part : group.relative_path()) {
    // A group outside of what is mounted here.
    if (part == "..") break;
    directory /= part;
    limit = smaller(limit, number_in(directory / name));
  }
  return limit;
}

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const auto end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

std::optional<std::uint64_t> usable_memory(const fs::path& root) {
  auto limit = smaller(physical_memory(root), address_space(root));
  const auto groups = root / "sys/fs/cgroup";
  // `NUMBER:CONTROLLERS:PATH`; version 2 has no controllers there.
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    if (first == std::string::npos) continue;
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      limit = smaller(limit, limit_of(groups, group, "memory.max"));
    } else if (has_word(controllers, "memory")) {
      limit = smaller(limit, limit_of(groups / "memory", group, "memory.limit_in_bytes"));
    }
  }
  return limit;
}

std::size_t default_memory_budget(const fs::path& root) {
  constexpr std::uint64_t kLeast = std::uint64_t{64} * 1024 * 1024;
  constexpr std::uint64_t kMost = std::uint64_t{16} * 1024 * 1024 * 1024;
  const auto usable = usable_memory(root);
  if (!usable) return Options().memory_budget;
  return static_cast<std::size_t>(std::clamp(*usable / 4, kLeast, kMost));
}

}  // namespace fencekv::server
