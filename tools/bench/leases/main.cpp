// SPDX-License-Identifier: Apache-2.0
/// fencekv_bench_leases: what leases cost when there are many. tools/bench/leases.sh runs it.

#include "tools/bench/leases/sections.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::bench {
namespace {

struct Section {
  const char* name;
  bool (*measure)(const Settings&);
};

constexpr std::array kSections{
    Section{"cost", measure_cost},         Section{"opening", measure_opening},
    Section{"storm", measure_storm},       Section{"waiting", measure_waiting},
    Section{"many", measure_many},         Section{"churn", measure_churn},
    Section{"reclaim", measure_reclaiming}};

int run(int argc, char** argv) {
  Settings settings;
  settings.directory = std::filesystem::temp_directory_path();
  std::vector<std::string> wanted;
  std::int64_t quiet_ms = settings.quiet.count();
  std::int64_t storm_ms = settings.storm.count();

  std::vector<std::string> names;
  names.reserve(std::size(kSections));
  for (const auto& section : kSections) names.emplace_back(section.name);
  CLI::App app("Measures leases of the embedded store, and whether all came out right.",
               "fencekv_bench_leases");
  app.add_option("sections", wanted, "Default: all")->check(CLI::IsMember(names));
  app.add_option("--leases", settings.leases, "Live leases of the large store");
  app.add_option("--few", settings.few, "Live leases of the small one");
  app.add_option("--operations", settings.operations, "Commands of each kind in one run");
  app.add_option("--rounds", settings.rounds, "Runs, large and small in turn");
  app.add_option("--waiters", settings.waiters, "Waiters on one name");
  app.add_option("--names", settings.names, "Names that come and go");
  app.add_option("--quiet-ms", quiet_ms, "How long others are watched before the storm");
  app.add_option("--storm-ms", storm_ms, "Within which all leases of the storm expire");
  app.add_option("--dir", settings.directory, "Where stores are made")
      ->check(CLI::ExistingDirectory);
  app.add_option("--keep", settings.keep, "Where churn leaves its store, and reclaim finds it");
  CLI11_PARSE(app, argc, argv);
  settings.quiet = std::chrono::milliseconds(quiet_ms);
  settings.storm = std::chrono::milliseconds(storm_ms);

  bool is_right = true;
  for (const auto& section : kSections) {
    const bool is_wanted =
        wanted.empty() || std::find(wanted.begin(), wanted.end(), section.name) != wanted.end();
    if (!is_wanted) continue;
    if (section.measure(settings)) continue;
    fmt::print(stderr, "{}: something did not come out right\n", section.name);
    is_right = false;
  }
  return is_right ? 0 : 1;
}

}  // namespace
}  // namespace fencekv::bench

int main(int argc, char** argv) {
  return fencekv::bench::run(argc, argv);
}
