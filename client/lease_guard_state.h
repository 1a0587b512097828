// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "client/client_core.h"
#include "client/lease_keeper.h"
#include "fencekv/lease_guard.h"

#include <memory>

namespace fencekv {

/// Apart from each other, so that what the client's threads hold on to never owns the client.
struct LeaseGuard::State {
  std::shared_ptr<ClientCore> core;
  std::shared_ptr<Hold> hold;
};

}  // namespace fencekv
