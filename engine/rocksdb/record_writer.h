// SPDX-License-Identifier: Apache-2.0
/// Writes the database of a store that is made in one go: from a snapshot, a backup, or a dump.

#pragma once

#include "engine/rocksdb/file_system.h"
#include "fencekv/result.h"

#include <rocksdb/options.h>
#include <rocksdb/sst_file_writer.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::rocks {

/// The records go straight into finished table files, which the database takes over at the end: no
/// log, no compaction, and memory does not grow with their number.
///
/// Thread safety: none.
class RecordWriter {
 public:
  /// The database will be made in `directory`, which is there and empty. `files` must outlive the
  /// writer.
  RecordWriter(FileSystem& files, std::filesystem::path directory);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  /// Adds a record. Their places ascend.
  /// Errors: invalid, the place is not above the last one; no_space; misconf.
  Result<void> add(std::string_view place, std::string_view bytes);

  /// Makes the database of them, durably: its files and their names in `directory`, closed.
  /// Errors: no_space; misconf.
  Result<void> finish();

  std::uint64_t count() const { return count_; }

 private:
  struct Table {
    std::string path;
    std::string first;
    std::string last;
    std::uint64_t count = 0;
  };

  Result<void> begin_table(std::string_view first);
  Result<void> end_table();
  Result<void> make_database() const;

  FileSystem& files_;
  const std::filesystem::path directory_;
  const rocksdb::Options options_;
  std::unique_ptr<rocksdb::SstFileWriter> table_;  // nullptr: none is begun
  std::vector<Table> tables_;                      // finished, to be taken over
  std::string last_;
  std::uint64_t count_ = 0;
};

}  // namespace fencekv::rocks
