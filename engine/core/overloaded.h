// SPDX-License-Identifier: Apache-2.0
/// std::visit with one lambda an alternative.

#pragma once

namespace fencekv::core {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

// Clang 14 does not deduce it by itself.
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

}  // namespace fencekv::core
