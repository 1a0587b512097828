// SPDX-License-Identifier: Apache-2.0
/// fencekv-run: runs a command while it holds a lease, and ends it when the lease is lost.

#include "tools/run/acquisition.h"
#include "tools/run/command_path.h"
#include "tools/run/environment.h"
#include "tools/run/exit_code.h"
#include "tools/run/kept_lease.h"
#include "tools/run/options.h"
#include "tools/run/password_file.h"
#include "tools/run/signals.h"
#include "tools/run/spawn.h"
#include "tools/run/supervisor.h"
#include "tools/run/terminal.h"
#include "tools/run/watchman.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <system_error>
#include <unistd.h>
#include <variant>
#include <vector>

namespace fencekv::run {
namespace {

void complain(std::string_view text) {
  fmt::print(stderr, "fencekv-run: {}\n", text);
}

ExitCode exit_code_of(Errc code) {
  switch (code) {
    case Errc::unreachable:
    case Errc::in_doubt:
    case Errc::denied:
    case Errc::protocol:
      return exit_no_server;
    case Errc::overloaded:
    case Errc::misconf:
    case Errc::expired:
    case Errc::lease_lost:
      return exit_not_acquired;
    default:
      return exit_usage;
  }
}

int fail(const Error& error) {
  complain(error.line());
  return exit_code_of(error.code());
}

/// A closed standard stream would give its number to the next file that is opened: a pipe to the
/// command, or the connection to the server.
bool open_standard_streams() {
  constexpr std::array kStreams{STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  return std::all_of(kStreams.begin(), kStreams.end(), [](int stream) {
    return ::fcntl(stream, F_GETFD) != -1 || ::open("/dev/null", O_RDWR) != -1;
  });
}

std::vector<std::string> environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

Result<ClientOptions> client_options(const RunOptions& options) {
  ClientOptions client{.host = options.address.host,
                       .port = options.address.port,
                       .unix_path = options.address.unix_path,
                       .name = "fencekv-run"};
  if (!options.password_file.empty()) {
    auto password = read_password(options.password_file);
    if (!password) return std::move(password).error();
    client.password = *std::move(password);
  }
  return client;
}

/// Answers signals until `acquisition` has ended. Returns the one that asks to end; nullopt: none.
std::optional<int> await(Acquisition& acquisition, Signals& signals) {
  std::optional<int> ending;
  for (;;) {
    while (const auto signal = signals.next()) {
      switch (*signal) {
        case SIGTERM:
        case SIGINT:
        case SIGHUP:
        case SIGQUIT:
          ending = *signal;
          acquisition.cancel();
          break;
        case SIGTSTP:
          ::kill(::getpid(), SIGSTOP);
          break;
        default:
          break;  // Nobody is there to pass it on to.
      }
    }
    std::array<pollfd, 2> either{
        {{signals.descriptor(), POLLIN, 0}, {acquisition.descriptor(), POLLIN, 0}}};
    ::poll(either.data(), either.size(), -1);
    if (either[1].revents != 0) return ending;
  }
}

/// Runs the command under the lease, and gives the lease back.
int run_under(Client& client, LeaseGuard& guard, const Bell& lost, const RunOptions& options,
              Command command, Signals& signals, Watchman& watchman) {
  KeptLease lease(guard, lost);
  lease.listen(client, options.ttl / 8);
  command.environment =
      child_environment(environment(), options.lease, guard.token(), options.address);
  Terminal terminal;
  // Watched before it runs: else it would outlive this process if that were killed just now.
  const auto started = spawn(command, signals, terminal,
                             [&](pid_t child) { watchman.watch(child, lease.deadline()); });
  if (const auto* error = std::get_if<std::errc>(&started)) {
    watchman.rest();
    complain(fmt::format("{}: {}", command.words.front(), std::make_error_code(*error).message()));
    static_cast<void>(guard.release());
    if (*error == std::errc::resource_unavailable_try_again) return exit_usage;
    return *error == std::errc::no_such_file_or_directory ? exit_not_found : exit_not_executable;
  }

  Supervisor supervisor(std::get<pid_t>(started), lease, options.grace, signals, watchman,
                        terminal);
  const auto outcome = supervisor.run();
  if (outcome.loss) {
    complain(fmt::format("the lease {} with token {} was lost: {}; the command was ended",
                         escaped(options.lease), guard.token().number(), *outcome.loss));
    return exit_lost;
  }
  if (const auto released = guard.release(); !released) {
    complain(fmt::format("the lease {} was not given back: {}", escaped(options.lease),
                         released.error().line()));
  }
  return outcome.code;
}

int run(const std::vector<std::string>& arguments) {
  if (!open_standard_streams()) return exit_usage;
  const auto parsed = parse_options(arguments);
  if (const auto* early = std::get_if<EarlyExit>(&parsed)) {
    fmt::print(stdout, "{}", early->out);
    fmt::print(stderr, "{}", early->err);
    return early->code;
  }
  const auto& options = std::get<RunOptions>(parsed);
  if (const auto reason = why_not_runnable(options.command.front())) {
    complain(fmt::format("{}: {}", options.command.front(),
                         *reason == exit_not_found ? "there is no such command"
                                                   : "may not be run, or is no program"));
    return *reason;
  }

  Command command{.words = options.command, .environment = {}, .files = open_files()};
  auto signals = Signals::open();
  if (!signals) return complain(signals.error().detail()), exit_usage;
  // What the command leaves behind comes to this process, which can then see its end.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto watchman = Watchman::start();
  if (!watchman) return complain(watchman.error().detail()), exit_usage;

  auto address = client_options(options);
  if (!address) return complain(address.error().detail()), exit_usage;
  Client client(*std::move(address));
  const Bell lost;
  Acquisition acquisition(client, options, lost);
  const auto ending = await(acquisition, *signals);
  auto lease = acquisition.take();
  // Granted or not: what was granted is given back with its guard.
  if (ending) return exit_by_signal + *ending;
  if (!lease) return fail(lease.error());
  if (!*lease) {
    complain(fmt::format("the lease {} is held by somebody else", escaped(options.lease)));
    return exit_not_acquired;
  }
  return run_under(client, **lease, lost, options, std::move(command), *signals, *watchman);
}

}  // namespace
}  // namespace fencekv::run

int main(int argc, char** argv) {
  return fencekv::run::run(std::vector<std::string>(argv + 1, argv + argc));
}
