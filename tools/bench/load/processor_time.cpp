// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/load/processor_time.h"

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace fencekv::bench {

namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

std::uint64_t written_bytes(const std::string& directory) {
  std::ifstream file(directory + "/io");
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == "wchar:") return value;
  }
  return 0;
}

std::optional<ProcessCost> cost_of_one(const std::string& directory) {
  std::ifstream file(directory + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  // The name of the program, in parentheses, may contain anything, also spaces and parentheses.
  const auto name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;

  std::istringstream fields(stat.substr(name_end + 1));
  constexpr int kFieldsBeforeTimes = 11;  // from state to cmajflt, see proc(5)
  std::string skipped;
  for (int i = 0; i < kFieldsBeforeTimes; ++i) fields >> skipped;
  std::uint64_t user = 0;
  std::uint64_t system = 0;
  if (!(fields >> user >> system)) return std::nullopt;
  const auto ticks_a_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  return ProcessCost{.processor_seconds = static_cast<double>(user + system) / ticks_a_second,
                     .written_bytes = written_bytes(directory)};
}

}  // namespace

double own_processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::optional<ProcessCost> cost_of_process(pid_t process) {
  const auto id = std::to_string(process);
  auto cost = cost_of_one("/proc/" + id);
  if (!cost) return cost;
  std::ifstream children("/proc/" + id + "/task/" + id + "/children");
  std::string child;
  while (children >> child) {
    const auto its = cost_of_one("/proc/" + child);
    if (!its) continue;
    cost->processor_seconds += its->processor_seconds;
    cost->written_bytes += its->written_bytes;
  }
  return cost;
}

}  // namespace fencekv::bench
