// SPDX-License-Identifier: Apache-2.0
/// Puts the server together: options, log, store, sockets. Nothing else is decided here.

#include "fencekv/store.h"
#include "server/options.h"
#include "server/password.h"
#include "server/server.h"
#include "server/storage_watch.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <malloc.h>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <variant>

namespace fencekv::server {
namespace {

spdlog::level::level_enum level_of(LogThreshold threshold) {
  switch (threshold) {
    case LogThreshold::debug:
      return spdlog::level::debug;
    case LogThreshold::note:
      return spdlog::level::info;
    case LogThreshold::warning:
      return spdlog::level::warn;
    case LogThreshold::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::note:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

ExitCode exit_code_of(Errc opening) {
  switch (opening) {
    case Errc::in_use:
      return ExitCode::in_use;
    case Errc::corrupt:
      return ExitCode::damaged;
    case Errc::newer_format:
      return ExitCode::newer_format;
    case Errc::no_space:
      return ExitCode::no_space;
    default:
      return ExitCode::usage;
  }
}

/// How many connections this process can hold, `wanted` at most: each takes a descriptor, and the
/// store must never be the one that gets none.
std::size_t affordable_connections(std::size_t wanted, spdlog::logger& log) {
  constexpr rlim_t kForTheStore = 256;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const rlim_t needed = wanted + kForTheStore;
  if (limit.rlim_cur < needed) {
    limit.rlim_cur = std::min(needed, limit.rlim_max);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= needed) return wanted;
  const std::size_t affordable = limit.rlim_cur - std::min(kForTheStore, limit.rlim_cur / 2);
  log.warn("max_connections is {} instead of {}: this process may have {} open files (ulimit -n)",
           affordable, wanted, limit.rlim_cur);
  return affordable;
}

/// Not fmt::print(): it throws when nothing can be written, and whoever cannot be told why the
/// process ends shall at least be told by its exit code.
void print(std::FILE* where, const std::string& text) {
  std::fputs(text.c_str(), where);
  std::fflush(where);
}

/// Memory ran out. An exception would unwind the store in the middle of a group, and nobody could
/// say what is left of it; a process that ends here is one that crashed, and that is what every
/// file of the store is made for.
[[noreturn]] void end_without_memory() {
  constexpr std::string_view kLine =
      "fencekv-server: out of memory; the process ends as in a crash: what was acknowledged is "
      "there after a restart\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  ::_exit(static_cast<int>(ExitCode::no_memory));
}

/// An exception that nobody expected. A thread that cannot be started lacks memory, too; all else
/// is a fault in this program, for which the system may keep a core.
[[noreturn]] void end_after_exception() {
  try {
    if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
  } catch (const std::system_error& error) {
    print(stderr,
          fmt::format("fencekv-server: {}; the process ends as in a crash\n", error.what()));
    if (error.code() == std::errc::resource_unavailable_try_again) {
      ::_exit(static_cast<int>(ExitCode::no_memory));
    }
  } catch (const std::exception& error) {
    print(stderr,
          fmt::format("fencekv-server: {}; the process ends as in a crash\n", error.what()));
  }
  std::abort();
}

/// The only thing on standard output: whoever started the server waits for it.
void print_ready(const std::string& address) {
  print(stdout, fmt::format("ready {}\n", address));
}

int exit_with(ExitCode code) {
  return static_cast<int>(code);
}

int fail(ExitCode code, std::string_view why) {
  print(stderr, fmt::format("fencekv-server: {}\n", why));
  return exit_with(code);
}

int run(int argc, char** argv) {
  // By default the allocator learns from every large block that is freed to keep the next one, up
  // to 32 MiB, and a few small blocks between them hold all of it for good: after a flood of large
  // replies the process kept ten times what it had in use.
  ::mallopt(M_MMAP_THRESHOLD, 2 * 1024 * 1024);  // NOLINT(concurrency-mt-unsafe): no thread yet
  std::set_new_handler(end_without_memory);
  std::set_terminate(end_after_exception);
  auto parsed = parse_options(argc, argv);
  if (const auto* exit = std::get_if<EarlyExit>(&parsed)) {
    if (exit->code != ExitCode::stopped) return fail(exit->code, exit->text);
    print(stdout, exit->text);
    return exit_with(exit->code);
  }
  auto& options = std::get<ServerOptions>(parsed);

  Password password;
  if (!options.password_file.empty()) {
    auto read = Password::read(options.password_file);
    if (!read) return fail(ExitCode::usage, read.error().detail());
    password = *std::move(read);
  }
  if (options.check_config) {
    print(stderr, "fencekv-server: the configuration is good\n");
    return exit_with(ExitCode::stopped);
  }

  // Whatever this process creates, files and sockets, is for its user alone from the first moment.
  ::umask(077);
  // A client that went away is an error of its own session, not a signal to all.
  std::signal(SIGPIPE, SIG_IGN);
  // A file that may not grow any more (ulimit -f) is an error of the storage as any other.
  std::signal(SIGXFSZ, SIG_IGN);

  spdlog::logger log("fencekv", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  log.set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  log.set_level(level_of(options.log_level));
  log.flush_on(spdlog::level::debug);
  options.max_connections = affordable_connections(options.max_connections, log);

  options.store.log = [&log](LogLevel level, std::string_view line) {
    log.log(level_of(level), "{}", line);
  };
  auto store = open_rocksdb(options.dir, options.store);
  if (!store) {
    return fail(exit_code_of(store.error().code()), store.error().detail());
  }
  if (const auto why = (*store)->refuses_writes()) {
    log.error("the store takes no writes and serves reads only: {}", *why);
  }

  StorageWatch watch(**store, options, log, [] { ::_exit(static_cast<int>(ExitCode::stalled)); });
  const auto served = serve(**store, options, password, log, print_ready);
  watch.closing();
  store->reset();
  if (!served) return fail(ExitCode::cannot_listen, served.error().detail());
  log.info("stopped");
  return exit_with(ExitCode::stopped);
}

}  // namespace
}  // namespace fencekv::server

int main(int argc, char** argv) {
  return fencekv::server::run(argc, argv);
}
