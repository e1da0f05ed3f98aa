// SPDX-License-Identifier: Apache-2.0
// 16-bit floats, what concerns plain floats, and the table of all kernels. Included once by each
// kernels_<instruction set>.cc; base/vectors.h says what that asks.
#pragma once

#include "codec/bytes.h"
#include "codec/kernels.h"
#include "codec/signs.h"

namespace braid {
namespace {

struct Float16 {
  static Rounded<Floats> narrow(Floats value) { return rounded_to_float16(value); }
  static Floats widen(Bits half) { return float_of_float16_bits<Floats>(half); }
};
struct BFloat16 {
  static Rounded<Floats> narrow(Floats value) { return rounded_to_bfloat16(value); }
  static Floats widen(Bits half) { return float_of_bfloat16_bits<Floats>(half); }
};

template <class Half>
void encode_halves(const Terms& terms, size_t n, uint32_t, uint32_t, std::byte*, std::byte* data, float* left) {
  const auto step = [](Floats value, std::byte* to, float* kept) {
    const Rounded<Floats> half = Half::narrow(value);
    store_halves(to, half.code);
    if (kept != nullptr) store_floats(kept, is_finite(value) ? value - half.value : Floats{});
  };
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    step(load_terms(terms, i), data + 2 * i, left == nullptr ? nullptr : left + i);
  }
  if (i < n) {
    float padded[kStep] = {};
    std::byte halves[2 * kStep];
    for (size_t j = i; j < n; ++j) padded[j - i] = load_term(terms, j);
    step(load_floats(padded), halves, padded);
    __builtin_memcpy(data + 2 * i, halves, 2 * (n - i));
    if (left != nullptr) __builtin_memcpy(left + i, padded, (n - i) * sizeof(float));
  }
}

template <class Half, class Into>
void decode_halves(const std::byte*, const std::byte* data, size_t n, float* out) {
  const auto step = [](const std::byte* from, float* to) { Into::to(to, Half::widen(load_halves(from))); };
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) step(data + 2 * i, out + i);
  if (i < n) {
    std::byte halves[2 * kStep] = {};
    float padded[kStep] = {};
    __builtin_memcpy(halves, data + 2 * i, 2 * (n - i));
    __builtin_memcpy(padded, out + i, (n - i) * sizeof(float));
    step(halves, padded);
    __builtin_memcpy(out + i, padded, (n - i) * sizeof(float));
  }
}

size_t sift(const Terms& terms, size_t n, int32_t threshold, uint32_t position, TopKCandidate* out, float* left) {
  constexpr size_t kGroup = 4 * kStep;  // few elements are found, so most groups are skipped as a whole
  size_t count = 0, i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    alignas(BRAID_VECTOR_BYTES) float group[kGroup];
    uint64_t found = 0;
    for (size_t j = 0; j < kGroup; j += kStep) {
      const Floats value = load_terms(terms, i + j);
      store_floats(group + j, value);
      found |= uint64_t{sign_bits((Bits)((Ints)magnitude_bits(value) > threshold))} << j;
      if (left != nullptr) store_floats(left + i + j, left_unsent(value));
    }
    for (; found != 0; found &= found - 1) {
      const auto j = static_cast<uint32_t>(__builtin_ctzll(found));
      out[count++] = {bits_of(group[j]), position + static_cast<uint32_t>(i) + j};
    }
  }
  for (; i < n; ++i) {
    const float value = load_term(terms, i);
    if (static_cast<int32_t>(magnitude_bits(value)) > threshold) {
      out[count++] = {bits_of(value), position + static_cast<uint32_t>(i)};
    }
    if (left != nullptr) left[i] = left_unsent(value);
  }
  return count;
}

template <class Half>
constexpr DenseKernels kHalves{encode_halves<Half>, decode_halves<Half, Store>, decode_halves<Half, Add>};
template <class Block>
constexpr DenseKernels kBlocks{encode_tile<Block>, decode_tile<Block, Store>, decode_tile<Block, Add>};

constexpr CodecKernels all_kernels() {
  return {.of = {kHalves<Float16>, kHalves<BFloat16>, kBlocks<ByteBlock<Float8<E4M3>>>,
                 kBlocks<ByteBlock<Float8<E5M2>>>, kBlocks<ByteBlock<Int8>>, kBlocks<Int4Block>,
                 kBlocks<ByteBlock<Qsgd>>, kBlocks<SignBlock>},
          .sift = sift};
}

}  // namespace
}  // namespace braid
