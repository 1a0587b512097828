// SPDX-License-Identifier: Apache-2.0
/// A store on any backend: what the factories of the backends, and tests, are built on.

#pragma once

#include "engine/core/backend.h"
#include "fencekv/store.h"

#include <functional>
#include <memory>

namespace fencekv::core {

/// What `options` leaves to the store, its clock and the shares of its caches, is in
/// Store::options(). Errors: as Committer::open().
Result<std::unique_ptr<Store>> make_store(std::unique_ptr<Backend> backend, Options options);

/// A store without threads of its own, for simulation. Only blocking members lead by themselves.
struct DrivenStore {
  std::unique_ptr<Store> store;
  /// Committer::step(). Not to be called after the store has ended.
  std::function<bool()> step;
};

/// `options.reclaim_interval` is taken for zero. Errors: as Committer::open().
Result<DrivenStore> make_driven_store(std::unique_ptr<Backend> backend, Options options);

}  // namespace fencekv::core
