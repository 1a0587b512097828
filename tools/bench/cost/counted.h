// SPDX-License-Identifier: Apache-2.0
/// What a thread has asked of the allocator and of the kernel. In the program that links this,
/// `operator new` and some functions of the C library are replaced by ones that count and then do
/// the same as ever; libraries that are linked to it, RocksDB too, are counted with it.

#pragma once

#include <cstdint>

namespace fencekv::bench {

/// Of one thread, so that flushes, compactions and whatever else goes on behind do not show.
struct Counted {
  std::uint64_t allocations = 0;      ///< By `new`, in every form. What C code takes is not in it.
  std::uint64_t allocated_bytes = 0;  ///< As asked for.
  /// That write, read, sync, send, receive, or change what is waited for. Not epoll_wait(): how
  /// often an idle loop looks depends on who drives it.
  std::uint64_t kernel_calls = 0;
  std::uint64_t written_bytes = 0;  ///< Given to write() and pwrite(): those of files.

  friend Counted operator-(const Counted& a, const Counted& b) {
    return {.allocations = a.allocations - b.allocations,
            .allocated_bytes = a.allocated_bytes - b.allocated_bytes,
            .kernel_calls = a.kernel_calls - b.kernel_calls,
            .written_bytes = a.written_bytes - b.written_bytes};
  }
  Counted& operator+=(const Counted& more) {
    allocations += more.allocations;
    allocated_bytes += more.allocated_bytes;
    kernel_calls += more.kernel_calls;
    written_bytes += more.written_bytes;
    return *this;
  }
};

/// By the calling thread, since it began.
Counted counted_so_far();

/// While one lives, nothing of its thread is counted: what plays the client is no cost.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  const Counted before_;
};

}  // namespace fencekv::bench
