// SPDX-License-Identifier: Apache-2.0
/// What a process has cost so far.

#pragma once

#include <cstdint>
#include <optional>
#include <sys/types.h>

namespace fencekv::bench {

/// User and system time of this process and all its threads, in seconds.
double own_processor_seconds();

/// What /proc says of another process and its living children, which is where PostgreSQL has its
/// connections. Nothing if the process is not there.
struct ProcessCost {
  double processor_seconds;  ///< User and system; a tick is 10 ms.
  /// Given to write() and its like, on files, and on sockets if it writes its replies so (Redis and
  /// etcd do); 0 if the kernel does not tell. Not `write_bytes`, which counts what was made dirty
  /// in the page cache by folios: on ext4 those may have 2 MiB, of which 8 KiB were written.
  std::uint64_t written_bytes;
};
std::optional<ProcessCost> cost_of_process(pid_t process);

}  // namespace fencekv::bench
