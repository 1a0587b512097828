// SPDX-License-Identifier: Apache-2.0
#include "engine/core/owner.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <sys/random.h>

namespace fencekv {

std::string new_owner() {
  return core::to_hex(core::new_incarnation());
}

std::string owner_fingerprint(std::string_view owner) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(owner.data()), owner.size(), digest.data());

  core::Incarnation front{};
  std::copy_n(digest.begin(), front.size(), front.begin());
  return core::to_hex(front).substr(0, 8);
}

namespace core {

Incarnation new_incarnation() {
  Incarnation bits{};
  // Up to 256 bytes getrandom() is never interrupted and never short.
  [[maybe_unused]] const auto size = getrandom(bits.data(), bits.size(), 0);
  assert(size == static_cast<ssize_t>(bits.size()));
  return bits;
}

}  // namespace core
}  // namespace fencekv
