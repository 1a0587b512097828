// SPDX-License-Identifier: Apache-2.0
/// Where a store is on disk, life after life.

#pragma once

#include "tests/support/copy_directory.h"
#include "tests/support/temporary_directory.h"

#include <filesystem>
#include <string>
#include <utility>

namespace fencekv::testing {

class Lives {
 public:
  /// The directory of the store in this life.
  const std::filesystem::path& directory() const { return directory_; }
  /// For what is beside the store.
  const std::filesystem::path& root() const { return root_.path(); }

  /// The process dies: `stop` ends it cleanly, which it would not have, and `start` begins on the
  /// files as a killed process leaves them, without a trace of that stop.
  template <class Stop, class Start>
  void crash(Stop stop, Start start) {
    auto killed = root_.path() / ("life-" + std::to_string(++lives_));
    copy_directory(directory_, killed);
    stop();
    directory_ = std::move(killed);
    start();
  }

 private:
  const TemporaryDirectory root_;
  int lives_ = 0;
  std::filesystem::path directory_ = root_.path() / "life-0";
};

}  // namespace fencekv::testing
