// SPDX-License-Identifier: Apache-2.0
/// A process that is stopped for certain. kill(2) only asks: on a busy machine a thread goes on
/// until one of the process has had the time to take the signal.

#pragma once

#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <thread>

namespace fencekv::testing {

/// Whether no thread of it runs any more; so is one that is gone.
inline bool stands_still(pid_t process) {
  std::error_code gone;
  const auto tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, gone)) {
    std::ifstream file(task.path() / "stat");
    const std::string stat{std::istreambuf_iterator<char>(file), {}};
    // The name in parentheses may hold anything; the state comes behind it.
    const auto state = stat.rfind(") ");
    if (state == std::string::npos || state + 2 >= stat.size()) continue;
    if (stat[state + 2] != 'T' && stat[state + 2] != 'Z') return false;
  }
  return true;
}

inline void stop_process(pid_t process) {
  ::kill(process, SIGSTOP);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!stands_still(process) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace fencekv::testing
