// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/new_store.h"

#include "engine/core/backend.h"
#include "fencekv/options.h"

namespace fencekv::rocks {

NewStore::NewStore(FileSystem& files, Unfinished unfinished)
    : files_(&files),
      unfinished_(std::move(unfinished)),
      writer_(std::make_unique<RecordWriter>(files, unfinished_.directory().database())) {}

Result<NewStore> NewStore::begin(FileSystem& files, const std::filesystem::path& directory) {
  auto unfinished = Unfinished::begin(files, directory, Unfinished::Target::absent_or_empty);
  if (!unfinished) return std::move(unfinished).error();
  // As every store that is being created, so that nobody ever takes it for a complete one.
  if (auto begun = unfinished->directory().begin_creation(); !begun) return begun.error();
  return NewStore(files, *std::move(unfinished));
}

Result<void> NewStore::add(std::string_view place, std::string_view bytes) {
  return writer_->add(place, bytes);
}

Result<void> NewStore::finish(const core::SmallRecords& small) {
  return finish(small, first_position(small));
}

Result<void> NewStore::finish(const core::SmallRecords& small, const PositionSlot& noted) {
  for (const auto& put : core::puts_of(small)) {
    if (auto added = writer_->add(put.place, put.bytes); !added) return added;
  }
  if (auto written = writer_->finish(); !written) return written;

  const auto& directory = unfinished_.directory();
  auto position = PositionFile::create(*files_, directory.position());
  if (!position) return position.error();
  if (auto written = position->write_durably(noted); !written) return written;
  if (auto finished = directory.finish_creation(); !finished) return finished;
  return unfinished_.publish();
}

PositionSlot first_position(const core::SmallRecords& small) {
  PositionSlot slot;
  slot.incarnation = small.identity.incarnation;
  slot.epoch = small.position.epoch;
  slot.n = small.position.n;
  slot.reserved = small.allocator.newest;
  slot.durability = Durability::sync;
  slot.is_clean = true;
  return slot;
}

}  // namespace fencekv::rocks
