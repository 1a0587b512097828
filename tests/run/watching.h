// SPDX-License-Identifier: Apache-2.0
/// What a test sees of the processes that it started.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

namespace fencekv::testing {

inline std::string text_of(const std::filesystem::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

inline std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> lines;
  std::ifstream text(file);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

/// Far longer than anything here takes.
inline constexpr std::chrono::seconds kPatience{20};

[[nodiscard]] inline bool await(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// What must happen by a point in time can be late on a busy machine, whatever is tested: nobody
/// ran it. So it is tried until it is in time, and only what is late again and again is.
[[nodiscard]] inline bool is_in_time_once(const std::function<bool()>& attempt) {
  for (int i = 0; i < 5; ++i) {
    if (attempt()) return true;
    if (::testing::Test::HasFailure()) return false;
  }
  return false;
}

/// Waits until `file` has `count` whole lines.
inline void await_line(const std::filesystem::path& file, std::size_t count = 1) {
  ASSERT_TRUE(await([&] {
    const auto text = text_of(file);
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) >= count;
  })) << file;
}

/// The fields of /proc/ID/stat behind the name; empty: there is no such process.
inline std::vector<std::string> state_of(pid_t id) {
  const auto status = text_of("/proc/" + std::to_string(id) + "/stat");
  const auto end = status.rfind(')');
  std::vector<std::string> fields;
  if (end == std::string::npos) return fields;
  std::stringstream rest(status.substr(end + 1));
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

/// A zombie that nobody has waited for has ended, too.
inline bool is_running(pid_t id) {
  const auto fields = state_of(id);
  return !fields.empty() && fields[0] != "Z";
}

/// D: a shell between vfork() and exec() stands still until what it starts goes on.
inline bool is_stopped(pid_t id) {
  const auto fields = state_of(id);
  return !fields.empty() && (fields[0] == "T" || fields[0] == "D");
}

inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto fields = state_of(std::stoi(name));
    if (fields.size() > 1 && std::stoi(fields[1]) == parent) children.push_back(std::stoi(name));
  }
  return children;
}

/// Shell: says all the time until when it was alive. The first number of /proc/uptime is
/// CLOCK_BOOTTIME, in seconds with two decimals.
inline const std::string kBeat =
    "while :; do read now rest </proc/uptime; echo $now; sleep 0.02; done >>beats";

/// On CLOCK_BOOTTIME, rounded down to 10 ms. 0: it never said so.
inline std::chrono::nanoseconds last_beat(const std::filesystem::path& file) {
  const auto lines = lines_of(file);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(lines.empty() ? 0 : std::stod(lines.back())));
}

}  // namespace fencekv::testing
