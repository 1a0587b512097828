// SPDX-License-Identifier: Apache-2.0
/// fencekv_bench_cost: what commands cost, in figures that are the same in every run. Prints a line
/// of JSON for each kind of work. tools/bench/cost.sh runs it, under callgrind too.

#include "tools/bench/cost/counted.h"
#include "tools/bench/cost/scene.h"
#include "tools/bench/cost/work.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace fencekv::bench {
namespace {

/// A fault put in on purpose, to see that it is noticed. Volatile, or it would be left out.
volatile std::size_t wasted_allocations = 0;

void waste() {
  for (std::size_t i = 0; i < wasted_allocations; ++i) {
    auto* volatile wasted = new char[16];
    delete[] wasted;
  }
}

}  // namespace
}  // namespace fencekv::bench

/// All that callgrind counts: it is told to collect while this name is on the stack.
extern "C" [[gnu::noinline]] fencekv::bench::Counted fencekv_bench_measured(
    fencekv::bench::Work& work, std::size_t commands) {
  const auto before = fencekv::bench::counted_so_far();
  work.run();
  for (std::size_t i = 0; i < commands; ++i) fencekv::bench::waste();
  return fencekv::bench::counted_so_far() - before;
}

namespace fencekv::bench {
namespace {

struct Settings {
  std::filesystem::path directory;
  std::size_t commands = kKeys;
  std::size_t warm_up = kKeys;
};

/// A directory that is gone with it. Its name is always of the same length: where the allocator
/// finds memory depends on what was taken before, and some instructions depend on that.
class Scratch {
 public:
  explicit Scratch(const std::filesystem::path& parent) : path_(parent / "fencekv-cost-XXXXXX") {
    auto name = path_.string();
    require(::mkdtemp(name.data()) != nullptr, "there is a directory for the store");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Runs groups of it by `run_group`; false: a command was not answered as it must be.
template <class RunGroup>
bool repeat(Work& work, const WorkKind& kind, std::size_t commands, RunGroup run_group) {
  for (std::size_t done = 0; done < commands; done += kind.group) {
    work.prepare();
    run_group();
    if (!work.is_right()) return false;
  }
  return true;
}

bool measure(const WorkKind& kind, const Settings& settings) {
  const Scratch scratch(settings.directory);
  const auto work = kind.make(scratch.path(), kind.group);
  Counted sum;
  const auto warm_up = [&] { work->run(); };
  const auto measured = [&] { sum += fencekv_bench_measured(*work, kind.group); };
  if (!repeat(*work, kind, settings.warm_up, warm_up) ||
      !repeat(*work, kind, settings.commands, measured)) {
    fmt::print(stderr, "{}: a command was not answered as it must be\n", kind.name);
    return false;
  }
  fmt::print(
      "{{\"work\": \"{}\", \"commands\": {}, \"allocations\": {}, \"allocated_bytes\": {}, "
      "\"kernel_calls\": {}, \"written_bytes\": {}}}\n",
      kind.name, settings.commands, sum.allocations, sum.allocated_bytes, sum.kernel_calls,
      sum.written_bytes);
  return true;
}

int run(int argc, char** argv) {
  Settings settings;
  settings.directory = std::filesystem::temp_directory_path();
  std::vector<std::string> wanted;
  std::size_t wasted = 0;
  bool is_list = false;

  auto works = engine_works();
  const auto served = server_works();
  works.insert(works.end(), served.begin(), served.end());

  CLI::App app("Counts what commands cost, and whether they are answered as they must be.",
               "fencekv_bench_cost");
  app.add_option("works", wanted, "Default: all");
  app.add_flag("--list", is_list, "Only name them");
  app.add_option("--commands", settings.commands, "Of each, measured; a multiple of 128");
  app.add_option("--warm-up", settings.warm_up, "Of each, before");
  app.add_option("--waste", wasted, "Allocations more a command, to see that they are noticed");
  app.add_option("--dir", settings.directory, "Where stores are made")
      ->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);
  wasted_allocations = wasted;

  bool is_right = true;
  for (const auto& kind : works) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), kind.name) == wanted.end()) {
      continue;
    }
    if (is_list) {
      fmt::print("{}\n", kind.name);
      continue;
    }
    is_right = measure(kind, settings) && is_right;
  }
  return is_right ? 0 : 1;
}

}  // namespace
}  // namespace fencekv::bench

int main(int argc, char** argv) {
  return fencekv::bench::run(argc, argv);
}
