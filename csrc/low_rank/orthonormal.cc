// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/float_environment.h"
#include "low_rank/kernels.h"

namespace braid {
namespace {

constexpr uint32_t exponent_bits(int exponent) { return static_cast<uint32_t>(exponent + 127) << 23; }

constexpr uint32_t kTooLarge = exponent_bits(120);  // from here on products might overflow
constexpr uint32_t kAsZero = exponent_bits(-120);   // below this a component counts as zeros
constexpr int kDraws = 4;                           // random directions to try for a component without one
constexpr int kPasses = 3;                          // repeated passes over the earlier components

class Basis {
 public:
  Basis(float* p, size_t rows) : p_(p), rows_(rows), kernels_(low_rank_kernels()) {}

  // Makes component k a unit vector orthogonal to the earlier components. False if nothing is left of it.
  bool add(size_t k) {
    float* const own = component(k);
    const uint32_t largest = kernels_.largest(own, rows_);
    if (largest < kAsZero) return false;
    // Scales by a power of two, so that squares neither overflow nor vanish, and nothing is rounded.
    kernels_.scale(std::bit_cast<float>(exponent_bits(0) * 2 - (largest & 0x7f800000u)), rows_, own);
    float before = kernels_.dot(own, own, rows_);
    for (int pass = 0; k > 0 && pass <= kPasses; ++pass) {
      if (pass == kPasses) return false;
      for (size_t other = 0; other < k; ++other) {
        kernels_.subtract(kernels_.dot(component(other), own, rows_), component(other), rows_, own);
      }
      const float after = kernels_.dot(own, own, rows_);
      if (!(after > 0)) return false;
      // If half of the length is left, the rounded rest of the other components is small (W. Kahan, "twice is
      // enough").
      const bool is_kept = after > 0.25f * before;
      before = after;
      if (is_kept) break;
    }
    kernels_.scale(static_cast<float>(1 / std::sqrt(static_cast<double>(before))), rows_, own);
    return true;
  }

  std::span<float> span(size_t k) { return {component(k), rows_}; }

 private:
  float* component(size_t k) { return p_ + k * rows_; }

  float* const p_;
  const size_t rows_;
  const LowRankKernels& kernels_;
};

}  // namespace

bool orthonormalize(std::span<float> p, size_t rows) {
  const PlainFloats plain;
  if (low_rank_kernels().largest(p.data(), p.size()) >= kTooLarge) return false;
  Basis basis(p.data(), rows);
  const size_t rank = rows == 0 ? 0 : p.size() / rows;
  for (size_t k = 0; k < rank; ++k) {
    bool is_found = k < rows && basis.add(k);
    for (uint64_t draw = 0; k < rows && !is_found && draw < kDraws; ++draw) {
      draw_uniform(k * kDraws + draw, basis.span(k));
      is_found = basis.add(k);
    }
    if (!is_found) std::ranges::fill(basis.span(k), 0.0f);
  }
  return true;
}

void draw_uniform(uint64_t seed, std::span<float> out) {
  // The generator SplitMix64 (G. Steele, D. Lea, C. Flood 2014), of which 24 bits make a float without rounding.
  uint64_t state = seed * 0xd1342543de82ef95u;
  for (float& value : out) {
    uint64_t x = state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    value = static_cast<float>(static_cast<int32_t>(x >> 40) - (1 << 23)) * 0x1p-23f;
  }
}

}  // namespace braid
