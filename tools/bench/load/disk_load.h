// SPDX-License-Identifier: Apache-2.0
/// What the disk itself does, to compare a server with that has one client.

#pragma once

#include "tools/bench/load/load.h"

namespace fencekv::bench {

/// Appends RequestOptions::value_bytes random bytes to LoadOptions::file, which must not be there
/// yet, and syncs them with fdatasync, again and again, each after the other: as a log does that
/// has one writer. The file grows, so that a sync also writes its new length, which it does for any
/// log that is not written over an older one.
///
/// Of the options, it takes those, the duration, the warm-up, the operations and the windows. The
/// file is left there.
LoadReport run_disk(const LoadOptions& options);

}  // namespace fencekv::bench
