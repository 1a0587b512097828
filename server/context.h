// SPDX-License-Identifier: Apache-2.0
/// What the commands of all connections share.

#pragma once

#include "fencekv/store.h"
#include "server/backups.h"
#include "server/buffer_budget.h"
#include "server/client.h"
#include "server/commands/cursor_table.h"
#include "server/options.h"
#include "server/password.h"
#include "server/throttle.h"

#include <spdlog/logger.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace fencekv::server {

/// Counters for INFO. Never go back.
struct Counters {
  std::atomic<std::uint64_t> connections = 0;
  std::atomic<std::uint64_t> refused_connections = 0;
  std::atomic<std::uint64_t> commands = 0;
  std::atomic<std::uint64_t> input_bytes = 0;
  std::atomic<std::uint64_t> output_bytes = 0;
};

/// Thread safety: everything in it may be used concurrently.
struct Context {
  Context(Store& the_store, const ServerOptions& the_options, const Password& the_password,
          spdlog::logger& the_log, std::function<void()> the_stop)
      : store(the_store),
        options(the_options),
        password(the_password),
        log(the_log),
        stop(std::move(the_stop)),
        backups(the_store, the_options.backup_root, the_log),
        clients(the_options.max_connections),
        buffers(the_options.max_buffer_bytes) {}

  Store& store;
  const ServerOptions& options;
  const Password password;
  spdlog::logger& log;
  const std::function<void()> stop;  ///< Asks the server to drain (SHUTDOWN).
  Backups backups;
  Clients clients;
  BufferBudget buffers;
  std::atomic<std::size_t> busy = 0;  ///< Sessions that do anything but wait for a request.
  CursorTable cursors;
  Counters counters;
  const std::string run_id = new_owner() + new_owner().substr(0, 8);  ///< 40 hex digits.
  const MonotonicTime started = std::chrono::steady_clock::now();
  Throttle failed_logins;
  Throttle web_requests;
  Throttle refused_connections;
  std::atomic<int> port = 0;  ///< The TCP port listened on; 0: none.
};

}  // namespace fencekv::server
