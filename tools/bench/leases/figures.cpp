// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/leases/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace fencekv::bench {

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::memory:
      return "memory";
    case Kind::process:
      return "process";
    case Kind::sync:
      return "sync";
  }
  return "";
}

std::unique_ptr<Store> open(Kind kind, const std::filesystem::path& directory) {
  if (kind == Kind::memory) return open_memory({});
  auto opened = open_rocksdb(
      directory, {.durability = kind == Kind::sync ? Durability::sync : Durability::process});
  if (opened) return *std::move(opened);
  fmt::print(stderr, "{}\n", opened.error().line());
  std::_Exit(1);
}

Scratch::Scratch(const std::filesystem::path& below) {
  auto name = (below / "fencekv-bench-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    fmt::print(stderr, "cannot create {}\n", name);
    std::_Exit(1);
  }
  path_ = name;
}

Scratch::~Scratch() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

void row(std::string_view what, std::string_view where, const std::string& figure) {
  fmt::print("{:<46} {:<8} {}\n", what, where, figure);
  std::fflush(stdout);
}

std::uint64_t resident_bytes() {
  std::ifstream status("/proc/self/statm");
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  status >> all >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t bytes_below(const std::filesystem::path& directory) {
  std::uint64_t sum = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) sum += entry.file_size();
  }
  return sum;
}

double percentile(std::vector<double> samples, double share) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const auto rank = std::ceil(share * static_cast<double>(samples.size()));
  return samples[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

double milliseconds_since(Time::time_point began) {
  return std::chrono::duration<double, std::milli>(Time::now() - began).count();
}

void Pipeline::enter() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return in_flight_ < kWindow; });
  ++in_flight_;
}

void Pipeline::leave(bool is_right) {
  const std::lock_guard lock(mutex_);
  --in_flight_;
  all_right_ = all_right_ && is_right;
  changed_.notify_all();
}

bool Pipeline::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return in_flight_ == 0; });
  return all_right_;
}

LiveLeases::LiveLeases(Store& store, std::string prefix, std::size_t count)
    : prefix_(std::move(prefix)), size_(count) {
  for (std::size_t first = 0; first < count; first += kTogether) {
    AcquireMany command{.owner = owner(), .ttl = std::chrono::hours(24)};
    for (auto i = first; i < std::min(first + kTogether, count); ++i) {
      command.names.push_back(name(i));
    }
    const auto grant = store.execute(std::move(command));
    are_right_ = are_right_ && grant && *grant;
    tokens_.push_back(grant && *grant ? (*grant)->token : Token{});
  }
}

bool in_own_process(const std::function<bool()>& work) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const bool is_right = work();
    std::fflush(stdout);
    _exit(is_right ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace fencekv::bench
