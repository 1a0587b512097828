// SPDX-License-Identifier: Apache-2.0
/// A disk as RocksDB sees it, with one order kept that RocksDB leaves to the file system.
///
/// RocksDB writes a new manifest, makes CURRENT name it by a rename, and syncs the directory only
/// then. Where a file system keeps changes of names in no order, a power cut in between can leave
/// the new CURRENT without the manifest that it names, or without the tables that this one names:
/// everything acknowledged is on the disk, and the store does not open. Here the directory is
/// synced before that rename, too. It costs one sync an opening, and one a new manifest.

#pragma once

#include <rocksdb/env.h>

namespace fencekv::rocks {

/// Thread safety: as that of `disk`, which must outlive it.
class OrderedEnv final : public rocksdb::EnvWrapper {
 public:
  explicit OrderedEnv(rocksdb::Env* disk);

  const char* Name() const override { return "OrderedEnv"; }
};

}  // namespace fencekv::rocks
