// SPDX-License-Identifier: Apache-2.0
/// Leases that were used lately, as they are committed: so that a renewal reads nothing, and a name
/// with many holders is not put together anew for each of them.

#pragma once

#include "engine/core/lease.h"
#include "engine/core/name_hash.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace fencekv::core {

/// Keeps two generations: what was not used while the younger one filled up is forgotten.
///
/// Whoever takes a lease out puts it back as it is committed then, or leaves it out.
///
/// Thread safety: none; it belongs to whoever leads the committer.
class LeaseCache {
 public:
  /// Grants that a generation may have.
  static constexpr std::size_t kGrants = 32'768;

  std::optional<Lease> take(std::string_view name) {
    if (auto found = take_from(young_, name)) {
      grants_ -= weight(*found);
      return found;
    }
    return take_from(old_, name);
  }

  void put(std::string name, Lease lease) {
    if (grants_ >= kGrants) {
      old_ = std::exchange(young_, {});
      grants_ = 0;
    }
    grants_ += weight(lease);
    young_.insert_or_assign(std::move(name), std::move(lease));
  }

  void clear() {
    young_.clear();
    old_.clear();
    grants_ = 0;
  }

 private:
  using Generation = std::unordered_map<std::string, Lease, NameHash, std::equal_to<>>;

  static std::size_t weight(const Lease& lease) { return 1 + lease.others().size(); }

  static std::optional<Lease> take_from(Generation& generation, std::string_view name) {
    const auto found = generation.find(name);
    if (found == generation.end()) return std::nullopt;
    std::optional lease(std::move(found->second));
    generation.erase(found);
    return lease;
  }

  Generation young_;
  Generation old_;
  std::size_t grants_ = 0;  // of the young one
};

}  // namespace fencekv::core
