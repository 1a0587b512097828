// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/position_file.h"

#include "engine/core/byte_codec.h"

#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <fcntl.h>
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

  auto bytes = std::move(writer).take();
  assert(bytes.size() + kChecksumBytes <= PositionFile::kSlotBytes);
  bytes.resize(PositionFile::kSlotBytes - kChecksumBytes, '\0');
  core::ByteWriter sealed;
  sealed.raw(bytes);
  sealed.integer(checksum(bytes));
  return std::move(sealed).take();
}

/// nullopt: the slot was never written, or a write of it was torn.
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
  slot.is_clean = reader.integer<std::uint8_t>() != 0;
  slot.boot_id = reader.string();
  if (reader.has_failed()) return std::nullopt;
  return numbered;
}

/// Both slots as they are in the file.
using Slots = std::array<std::optional<Numbered>, 2>;

Result<Slots> slots_of(const std::filesystem::path& path) {
  const auto content = read_file(path);
  if (!content) return content.error();
  if (!*content) return Error(Errc::corrupt, path.string() + " is missing");
  if ((*content)->size() != 2 * PositionFile::kPageBytes) {
    return Error(Errc::corrupt, path.string() + " has a wrong size");
  }

  const std::string_view bytes(**content);
  return Slots{decode(bytes.substr(0, PositionFile::kPageBytes)),
               decode(bytes.substr(PositionFile::kPageBytes))};
}

Result<Numbered> newest_of(const std::filesystem::path& path) {
  const auto slots = slots_of(path);
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

Result<PositionFile> PositionFile::create(const std::filesystem::path& path) {
  auto file = open_file(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (!file) return file.error();
  PositionFile created(path, *std::move(file));
  // The file keeps this size: a later write needs no new space.
  const std::string empty(2 * kPageBytes, '\0');
  if (auto written = write_at(created.file_, path, empty, 0); !written) return written.error();
  if (auto written = created.write_durably({}); !written) return written.error();
  return created;
}

Result<PositionFile> PositionFile::open(const std::filesystem::path& path) {
  auto newest = newest_of(path);
  if (!newest) return newest.error();
  auto file = open_file(path, O_RDWR | O_NOFOLLOW);
  if (!file) return file.error();

  PositionFile opened(path, *std::move(file));
  opened.sequence_ = newest->sequence;
  opened.slot_ = std::move(newest->slot);
  return opened;
}

Result<PositionSlot> PositionFile::read(const std::filesystem::path& path) {
  auto newest = newest_of(path);
  if (!newest) return newest.error();
  return std::move(newest->slot);
}

int PositionFile::count_whole_slots(const std::filesystem::path& path) {
  const auto slots = slots_of(path);
  if (!slots) return 0;
  return static_cast<int>(std::count_if(slots->begin(), slots->end(),
                                        [](const auto& slot) { return slot.has_value(); }));
}

Result<void> PositionFile::write(PositionSlot slot) {
  const auto sequence = sequence_ + 1;
  const auto page = sequence % 2 * kPageBytes;
  const auto bytes = encode({.sequence = sequence, .slot = slot});
  if (auto written = write_at(file_, path_, bytes, page); !written) return written;
  sequence_ = sequence;
  slot_ = std::move(slot);
  return {};
}

Result<void> PositionFile::write_durably(PositionSlot slot) {
  // One after the other, each synced: at any moment one of them is whole.
  for (int i = 0; i < 2; ++i) {
    if (auto written = write(slot); !written) return written;
    if (auto synced = sync_file(file_, path_); !synced) return synced;
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
