// SPDX-License-Identifier: Apache-2.0
/// Whether a sanitizer looks on.

#pragma once

namespace fencekv::testing {

/// With a sanitizer a process takes address space without end and descriptors of its own, keeps
/// what was freed for a while, and wants to be the first library that is loaded.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace fencekv::testing
