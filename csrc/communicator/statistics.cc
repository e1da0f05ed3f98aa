// SPDX-License-Identifier: Apache-2.0
#include "communicator/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace braid {

void Histogram::add(double seconds) {
  // The exponent and the first bits of the fraction.
  const auto bits = std::bit_cast<uint64_t>(std::max(seconds * 1e9, 1.0));
  const size_t bucket = (bits >> (52 - kBitsPerOctave)) - (uint64_t{1023} << kBitsPerOctave);
  ++counts_[std::min(bucket, kBuckets - 1)];
  ++total_;
  longest_ = std::max(longest_, seconds);
}

double Histogram::percentile(double share) const {
  const double wanted = share * static_cast<double>(total_);
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += counts_[i];
    if (seen == 0 || static_cast<double>(seen) < wanted) continue;
    const auto part = static_cast<double>(i % kPerOctave) + 0.5;
    const double middle = 1e-9 * std::ldexp(1 + part / kPerOctave, static_cast<int>(i / kPerOctave));
    return std::min(middle, longest_);
  }
  return 0;
}

Statistics::Row& Statistics::row(std::string_view name, const std::string& algorithm) {
  const std::lock_guard lock(mutex_);
  Row& row = rows_[{std::string(name), algorithm}];
  row.sums.collective = name;
  row.sums.algorithm = algorithm;
  return row;
}

void Statistics::record(Row& row, uint64_t bytes, double seconds) {
  const std::lock_guard lock(mutex_);
  auto& [sums, durations] = row;
  if (sums.calls == 0) sums.min_bytes = bytes;
  ++sums.calls;
  sums.bytes += bytes;
  sums.min_bytes = std::min(sums.min_bytes, bytes);
  sums.max_bytes = std::max(sums.max_bytes, bytes);
  sums.seconds += seconds;
  durations.add(seconds);
}

std::vector<OperationStats> Statistics::snapshot() const {
  const std::lock_guard lock(mutex_);
  std::vector<OperationStats> rows;
  for (const auto& [key, row] : rows_) {
    if (row.sums.calls == 0) continue;
    OperationStats stats = row.sums;
    stats.p50_s = row.durations.percentile(0.5);
    stats.p95_s = row.durations.percentile(0.95);
    stats.p99_s = row.durations.percentile(0.99);
    stats.max_s = row.durations.longest();
    rows.push_back(std::move(stats));
  }
  return rows;
}

}  // namespace braid
