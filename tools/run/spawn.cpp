// SPDX-License-Identifier: Apache-2.0
#include "tools/run/spawn.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace fencekv::run {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// Marks all files but the standard streams and `kept` to be closed by exec(). Between fork() and
/// exec() only.
void close_on_exec_but(const std::vector<int>& kept) {
  unsigned from = STDERR_FILENO + 1;
  for (const int file : kept) {
    const auto number = static_cast<unsigned>(file);
    if (number > from) ::close_range(from, number - 1, CLOSE_RANGE_CLOEXEC);
    from = number + 1;
  }
  ::close_range(from, ~0U, CLOSE_RANGE_CLOEXEC);
}

}  // namespace

std::vector<int> open_files() {
  std::vector<int> files;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return files;
  while (const dirent* entry = ::readdir(folder)) {  // NOLINT(concurrency-mt-unsafe): own stream
    int number = -1;
    std::from_chars(entry->d_name, entry->d_name + std::strlen(entry->d_name), number);
    if (number > STDERR_FILENO && number != ::dirfd(folder)) files.push_back(number);
  }
  ::closedir(folder);
  std::sort(files.begin(), files.end());
  return files;
}

std::variant<pid_t, std::errc> spawn(const Command& command, const Signals& signals,
                                     Terminal& terminal,
                                     const std::function<void(pid_t)>& before_it_runs) {
  // All that needs memory comes before fork(): another thread may hold the allocator's lock.
  const auto words = pointers(command.words);
  const auto environment = pointers(command.environment);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return static_cast<std::errc>(errno);
  const Descriptor hears(ends[0]);
  Descriptor speaks(ends[1]);
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return static_cast<std::errc>(errno);
  const Descriptor awaits_leave(ends[0]);
  Descriptor gives_leave(ends[1]);
  const pid_t parent = ::getpid();

  const pid_t child = ::fork();
  if (child < 0) return static_cast<std::errc>(errno);
  if (child == 0) {
    ::setpgid(0, 0);
    // The parent may be gone already: then nobody is left to send the signal.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    // Its own copy would keep the pipe open: the end of the parent could not be told.
    gives_leave.reset();
    char leave = 0;
    if (::read(awaits_leave.number(), &leave, 1) != 1) ::_exit(127);
    terminal.give_to_self();
    close_on_exec_but(command.files);
    ::pthread_sigmask(SIG_SETMASK, &signals.before(), nullptr);
    ::execvpe(words[0], words.data(), environment.data());
    const int error = errno;
    [[maybe_unused]] const auto said = ::write(speaks.number(), &error, sizeof error);
    ::_exit(127);
  }

  // Both do it, so that it is done for whoever goes on first.
  ::setpgid(child, child);
  terminal.give(child);
  before_it_runs(child);
  // The child waits at the other end. If it was killed, that is seen when it is waited for.
  [[maybe_unused]] const auto told = ::write(gives_leave.number(), "g", 1);
  speaks.reset();
  int error = 0;
  ssize_t size = 0;
  do {
    size = ::read(hears.number(), &error, sizeof error);
  } while (size < 0 && errno == EINTR);
  if (size != sizeof error) return child;

  ::waitpid(child, nullptr, 0);
  terminal.take();
  return static_cast<std::errc>(error);
}

}  // namespace fencekv::run
