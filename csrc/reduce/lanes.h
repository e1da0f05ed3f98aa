// SPDX-License-Identifier: Apache-2.0
// Loads elements of each dtype into vector registers, and stores them. Only float16 needs instructions for which
// there is no operator. Included once by each kernels_<instruction set>.cc; base/vectors.h has the rules for such
// files.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/vectors.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace braid {
namespace {

// One turn of the loop works on two vectors. This hides some of the loop's own cost, and lets 16-bit elements fill
// a whole register when they are loaded and stored.
template <class T>
struct Pair {
  Vector<T> first, second;
};

// An element kind defines Value, the type of the computation; kElementBytes, the size in memory; and how a block
// of kBlock elements is loaded and stored.
template <class T>
struct Plain {
  using Value = T;
  static constexpr size_t kElementBytes = sizeof(T);
  static constexpr size_t kBlock = 2 * kLanes<T>;
  static Pair<T> load(const std::byte* from) {
    return {load_vector<Vector<T>>(from), load_vector<Vector<T>>(from + BRAID_VECTOR_BYTES)};
  }
  static void store(std::byte* to, const Pair<T>& block) {
    store_vector(to, block.first);
    store_vector(to + BRAID_VECTOR_BYTES, block.second);
  }
};

// Every non-zero byte is loaded as 1.
struct Bool : Plain<uint8_t> {
  static Pair<uint8_t> load(const std::byte* from) {
    const Pair<uint8_t> raw = Plain<uint8_t>::load(from);
    return {(Vector<uint8_t>)(raw.first != 0) & 1, (Vector<uint8_t>)(raw.second != 0) & 1};
  }
};

// Two bfloat16 share a 32-bit lane: the first vector of the pair takes the low one, the second the high one. So
// loads and stores need no shuffle. The only NaN that can be stored is the NaN that finish() makes: its rounding
// cannot overflow.
struct BFloat16 {
  using Value = float;
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kBlock = 2 * kLanes<float>;
  static Pair<float> load(const std::byte* from) {
    const auto both = load_vector<Vector<uint32_t>>(from);
    return {(Vector<float>)(both << 16), (Vector<float>)(both & 0xffff0000u)};
  }
  static Vector<uint32_t> rounded(Vector<float> value) {
    const auto bits = (Vector<uint32_t>)value;
    return bits + 0x7fffu + ((bits >> 16) & 1u);
  }
  static void store(std::byte* to, const Pair<float>& block) {
    store_vector(to, (rounded(block.first) >> 16) | (rounded(block.second) & 0xffff0000u));
  }
};

#if defined(__F16C__) && BRAID_VECTOR_BYTES == 64
// Uses the masked forms with all lanes on: in GCC 12 the plain forms cause a warning about an undefined operand.
inline Vector<float> widen(__m256i halves) { return (Vector<float>)_mm512_maskz_cvtph_ps(0xffff, halves); }
inline __m256i narrow(Vector<float> value) {
  return _mm512_maskz_cvtps_ph(0xffff, (__m512)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
using Halves = __m256i;
#elif defined(__F16C__) && BRAID_VECTOR_BYTES == 32
inline Vector<float> widen(__m128i halves) { return (Vector<float>)_mm256_cvtph_ps(halves); }
inline __m128i narrow(Vector<float> value) { return _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT); }
using Halves = __m128i;
#endif

#if defined(__F16C__) && BRAID_VECTOR_BYTES >= 32
struct Float16 {
  using Value = float;
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kBlock = 2 * kLanes<float>;
  static Pair<float> load(const std::byte* from) {
    return {widen(load_vector<Halves>(from)), widen(load_vector<Halves>(from + sizeof(Halves)))};
  }
  static void store(std::byte* to, const Pair<float>& block) {
    store_vector(to, narrow(block.first));
    store_vector(to + sizeof(Halves), narrow(block.second));
  }
};
#else
// The conversions of base/half.h with selects instead of branches, and two elements per 32-bit lane, as for
// bfloat16. It compares signed lanes, because SSE2 can.
struct Float16 {
  using Value = float;
  using Bits = Vector<int32_t>;
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kBlock = 2 * kLanes<float>;
  static Vector<float> widen(Bits half) {
    const Bits shifted = (half & 0x7fff) << 13;
    const Bits subnormal = (Bits)((Vector<float>)(shifted + (113 << 23)) - 0x1p-14f);
    const Bits quiet = (shifted > 0x0f800000) & 0x00400000;
    const Bits finite = (shifted < 0x00800000) ? subnormal : shifted + (112 << 23);
    const Bits bits = (shifted >= 0x0f800000) ? ((shifted + (112 << 24)) | quiet) : finite;
    return (Vector<float>)(bits | ((half & 0x8000) << 16));
  }
  static Bits narrow(Vector<float> value) {
    const Bits sign = ((Bits)value >> 16) & 0x8000;
    const Bits bits = (Bits)value & 0x7fffffff;
    const Bits special = ((bits > 0x7f800000) & 0x0200) | 0x7c00;  // the only NaN is the NaN that finish() makes
    const Bits subnormal = (Bits)((Vector<float>)bits + 0.5f) - 0x3f000000;
    const Bits normal = (bits - (112 << 23) + 0x0fff + ((bits >> 13) & 1)) >> 13;
    const Bits finite = (bits < 0x38800000) ? subnormal : normal;
    return sign | ((bits >= 0x47800000) ? special : finite);
  }
  static Pair<float> load(const std::byte* from) {
    const auto both = load_vector<Vector<uint32_t>>(from);
    return {widen((Bits)(both & 0xffffu)), widen((Bits)(both >> 16))};
  }
  static void store(std::byte* to, const Pair<float>& block) {
    store_vector(to, narrow(block.first) | (Bits)((Vector<uint32_t>)narrow(block.second) << 16));
  }
};
#endif

}  // namespace
}  // namespace braid
