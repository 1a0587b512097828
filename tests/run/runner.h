// SPDX-License-Identifier: Apache-2.0
/// fencekv-run beside a real server, as a test sees it.

#pragma once

#include "tests/run/watching.h"
#include "tests/support/fast_directory.h"
#include "tests/support/raw_client.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_directory.h"
#include "tools/run/boot_time.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fencekv::testing {

/// One fencekv-run. It is killed with its object, if it still runs then.
class Runner {
 public:
  Runner(std::vector<std::string> words, const std::filesystem::path& folder, std::string name)
      : err_(folder / (name + ".err")) {
    words.insert(words.begin(), FENCEKV_RUN_PATH);
    std::vector<const char*> pointers;
    for (const auto& word : words) pointers.push_back(word.c_str());
    pointers.push_back(nullptr);
    id_ = ::fork();
    if (id_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      // As a service has it: a session of its own, no terminal.
      ::setsid();
      if (::chdir(folder.c_str()) != 0) ::_exit(99);
      const int err = ::open(err_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
      ::dup2(err, STDERR_FILENO);
      ::execv(FENCEKV_RUN_PATH, const_cast<char**>(pointers.data()));
      ::_exit(99);
    }
  }
  ~Runner() {
    if (code_) return;
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  pid_t id() const { return id_; }
  void signal(int number) const { ::kill(id_, number); }

  /// Its exit code, or 1000 and the signal that ended it; -1: it still runs after kPatience.
  int wait() {
    const bool ended = await([&] {
      int status = 0;
      if (code_ || ::waitpid(id_, &status, WNOHANG) != id_) return code_.has_value();
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
      return true;
    });
    return ended ? *code_ : -1;
  }

  /// What it said to standard error so far.
  std::string err() const { return text_of(err_); }

 private:
  std::filesystem::path err_;
  pid_t id_ = -1;
  std::optional<int> code_;
};

class RunnerTest : public ::testing::Test {
 protected:
  void SetUp() override { start_server(); }

  void start_server(std::vector<std::string> flags = {}) {
    server_.reset();
    flags.insert(flags.end(),
                 {"--dir", (store_.path() / "store").string(), "--port", std::to_string(port_)});
    server_ = std::make_unique<ServerProcess>(ServerProcess::Start{.flags = std::move(flags)});
    port_ = server_->wait_ready();
    ASSERT_NE(port_, 0) << server_->log();
  }

  std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }
  std::string text(const std::string& name) const { return text_of(file(name)); }

  /// fencekv-run of a shell script, in the test's folder, on the lease `job`.
  std::unique_ptr<Runner> start(std::vector<std::string> flags, const std::string& script) {
    flags.insert(flags.begin(), {"--port", std::to_string(port_), "--lease", "job"});
    flags.insert(flags.end(), {"--", "sh", "-c", script});
    return std::make_unique<Runner>(std::move(flags), folder_.path(),
                                    "runner" + std::to_string(++started_));
  }
  int run(std::vector<std::string> flags, const std::string& script) {
    return start(std::move(flags), script)->wait();
  }

  /// One command of an administrator, on a connection of its own; as shown() writes the reply.
  std::string ask(const std::vector<std::string>& words) const {
    return RawClient(port_).ask(words);
  }
  std::string info() const { return ask({"LEASE.INFO", "job"}); }
  bool is_free() const { return info().find("$holders, []") != std::string::npos; }
  bool has_waiters(int count) const {
    return info().find("$waiters, :" + std::to_string(count)) != std::string::npos;
  }

  FastDirectory store_;
  TemporaryDirectory folder_;
  std::uint16_t port_ = 0;
  std::unique_ptr<ServerProcess> server_;
  int started_ = 0;
};

}  // namespace fencekv::testing
