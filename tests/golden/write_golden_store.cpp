// SPDX-License-Identifier: Apache-2.0
/// Writes the golden store of this version:
///
///     fencekv_write_golden_store tests/golden/format-2
///
/// A store that is kept is never written again: it stands for what users have. A new format gets a
/// new directory.

#include "tests/golden/golden_store.h"

#include <filesystem>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 2 || std::filesystem::exists(argv[1])) {
    std::cerr << "usage: fencekv_write_golden_store NEW-DIRECTORY\n";
    return 2;
  }
  const auto failure = fencekv::testing::write_golden_store(argv[1]);
  if (failure.empty()) return 0;
  std::cerr << failure << '\n';
  return 1;
}
