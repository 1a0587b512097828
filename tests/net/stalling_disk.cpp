// SPDX-License-Identifier: Apache-2.0
/// A disk that does not answer: preloaded into a server. While the file that FENCEKV_STALLED names
/// is there, no fsync and no write to a file comes back; with FENCEKV_STALLED_ENDING only of files
/// whose names end so.

#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using Sync = int (*)(int);

void wait_while_stalled() {
  const char* const path = std::getenv("FENCEKV_STALLED");
  while (path != nullptr && ::access(path, F_OK) == 0) ::usleep(5000);
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

/// Whether the file is one of those that are to stall.
bool is_meant(int file) {
  const char* const ending = std::getenv("FENCEKV_STALLED_ENDING");
  if (ending == nullptr) return true;
  char path[4096];
  const auto link = "/proc/self/fd/" + std::to_string(file);
  const auto size = ::readlink(link.c_str(), path, sizeof path);
  return size > 0 && std::string_view(path, static_cast<std::size_t>(size)).ends_with(ending);
}

int really(const char* name, int file) {
  if (is_meant(file)) wait_while_stalled();
  return next<Sync>(name)(file);
}

/// Messages between threads and clients go on.
void wait_if_file(int file) {
  struct stat found {};
  const bool is_log = file <= STDERR_FILENO;
  if (!is_log && ::fstat(file, &found) == 0 && S_ISREG(found.st_mode) && is_meant(file)) {
    wait_while_stalled();
  }
}

}  // namespace

extern "C" int fsync(int file) {
  return really("fsync", file);
}

extern "C" int fdatasync(int file) {
  return really("fdatasync", file);
}

extern "C" ssize_t write(int file, const void* bytes, size_t size) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  wait_if_file(file);
  return real(file, bytes, size);
}

extern "C" ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  wait_if_file(file);
  return real(file, bytes, size, offset);
}

extern "C" ssize_t pwrite64(int file, const void* bytes, size_t size, off64_t offset) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  wait_if_file(file);
  return real(file, bytes, size, offset);
}
