// SPDX-License-Identifier: Apache-2.0
#include "codec/sparse.h"

#include <algorithm>
#include <bit>

#include "codec/formulas.h"

namespace braid {
namespace {

constexpr size_t kPart = 1024;  // looked at in one go, of which all may become candidates

uint32_t order_of(const TopKCandidate& candidate) {
  return std::min(candidate.bits & 0x7fffffffu, formula::kInfinityBits + 1);
}

}  // namespace

LargestSelection::LargestSelection(size_t wanted)
    : wanted_(wanted),
      capacity_(2 * wanted + 4 * kPart),
      candidates_(std::make_unique_for_overwrite<TopKCandidate[]>(capacity_)) {}

void LargestSelection::put(const Terms& terms, size_t n, float* left) {
  const CodecKernels& kernels = codec_kernels();
  for (size_t begin = 0; begin < n; begin += kPart) {
    const size_t part = std::min(kPart, n - begin);
    if (count_ + part > capacity_) thin_out();
    const Terms here{terms.values + begin, terms.scale, terms.addend == nullptr ? nullptr : terms.addend + begin};
    count_ += kernels.sift(here, part, threshold_, static_cast<uint32_t>(seen_), candidates_.get() + count_,
                           left == nullptr ? nullptr : left + begin);
    seen_ += part;
  }
}

// The magnitude of which there are `wanted` as large or larger, by counting: each round divides the range it must
// be in into 2048 equal ones. `wanted` becomes how many of exactly this magnitude are among the wanted ones.
uint32_t LargestSelection::least_wanted(size_t& wanted) const {
  constexpr int kBits = 11;
  uint32_t low = ~uint32_t{0}, high = 0;
  for (size_t i = 0; i < count_; ++i) {
    low = std::min(low, order_of(candidates_[i]));
    high = std::max(high, order_of(candidates_[i]));
  }
  for (;;) {
    const int shift = std::max(0, static_cast<int>(std::bit_width(high - low)) - kBits);
    uint32_t counts[1 << kBits] = {};
    for (size_t i = 0; i < count_; ++i) {
      const uint32_t above_low = order_of(candidates_[i]) - low;
      if (above_low <= high - low) ++counts[above_low >> shift];
    }
    uint32_t part = (high - low) >> shift;
    for (; counts[part] < wanted; --part) wanted -= counts[part];
    low += part << shift;
    if (shift == 0) return low;
    high = std::min(high, low + ((1u << shift) - 1));
  }
}

void LargestSelection::thin_out() {
  if (count_ <= wanted_) return;
  size_t equal = wanted_;
  const uint32_t least = least_wanted(equal);
  size_t kept = 0;
  for (size_t i = 0; i < count_; ++i) {
    const TopKCandidate candidate = candidates_[i];
    const uint32_t order = order_of(candidate);
    const bool is_equal = order == least && equal > 0;
    candidates_[kept] = candidate;
    kept += order > least || is_equal;
    equal -= is_equal;
  }
  count_ = kept;
  threshold_ = static_cast<int32_t>(least > formula::kInfinityBits ? 0x7fffffffu : least);
}

std::span<const TopKCandidate> LargestSelection::finish() {
  thin_out();
  return {candidates_.get(), count_};
}

}  // namespace braid
