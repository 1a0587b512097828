// SPDX-License-Identifier: Apache-2.0
/// The small file beside the database that knows what RocksDB cannot: which tokens may have been
/// handed out, and how far the acknowledged history goes. With it, no loss inside RocksDB can make
/// a token come twice, and a log that was cut short, emptied or deleted is noticed.
///
/// Layout (engine/FORMAT.md): two slots, each in a page of its own and smaller than a disk sector,
/// written in turn. The valid slot with the higher sequence number counts. A write torn by a power
/// cut damages the slot being written, never both.

#pragma once

#include "engine/core/record.h"
#include "engine/rocksdb/file_system.h"
#include "fencekv/options.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fencekv::rocks {

/// What one slot says.
struct PositionSlot {
  core::Incarnation incarnation{};
  std::uint64_t epoch = 0;
  std::uint64_t n = 0;                       ///< The last acknowledged group.
  Token reserved;                            ///< Tokens up to this one may have been handed out.
  Durability durability = Durability::sync;  ///< What acknowledgement meant.
  bool is_clean = false;                     ///< The last writer stopped cleanly.
  std::string boot_id;                       ///< The boot in which it was written.
  /// The last writer, as in core::Origin: the first epoch in which that process was the writer.
  /// 0: not known, of a file written by an older version.
  std::uint64_t process = 0;

  friend bool operator==(const PositionSlot&, const PositionSlot&) = default;

  /// Whether acknowledged groups may be missing from the database of a store that is opened in the
  /// boot `now`, as Durability::process allows.
  bool may_have_lost(const std::string& now) const {
    return durability == Durability::process && !is_clean && n > 0 && boot_id != now;
  }
};

/// Thread safety: none.
class PositionFile {
 public:
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::size_t kSlotBytes = 256;

  /// Makes a new file with an empty position, durably.
  static Result<PositionFile> create(FileSystem& files, const std::filesystem::path& path);

  /// Errors: corrupt, the file is missing, has another size, or no slot is valid.
  static Result<PositionFile> open(FileSystem& files, const std::filesystem::path& path);
  /// The same without write access, for tools.
  static Result<PositionSlot> read(FileSystem& files, const std::filesystem::path& path);
  /// How many of the two slots are whole; 0 for a file that cannot be read.
  static int count_whole_slots(FileSystem& files, const std::filesystem::path& path);

  const PositionSlot& current() const { return slot_; }

  /// Replaces the slot, without an fsync: after a power cut either this or an older one is there.
  Result<void> write(PositionSlot slot);

  /// Replaces both slots, durably: no older one can come back.
  Result<void> write_durably(PositionSlot slot);

 private:
  explicit PositionFile(std::unique_ptr<File> file) : file_(std::move(file)) {}

  std::unique_ptr<File> file_;
  PositionSlot slot_;
  std::uint64_t sequence_ = 0;
};

/// Do the records of the store in `directory` and its position file tell the same history?
/// `incarnation` is the one in the records; nullopt: there are no records. `boot_id` is the boot in
/// which the store is opened.
/// Errors: corrupt, acknowledged groups are missing and nothing explains it, or the file belongs to
/// another store.
Result<void> check_history(const std::filesystem::path& directory, const PositionSlot& noted,
                           const core::PositionRecord& stored,
                           const std::optional<core::Incarnation>& incarnation,
                           const std::string& boot_id);

}  // namespace fencekv::rocks
