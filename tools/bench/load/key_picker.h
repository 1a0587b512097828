// SPDX-License-Identifier: Apache-2.0
/// Which key comes next.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>

namespace fencekv::bench {

enum class Distribution {
  uniform,
  zipfian,  ///< As YCSB: exponent 0.99, the popular keys scattered over all.
  once,     ///< Every key once, in a scattered order, then again: to fill a store.
};

/// Draws numbers below a count. The same seed gives the same numbers.
class KeyPicker {
 public:
  /// `count` is from 1 to 2^32. Zipfian takes time linear in it, here.
  KeyPicker(Distribution distribution, std::uint64_t count, std::uint64_t seed);

  std::uint64_t next();
  /// `bound` is at most 2^32.
  std::uint64_t below(std::uint64_t bound);
  /// True in `share` (0 to 1) of the calls.
  bool chance(double share);

 private:
  /// From 0 to 1, without 1.
  double next_unit();
  std::uint64_t next_zipfian();

  Distribution distribution_;
  std::uint64_t count_;
  std::mt19937_64 random_;
  std::uint64_t position_ = 0;  // once
  std::uint64_t step_ = 1;      // once
  double zeta_ = 0;             // zipfian, and the next three
  double zeta_of_two_ = 0;
  double alpha_ = 0;
  double eta_ = 0;
};

inline constexpr char kKeyKind = 'k';
inline constexpr char kLeaseKind = 'l';

/// Keys have one length, so that a request differs from the next in nothing but the digits.
class KeyText {
 public:
  static constexpr std::size_t kBytes = 16;

  /// `first` tells kinds of keys apart.
  KeyText(char first, std::uint64_t number);

  std::string_view view() const { return {text_.data(), text_.size()}; }

 private:
  std::array<char, kBytes> text_;
};

}  // namespace fencekv::bench
