// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/load/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace fencekv::bench {

namespace {

constexpr unsigned kSplitBits = 7;
constexpr std::uint64_t kSplit = std::uint64_t{1} << kSplitBits;
constexpr std::size_t kBuckets = (64 - kSplitBits + 1) * kSplit;

/// Below 2 * kSplit a bucket is one value; above, the leading kSplitBits + 1 bits choose it.
std::size_t bucket_of(std::uint64_t value) {
  if (value < 2 * kSplit) return value;
  const auto shift = static_cast<unsigned>(std::bit_width(value)) - kSplitBits - 1;
  return shift * kSplit + (value >> shift);
}

std::uint64_t largest_in(std::size_t bucket) {
  if (bucket < 2 * kSplit) return bucket;
  const std::size_t shift = bucket / kSplit - 1;
  return ((bucket - shift * kSplit + 1) << shift) - 1;
}

}  // namespace

Histogram::Histogram() : buckets_(kBuckets) {}

void Histogram::record(std::chrono::nanoseconds value, std::uint64_t count) {
  const auto sample = static_cast<std::uint64_t>(std::max<std::int64_t>(value.count(), 0));
  buckets_[bucket_of(sample)] += count;
  count_ += count;
  sum_ += static_cast<double>(sample) * static_cast<double>(count);
  max_ = std::max(max_, sample);
}

std::chrono::nanoseconds Histogram::percentile(double share) const {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(static_cast<double>(count_) * share));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen > 0 && seen >= wanted) return std::chrono::nanoseconds(std::min(largest_in(i), max_));
  }
  return max();
}

std::chrono::nanoseconds Histogram::mean() const {
  if (count_ == 0) return {};
  return std::chrono::nanoseconds(static_cast<std::int64_t>(sum_ / static_cast<double>(count_)));
}

}  // namespace fencekv::bench
