// SPDX-License-Identifier: Apache-2.0

#include "server/options.h"

#include <CLI/CLI.hpp>
#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <sys/un.h>
#include <thread>
#include <utility>
#include <vector>
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace fencekv::server {
namespace {

enum class Kind { text, number };

/// One setting: the flag `--a-b` and the key `a_b` of the file. Both give its value as text.
struct Setting {
  std::string_view key;
  Kind kind;
  std::string_view value_name;
  std::string_view help;
  Result<void> (*apply)(ServerOptions&, std::string_view);
};

Error expected(std::string_view what) {
  return Error(Errc::invalid, fmt::format("expected {}", what));
}

/// Reads a decimal from `low` to `high`.
Result<std::uint64_t> number_in(std::string_view text, std::uint64_t low, std::uint64_t high) {
  const auto number = parse_decimal(text, high);
  if (!number || *number < low) {
    return expected(fmt::format("a whole number from {} to {}", low, high));
  }
  return *number;
}

Result<void> set_path(std::filesystem::path& path, std::string_view text) {
  if (text.empty() || text.find('\0') != std::string_view::npos) return expected("a path");
  path = text;
  return {};
}

Result<void> apply_dir(ServerOptions& options, std::string_view text) {
  return set_path(options.dir, text);
}

Result<void> apply_bind(ServerOptions& options, std::string_view text) {
  options.bind = text;
  const auto checked = is_loopback(options.bind);
  if (!checked) return checked.error();
  return {};
}

Result<void> apply_port(ServerOptions& options, std::string_view text) {
  if (text == "-1") {
    options.port = -1;
    return {};
  }
  const auto port = number_in(text, 0, 65535);
  if (!port) return expected("a port from 1 to 65535, 0 for any free one, or -1 for none");
  options.port = static_cast<int>(*port);
  return {};
}

Result<void> apply_unix(ServerOptions& options, std::string_view text) {
  if (text.size() >= sizeof(sockaddr_un::sun_path)) {
    return expected(fmt::format("a path of at most {} bytes", sizeof(sockaddr_un::sun_path) - 1));
  }
  return set_path(options.unix_path, text);
}

Result<void> apply_durability(ServerOptions& options, std::string_view text) {
  if (text == "sync") {
    options.store.durability = Durability::sync;
  } else if (text == "process") {
    options.store.durability = Durability::process;
  } else {
    return expected("sync or process");
  }
  return {};
}

Result<void> apply_unguarded_tokens(ServerOptions& options, std::string_view text) {
  if (text == "any") {
    options.store.unguarded_tokens = UnguardedTokens::any;
  } else if (text == "issued") {
    options.store.unguarded_tokens = UnguardedTokens::issued;
  } else if (text == "refuse") {
    options.store.unguarded_tokens = UnguardedTokens::refuse;
  } else {
    return expected("any, issued or refuse");
  }
  return {};
}

Result<void> apply_max_value_bytes(ServerOptions& options, std::string_view text) {
  // A request has 64 MiB, and the value is not all of it.
  const auto bytes = number_in(text, 1, std::uint64_t{63} * 1024 * 1024);
  if (!bytes) return bytes.error();
  options.store.max_value_bytes = *bytes;
  return {};
}

Result<void> apply_password_file(ServerOptions& options, std::string_view text) {
  return set_path(options.password_file, text);
}

Result<void> apply_io_threads(ServerOptions& options, std::string_view text) {
  const auto threads = number_in(text, 1, 256);
  if (!threads) return threads.error();
  options.io_threads = *threads;
  return {};
}

Result<void> apply_max_connections(ServerOptions& options, std::string_view text) {
  const auto connections = number_in(text, 1, 1'000'000);
  if (!connections) return connections.error();
  options.max_connections = *connections;
  return {};
}

Result<void> apply_idle_timeout(ServerOptions& options, std::string_view text) {
  const auto timeout = number_in(text, 0, std::uint64_t{1000} * 3600 * 24 * 365);
  if (!timeout) return timeout.error();
  options.idle_timeout = std::chrono::milliseconds(*timeout);
  return {};
}

Result<void> apply_log_level(ServerOptions& options, std::string_view text) {
  constexpr std::array<std::string_view, 4> kNames = {"debug", "note", "warning", "error"};
  const auto* const found = std::find(kNames.begin(), kNames.end(), text);
  if (found == kNames.end()) return expected("debug, note, warning or error");
  options.log_level = static_cast<LogThreshold>(found - kNames.begin());
  return {};
}

constexpr Setting kSettings[] = {
    {"dir", Kind::text, "DIR", "where the store is; created if it does not exist", apply_dir},
    {"bind", Kind::text, "ADDR",
     "address to listen on [127.0.0.1]; anything but loopback needs --password-file", apply_bind},
    {"port", Kind::number, "N", "TCP port [7433]; 0 takes a free one, -1 switches TCP off",
     apply_port},
    {"unix", Kind::text, "PATH", "Unix socket to listen on, for this user only", apply_unix},
    {"durability", Kind::text, "sync|process",
     "what a reply promises: to survive a power cut (sync, the default), or a crash of this "
     "process "
     "only (process)",
     apply_durability},
    {"unguarded_tokens", Kind::text, "any|issued|refuse",
     "tokens for writes without a lease: only those this store issued (issued, the default), those "
     "of another allocator (any), or no such writes (refuse)",
     apply_unguarded_tokens},
    {"max_value_bytes", Kind::number, "N", "longest value [16777216]", apply_max_value_bytes},
    {"password_file", Kind::text, "FILE",
     "clients must AUTH with the first line of FILE, which only its owner may read",
     apply_password_file},
    {"io_threads", Kind::number, "N", "threads that serve connections [2]", apply_io_threads},
    {"max_connections", Kind::number, "N", "more are refused [10000]", apply_max_connections},
    {"idle_timeout_ms", Kind::number, "N",
     "close a connection that sent nothing for so long [0: never]", apply_idle_timeout},
    {"log_level", Kind::text, "debug|note|warning|error", "least to write to standard error [note]",
     apply_log_level},
};

std::string flag_of(const Setting& setting) {
  std::string flag(setting.key);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return "--" + flag;
}

constexpr std::string_view kFooter =
    "Every option may stand in FILE as well, in TOML, with underscores: max_value_bytes = "
    "1048576.\n"
    "A flag wins over the file. When it is ready the server prints `ready HOST:PORT` (and\n"
    "`ready unix:PATH`) to standard output; SIGTERM ends it after everything received is "
    "answered.\n"
    "Exit codes: 0 stopped, 2 usage or configuration, 3 directory in use, 4 damaged store, 5 "
    "newer\n"
    "format, 6 cannot listen, 7 no space to create a store.";

EarlyExit usage_error(std::string text) {
  return EarlyExit{ExitCode::usage, std::move(text)};
}

std::optional<std::string> contradiction(const ServerOptions& options) {
  if (options.dir.empty()) return "--dir is missing: where is the store?";
  if (options.port < 0 && options.unix_path.empty()) {
    return "--port -1 without --unix: nothing to listen on";
  }
  const auto loopback = is_loopback(options.bind);
  if (!loopback) return "--bind: " + loopback.error().detail();
  if (options.port >= 0 && !*loopback && options.password_file.empty()) {
    return fmt::format(
        "--bind {}: whoever reaches this address could write; give a --password-file, or bind to "
        "127.0.0.1",
        options.bind);
  }
  return std::nullopt;
}

}  // namespace

Result<bool> is_loopback(const std::string& address) {
  if (address == "localhost") return true;
  boost::system::error_code bad;
  const auto parsed = boost::asio::ip::make_address(address, bad);
  if (bad) return expected("an IP address or localhost");
  if (parsed.is_v6() && parsed.to_v6().is_v4_mapped()) {
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, parsed.to_v6())
        .is_loopback();
  }
  return parsed.is_loopback();
}

Result<void> read_config(const std::filesystem::path& file, ServerOptions& options) {
  const auto failed = [&](const toml::source_region& where, std::string_view what) {
    return Error(Errc::invalid, fmt::format("{}:{}: {}", file.string(), where.begin.line, what));
  };

  const toml::parse_result parsed = toml::parse_file(file.string());
  if (!parsed) return failed(parsed.error().source(), parsed.error().description());

  for (const auto& [key, node] : parsed.table()) {
    const auto* const setting =
        std::find_if(std::begin(kSettings), std::end(kSettings),
                     [&key = key](const Setting& known) { return known.key == key.str(); });
    if (setting == std::end(kSettings)) {
      return failed(key.source(), fmt::format("unknown key '{}'", key.str()));
    }

    std::string text;
    if (setting->kind == Kind::number) {
      const auto* const number = node.as_integer();
      if (number == nullptr) {
        return failed(node.source(), fmt::format("{}: expected an integer", key.str()));
      }
      text = fmt::format("{}", number->get());
    } else {
      const auto* const string = node.as_string();
      if (string == nullptr) {
        return failed(node.source(), fmt::format("{}: expected a string in quotes", key.str()));
      }
      text = string->get();
    }
    if (const auto applied = setting->apply(options, text); !applied) {
      return failed(node.source(), fmt::format("{}: {}", key.str(), applied.error().detail()));
    }
  }
  return {};
}

std::variant<ServerOptions, EarlyExit> parse_options(int argc, const char* const* argv) {
  CLI::App app(
      "fencekv-server: a key-value store that refuses late writes, over the Redis protocol.");
  app.footer(std::string(kFooter));
  app.set_version_flag("--version", "fencekv-server " FENCEKV_VERSION);

  std::array<std::string, std::size(kSettings)> given;
  std::array<CLI::Option*, std::size(kSettings)> flags{};
  for (std::size_t i = 0; i < std::size(kSettings); ++i) {
    flags[i] = app.add_option(flag_of(kSettings[i]), given[i], std::string(kSettings[i].help))
                   ->type_name(std::string(kSettings[i].value_name));
  }
  std::string config;
  app.add_option("--config", config, "TOML file with the same options")->type_name("FILE");
  ServerOptions options;
  app.add_flag("--check-config", options.check_config,
               "say whether the configuration is good, and start nothing");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return EarlyExit{ExitCode::stopped, app.help()};
  } catch (const CLI::CallForVersion& version) {
    return EarlyExit{ExitCode::stopped, std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    return usage_error(std::string(error.what()) + "; see --help");
  }

  if (!config.empty()) {
    if (const auto read = read_config(config, options); !read) {
      return usage_error(read.error().detail());
    }
  }
  for (std::size_t i = 0; i < std::size(kSettings); ++i) {
    if (flags[i]->count() == 0) continue;
    if (const auto applied = kSettings[i].apply(options, given[i]); !applied) {
      return usage_error(fmt::format("{}: {}", flag_of(kSettings[i]), applied.error().detail()));
    }
  }
  if (const auto why = contradiction(options)) return usage_error(*why);
  return options;
}

}  // namespace fencekv::server
