// SPDX-License-Identifier: Apache-2.0
/// The label under which a lease is listed when none is given.

#pragma once

#include <string>
#include <string_view>

namespace fencekv::run {

/// `user@host pid command`, of this process; at most Limits::kPayloadBytes. Of the command only the
/// name: its arguments may hold what is nobody's business, and every client may read a label.
std::string default_label(std::string_view command);

}  // namespace fencekv::run
