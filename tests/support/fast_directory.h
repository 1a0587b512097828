// SPDX-License-Identifier: Apache-2.0
/// A directory that is gone with the test, in memory where there is such a place: for tests in
/// which what a file holds counts, and not how durable it is.

#pragma once

#include <cassert>
#include <filesystem>
#include <stdlib.h>
#include <string>
#include <system_error>

namespace fencekv::testing {

class FastDirectory {
 public:
  FastDirectory() {
    std::string name = "/dev/shm/fencekv-test-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
      name = (std::filesystem::temp_directory_path() / "fencekv-test-XXXXXX").string();
      [[maybe_unused]] const char* made = mkdtemp(name.data());
      assert(made != nullptr);
    }
    path_ = name;
  }
  ~FastDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FastDirectory(const FastDirectory&) = delete;
  FastDirectory& operator=(const FastDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace fencekv::testing
