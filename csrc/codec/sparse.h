// SPDX-License-Identifier: Apache-2.0
// Which elements top-k sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/kernels.h"

namespace braid {

// Finds the elements of the largest magnitude in one pass, which may come in parts. Takes the first of equal
// elements. A NaN is larger than all numbers, and all NaNs are equal.
//
// It keeps candidates: all elements at first, and as often as there are too many of them the `wanted` largest,
// after which only what is larger than the least of these can still be wanted. In any order but an ascending one
// that soon leaves next to nothing to keep.
class LargestSelection {
 public:
  explicit LargestSelection(size_t wanted);

  // Adds the next n elements, and writes to `left` their residual if they are not sent. REQUIRES: at most 2^31
  // elements in all.
  void put(const Terms& terms, size_t n, float* left);
  // Called after the last put(). Returns the `wanted` largest elements, or all if there are fewer, by position.
  std::span<const TopKCandidate> finish();

 private:
  uint32_t least_wanted(size_t& wanted) const;
  void thin_out();

  const size_t wanted_;
  const size_t capacity_;
  const std::unique_ptr<TopKCandidate[]> candidates_;  // in order of their positions
  size_t count_ = 0;
  int32_t threshold_ = -1;
  size_t seen_ = 0;
};

}  // namespace braid
