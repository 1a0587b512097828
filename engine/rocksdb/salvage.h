// SPDX-License-Identifier: Apache-2.0
/// Reads what can be read of a damaged database's files, without RocksDB, which refuses a whole
/// table or log for one damaged byte of it.
///
/// Table files: block-based, format 5, blocks of key order with XXH3 sums, plain or LZ4. Each block
/// that proves its sum is read; the others are left out, and named. Logs: records of CRC-32C sums
/// in blocks of 32 KiB; behind a damaged one the next that proves its sum is looked for.

#pragma once

#include "engine/rocksdb/file_system.h"
#include "fencekv/result.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::rocks {

/// A put or a delete as a file holds it.
struct SalvagedEntry {
  std::string place;
  /// Later entries have higher ones; 0: RocksDB has dropped it, since the entry was the only one of
  /// its place.
  std::uint64_t sequence = 0;
  bool is_put = true;
  std::string bytes;  ///< Of a put.
};

/// A stretch of a table that cannot be read.
struct UnreadableBlock {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::string after;                  ///< The last place before it that could be read; empty: none.
  std::optional<std::string> before;  ///< The first one behind it; nullopt: none.
};

/// The entries of one table file, in the order of their places. Thread safety: none.
class SalvagedTable {
 public:
  /// `files` must outlive the table. Errors: the file cannot be read at all.
  static Result<SalvagedTable> open(FileSystem& files, const std::filesystem::path& path);

  /// The next entry; nullopt: there are no more. Errors: as open().
  Result<std::optional<SalvagedEntry>> next();

  /// Whether its index of blocks could be read. Without it, blocks are looked for one after the
  /// other, and what is behind a damaged one is not found.
  bool has_index() const { return has_index_; }
  /// What could not be read; complete when next() has returned nullopt.
  const std::vector<UnreadableBlock>& unreadable() const { return unreadable_; }

 private:
  struct Handle {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  SalvagedTable(FileSystem& files, std::filesystem::path path, std::uint64_t size)
      : files_(&files), path_(std::move(path)), size_(size) {}

  /// The bytes of a stretch. Errors: the file cannot be read.
  Result<std::string_view> stretch(std::uint64_t offset, std::uint64_t bytes);
  /// What is in a block; nullopt: it does not prove its sum, or is no block.
  Result<std::optional<std::string>> block(Handle handle);
  Result<void> read_index();
  Result<std::optional<std::string>> next_block();
  Result<std::optional<std::string>> find_block();
  void skip(Handle handle);

  FileSystem* files_;
  std::filesystem::path path_;
  std::uint64_t size_;
  bool has_index_ = false;
  std::vector<Handle> handles_;  // of the index
  std::size_t next_handle_ = 0;
  std::uint64_t offset_ = 0;  // without an index: where the next block begins

  std::string window_;
  std::uint64_t window_at_ = 0;

  std::vector<SalvagedEntry> entries_;  // of the block that is being read
  std::size_t next_entry_ = 0;
  std::string last_;
  std::vector<UnreadableBlock> unreadable_;
  std::size_t open_ends_ = 0;  // of unreadable_, from the end: nothing behind them was seen yet
};

/// One write that a log holds: a group.
struct SalvagedGroup {
  std::vector<SalvagedEntry> entries;
};

struct SalvagedLog {
  std::vector<SalvagedGroup> groups;
  /// Where it could not be read: offset and length. A write that was being appended when the
  /// process or the machine stopped looks the same at the end of a log.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> unreadable;
};

/// Errors: the file cannot be read at all.
Result<SalvagedLog> salvage_log(FileSystem& files, const std::filesystem::path& path);

/// Which logs of a database cannot be read in full, for the message of a refusal in which RocksDB
/// names none: `; DB/000009.log cannot be read at 159`. Empty: all can.
std::string unreadable_logs(FileSystem& files, const std::filesystem::path& database);

}  // namespace fencekv::rocks
