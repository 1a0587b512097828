// SPDX-License-Identifier: Apache-2.0
/// Any file given to `fencekv-admin load`: a store that opens, or one line of error and no store.
#include "engine/rocksdb/directory.h"
#include "engine/rocksdb/rocksdb_backend.h"
#include "tests/fuzz/pieces.h"
#include "tests/support/manual_clock.h"
#include "tests/support/simulated_disk.h"
#include "tools/admin/dump_reader.h"
#include "tools/admin/load.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace {

using fencekv::fuzz::MemoryFile;
using fencekv::fuzz::require;
using fencekv::testing::BackgroundWork;
using fencekv::testing::ManualClock;
using fencekv::testing::SimulatedDisk;

constexpr const char* kStore = "/store";

void expect_opens(SimulatedDisk& disk) {
  namespace rocks = fencekv::rocks;
  auto taken = rocks::Directory::take(disk, kStore);
  require(taken.has_value(), "a loaded store is there");
  const auto is_new = taken->is_new();
  require(is_new && !*is_new, "a loaded store is complete");
  const auto opened = rocks::RocksBackend::open(*std::move(taken), false, fencekv::Durability::sync,
                                                ManualClock().boot_id(), {});
  require(opened.has_value(), "a loaded store opens");
}

void expect_lines_are_read(std::string_view text) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto fields = fencekv::admin::parse_dump_line(line);
    require(fields.has_value() || !fields.error().detail().empty(), "an error has words");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static MemoryFile file;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  expect_lines_are_read(text);

  SimulatedDisk disk(BackgroundWork::queued);
  fencekv::admin::Output output;  // Never finished, so nothing is written.
  const auto loaded =
      fencekv::admin::load(disk, {.dump = file.holding(text), .directory = kStore}, output);
  if (loaded) {
    expect_opens(disk);
    return 0;
  }
  const auto line = loaded.error().line();
  require(!line.empty() && line.find('\n') == std::string::npos, "an error is one line");
  require(!*disk.exists(kStore), "what is no dump leaves no store");
  return 0;
}
