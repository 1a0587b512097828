// SPDX-License-Identifier: Apache-2.0
/// A real fencekv-server, started and ended by a test. The target that includes this has to define
/// FENCEKV_SERVER_PATH, `$<TARGET_FILE:fencekv-server>`.

#pragma once

#include "tests/support/stopped_process.h"
#include "tests/support/temporary_directory.h"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <poll.h>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace fencekv::testing {

/// The process is killed with its object, if it still runs then.
class ServerProcess {
 public:
  struct Start {
    std::vector<std::string> flags;
    std::optional<unsigned> open_files = std::nullopt;  ///< Limit of descriptors.
    std::vector<std::string> environment{};  ///< `NAME=value`, added to that of the test.
  };

  explicit ServerProcess(const Start& start) {
    int out[2];
    if (::pipe2(out, O_CLOEXEC) != 0) return;
    const std::string log_path = log_path_();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(out[1], STDOUT_FILENO);
      const int log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(log, STDERR_FILENO);
      if (start.open_files) {
        const rlimit limit{*start.open_files, *start.open_files};
        ::setrlimit(RLIMIT_NOFILE, &limit);
      }
      for (const std::string& setting : start.environment) {
        ::putenv(const_cast<char*>(setting.c_str()));
      }
      std::vector<const char*> words = {FENCEKV_SERVER_PATH};
      for (const std::string& flag : start.flags) words.push_back(flag.c_str());
      words.push_back(nullptr);
      ::execv(FENCEKV_SERVER_PATH, const_cast<char**>(words.data()));
      ::_exit(127);
    }
    ::close(out[1]);
    stdout_ = out[0];
  }

  ~ServerProcess() {
    if (pid_ > 0 && !exit_code_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (stdout_ >= 0) ::close(stdout_);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  /// The next line of standard output, without its end; empty at its end or after the timeout.
  std::string next_line(std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      const auto newline = output_.find('\n');
      if (newline != std::string::npos) {
        const std::string line = output_.substr(0, newline);
        output_.erase(0, newline + 1);
        return line;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd ready{stdout_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return {};
      char bytes[512];
      const ssize_t size = ::read(stdout_, bytes, sizeof bytes);
      if (size <= 0) return {};
      output_.append(bytes, static_cast<std::size_t>(size));
    }
  }

  /// Waits for `ready HOST:PORT`. 0: it did not come.
  std::uint16_t wait_ready() {
    const std::string line = next_line();
    const auto colon = line.rfind(':');
    if (!line.starts_with("ready ") || colon == std::string::npos) return 0;
    return static_cast<std::uint16_t>(std::stoul(line.substr(colon + 1)));
  }

  /// After SIGSTOP it stands for certain.
  void signal(int number) const {
    if (number == SIGSTOP) return stop_process(pid_);
    ::kill(pid_, number);
  }

  /// The memory that it has, in bytes; 0: it is gone.
  std::size_t memory() const { return memory_("VmRSS:"); }
  /// The most that it has had so far: a connection that took too much may be closed, and its memory
  /// free, before anybody looks.
  std::size_t peak_memory() const { return memory_("VmHWM:"); }

  /// Its exit code, or 128 + the signal that ended it; nullopt: it still runs.
  std::optional<int> wait_exit(std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!exit_code_) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      } else if (std::chrono::steady_clock::now() >= deadline) {
        return std::nullopt;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    return exit_code_;
  }

  pid_t pid() const { return pid_; }

  /// What it has written to standard error so far.
  std::string log() const {
    std::stringstream text;
    text << std::ifstream(log_path_()).rdbuf();
    return text.str();
  }

 private:
  std::size_t memory_(std::string_view which) const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(which)) return std::stoull(line.substr(which.size())) * 1024;
    }
    return 0;
  }
  std::string log_path_() const { return (directory_.path() / "stderr").string(); }

  TemporaryDirectory directory_;
  pid_t pid_ = -1;
  int stdout_ = -1;
  std::string output_;
  std::optional<int> exit_code_;
};

}  // namespace fencekv::testing
