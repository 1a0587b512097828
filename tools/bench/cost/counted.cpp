// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cost/counted.h"

#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>
#include <new>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

namespace fencekv::bench {
namespace {

// Constant from the beginning: the first allocations come before main().
constinit thread_local Counted counted;

void* counted_memory(std::size_t bytes, std::size_t alignment) {
  ++counted.allocations;
  counted.allocated_bytes += bytes;
  if (bytes == 0) bytes = 1;
  void* memory = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    memory = std::malloc(bytes);
  } else {
    // Its size has to be a multiple of the alignment.
    memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// The function of that name behind the one that is defined here.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

Counted counted_so_far() {
  return counted;
}

Uncounted::Uncounted() : before_(counted) {}
Uncounted::~Uncounted() {
  counted = before_;
}

}  // namespace fencekv::bench

using fencekv::bench::counted;
using fencekv::bench::counted_memory;
using fencekv::bench::next;

// The forms that are not here, of arrays and without exceptions, are defined by these.
void* operator new(std::size_t bytes) {
  return counted_memory(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted_memory(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}

// Those of the C library that store, RocksDB and Asio call on their way.
extern "C" {

ssize_t write(int file, const void* bytes, size_t size) {
  static auto* const real = next<decltype(write)>("write");
  ++counted.kernel_calls;
  counted.written_bytes += size;
  return real(file, bytes, size);
}

ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  static auto* const real = next<decltype(pwrite)>("pwrite");
  ++counted.kernel_calls;
  counted.written_bytes += size;
  return real(file, bytes, size, offset);
}

ssize_t read(int file, void* bytes, size_t size) {
  static auto* const real = next<decltype(read)>("read");
  ++counted.kernel_calls;
  return real(file, bytes, size);
}

ssize_t pread(int file, void* bytes, size_t size, off_t offset) {
  static auto* const real = next<decltype(pread)>("pread");
  ++counted.kernel_calls;
  return real(file, bytes, size, offset);
}

int fsync(int file) {
  static auto* const real = next<decltype(fsync)>("fsync");
  ++counted.kernel_calls;
  return real(file);
}

int fdatasync(int file) {
  static auto* const real = next<decltype(fdatasync)>("fdatasync");
  ++counted.kernel_calls;
  return real(file);
}

ssize_t send(int socket, const void* bytes, size_t size, int flags) {
  static auto* const real = next<decltype(send)>("send");
  ++counted.kernel_calls;
  return real(socket, bytes, size, flags);
}

ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  static auto* const real = next<decltype(sendmsg)>("sendmsg");
  ++counted.kernel_calls;
  return real(socket, message, flags);
}

ssize_t recv(int socket, void* bytes, size_t size, int flags) {
  static auto* const real = next<decltype(recv)>("recv");
  ++counted.kernel_calls;
  return real(socket, bytes, size, flags);
}

ssize_t recvmsg(int socket, msghdr* message, int flags) {
  static auto* const real = next<decltype(recvmsg)>("recvmsg");
  ++counted.kernel_calls;
  return real(socket, message, flags);
}

int epoll_ctl(int queue, int operation, int file, epoll_event* event) {
  static auto* const real = next<decltype(epoll_ctl)>("epoll_ctl");
  ++counted.kernel_calls;
  return real(queue, operation, file, event);
}

}  // extern "C"
