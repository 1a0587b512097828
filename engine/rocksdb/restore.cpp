// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/restore.h"

#include "engine/rocksdb/new_store.h"
#include "engine/rocksdb/record_tally.h"

#include <utility>

namespace fencekv::rocks {

Result<Restored> restore(FileSystem& files, const std::filesystem::path& backup,
                         const std::filesystem::path& directory, const Interrupt& interrupt) {
  auto verified = verify_backup(files, backup, interrupt);
  if (!verified) return verified.error();
  auto store = NewStore::begin(files, directory);
  if (!store) return store.error();

  // Each record is proven once more: what is copied is what was verified.
  RecordTally tally;
  const auto copied =
      read_database(files, backup / "db", [&](auto place, auto bytes) -> Result<void> {
        if (interrupt && tally.records() % 256 == 0) {
          if (auto why = interrupt()) return *std::move(why);
        }
        if (auto added = tally.add(place, bytes); !added) return added;
        if (place.front() == core::kMetaPrefix) return {};
        return store->add(place, bytes);
      });
  if (!copied) return copied.error();
  const auto whole = tally.whole();
  if (!whole) return whole.error();

  auto small = core::new_history(*whole, tally.highest_of_leases());
  if (auto finished = store->finish(small); !finished) return finished.error();
  return Restored{.backup = std::move(verified->manifest), .small = std::move(small)};
}

}  // namespace fencekv::rocks
