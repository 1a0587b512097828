// SPDX-License-Identifier: Apache-2.0
/// `fencekv-admin verify`: whether everything in a store is as it must be, as far as that can be
/// seen at rest.

#pragma once

#include "engine/rocksdb/store_reader.h"
#include "tools/admin/exit_code.h"
#include "tools/admin/output.h"

namespace fencekv::admin {

/// Prints a line for each finding and a summary. A finding is
///
///     damage    a server refuses to open the store
///     problem   something is wrong, although a server would open it
///     note      unusual, and explained by something that may be meant
///
/// Returns exit_ok if there are only notes, exit_problems, or exit_damaged.
ExitCode verify(rocks::StoreReader& reader, Output& output);

/// The same for a store that could not be opened: its one finding.
void report_unopened(const std::filesystem::path& directory, const Error& error, Output& output);

}  // namespace fencekv::admin
