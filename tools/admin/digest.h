// SPDX-License-Identifier: Apache-2.0
/// The SHA-256 of bytes that come in pieces.

#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace fencekv::admin {

/// Thread safety: none.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) = delete;

  void add(std::string_view bytes);
  /// Of all that was added so far: 64 hex digits.
  std::string hex() const;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace fencekv::admin
