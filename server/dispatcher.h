// SPDX-License-Identifier: Apache-2.0
/// From a request to its handler.

#pragma once

#include "server/commands/command.h"

#include <string>

namespace fencekv::server {

/// What a session does with one request.
struct Dispatched {
  enum class Kind {
    replied,  ///< The reply is in the output.
    store,    ///< `call` has to be run first.
    later,    ///< Nothing was done: the writes under way have to be answered first.
    drop,     ///< It is a web browser's: close without another word.
  };
  Kind kind = Kind::replied;
  Outcome call = {};
};

/// Finds the command, checks what holds for all of them (that the client may, that the number of
/// arguments fits), and runs the handler. Replies and errors go to `out`.
Dispatched dispatch(const resp::Request& request, Client& client, Context& server,
                    bool writes_under_way, std::string& out);

}  // namespace fencekv::server
