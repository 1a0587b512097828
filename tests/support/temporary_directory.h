// SPDX-License-Identifier: Apache-2.0
/// A directory that is gone with the test.

#pragma once

#include <cassert>
#include <filesystem>
#include <stdlib.h>
#include <string>
#include <system_error>

namespace fencekv::testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "fencekv-test-XXXXXX").string();
    [[maybe_unused]] const char* made = mkdtemp(name.data());
    assert(made != nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace fencekv::testing
