// SPDX-License-Identifier: Apache-2.0
/// The threads, the sockets and the end of a server.

#pragma once

#include "fencekv/result.h"
#include "fencekv/store.h"
#include "server/options.h"
#include "server/password.h"

#include <spdlog/logger.h>

#include <functional>
#include <string>

namespace fencekv::server {

/// Serves `store` until SIGTERM, SIGINT or SHUTDOWN, and returns when every session has ended.
///
/// The first signal drains: nothing is accepted any more, what was received is answered, then the
/// connections are closed. A second signal, or ServerOptions::kDrainTimeout, closes them at once;
/// calls that the store has begun are waited for even then.
///
/// `ready` is called once for each address listened on, when connections are accepted.
/// Errors: invalid, an address cannot be listened on; nothing was accepted.
Result<void> serve(Store& store, const ServerOptions& options, const Password& password,
                   spdlog::logger& log, const std::function<void(const std::string&)>& ready);

}  // namespace fencekv::server
