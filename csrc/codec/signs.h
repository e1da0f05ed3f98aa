// SPDX-License-Identifier: Apache-2.0
// The sign codec: one bit per element. Included once by each kernels_<instruction set>.cc; base/vectors.h has the
// rules for such files.
#pragma once

#include "codec/tiles.h"

namespace braid {
namespace {

struct SignBlock {
  static constexpr size_t kElements = kSignBlock;
  static constexpr size_t kVectors = kSignLanes / kStep;  // of a row

  // Stores the elements in `values`, too.
  static float sum_of_magnitudes(const Terms& terms, float* values) {
    Floats sums[kVectors] = {};
    for (size_t row = 0; row < kSignRows; ++row) {
      for (size_t j = 0; j < kVectors; ++j) {
        const size_t i = row * kSignLanes + j * kStep;
        const Floats value = load_terms(terms, i);
        store_floats(values + i, value);
        sums[j] += float_of<Floats>(magnitude_bits(value));
      }
    }
    for (size_t vectors = kVectors / 2; vectors > 0; vectors /= 2) {
      for (size_t j = 0; j < vectors; ++j) sums[j] += sums[j + vectors];
    }
    float lanes[kStep];
    store_floats(lanes, sums[0]);
    for (size_t step = kStep / 2; step > 0; step /= 2) {
      for (size_t lane = 0; lane < step; ++lane) lanes[lane] += lanes[lane + step];
    }
    return lanes[0];
  }

  static void encode(const Terms& terms, size_t elements, uint32_t, uint32_t, size_t index, std::byte* scales,
                     std::byte* data, float* left) {
    alignas(BRAID_VECTOR_BYTES) float values[kSignBlock];
    const float scale = sign_scale_of(sum_of_magnitudes(terms, values), static_cast<int>(elements));
    __builtin_memcpy(scales + index * sizeof(float), &scale, sizeof(float));
    const bool finite = is_finite(scale);
    const uint32_t kept = finite ? ~uint32_t{0} : 0;
    for (size_t row = 0; row < kSignRows; ++row) {
      uint32_t word = 0;
      for (size_t j = 0; j < kVectors; ++j) {
        const size_t i = row * kSignLanes + j * kStep;
        const Floats value = load_floats(values + i);
        word |= sign_bits(bits_of(value)) << (j * kStep);
        if (left != nullptr) {
          const Floats decoded = float_of<Floats>((bits_of(value) & 0x80000000u) ^ bits_of(scale));
          store_floats(left + i, finite ? value - decoded : Floats{});
        }
      }
      word &= kept;
      __builtin_memcpy(data + (index * kSignRows + row) * sizeof word, &word, sizeof word);
    }
  }

  template <class Into>
  static void decode(size_t index, const std::byte* scales, const std::byte* data, float* out) {
    uint32_t scale;
    __builtin_memcpy(&scale, scales + index * sizeof scale, sizeof scale);
    const Bits place = (Bits{} + 1u) << lane_numbers();
    for (size_t row = 0; row < kSignRows; ++row) {
      uint32_t word;
      __builtin_memcpy(&word, data + (index * kSignRows + row) * sizeof word, sizeof word);
      for (size_t j = 0; j < kVectors; ++j) {
        const Bits negative = (Bits)(((Bits{} + (word >> (j * kStep))) & place) != 0) & 0x80000000u;
        Into::to(out + row * kSignLanes + j * kStep, float_of<Floats>(negative ^ scale));
      }
    }
  }
};

}  // namespace
}  // namespace braid
