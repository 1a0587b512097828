// SPDX-License-Identifier: Apache-2.0
/// Requests to bytes: the client's side of the protocol.

#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fencekv::resp {

/// Appends `arguments`, the command's name first, as a RESP array of bulk strings.
void write_request(std::string& out, std::span<const std::string_view> arguments);

}  // namespace fencekv::resp
