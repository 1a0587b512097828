// SPDX-License-Identifier: Apache-2.0
/// A forked copy of the test that runs one function, and can be killed. Fork only while no other
/// thread of the test is running.

#pragma once

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

namespace fencekv::testing {

/// How a process ended, in words: `exit 0`, `signal 9`.
inline std::string ending(int status) {
  if (WIFEXITED(status)) return "exit " + std::to_string(WEXITSTATUS(status));
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "status " + std::to_string(status);
}

class ChildProcess {
 public:
  /// Runs `body(out)` in a child; what it writes to the descriptor `out` can be read here. The
  /// child ends with what `body` returns, without running any destructor of the test.
  template <class Body>
  explicit ChildProcess(Body body) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw std::runtime_error("pipe");
    id_ = fork();
    if (id_ < 0) throw std::runtime_error("fork");
    if (id_ == 0) {
      close(ends[0]);
      int code = 99;
      try {
        code = body(ends[1]);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "the child ended with: %s\n", error.what());
        code = 98;
      }
      _exit(code);
    }
    close(ends[1]);
    out_ = ends[0];
  }
  ~ChildProcess() {
    if (id_ > 0) {
      kill(SIGKILL);
      wait();
    }
    close(out_);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t id() const { return id_; }
  void kill(int signal) const { ::kill(id_, signal); }

  /// Waits for its end: `exit 0`, `signal 9`. Once.
  std::string wait() {
    int status = 0;
    while (waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
    id_ = -1;
    return ending(status);
  }

  /// What it says next; empty at the end.
  std::string read_some() const {
    std::array<char, 65536> chunk{};
    ssize_t size = 0;
    do {
      size = ::read(out_, chunk.data(), chunk.size());
    } while (size < 0 && errno == EINTR);
    return {chunk.data(), static_cast<std::size_t>(size > 0 ? size : 0)};
  }

  /// All that it says until it closes the pipe.
  std::string read_all() const {
    std::string all;
    for (auto some = read_some(); !some.empty(); some = read_some()) all += some;
    return all;
  }

 private:
  pid_t id_ = -1;
  int out_ = -1;
};

/// For the child: says all of `text`. A line of less than 4,096 bytes is never cut or mixed.
inline void say(int out, std::string_view text) {
  while (!text.empty()) {
    const auto size = ::write(out, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) std::abort();
    text.remove_prefix(static_cast<std::size_t>(size));
  }
}

}  // namespace fencekv::testing
