// SPDX-License-Identifier: Apache-2.0
#include "tools/run/command_path.h"

#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace fencekv::run {
namespace {

std::optional<ExitCode> look_at(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return errno == EACCES ? exit_not_executable : exit_not_found;
  }
  if (!S_ISREG(status.st_mode) || ::access(path.c_str(), X_OK) != 0) return exit_not_executable;
  return std::nullopt;
}

}  // namespace

std::optional<ExitCode> why_not_runnable(const std::string& command) {
  if (command.empty()) return exit_not_found;
  if (command.find('/') != std::string::npos) return look_at(command);

  // Read before the first thread is started.
  const char* given = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe)
  std::string_view folders = given != nullptr ? given : "/bin:/usr/bin";
  auto verdict = exit_not_found;
  for (;;) {
    const auto end = folders.find(':');
    const std::string folder(folders.substr(0, end));
    const auto reason = look_at((folder.empty() ? "." : folder) + "/" + command);
    if (!reason) return std::nullopt;
    if (*reason == exit_not_executable) verdict = exit_not_executable;
    if (end == std::string_view::npos) return verdict;
    folders.remove_prefix(end + 1);
  }
}

}  // namespace fencekv::run
