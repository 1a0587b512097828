// SPDX-License-Identifier: Apache-2.0
/// What a store must answer, written as plainly as possible: this model knows the keys, and asks
/// the one of the lease service whether a token may write. It shares no line with the engine's
/// rules.
///
/// It forgets nothing by itself: what a crash may take is for who uses it to decide, by keeping
/// copies.

#pragma once

#include "tests/model/lease_model.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::testing {

class StoreModel {
 public:
  struct Key {
    std::uint64_t fence = 0;
    std::uint64_t version = 0;
    std::uint64_t writer = 0;
    std::optional<std::string> guard;
    std::optional<std::string> request;
    std::optional<std::string> value;
  };

  struct Write {
    std::vector<std::pair<std::string, std::optional<std::string>>> entries;
    std::uint64_t token = 0;
    std::optional<std::string> lease;
    bool once = false;
    bool live = false;
    std::optional<std::uint64_t> if_version;
    std::optional<std::string> request;
  };

  // Each answers a line: `OK …`, or the error as it travels.
  std::string write(const Write& write);
  std::string raise(const std::string& key, std::uint64_t token,
                    const std::optional<std::string>& lease);
  /// `guard`: what it is afterwards; empty: none; nullopt: as it was.
  std::string reset(const std::string& key, std::uint64_t token,
                    const std::optional<std::string>& guard = std::nullopt);
  /// Keys without a value below the floor are forgotten. Returns how many.
  std::uint64_t reclaim();
  std::string read(const std::string& key) const;

  LeaseModel& leases() { return leases_; }
  const std::map<std::string, Key>& keys() const { return keys_; }

 private:
  std::string refusal(const std::string& key, const Write& write) const;

  LeaseModel leases_;
  std::map<std::string, Key> keys_;
};

}  // namespace fencekv::testing
