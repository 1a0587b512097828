// SPDX-License-Identifier: Apache-2.0
/// How a store is opened.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
  /// Any other clock of the same speed, from any beginning. While since_boot() stands still and
  /// this one runs on, nothing is granted, since no grant would ever end. nullopt: there is none.
  virtual std::optional<std::chrono::nanoseconds> second_opinion() const { return std::nullopt; }
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

  /// A holder who sleeps no longer than this after its grant has ended is told how it ended; one
  /// that sleeps longer may be told that it is below the floor. Default 7 days.
  std::chrono::nanoseconds fence_retention = std::chrono::hours{24 * 7};
  /// How often what is not needed any more is looked for and taken away (Store::reclaim()), on a
  /// thread of its own, slowly. Default 1 hour; zero: never.
  std::chrono::nanoseconds reclaim_interval = std::chrono::hours{1};

  /// How often everything that is stored is read and verified (Store::scrub()), on a thread of its
  /// own, no faster than the rate in bytes a second, on average. What is damaged is logged and
  /// counted. The first time comes after a 24th of the interval. Default 24 hours; zero, either:
  /// never.
  std::chrono::nanoseconds scrub_interval = std::chrono::hours{24};
  std::uint64_t scrub_bytes_per_second = std::uint64_t{8} * 1024 * 1024;

  // What it may use.

  /// Bytes that stay free on the disk, so that it is never full: beside what stands in the log,
  /// which needs its space once more. With less than the soft floor, what makes keys grow (a value,
  /// a raised fence) is refused, misconf; leases and deletions go on. With less than the hard floor
  /// every write is refused. Writes are taken again by themselves once there is a quarter more.
  /// Default, nullopt: 1 GiB and 256 MiB, but no more than a 20th and an 80th of the disk; 0: none.
  std::optional<std::uint64_t> soft_disk_floor;
  std::optional<std::uint64_t> hard_disk_floor;

  /// How much memory may be taken to remember what is stored, so that it is not read again: bytes,
  /// about. A quarter, but no more than 64 MiB, is for what was written last and is not in tables
  /// yet; the rest is divided in equal thirds: blocks of tables, fences, and records that were
  /// read. It is taken as it fills, not at the opening. Default 256 MiB.
  ///
  /// Not in it is what the store cannot forget as it likes: commands that wait for their group
  /// (max_queued_bytes), the leases that are held, and who waits for one (max_waiting). Nor are
  /// the buffers of a server's connections, for which it has an option of its own.
  std::size_t memory_budget = std::size_t{256} * 1024 * 1024;
  /// A store on a disk is not opened with less.
  static constexpr std::size_t kLeastMemoryBudget = std::size_t{16} * 1024 * 1024;

  /// How much is for fences, so that writes read nothing: a quarter, but no more than 16 MiB, to
  /// tell which keys and leases were never there, about 10 bits for each that was, and the rest to
  /// remember the fences of keys that were written lately, about 150 bytes a key. After an opening
  /// the former is known once everything has been looked at, which the store does by itself, unless
  /// that is more than 4 GiB. Default, nullopt: its third of the budget; 0: none.
  std::optional<std::size_t> fence_cache_bytes;

  /// How much is for records that were read lately, so that they are not read again: their keys and
  /// values, and about 100 bytes each. Values of more than 64 KiB, or of a 128th of it, are not
  /// kept. Default, nullopt: its third of the budget; 0: none.
  std::optional<std::size_t> read_cache_bytes;

  /// Commands waiting for their group, in number and in bytes; beyond either, OVERLOADED.
  std::size_t max_queued_commands = 65536;
  std::size_t max_queued_bytes = std::size_t{256} * 1024 * 1024;
  /// Commands waiting for a lease, of all names together; beyond, OVERLOADED.
  std::size_t max_waiting = 200'000;

  // What it is given.

  /// Default: system_clock().
  std::shared_ptr<Clock> clock;
  /// Where news of the store goes, one line a call. Default: nowhere. Called from any thread.
  std::function<void(LogLevel, std::string_view)> log;
};

}  // namespace fencekv
