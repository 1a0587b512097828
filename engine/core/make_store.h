// SPDX-License-Identifier: Apache-2.0
/// A store on any backend: what the factories of the backends, and tests, are built on.

#pragma once

#include "engine/core/backend.h"
#include "fencekv/store.h"

#include <memory>

namespace fencekv::core {

/// Errors: as Committer::open().
Result<std::unique_ptr<Store>> make_store(std::unique_ptr<Backend> backend, Options options);

}  // namespace fencekv::core
