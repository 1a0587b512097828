// SPDX-License-Identifier: Apache-2.0
/// Latencies, counted in buckets whose width grows with the value.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fencekv::bench {

/// A log-linear histogram, as HdrHistogram has it: every power of two is split into 128 buckets, so
/// that an answer is at most 0.8 % above the sample, from nanoseconds to centuries. Recording is an
/// addition: it must cost next to nothing beside the request that is measured.
///
/// Thread safety: none.
class Histogram {
 public:
  Histogram();

  /// `count` samples of the same value. Negative ones count as zero.
  void record(std::chrono::nanoseconds value, std::uint64_t count = 1);

  /// The value that a `share` (0 to 1) of the samples do not exceed; zero without samples.
  std::chrono::nanoseconds percentile(double share) const;
  std::chrono::nanoseconds max() const { return std::chrono::nanoseconds(max_); }
  std::chrono::nanoseconds mean() const;
  std::uint64_t count() const { return count_; }

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  double sum_ = 0;
  std::uint64_t max_ = 0;  // exact, unlike the buckets
};

}  // namespace fencekv::bench
