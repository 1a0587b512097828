// SPDX-License-Identifier: Apache-2.0
/// fencekv_bench_load: load for this server and its peers. tools/bench/compare.sh runs it.

#include "tools/bench/load/load.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::bench {
namespace {

constexpr int kExitErrors = 1;
constexpr int kExitUsage = 2;

template <class E>
using Names = std::vector<std::pair<std::string, E>>;

const Names<Target>& targets() {
  static const Names<Target> names{
      {"fencekv", Target::fencekv},   {"redis", Target::redis},
#ifdef FENCEKV_BENCH_POSTGRES
      {"postgres", Target::postgres},
#endif
#ifdef FENCEKV_BENCH_ETCD
      {"etcd", Target::etcd},
#endif
      {"disk", Target::disk},
  };
  return names;
}

const Names<Workload>& workloads() {
  static const Names<Workload> names{
      {"write", Workload::write}, {"stale", Workload::stale},           {"set", Workload::set},
      {"get", Workload::get},     {"fenced-get", Workload::fenced_get}, {"lease", Workload::lease}};
  return names;
}

const Names<Distribution>& distributions() {
  static const Names<Distribution> names{{"uniform", Distribution::uniform},
                                         {"zipfian", Distribution::zipfian},
                                         {"once", Distribution::once}};
  return names;
}

template <class E>
const std::string& name_of(const Names<E>& names, E wanted) {
  for (const auto& [name, value] : names) {
    if (value == wanted) return name;
  }
  return names.front().first;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\';
    out += is_plain ? std::string(1, c) : fmt::format("\\u{:04x}", byte);
  }
  return out + '"';
}

double microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

std::string to_json(const Histogram& latency) {
  return fmt::format(R"({{"mean":{:.1f},"p50":{:.1f},"p99":{:.1f},"p99.9":{:.1f},"max":{:.1f}}})",
                     microseconds(latency.mean()), microseconds(latency.percentile(0.5)),
                     microseconds(latency.percentile(0.99)),
                     microseconds(latency.percentile(0.999)), microseconds(latency.max()));
}

std::string to_json(const Window& window) {
  return fmt::format(
      R"({{"window":{{"begin_seconds":{:.3f},"seconds":{:.3f},"operations":{},"latency_us":{}}}}})"
      "\n",
      window.begin_seconds, window.seconds, window.latency.count(), to_json(window.latency));
}

std::string to_json(const LoadOptions& options, const LoadReport& report) {
  const auto& requests = options.requests;
  const double rate =
      report.seconds > 0 ? static_cast<double>(report.operations) / report.seconds : 0;
  std::string out = fmt::format(
      R"({{"target":"{}","workload":"{}","connections":{},"pipeline":{},"keys":{},)"
      R"("distribution":"{}","value_bytes":{},"read_share":{},"loop":"{}","rate":{},"seed":{},)",
      name_of(targets(), requests.target), name_of(workloads(), requests.workload),
      options.connections, options.pipeline, requests.keys,
      name_of(distributions(), requests.distribution), requests.value_bytes, requests.read_share,
      options.rate > 0 ? "open" : "closed", options.rate, requests.seed);
  out += fmt::format(
      R"("operations":{},"seconds":{:.6f},"ops_per_second":{:.1f},"errors":{},"unsent":{},)",
      report.operations, report.seconds, rate, report.errors, report.unsent);
  out += fmt::format(R"("latency_us":{},"client_cpu_seconds":{:.3f})", to_json(report.latency),
                     report.own_processor_seconds);
  if (report.server_processor_seconds) {
    out += fmt::format(R"(,"server_cpu_seconds":{:.3f})", *report.server_processor_seconds);
  }
  if (report.server_written_bytes) {
    out += fmt::format(R"(,"server_written_bytes":{})", *report.server_written_bytes);
  }
  if (!report.first_error.empty()) {
    out += fmt::format(R"(,"first_error":{})", json_string(report.first_error));
  }
  return out + "}\n";
}

/// Why these options do not go together.
std::optional<std::string> complaint(const LoadOptions& options) {
  const auto& requests = options.requests;
  if (options.duration.count() <= 0 && options.operations == 0) {
    return "--seconds or --operations: how long?";
  }
  if (requests.workload == Workload::set && requests.target != Target::redis) {
    return "--workload set: only for --target redis; here a write needs a token";
  }
  if (requests.workload == Workload::stale && requests.target == Target::postgres) {
    return "--workload stale: not for --target postgres";
  }
  if (requests.workload == Workload::fenced_get && requests.target == Target::etcd) {
    return "--workload fenced-get: not for --target etcd, where get is the same";
  }
  if (requests.target == Target::disk) {
    if (requests.workload != Workload::write) return "--target disk: only --workload write";
    if (options.file.empty()) return "--target disk: only with --file";
    if (options.connections > 1 || options.pipeline > 1 || options.rate > 0) {
      return "--target disk: one write after the other; --connections 1, --pipeline 1, no --rate";
    }
  } else if (options.port == 0) {
    return "--port: of which server?";
  }
  if (requests.is_batch_atomic && requests.target != Target::postgres) {
    return "--one-transaction: only for --target postgres";
  }
  if (requests.shares_lease && requests.target != Target::etcd) {
    return "--shared-lease: only for --target etcd";
  }
  if (requests.read_share > 0 && requests.workload != Workload::write) {
    return "--read-share: only with --workload write";
  }
  return std::nullopt;
}

int run(int argc, char** argv) {
  LoadOptions options;
  auto& requests = options.requests;
  double seconds = 0;
  double warm_up = 0;
  double window = 0;
  std::int64_t patience = options.patience.count();

  CLI::App app("Loads a server, checks its replies, and prints what came of it as one JSON object.",
               "fencekv_bench_load");
  app.footer(
      "Exit codes: 0 all replies were right, 1 some were not or did not come, 2 or more: usage.\n"
      "A batch of --pipeline requests is one write; a connection sends the next one when it has "
      "all\n"
      "replies. `lease` counts a cycle of acquire and release as one operation.");
  app.add_option(
         "--target", requests.target,
         "fencekv, redis, postgres (if built with libpq; user and database by PGUSER, "
         "PGDATABASE), etcd (if built with libnghttp2), or disk: no server, but --value-bytes "
         "appended to --file and synced, again and again")
      ->required()
      ->transform(CLI::CheckedTransformer(targets()));
  app.add_option("--workload", requests.workload,
                 "write: with a fencing token (redis: a script); get; fenced-get (redis: HGET of "
                 "what write wrote); lease; stale: a write that is refused, after write has filled "
                 "all keys; set (redis only: without a fence)")
      ->required()
      ->transform(CLI::CheckedTransformer(workloads()));
  app.add_option("--host", options.host, "Numeric address")->capture_default_str();
  app.add_option("--port", options.port, "Needed, but for --target disk");
  app.add_option("--connections", options.connections)
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--pipeline", options.pipeline, "Requests in a batch")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--keys", requests.keys, "Different keys, or leases")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000}))
      ->capture_default_str();
  app.add_option("--distribution", requests.distribution,
                 "uniform, zipfian (0.99), or once: every key once, scattered, to fill a store")
      ->transform(CLI::CheckedTransformer(distributions()));
  app.add_option("--value-bytes", requests.value_bytes, "Random bytes in a value")
      ->check(CLI::Range(0, 16 * 1024 * 1024))
      ->capture_default_str();
  app.add_option("--read-share", requests.read_share, "Of --workload write: so many reads among it")
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--allow-missing", requests.allows_missing, "Reading an absent key is no error");
  app.add_option("--rate", options.rate,
                 "Open loop with so many requests a second over all connections; latency counts "
                 "from when each should have been sent. Without it, a closed loop")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", seconds, "How long")->check(CLI::NonNegativeNumber);
  app.add_option("--operations", options.operations, "How many at most");
  app.add_option("--warm-up", warm_up, "Seconds of load before, which do not count")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--patience", patience, "Seconds without any reply after which the run fails")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option(
         "--window", window,
         "Seconds; after each of them, what was answered within it is printed as one more JSON "
         "object, on a line of its own")
      ->check(CLI::PositiveNumber);
  app.add_flag("--one-transaction", requests.is_batch_atomic,
               "postgres: a batch is one transaction, not as many as it has statements");
  app.add_flag("--shared-lease", requests.shares_lease,
               "etcd: a connection has one lease for all its names, not one for each");
  app.add_option("--file", options.file, "disk: the file, which must not be there yet");
  app.add_option("--server-pid", options.server, "Whose processor time and written bytes to report")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", requests.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  options.duration = std::chrono::duration<double>(seconds);
  options.warm_up = std::chrono::duration<double>(warm_up);
  options.patience = std::chrono::seconds(patience);
  options.window = std::chrono::duration<double>(window);
  options.on_window = [](const Window& seen) {
    fmt::print("{}", to_json(seen));
    std::fflush(stdout);  // a long run is watched
  };
  if (const auto why = complaint(options)) {
    fmt::print(stderr, "fencekv_bench_load: {}\n", *why);
    return kExitUsage;
  }

  const auto report = run_load(options);
  fmt::print("{}", to_json(options, report));
  if (report.errors == 0) return 0;
  fmt::print(stderr, "fencekv_bench_load: {} errors, the first: {}\n", report.errors,
             json_string(report.first_error));
  return kExitErrors;
}

}  // namespace
}  // namespace fencekv::bench

int main(int argc, char** argv) {
  return fencekv::bench::run(argc, argv);
}
