// SPDX-License-Identifier: Apache-2.0
/// What every work has: a store on a disk, two tokens, and keys in an order that never changes.

#pragma once

#include "engine/core/make_store.h"
#include "fencekv/store.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace fencekv::bench {

inline constexpr std::size_t kKeys = 1024;
inline constexpr std::string_view kOwner = "bench-owner-0001";
inline constexpr std::chrono::milliseconds kTtl = Limits::kMaxTtl;

/// A store that has no thread but the caller's, in `directory`, on RocksDB and the real disk, with
/// Durability::process: a sync is a wait, not work. Its clock is its own, so that nothing depends
/// on the time.
class Scene {
 public:
  /// Ends the process if it cannot be opened.
  explicit Scene(const std::filesystem::path& directory);

  Store& store() { return *driven_.store; }
  /// Leads what is queued until there is nothing left.
  void drain() {
    while (driven_.step()) {
    }
  }

  /// Of two leases that are held all the while.
  Token older() const { return older_; }
  Token newer() const { return newer_; }
  /// 100 random bytes.
  const std::string& value() const { return value_; }

 private:
  core::DrivenStore driven_;
  Token older_;
  Token newer_;
  std::string value_;
};

/// One of kKeys keys of 16 bytes; not in their order.
std::string known_key(std::uint64_t number);
/// A key of 16 bytes that is none of those; another one for every number below 10^9.
std::string new_key(std::uint64_t number);

/// Ends the process unless it is true.
void require(bool is_true, const char* what);

}  // namespace fencekv::bench
