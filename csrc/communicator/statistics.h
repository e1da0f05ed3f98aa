// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "communicator/communicator.h"

namespace braid {

// Durations in eight buckets of equal width per octave: a percentile is right within 1/16, at a fixed size.
class Histogram {
 public:
  void add(double seconds);
  double percentile(double share) const;  // in seconds; 0 when empty
  double longest() const { return longest_; }

 private:
  static constexpr size_t kBitsPerOctave = 3;
  static constexpr size_t kPerOctave = size_t{1} << kBitsPerOctave;
  static constexpr size_t kBuckets = kPerOctave * 44;  // from a nanosecond to five hours
  std::array<uint32_t, kBuckets> counts_{};
  uint64_t total_ = 0;
  double longest_ = 0;
};

// Counts finished operations by name and family. Thread safe.
class Statistics {
 public:
  struct Row {
    OperationStats sums;
    Histogram durations;
  };
  // The row of a name and family, which stays where it is; made when first asked for.
  Row& row(std::string_view name, const std::string& family);
  void record(Row& row, uint64_t bytes, double seconds);
  std::vector<OperationStats> snapshot() const;  // of the rows that count anything

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Row> rows_;
};

}  // namespace braid
