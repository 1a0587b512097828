// SPDX-License-Identifier: Apache-2.0
// Plays files and directories of inputs through a fuzz target once: the same target as a plain
// test, for compilers without libFuzzer. A fault shows as a crash, a failed assertion or a
// sanitizer report.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace {

std::vector<std::filesystem::path> inputs_in(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_regular_file()) inputs.push_back(entry.path());
  }
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t played = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& path : inputs_in(argv[i])) {
      std::ifstream file(path, std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      if (file.bad() || !file.is_open()) {
        std::fprintf(stderr, "cannot read %s\n", path.c_str());
        return 2;
      }
      // Printed before: after a crash the last line names the input.
      std::printf("%s (%zu bytes)\n", path.filename().c_str(), bytes.size());
      std::fflush(stdout);
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++played;
    }
  }
  if (played == 0) {
    std::fprintf(stderr, "no inputs: a test that plays nothing proves nothing\n");
    return 2;
  }
  return 0;
}
