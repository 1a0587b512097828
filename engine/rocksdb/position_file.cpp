// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/position_file.h"

#include "engine/core/byte_codec.h"

#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

namespace fencekv::rocks {
namespace {

constexpr std::string_view kMagic = "FKVPOS\0\1";
constexpr std::string_view kMagicBytes{kMagic.data(), 8};
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kBootIdBytes = 64;

struct Numbered {
  std::uint64_t sequence = 0;
  PositionSlot slot;
};

std::uint64_t checksum(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string encode(const Numbered& numbered) {
  const auto& slot = numbered.slot;
  core::ByteWriter writer;
  writer.raw(kMagicBytes);
  writer.integer(numbered.sequence);
  writer.raw({reinterpret_cast<const char*>(slot.incarnation.data()), slot.incarnation.size()});
  writer.integer(slot.epoch);
  writer.integer(slot.n);
  writer.integer(slot.reserved.number());
  writer.integer(static_cast<std::uint8_t>(slot.durability));
  writer.integer(static_cast<std::uint8_t>(slot.is_clean));
  writer.string(std::string_view(slot.boot_id).substr(0, kBootIdBytes));
  writer.integer(slot.process);

  auto bytes = std::move(writer).take();
  assert(bytes.size() + kChecksumBytes <= PositionFile::kSlotBytes);
  bytes.resize(PositionFile::kSlotBytes - kChecksumBytes, '\0');
  core::ByteWriter sealed;
  sealed.raw(bytes);
  sealed.integer(checksum(bytes));
  return std::move(sealed).take();
}

/// nullopt: the slot was never written, a write of it was torn, or it says what nobody wrote.
std::optional<Numbered> decode(std::string_view page) {
  const auto bytes = page.substr(0, PositionFile::kSlotBytes);
  const auto body = bytes.substr(0, bytes.size() - kChecksumBytes);
  core::ByteReader tail(bytes.substr(body.size()));
  if (tail.integer<std::uint64_t>() != checksum(body)) return std::nullopt;

  core::ByteReader reader(body);
  if (reader.raw(kMagicBytes.size()) != kMagicBytes) return std::nullopt;
  Numbered numbered;
  auto& slot = numbered.slot;
  numbered.sequence = reader.integer<std::uint64_t>();
  const auto incarnation = reader.raw(slot.incarnation.size());
  std::copy(incarnation.begin(), incarnation.end(), slot.incarnation.begin());
  slot.epoch = reader.integer<std::uint64_t>();
  slot.n = reader.integer<std::uint64_t>();
  slot.reserved = Token{reader.integer<std::uint64_t>()};
  slot.durability = static_cast<Durability>(reader.integer<std::uint8_t>());
  const auto is_clean = reader.integer<std::uint8_t>();
  slot.is_clean = is_clean != 0;
  slot.boot_id = reader.string();
  slot.process = reader.integer<std::uint64_t>();
  if (reader.has_failed()) return std::nullopt;
  // An unknown durability would be taken for one that never loses anything, or for one that may.
  if (slot.durability > Durability::process || is_clean > 1) return std::nullopt;
  if (slot.reserved.number() > Token::kMax || slot.boot_id.size() > kBootIdBytes) {
    return std::nullopt;
  }
  return numbered;
}

/// Both slots as they are in the file.
using Slots = std::array<std::optional<Numbered>, 2>;

Result<Slots> slots_of(FileSystem& files, const std::filesystem::path& path) {
  const auto content = files.read(path);
  if (!content) return content.error();
  if (!*content) return Error(Errc::corrupt, path.string() + " is missing");
  if ((*content)->size() != 2 * PositionFile::kPageBytes) {
    return Error(Errc::corrupt, path.string() + " has a wrong size");
  }

  const std::string_view bytes(**content);
  return Slots{decode(bytes.substr(0, PositionFile::kPageBytes)),
               decode(bytes.substr(PositionFile::kPageBytes))};
}

Result<Numbered> newest_of(FileSystem& files, const std::filesystem::path& path) {
  const auto slots = slots_of(files, path);
  if (!slots) return slots.error();
  const auto& [first, second] = *slots;
  if (!first && !second) {
    return Error(Errc::corrupt, path.string() + " is damaged: no slot has a valid checksum");
  }
  if (!first) return *second;
  if (!second) return *first;
  return first->sequence > second->sequence ? *first : *second;
}

}  // namespace

Result<PositionFile> PositionFile::create(FileSystem& files, const std::filesystem::path& path) {
  auto file = files.create(path);
  if (!file) return file.error();
  PositionFile created(*std::move(file));
  // The file keeps this size: a later write needs no new space.
  const std::string empty(2 * kPageBytes, '\0');
  if (auto written = created.file_->write_at(0, empty); !written) return written.error();
  if (auto written = created.write_durably({}); !written) return written.error();
  return created;
}

Result<PositionFile> PositionFile::open(FileSystem& files, const std::filesystem::path& path) {
  auto newest = newest_of(files, path);
  if (!newest) return newest.error();
  auto file = files.open(path);
  if (!file) return file.error();

  PositionFile opened(*std::move(file));
  opened.sequence_ = newest->sequence;
  opened.slot_ = std::move(newest->slot);
  return opened;
}

Result<PositionSlot> PositionFile::read(FileSystem& files, const std::filesystem::path& path) {
  auto newest = newest_of(files, path);
  if (!newest) return newest.error();
  return std::move(newest->slot);
}

int PositionFile::count_whole_slots(FileSystem& files, const std::filesystem::path& path) {
  const auto slots = slots_of(files, path);
  if (!slots) return 0;
  return static_cast<int>(std::count_if(slots->begin(), slots->end(),
                                        [](const auto& slot) { return slot.has_value(); }));
}

Result<void> PositionFile::write(PositionSlot slot) {
  const auto sequence = sequence_ + 1;
  const auto page = sequence % 2 * kPageBytes;
  const auto bytes = encode({.sequence = sequence, .slot = slot});
  if (auto written = file_->write_at(page, bytes); !written) return written;
  sequence_ = sequence;
  slot_ = std::move(slot);
  return {};
}

Result<void> PositionFile::write_durably(PositionSlot slot) {
  // One after the other, each synced: at any moment one of them is whole.
  for (int i = 0; i < 2; ++i) {
    if (auto written = write(slot); !written) return written;
    if (auto synced = file_->sync(); !synced) return synced;
  }
  return {};
}

Result<void> check_history(const std::filesystem::path& directory, const PositionSlot& noted,
                           const core::PositionRecord& stored,
                           const std::optional<core::Incarnation>& incarnation,
                           const std::string& boot_id) {
  if (stored.n < noted.n && !noted.may_have_lost(boot_id)) {
    return Error(Errc::corrupt, (directory / "db").string() + " is behind: it ends at group " +
                                    std::to_string(stored.n) + ", but group " +
                                    std::to_string(noted.n) +
                                    " was acknowledged. A log file is missing or cut short");
  }
  if (incarnation && noted.n > 0 && *incarnation != noted.incarnation) {
    return Error(Errc::corrupt, (directory / "position").string() + " belongs to another store");
  }
  return {};
}

}  // namespace fencekv::rocks
