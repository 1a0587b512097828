// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/load/key_picker.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fencekv::bench {

namespace {

constexpr double kExponent = 0.99;

/// Near the golden ratio of 2^32: neighbours in the order are far apart in the key space.
constexpr std::uint64_t kStride = 2'654'435'769;

std::uint64_t scattered(std::uint64_t number) {
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

double zeta(std::uint64_t count) {
  double sum = 0;
  for (std::uint64_t i = 1; i <= count; ++i)
    sum += std::pow(1.0 / static_cast<double>(i), kExponent);
  return sum;
}

/// A step that visits all of `count` numbers before it comes back.
std::uint64_t full_step(std::uint64_t count) {
  std::uint64_t step = kStride % count;
  while (std::gcd(step, count) != 1) ++step;
  return step;
}

}  // namespace

KeyPicker::KeyPicker(Distribution distribution, std::uint64_t count, std::uint64_t seed)
    : distribution_(distribution), count_(count), random_(seed) {
  if (distribution == Distribution::once) {
    step_ = full_step(count);
  } else if (distribution == Distribution::zipfian) {
    // Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994.
    zeta_ = zeta(count);
    zeta_of_two_ = zeta(2);
    alpha_ = 1 / (1 - kExponent);
    eta_ = (1 - std::pow(2.0 / static_cast<double>(count), 1 - kExponent)) /
           (1 - zeta_of_two_ / zeta_);
  }
}

std::uint64_t KeyPicker::next() {
  switch (distribution_) {
    case Distribution::uniform:
      return below(count_);
    case Distribution::zipfian:
      return scattered(next_zipfian()) % count_;
    case Distribution::once:
      break;
  }
  position_ = (position_ + step_) % count_;
  return position_;
}

std::uint64_t KeyPicker::below(std::uint64_t bound) {
  // A division would cost more than the whole draw; the bias is bound / 2^32.
  constexpr unsigned kHalf = 32;
  return ((random_() >> kHalf) * bound) >> kHalf;
}

double KeyPicker::next_unit() {
  // As many bits as a double has.
  constexpr unsigned kUnused = 11;
  constexpr double kUnit = 1.0 / 9007199254740992.0;  // 2^-53
  return static_cast<double>(random_() >> kUnused) * kUnit;
}

bool KeyPicker::chance(double share) {
  return next_unit() < share;
}

std::uint64_t KeyPicker::next_zipfian() {
  const double draw = next_unit();
  const double weighted = draw * zeta_;
  if (weighted < 1) return 0;
  if (weighted < zeta_of_two_) return std::min<std::uint64_t>(1, count_ - 1);
  const double rank = static_cast<double>(count_) * std::pow(eta_ * draw - eta_ + 1, alpha_);
  return std::min(static_cast<std::uint64_t>(rank), count_ - 1);
}

KeyText::KeyText(char first, std::uint64_t number) : text_{} {
  for (std::size_t i = kBytes; i-- > 1;) {
    text_[i] = static_cast<char>('0' + number % 10);
    number /= 10;
  }
  text_[0] = first;
}

}  // namespace fencekv::bench
