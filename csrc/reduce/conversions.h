// SPDX-License-Identifier: Apache-2.0
// The loops of convert.h. Included once by each kernels_<instruction set>.cc; base/vectors.h says why nothing here
// may leave its file. The compiler turns the plain loops into vectors; float16 needs the instructions of lanes.h
// where there are any.
#pragma once

#include "base/half.h"
#include "reduce/kernels.h"
#include "reduce/lanes.h"

namespace braid {
namespace {

// The conversion of one element between memory and float.
template <class T>
struct PlainFloat {
  using Stored = T;
  static float widen(T value) { return static_cast<float>(value); }
  static T narrow(float value) { return static_cast<T>(value); }
};
struct Half {
  using Stored = uint16_t;
  static float widen(uint16_t half) { return float_from_float16(half); }
  static uint16_t narrow(float value) { return float16_from_float(value); }
};
struct BrainHalf {
  using Stored = uint16_t;
  static float widen(uint16_t half) { return float_from_bfloat16(half); }
  static uint16_t narrow(float value) { return bfloat16_from_float(value); }
};

template <class Kind, bool kAdd>
void widen_plainly(const std::byte* __restrict from, size_t count, float scale, float* __restrict out) {
  for (size_t i = 0; i < count; ++i) {
    typename Kind::Stored stored;
    __builtin_memcpy(&stored, from + i * sizeof stored, sizeof stored);
    const float value = Kind::widen(stored) * scale;
    out[i] = kAdd ? out[i] + value : value;
  }
}
template <class Kind>
void narrow_plainly(const float* __restrict values, size_t count, float scale, std::byte* __restrict to) {
  for (size_t i = 0; i < count; ++i) {
    const typename Kind::Stored stored = Kind::narrow(values[i] * scale);
    __builtin_memcpy(to + i * sizeof stored, &stored, sizeof stored);
  }
}

#if defined(__F16C__) && BRAID_VECTOR_BYTES >= 32
template <bool kAdd>
void widen_half(const std::byte* from, size_t count, float scale, float* out) {
  size_t i = 0;
  for (; i + Float16::kBlock <= count; i += Float16::kBlock) {
    Pair<float> block = Float16::load(from + 2 * i);
    block = {block.first * scale, block.second * scale};
    auto* const to = reinterpret_cast<std::byte*>(out + i);
    if constexpr (kAdd) {
      const Pair<float> before = Plain<float>::load(to);
      block = {before.first + block.first, before.second + block.second};
    }
    Plain<float>::store(to, block);
  }
  widen_plainly<Half, kAdd>(from + 2 * i, count - i, scale, out + i);
}
void narrow_half(const float* values, size_t count, float scale, std::byte* to) {
  size_t i = 0;
  for (; i + Float16::kBlock <= count; i += Float16::kBlock) {
    const Pair<float> block = Plain<float>::load(reinterpret_cast<const std::byte*>(values + i));
    Float16::store(to + 2 * i, {block.first * scale, block.second * scale});
  }
  narrow_plainly<Half>(values + i, count - i, scale, to + 2 * i);
}
#else
template <bool kAdd>
constexpr WidenKernel widen_half = widen_plainly<Half, kAdd>;
constexpr NarrowKernel narrow_half = narrow_plainly<Half>;
#endif

constexpr void fill_conversions(ReduceKernels& kernels) {
  const auto fill = [&](DType dtype, const Conversions& row) {
    kernels.conversions[static_cast<size_t>(dtype)] = row;
  };
  fill(DType::kFloat64, {widen_plainly<PlainFloat<double>, false>, widen_plainly<PlainFloat<double>, true>,
                         narrow_plainly<PlainFloat<double>>});
  fill(DType::kFloat32, {widen_plainly<PlainFloat<float>, false>, widen_plainly<PlainFloat<float>, true>,
                         narrow_plainly<PlainFloat<float>>});
  fill(DType::kFloat16, {widen_half<false>, widen_half<true>, narrow_half});
  fill(DType::kBFloat16,
       {widen_plainly<BrainHalf, false>, widen_plainly<BrainHalf, true>, narrow_plainly<BrainHalf>});
}

}  // namespace
}  // namespace braid
