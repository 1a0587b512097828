// SPDX-License-Identifier: Apache-2.0
/// The password that clients give with AUTH.

#pragma once

#include "fencekv/result.h"

#include <array>
#include <filesystem>
#include <optional>
#include <string_view>

namespace fencekv::server {

/// Keeps the digest only, so that no dump or log of this process shows the password.
class Password {
 public:
  /// No password: everybody is let in.
  Password() = default;

  explicit Password(std::string_view text);

  /// The first line of `file`, without its line break.
  /// Errors: invalid, the file cannot be read, is empty, or may be read by group or others.
  static Result<Password> read(const std::filesystem::path& file);

  bool is_set() const { return digest_.has_value(); }

  /// Whether `offered` is it. Takes the same time whatever is wrong with it.
  bool matches(std::string_view offered) const;

 private:
  using Digest = std::array<unsigned char, 32>;

  static Digest digest_of(std::string_view text);

  std::optional<Digest> digest_;
};

}  // namespace fencekv::server
