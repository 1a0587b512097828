// SPDX-License-Identifier: Apache-2.0
/// How a store is opened.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace fencekv {

/// Where the store's time comes from. Pass your own to test expiry without waiting.
///
/// Thread safety: all members are called concurrently.
class Clock {
 public:
  virtual ~Clock() = default;

  /// Time since boot, running on while the machine is suspended (CLOCK_BOOTTIME). Leases expire
  /// by it, and by nothing else.
  virtual std::chrono::nanoseconds since_boot() const = 0;
  /// Identifies the boot that since_boot() counts from.
  virtual std::string boot_id() const = 0;
  /// Wall clock since 1970. Shown to people; nothing is decided by it.
  virtual std::chrono::milliseconds wall() const = 0;
};

/// The clock of this machine.
std::shared_ptr<Clock> system_clock();

/// When a reply may be given.
enum class Durability : std::uint8_t {
  sync,     ///< Survives a power cut. Concurrent writes share an fsync.
  process,  ///< Survives a crash of the process, not of the machine. Tokens never repeat even so.
};

/// What a write may carry that names no lease and hits a key without a guard.
enum class UnguardedTokens : std::uint8_t {
  issued,  ///< Only tokens that this store handed out.
  any,     ///< Tokens of an external allocator. The store then knows no floor for them.
  refuse,  ///< No such writes.
};

enum class LogLevel : std::uint8_t { debug, note, warning, error };

struct Options {
  // What the store promises.

  /// Default sync. May differ from one opening to the next.
  Durability durability = Durability::sync;
  /// Default issued. May differ from one opening to the next.
  UnguardedTokens unguarded_tokens = UnguardedTokens::issued;
  /// Longest value in bytes; default 16 MiB. A longer one already stored can still be read.
  std::size_t max_value_bytes = std::size_t{16} * 1024 * 1024;

  // What it may use.

  /// Commands waiting for their group, in number and in bytes; beyond either, OVERLOADED.
  std::size_t max_queued_commands = 65536;
  std::size_t max_queued_bytes = std::size_t{256} * 1024 * 1024;

  // What it is given.

  /// Default: system_clock().
  std::shared_ptr<Clock> clock;
  /// Where news of the store goes, one line a call. Default: nowhere. Called from any thread.
  std::function<void(LogLevel, std::string_view)> log;
};

}  // namespace fencekv
