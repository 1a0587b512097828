// SPDX-License-Identifier: Apache-2.0
#include "tools/admin/backup.h"

#include "engine/rocksdb/backup.h"
#include "engine/rocksdb/restore.h"
#include "fencekv/options.h"
#include "tools/admin/text.h"

#include <fmt/format.h>

#include <string>

namespace fencekv::admin {
namespace {

std::string words(const rocks::BackupManifest& manifest) {
  return fmt::format(
      "{} records, {} files, {}; taken {}; up to group {}, newest token {}, incarnation {}",
      manifest.records, manifest.files.size(), size_words(manifest.bytes()),
      time_words(manifest.taken), manifest.group, manifest.newest.number(), manifest.incarnation);
}

}  // namespace

Result<void> backup(rocks::FileSystem& files, rocks::StoreReader& reader,
                    const std::filesystem::path& target, Output& output) {
  const auto meta = reader.meta();
  if (!meta) return meta.error();
  // A store that has lost acknowledged writes must not push out older backups that have them.
  if (auto whole = reader.check_position(*meta); !whole) return whole;

  const auto taken = system_clock()->wall();
  const auto made = rocks::write_backup(files, reader.records(), target, taken, {});
  if (!made) return made.error();
  output.write(fmt::format("{}: {}\n", shown(target.string()), words(*made)));
  return {};
}

Result<void> verify_backup(rocks::FileSystem& files, const std::filesystem::path& directory,
                           Output& output) {
  const auto verified = rocks::verify_backup(files, directory, {});
  if (!verified) return verified.error();
  output.write(
      fmt::format("{}: no problems; {}\n", shown(directory.string()), words(verified->manifest)));
  return {};
}

Result<void> restore(rocks::FileSystem& files, const std::filesystem::path& from,
                     const std::filesystem::path& directory, Output& output) {
  const auto restored = rocks::restore(files, from, directory, {});
  if (!restored) return restored.error();
  const auto& small = restored->small;
  output.write(fmt::format(
      "{}: restored from {}: {}\n"
      "It is a new history: incarnation {}, floor {}. All leases have ended, and tokens below the "
      "floor are refused\n"
      "(but those of an external allocator, `unguarded_tokens = any`: for them only the fences in "
      "the backup count).\n",
      shown(directory.string()), shown(from.string()), words(restored->backup),
      core::to_hex(small.identity.incarnation), small.allocator.floor.number()));
  return {};
}

}  // namespace fencekv::admin
