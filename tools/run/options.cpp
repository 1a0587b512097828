// SPDX-License-Identifier: Apache-2.0
#include "tools/run/options.h"

#include "tools/run/duration.h"
#include "tools/run/exit_code.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace fencekv::run {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr const char* kAbout =
    "Runs a command while it holds a lease of a fencekv server, and ends it when the lease is "
    "lost.\n"
    "\n"
    "  fencekv-run --lease NAME [options] -- COMMAND [ARGUMENT ...]\n"
    "\n"
    "The command finds FENCEKV_TOKEN, FENCEKV_LEASE and the address of the server (FENCEKV_HOST "
    "and\n"
    "FENCEKV_PORT, or FENCEKV_UNIX) in its environment. It passes token and lease with every "
    "write:\n"
    "fencekv-run ends it in time if it can, the server refuses it if not.";

constexpr const char* kFooter =
    "Durations have a unit: 500ms, 10s, 5m, 2h, 1d.\n"
    "\n"
    "The lease is renewed every third of its ttl. If that fails, the command and its process group "
    "get\n"
    "SIGTERM, and SIGKILL at the deadline at the latest, which is counted here, from before the "
    "last\n"
    "successful renewal was sent. The lease is given back when the command has ended and nobody of "
    "its\n"
    "process group is left: what it leaves behind is ended, too. A process that made a group or "
    "session\n"
    "of its own goes on; only the token stops its writes. TERM, HUP, USR1 and USR2 are passed on "
    "to the\n"
    "command, INT, QUIT, WINCH, TSTP and CONT to its group.\n"
    "\n"
    "Exit codes: that of the command, 128+N if signal N ended it; 122 the server cannot be reached "
    "or\n"
    "does not let us in; 123 the lease was lost and the command was ended; 124 not acquired in "
    "time,\n"
    "nothing was run; 125 wrong arguments, or fencekv-run itself failed; 126 the command cannot be "
    "run;\n"
    "127 there is no such command.";

// A renewal that is lost may be repeated in a third of the ttl; below a second that is less than a
// busy machine needs.
constexpr milliseconds kShortestTtl = 1s;
constexpr milliseconds kLongestGrace = 10s;

EarlyExit usage(const std::string& text) {
  return {.code = exit_usage, .err = fmt::format("fencekv-run: {}; see --help\n", text)};
}

CLI::Option* add_duration(CLI::App& app, const std::string& name, const std::string& about,
                          const std::function<void(milliseconds)>& set) {
  const auto read = [name, set](const std::string& text) {
    const auto duration = parse_duration(text);
    if (!duration) {
      throw CLI::ValidationError(name,
                                 "expected a duration as 500ms, 10s or 5m, not '" + text + "'");
    }
    set(*duration);
  };
  return app.add_option_function<std::string>(name, read, about)->type_name("TIME");
}

std::string unwritable(std::string_view what, std::size_t bytes) {
  return fmt::format("{} has 1 to {} bytes", what, bytes);
}

/// What is wrong with the options together; empty: nothing.
std::string contradiction(const RunOptions& options) {
  if (options.lease.empty() || options.lease.size() > Limits::kNameBytes) {
    return unwritable("the name of a lease", Limits::kNameBytes);
  }
  if (options.ttl < kShortestTtl || options.ttl > Limits::kMaxTtl) {
    return fmt::format("--ttl is {} to {}", to_text(kShortestTtl), to_text(Limits::kMaxTtl));
  }
  if (options.grace > options.ttl / 2) {
    return fmt::format("--grace is at most half of --ttl, here {}", to_text(options.ttl / 2));
  }
  if (options.delay && *options.delay > Limits::kMaxDelay) {
    return fmt::format("--delay is at most {}", to_text(Limits::kMaxDelay));
  }
  if (options.payload && options.payload->size() > Limits::kPayloadBytes) {
    return fmt::format("--payload has at most {} bytes", Limits::kPayloadBytes);
  }
  return {};
}

}  // namespace

std::variant<RunOptions, EarlyExit> parse_options(const std::vector<std::string>& arguments) {
  RunOptions options;
  const auto mark = std::find(arguments.begin(), arguments.end(), "--");
  if (mark != arguments.end()) options.command.assign(mark + 1, arguments.end());

  CLI::App app(kAbout, "fencekv-run");
  app.set_version_flag("--version", "fencekv-run " FENCEKV_VERSION);
  app.footer(kFooter);

  app.add_option("--lease", options.lease, "The name of the lease")->required()->type_name("NAME");
  add_duration(app, "--ttl", "How long the lease lasts without a renewal [10s]",
               [&](milliseconds ttl) { options.ttl = ttl; });
  auto* wait =
      add_duration(app, "--wait", "Give up when the lease was not granted for so long [never]",
                   [&](milliseconds time) { options.wait = time; });
  app.add_flag_callback(
         "--no-wait", [&] { options.wait = 0ms; }, "Do not wait for the lease at all")
      ->excludes(wait);
  auto* shared = app.add_flag_callback(
      "--shared", [&] { options.mode = LeaseMode::shared; },
      "Share it with others that say so; nobody may write under it then");
  app.add_option_function<std::uint64_t>(
         "--permits",
         [&](std::uint64_t permits) {
           options.mode = LeaseMode::permit;
           options.permits = permits;
         },
         "Up to N may hold it at once; none of them may write under it")
      ->type_name("N")
      ->check(CLI::Range(std::uint64_t{1}, Limits::kMaxPermits))
      ->excludes(shared);
  add_duration(app, "--delay",
               "When it ends without being given back, nobody gets it for so long [0s]",
               [&](milliseconds delay) { options.delay = delay; });
  app.add_option("--payload", options.payload, "What listings show of it [user@host pid command]")
      ->type_name("TEXT");
  auto* grace =
      add_duration(app, "--grace",
                   "From SIGTERM to SIGKILL when it is lost [a quarter of the ttl, at most "
                   "10s]",
                   [&](milliseconds time) { options.grace = time; });

  auto* host = app.add_option("--host", options.address.host, "Where the server is [127.0.0.1]")
                   ->type_name("HOST");
  auto* port = app.add_option("--port", options.address.port, "Its port [7433]")
                   ->type_name("PORT")
                   ->check(CLI::Range(1, 65535));
  app.add_option("--unix", options.address.unix_path, "Its Unix socket, in place of host and port")
      ->type_name("PATH")
      ->excludes(host)
      ->excludes(port);
  app.add_option("--password-file", options.password_file,
                 "Log in with the first line of FILE, which only its owner may read")
      ->type_name("FILE");

  // CLI11 wants them in reverse.
  std::vector<std::string> flags(arguments.begin(), mark);
  std::reverse(flags.begin(), flags.end());
  try {
    app.parse(std::move(flags));
  } catch (const CLI::CallForHelp&) {
    return EarlyExit{.code = 0, .out = app.help()};
  } catch (const CLI::CallForVersion& version) {
    return EarlyExit{.code = 0, .out = std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    return usage(error.what());
  }
  if (options.command.empty()) return usage("a command is missing: … -- COMMAND [ARGUMENT ...]");
  if (grace->empty()) options.grace = std::min(options.ttl / 4, kLongestGrace);
  if (auto wrong = contradiction(options); !wrong.empty()) return usage(wrong);
  return options;
}

}  // namespace fencekv::run
