// SPDX-License-Identifier: Apache-2.0
/// `fencekv-admin repair`: makes a store of what can be read of a damaged one.

#pragma once

#include "engine/rocksdb/file_system.h"
#include "fencekv/result.h"
#include "tools/admin/exit_code.h"
#include "tools/admin/output.h"

#include <filesystem>

namespace fencekv::admin {

enum class RepairFormat { text, json };

struct RepairOptions {
  std::filesystem::path directory;
  std::filesystem::path copy;  ///< Where the repaired store will be; empty: `DIR.repaired`.
  bool in_place = false;       ///< In DIR instead; the damaged parts stay in a directory in it.
  bool dry_run = false;        ///< Only say what is wrong and what would be done.
  bool accept_loss = false;    ///< Repair although acknowledged writes may be lost.
  RepairFormat format = RepairFormat::text;
};

/// Says what is damaged, what is or may be lost, and what it does; then does it. The damaged store
/// is left as it is, but with RepairOptions::in_place.
///
/// Returns exit_ok if there was nothing to do or all of it was done; exit_damaged if something is
/// left to do: with `dry_run`, or because losses were not accepted.
///
/// Errors: those of rocks::examine() and rocks::Examined.
Result<ExitCode> repair(rocks::FileSystem& files, const RepairOptions& options, Output& output);

}  // namespace fencekv::admin
