// SPDX-License-Identifier: Apache-2.0
/// Histories written by hand, one line an operation.

#pragma once

#include "tests/history/operation.h"

#include <string>
#include <string_view>

namespace fencekv::testing {

/// One operation a line: client, request and reply, with the times (in ms) of both.
///
///     1  0  FENCE.SET k 5 a LEASE l  9  :1
///
/// The request's words stand between the two times. The reply as in protocol traces, shortened:
/// `:1` integer, `$5` bulk, `-FENCED 7 5 stale` error, `_` nil, `OK`, `[5 1000]` a grant, `[:1 :2]`
/// integers, `{a 1 5 l}` what FENCE.GET shows of a key (value, version, fence, guard; `_`: none),
/// `<5 5 900>` what LEASE.INFO shows (fence, holder's token, remaining; holder 0: nobody). `?` with
/// any time: no reply; `? until 50`: no reply, and no copy of it left at 50.
History written_history(std::string_view text);

}  // namespace fencekv::testing
