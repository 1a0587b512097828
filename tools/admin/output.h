// SPDX-License-Identifier: Apache-2.0
/// Standard output and the progress line.

#pragma once

#include "fencekv/result.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace fencekv::admin {

/// Standard output, buffered. A reader that has gone away (`| head`) is no error: nothing more is
/// written, and is_over() tells the writer to stop.
class Output {
 public:
  /// Ignores SIGPIPE from here on, for the whole process.
  Output();

  void write(std::string_view text);
  /// Nobody reads what is written from here on, or it cannot be written.
  bool is_over() const { return is_over_; }

  /// Writes what is buffered. Errors: no_space, the output could not be written in full.
  Result<void> finish();

 private:
  void flush();

  std::string buffer_;
  bool is_over_ = false;
  int failed_ = 0;  // errno
};

bool is_terminal_output();

/// How far long work has come, on one line of standard error, if that is a terminal. Not for work
/// that writes to the same terminal meanwhile.
class Progress {
 public:
  explicit Progress(std::string what);
  /// Removes the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Cheap: may be called for every record.
  void at(std::uint64_t done, std::uint64_t total);
  /// The next piece of work.
  void now(std::string what);

 private:
  std::string what_;
  const bool is_shown_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace fencekv::admin
