// SPDX-License-Identifier: Apache-2.0
/// User bytes for error lines and logs.

#pragma once

#include <string>
#include <string_view>

namespace fencekv::server {

/// `bytes` with everything but printable ASCII (and with blank and backslash) as `\xHH`, cut after
/// 64 bytes of input, so that no input can break a line, forge one, or fill a log.
std::string printable(std::string_view bytes);

}  // namespace fencekv::server
