// SPDX-License-Identifier: Apache-2.0
/// Makes a store with given records: a restored, a loaded, or a repaired one.
///
///     auto store = fencekv::rocks::NewStore::begin(files, "/var/lib/fencekv");
///     if (!store) return store.error();
///     for (const auto& [place, bytes] : records_in_order) {
///       if (auto added = store->add(place, bytes); !added) return added;
///     }
///     return store->finish(core::new_history(old, highest));

#pragma once

#include "engine/core/new_history.h"
#include "engine/rocksdb/file_system.h"
#include "engine/rocksdb/position_file.h"
#include "engine/rocksdb/record_writer.h"
#include "engine/rocksdb/unfinished.h"
#include "fencekv/result.h"

#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

namespace fencekv::rocks {

/// Complete or absent: cut short at any step, there is no store in the directory, and the next
/// NewStore for it begins anew. Given up without finish(), it leaves nothing.
///
/// Thread safety: none.
class NewStore {
 public:
  /// `directory` is absent or empty; the one it is in is there. `files` must outlive this.
  /// Errors: as Unfinished::begin().
  static Result<NewStore> begin(FileSystem& files, const std::filesystem::path& directory);

  /// Adds a record: all but the small ones, in the order of their places. Streams.
  /// Errors: invalid, the order; no_space; misconf.
  Result<void> add(std::string_view place, std::string_view bytes);

  /// Adds the small records, and puts the store in place, durably. `small.position` counts what was
  /// added. `noted`: what the position file says; without it, that all of `small` was acknowledged
  /// and the last writer stopped cleanly.
  Result<void> finish(const core::SmallRecords& small);
  Result<void> finish(const core::SmallRecords& small, const PositionSlot& noted);

 private:
  NewStore(FileSystem& files, Unfinished unfinished);

  FileSystem* files_;
  Unfinished unfinished_;
  std::unique_ptr<RecordWriter> writer_;
};

/// The position file of a store that begins with these records.
PositionSlot first_position(const core::SmallRecords& small);

}  // namespace fencekv::rocks
