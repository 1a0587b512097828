// SPDX-License-Identifier: Apache-2.0
/// How tables that are asked in every command find names: as views into the request, without making
/// a string each time, and with one computation of the hash for all of them.

#pragma once

#include <xxhash.h>

#include <cstddef>
#include <string_view>

namespace fencekv::core {

/// A name with its hash. Views the name.
struct HashedName {
  explicit HashedName(std::string_view text)
      : HashedName(text, XXH3_64bits(text.data(), text.size())) {}
  /// Its hash is known already.
  HashedName(std::string_view text, std::size_t known) : name(text), hash(known) {}

  std::string_view name;
  std::size_t hash;
};

struct NameHash {
  using is_transparent = void;
  /// Every bit depends on every byte: Boost's tables need not mix it once more.
  using is_avalanching = void;

  std::size_t operator()(std::string_view name) const {
    return XXH3_64bits(name.data(), name.size());
  }
  std::size_t operator()(const HashedName& name) const { return name.hash; }
};

struct NameEqual {
  using is_transparent = void;

  bool operator()(std::string_view a, std::string_view b) const { return a == b; }
  bool operator()(const HashedName& a, std::string_view b) const { return a.name == b; }
  bool operator()(std::string_view a, const HashedName& b) const { return a == b.name; }
  bool operator()(const HashedName& a, const HashedName& b) const { return a.name == b.name; }
};

}  // namespace fencekv::core
