// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/load/disk_load.h"

#include "tools/bench/load/connection.h"
#include "tools/bench/load/processor_time.h"

#include <fmt/format.h>

#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace fencekv::bench {

namespace {

class AppendedFile {
 public:
  explicit AppendedFile(const std::string& path)
      : descriptor_(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644)) {}
  ~AppendedFile() {
    if (is_open()) close(descriptor_);
  }
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }

  /// False: errno says why.
  bool append(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto written = write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return fdatasync(descriptor_) == 0;
  }

 private:
  int descriptor_;
};

LoadReport& failed(LoadReport& report, const LoadOptions& options) {
  report.errors = 1;
  report.first_error = options.file + ": " + std::generic_category().message(errno);
  return report;
}

}  // namespace

LoadReport run_disk(const LoadOptions& options) {
  LoadReport report;
  AppendedFile file(options.file);
  if (!file.is_open()) return failed(report, options);

  Requests requests(options.requests, {});
  const auto to_clock = [](std::chrono::duration<double> time) {
    return std::chrono::duration_cast<Clock::duration>(time);
  };
  const auto most =
      options.operations == 0 ? std::numeric_limits<std::uint64_t>::max() : options.operations;
  auto now = Clock::now();
  const auto counts_from = now + to_clock(options.warm_up);
  const auto ends = options.duration.count() > 0 ? counts_from + to_clock(options.duration)
                                                 : Clock::time_point::max();
  double cpu_before = own_processor_seconds();
  Histogram in_window;
  std::uint64_t windows = 0;
  while (now < ends && report.operations < most) {
    const auto began = now;
    if (!file.append(requests.next_value())) return failed(report, options);
    now = Clock::now();
    if (began < counts_from) {
      cpu_before = own_processor_seconds();
      continue;
    }
    ++report.operations;
    report.latency.record(now - began);
    if (options.window.count() <= 0) continue;
    while (now >= counts_from + to_clock(options.window * static_cast<double>(windows + 1))) {
      options.on_window({.begin_seconds = options.window.count() * static_cast<double>(windows),
                         .seconds = options.window.count(),
                         .latency = std::exchange(in_window, Histogram())});
      ++windows;
    }
    in_window.record(now - began);
  }
  report.seconds = std::chrono::duration<double>(now - counts_from).count();
  report.own_processor_seconds = own_processor_seconds() - cpu_before;
  return report;
}

}  // namespace fencekv::bench
