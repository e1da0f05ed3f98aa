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

// Counts durations in eight buckets of equal width per octave. Its size is fixed; a percentile is correct to 1/16.
class Histogram {
 public:
  void add(double seconds);
  double percentile(double share) const;  // in seconds; 0 when empty
  double longest() const { return longest_; }

 private:
  static constexpr size_t kBitsPerOctave = 3;
  static constexpr size_t kPerOctave = size_t{1} << kBitsPerOctave;
  static constexpr size_t kBuckets = kPerOctave * 44;  // from 1 ns to almost 5 hours
  std::array<uint32_t, kBuckets> counts_{};
  uint64_t total_ = 0;
  double longest_ = 0;
};

// Counts finished operations by name and algorithm. Thread safe.
class Statistics {
 public:
  struct Row {
    OperationStats sums;
    Histogram durations;
  };
  // The row of a name and algorithm. The first call makes it. The reference stays valid.
  Row& row(std::string_view name, const std::string& algorithm);
  void record(Row& row, uint64_t bytes, double seconds);
  std::vector<OperationStats> snapshot() const;  // rows without calls are left out

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Row> rows_;
};

}  // namespace braid
