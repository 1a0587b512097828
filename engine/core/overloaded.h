// SPDX-License-Identifier: Apache-2.0
/// std::visit with one lambda an alternative.

#pragma once

namespace fencekv::core {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

}  // namespace fencekv::core
