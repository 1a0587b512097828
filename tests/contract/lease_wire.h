// SPDX-License-Identifier: Apache-2.0
/// The lease commands as the protocol spells them, and its replies (RESP3) as the engine's types.
/// Written beside the client library's own, so that the server is not only tested with the client
/// that was made for it.

#pragma once

#include "fencekv/command.h"
#include "server/resp/reply_parser.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fencekv::testing {

struct LeaseRequest {
  std::vector<std::string> words;
  std::function<Result<Reply>(const resp::Value&)> decode;
};

/// nullopt: the protocol has no such command, or it is not one about leases.
std::optional<LeaseRequest> lease_request(const Command& command);

/// `[lease, event, name, token]`; nullopt: another push.
std::optional<LeaseEvent> lease_event(const resp::Value& push);

}  // namespace fencekv::testing
