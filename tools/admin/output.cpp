// SPDX-License-Identifier: Apache-2.0
#include "tools/admin/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace fencekv::admin {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{64} * 1024;
constexpr std::chrono::milliseconds kRedraw{200};

}  // namespace

Output::Output() {
  std::signal(SIGPIPE, SIG_IGN);
}

void Output::write(std::string_view text) {
  if (is_over_) return;
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) flush();
}

void Output::flush() {
  std::string_view rest(buffer_);
  while (!rest.empty() && !is_over_) {
    const auto size = ::write(STDOUT_FILENO, rest.data(), rest.size());
    if (size >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(size));
    } else if (errno != EINTR) {
      is_over_ = true;
      if (errno != EPIPE) failed_ = errno;
    }
  }
  buffer_.clear();
}

Result<void> Output::finish() {
  flush();
  if (failed_ == 0) return {};
  return Error(Errc::no_space,
               "cannot write to standard output: " + std::generic_category().message(failed_) +
                   ". What was written is not complete");
}

bool is_terminal_output() {
  return isatty(STDOUT_FILENO) == 1;
}

Progress::Progress(std::string what)
    : what_(std::move(what)),
      is_shown_(isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + kRedraw) {}

Progress::~Progress() {
  if (is_drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::now(std::string what) {
  what_ = std::move(what);
}

void Progress::at(std::uint64_t done, std::uint64_t total) {
  if (!is_shown_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kRedraw;
  is_drawn_ = true;
  const auto percent = total == 0 ? 100 : std::min<std::uint64_t>(done * 100 / total, 100);
  fmt::print(stderr, "\r{}: {} %\033[K", what_, percent);
}

}  // namespace fencekv::admin
