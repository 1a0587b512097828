// SPDX-License-Identifier: Apache-2.0
/// A program that a test talks to: lines to its standard input, what it says on its standard
/// output.

#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fencekv::testing {

/// Killed with its object. Its standard error is the test's.
class TalkingProcess {
 public:
  explicit TalkingProcess(const std::vector<std::string>& words) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    // A socket: writing to a pipe whose reader has ended would end the test, too.
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in.data()) != 0) return;
    if (::pipe2(out.data(), O_CLOEXEC) != 0) return;
    std::vector<char*> arguments;
    for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    id_ = ::fork();
    if (id_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::execvp(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  ~TalkingProcess() {
    if (id_ > 0 && !code_) {
      ::kill(id_, SIGKILL);
      ::waitpid(id_, nullptr, 0);
    }
    if (in_ >= 0) ::close(in_);
    if (out_ >= 0) ::close(out_);
  }
  TalkingProcess(const TalkingProcess&) = delete;
  TalkingProcess& operator=(const TalkingProcess&) = delete;

  /// False: it does not listen any more.
  bool say(std::string_view text) const {
    return ::send(in_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }

  /// All that it says up to and with `word`, and what came with it; nullopt: it ended, or did not
  /// say it in time. What it said instead is in rest().
  std::optional<std::string> hear_until(
      std::string_view word, std::chrono::milliseconds patience = std::chrono::seconds(60)) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    std::size_t searched = 0;
    while (heard_.find(word, searched) == std::string::npos) {
      searched = heard_.size() > word.size() ? heard_.size() - word.size() : 0;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd readable{out_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&readable, 1, static_cast<int>(left.count())) <= 0) {
        return std::nullopt;
      }
      std::array<char, 65536> bytes{};
      const auto size = ::read(out_, bytes.data(), bytes.size());
      if (size <= 0) return std::nullopt;
      heard_.append(bytes.data(), static_cast<std::size_t>(size));
    }
    return std::exchange(heard_, {});
  }
  const std::string& rest() const { return heard_; }

  /// Its exit code, or 128 + the signal that ended it. Waits for its end.
  int wait() {
    if (!code_) {
      int status = 0;
      while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) {
      }
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return *code_;
  }

 private:
  pid_t id_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string heard_;
  std::optional<int> code_;
};

}  // namespace fencekv::testing
