// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/record_writer.h"

#include "engine/rocksdb/database_options.h"
#include "fencekv/types.h"

#include <rocksdb/db.h>

#include <algorithm>
#include <utility>

namespace fencekv::rocks {
namespace {

using std::filesystem::path;

constexpr std::uint64_t kTableBytes = std::uint64_t{64} * 1024 * 1024;

/// Where the tables wait until the database takes them over.
constexpr const char* kTables = "tables";

rocksdb::Slice slice(std::string_view bytes) {
  return {bytes.data(), bytes.size()};
}

rocksdb::Options options_for(FileSystem& files) {
  auto options = database_options(files.env(), {});
  options.create_if_missing = true;
  options.error_if_exists = true;
  return options;
}

}  // namespace

RecordWriter::RecordWriter(FileSystem& files, path directory)
    : files_(files), directory_(std::move(directory)), options_(options_for(files)) {}

RecordWriter::~RecordWriter() = default;

Result<void> RecordWriter::add(std::string_view place, std::string_view bytes) {
  if (place.empty() || (count_ > 0 && place <= last_)) {
    return Error(Errc::invalid, "the records are not in the order of their places: " +
                                    escaped(place) + " after " + escaped(last_));
  }
  if (!table_) {
    if (auto begun = begin_table(place); !begun) return begun;
  }
  const auto status = table_->Put(slice(place), slice(bytes));
  if (!status.ok()) return error_of(status);
  ++tables_.back().count;
  last_ = place;
  ++count_;
  return table_->FileSize() < kTableBytes ? Result<void>() : end_table();
}

Result<void> RecordWriter::begin_table(std::string_view first) {
  const auto folder = directory_ / kTables;
  if (tables_.empty()) {
    if (auto made = files_.make_directory(folder); !made) return made;
  }
  tables_.push_back({.path = (folder / (std::to_string(tables_.size()) + ".sst")).string(),
                     .first = std::string(first)});
  auto table = std::make_unique<rocksdb::SstFileWriter>(rocksdb::EnvOptions(), options_);
  const auto status = table->Open(tables_.back().path);
  if (!status.ok()) return error_of(status);
  table_ = std::move(table);
  return {};
}

Result<void> RecordWriter::end_table() {
  const auto status = table_->Finish();
  table_.reset();
  tables_.back().last = last_;
  if (!status.ok()) return error_of(status);
  return {};
}

Result<void> RecordWriter::make_database() const {
  rocksdb::DB* opened = nullptr;
  auto status = rocksdb::DB::Open(options_, directory_.string(), &opened);
  const std::unique_ptr<rocksdb::DB> database(opened);
  if (!status.ok()) return error_of(status);
  if (!tables_.empty()) {
    rocksdb::IngestExternalFileOptions ingestion;
    // By a second name; on a file system without links, by copying.
    ingestion.move_files = true;
    ingestion.verify_checksums_before_ingest = true;
    std::vector<std::string> paths;
    for (const auto& table : tables_) paths.push_back(table.path);
    status = database->IngestExternalFile(paths, ingestion);
    if (!status.ok()) return error_of(status);
  }

  // When a read of a table fails while it is taken over, RocksDB 7.8.3 may note wrong bounds for it
  // and report success; the records beyond them would be found by nobody.
  std::vector<rocksdb::LiveFileMetaData> taken;
  database->GetLiveFilesMetaData(&taken);
  for (const auto& table : tables_) {
    const bool is_whole = std::any_of(taken.begin(), taken.end(), [&](const auto& file) {
      return file.smallestkey == table.first && file.largestkey == table.last &&
             file.num_entries == table.count;
    });
    if (!is_whole) {
      return Error(Errc::misconf, table.path + " was not taken over in full: a read of it failed");
    }
  }
  status = database->Close();
  if (!status.ok()) return error_of(status);
  return {};
}

Result<void> RecordWriter::finish() {
  if (table_) {
    if (auto ended = end_table(); !ended) return ended;
  }
  if (auto made = make_database(); !made) return made;
  // RocksDB removes the first name of a table that it took over, but reports no error if it cannot.
  if (auto removed = remove_tree(files_, directory_ / kTables); !removed) return removed;
  // Nobody has the database open, so its lock file can go: RocksDB makes a new one.
  if (auto removed = files_.remove(directory_ / "LOCK"); !removed) return removed;

  const auto names = files_.list(directory_);
  if (!names) return names.error();
  for (const auto& name : *names) {
    // Not all that RocksDB writes at the creation is synced: its settings, for one.
    const auto file = files_.open(directory_ / name);
    if (!file) return file.error();
    if (auto synced = (*file)->sync(); !synced) return synced;
  }
  return files_.sync_directory(directory_);
}

}  // namespace fencekv::rocks
