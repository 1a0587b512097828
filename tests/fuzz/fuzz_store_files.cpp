// SPDX-License-Identifier: Apache-2.0
/// The small files beside the database from any bytes: no fault. A position that is read is one
/// that could have been written, and is the newer of the two slots that are whole; written again it
/// reads the same. A stamp names a format, or says that it is none.
#include "engine/core/byte_codec.h"
#include "engine/rocksdb/directory.h"
#include "engine/rocksdb/position_file.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/pieces.h"
#include "tests/support/simulated_disk.h"

#include <xxhash.h>

#include <algorithm>
#include <string>

namespace {

using namespace fencekv;
using namespace fencekv::rocks;
using fencekv::fuzz::Choices;
using fencekv::fuzz::require;

void put(FileSystem& files, const std::filesystem::path& path, std::string_view content) {
  require(files.remove(path).has_value(), "the file can be removed");
  auto file = files.create(path);
  require(file && (*file)->write_at(0, content).has_value(), "the file can be written");
}

/// A slot under its checksum (engine/FORMAT.md), in a page.
std::string page_of(std::string_view body, bool is_sealed) {
  std::string page(body.substr(0, PositionFile::kSlotBytes - 8));
  page.resize(PositionFile::kSlotBytes - 8, '\0');
  core::ByteWriter checksum;
  checksum.integer(std::uint64_t{XXH3_64bits(page.data(), page.size())} + (is_sealed ? 0 : 1));
  page += checksum.bytes();
  page.resize(PositionFile::kPageBytes, '\0');
  return page;
}

void read_position(FileSystem& files, Choices& choices) {
  constexpr std::string_view kMagic{"FKVPOS\0\1", 8};
  const std::filesystem::path path = "/position";
  std::string content;
  int whole = 0;
  for (int slot = 0; slot < 2; ++slot) {
    const bool is_sealed = choices.pick(4) != 0;
    const bool has_magic = choices.pick(8) != 0;
    const auto body = std::string(has_magic ? kMagic : "") + std::string(choices.text(240));
    content += page_of(body, is_sealed);
    if (is_sealed && body.starts_with(kMagic)) ++whole;
  }
  const auto cut = choices.pick(16);
  if (cut == 1) content.resize(choices.number() % (content.size() + 1));
  if (cut == 2) content += 'x';
  put(files, path, content);

  const auto slots = PositionFile::count_whole_slots(files, path);
  require(slots <= whole, "no slot is whole without its checksum");
  auto opened = PositionFile::open(files, path);
  const auto read = PositionFile::read(files, path);
  require(opened.has_value() == read.has_value(), "a tool reads what the store reads");
  require(opened.has_value() == (slots > 0), "one whole slot is enough");
  if (!opened) {
    require(opened.error().code() == Errc::corrupt, "what cannot be read is CORRUPT");
    return;
  }
  require(opened->current() == *read, "a tool reads what the store reads");
  const auto slot = opened->current();
  require(slot.durability == Durability::sync || slot.durability == Durability::process,
          "a durability that there is");
  require(slot.reserved.number() <= Token::kMax, "a token that there is");

  require(opened->write_durably(slot).has_value(), "it can be written again");
  const auto again = PositionFile::read(files, path);
  require(again && *again == slot, "and reads the same");
  require(PositionFile::count_whole_slots(files, path) == 2, "in both slots");
}

void read_stamp(FileSystem& files, Choices& choices) {
  const auto text =
      std::string(choices.maybe() ? "fencekv store\nformat " : "") + std::string(choices.rest());
  put(files, "/FORMAT", text);
  const auto format = Directory::format(files, "/");
  if (!format) {
    require(format.error().code() == Errc::corrupt || format.error().code() == Errc::newer_format,
            "damaged, or newer");
    return;
  }
  require(format->has_value() && **format >= 1 && **format <= core::kFormat, "a format we read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  testing::SimulatedDisk disk(testing::BackgroundWork::queued);
  Choices choices(bytes, size);
  if (choices.pick(4) == 0) {
    read_stamp(disk, choices);
  } else {
    read_position(disk, choices);
  }
  return 0;
}
