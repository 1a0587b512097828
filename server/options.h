// SPDX-License-Identifier: Apache-2.0
/// What the server is started with: command line and configuration file.

#pragma once

#include "fencekv/options.h"
#include "fencekv/result.h"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>

namespace fencekv::server {

/// Why the process ends, for whoever started it. The numbers are part of the interface.
enum class ExitCode : int {
  stopped = 0,
  usage = 2,          ///< A flag, a key of the file, or a combination that is refused.
  in_use = 3,         ///< Another process has the directory open.
  damaged = 4,        ///< The store in the directory is damaged.
  newer_format = 5,   ///< A newer version wrote the directory.
  cannot_listen = 6,  ///< The address cannot be listened on.
  no_space = 7,       ///< There is no space to create a store.
  no_memory = 8,      ///< Memory ran out: the process ended as in a crash.
  stalled = 9,        ///< The storage did not answer for ServerOptions::stall_exit.
};

enum class LogThreshold { debug, note, warning, error };

struct ServerOptions {
  static constexpr int kDefaultPort = 7433;
  static constexpr std::chrono::seconds kAuthenticationTimeout{10};
  static constexpr std::chrono::seconds kCommandTimeout{30};
  static constexpr std::chrono::seconds kWriteTimeout{30};
  static constexpr std::chrono::seconds kDrainTimeout{10};

  std::filesystem::path dir;            ///< Where the store is. Required.
  std::string bind = "127.0.0.1";       ///< A numeric address, or localhost.
  int port = kDefaultPort;              ///< 0: any free one; -1: no TCP.
  std::filesystem::path unix_path;      ///< Empty: no Unix socket.
  std::filesystem::path backup_root;    ///< Empty: no backups by command.
  std::filesystem::path password_file;  ///< Empty: no password.
  std::size_t io_threads = 2;           ///< Threads that serve connections, at least 1.
  std::size_t max_connections = 10000;
  /// Bytes that requests which have not ended, and replies which are not read, may take together.
  std::size_t max_buffer_bytes = std::size_t{1024} * 1024 * 1024;
  std::chrono::milliseconds idle_timeout{0};  ///< 0: never.
  /// INFO says `ready:0` once the storage has not answered for so long; 0: never.
  std::chrono::milliseconds stall_warning{10'000};
  /// The process ends once the storage has not answered for so long; 0: never.
  std::chrono::milliseconds stall_exit{60'000};
  LogThreshold log_level = LogThreshold::note;
  bool check_config = false;  ///< Only look whether the configuration is good.
  Options store;              ///< What has a flag: durability, unguarded_tokens, max_value_bytes,
                              ///< max_waiting, memory_budget, fence_cache_bytes, read_cache_bytes,
                              ///< fence_retention, reclaim_interval, the disk floors,
                              ///< scrub_interval, scrub_bytes_per_second.
};

/// The process has nothing to serve: print `text` and leave.
struct EarlyExit {
  ExitCode code;
  std::string text;
};

/// How many threads serve connections on a machine with so many processors if nobody says so: two,
/// but one where the commits need the other processor. With Durability::sync they mostly wait for
/// the disk.
std::size_t default_io_threads(Durability durability, std::size_t processors);

/// Reads flags, and the file that --config names; flags win. If neither has them, the memory budget
/// is default_memory_budget(), and the threads are default_io_threads(). Does not touch anything
/// else.
std::variant<ServerOptions, EarlyExit> parse_options(int argc, const char* const* argv);

/// Reads the TOML file into `options`.
/// Errors: invalid, `FILE:LINE: …`.
Result<void> read_config(const std::filesystem::path& file, ServerOptions& options);

/// Whether only this machine can reach `address`. Errors: invalid, it is not an address.
Result<bool> is_loopback(const std::string& address);

}  // namespace fencekv::server
