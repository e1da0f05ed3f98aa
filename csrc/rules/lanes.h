// SPDX-License-Identifier: Apache-2.0
// The operations on vectors that the formulas need and the compiler's vector types lack. Included once by each
// kernels_<instruction set>.cc; base/vectors.h has the rules for such files.
#pragma once

#include <cstdint>

#include "base/vectors.h"
#include "rules/formulas.h"

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace braid {
namespace {

using Floats = Vector<float>;

constexpr size_t kStep = kLanes<float>;

#if defined(__SSE2__) && BRAID_VECTOR_BYTES == 16
// a * b + c of floats, as doubles that become the same floats as the exact sums do. The product of two floats is
// exact in double. A sum that is not exact is rounded to odd: of the two doubles beside it to the one whose last bit
// is 1. So it lies on the same side of every float, and of every middle between two floats, as the exact sum.
[[gnu::always_inline]] inline __m128d fused_to_odd(__m128d a, __m128d b, __m128d c) {
  const __m128d product = a * b, sum = product + c;
  const __m128d added = sum - product, error = (product - (sum - added)) + (c - added);
  using Words = VectorOf<int64_t, 2>::Type;
  const auto bits = (Words)sum;
  // The error is a NaN if the sum is not finite. Then neither comparison holds.
  const auto inexact = (Words)_mm_or_pd(_mm_cmplt_pd(error, __m128d{}), _mm_cmpgt_pd(error, __m128d{}));
  const Words even = (bits & 1) - 1;
  const auto signs = (VectorOf<uint64_t, 2>::Type)(bits ^ (Words)error) >> 63;
  const Words away = 1 - 2 * (Words)signs;  // in magnitude
  return (__m128d)(bits + (away & even & inexact));
}
#endif

[[gnu::always_inline]] inline Floats fused_lanes(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__) && BRAID_VECTOR_BYTES == 64
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__) && BRAID_VECTOR_BYTES == 32
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__SSE2__) && BRAID_VECTOR_BYTES == 16
  const __m128d low = fused_to_odd(_mm_cvtps_pd(a), _mm_cvtps_pd(b), _mm_cvtps_pd(c));
  const auto upper = [](__m128 value) { return _mm_cvtps_pd(_mm_movehl_ps(value, value)); };
  const __m128d high = fused_to_odd(upper(a), upper(b), upper(c));
  return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
#elif defined(__aarch64__) && BRAID_VECTOR_BYTES == 16
  return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  for (size_t i = 0; i < kStep; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

[[gnu::always_inline]] inline Floats root_of_lanes(Floats value) {
#if defined(__AVX512F__) && BRAID_VECTOR_BYTES == 64
  return _mm512_maskz_sqrt_ps(0xffff, value);
#elif defined(__AVX__) && BRAID_VECTOR_BYTES == 32
  return _mm256_sqrt_ps(value);
#elif defined(__SSE2__) && BRAID_VECTOR_BYTES == 16
  return _mm_sqrt_ps(value);
#elif defined(__aarch64__) && BRAID_VECTOR_BYTES == 16
  return (Floats)vsqrtq_f32((float32x4_t)value);
#else
  for (size_t i = 0; i < kStep; ++i) value[i] = __builtin_sqrtf(value[i]);
  return value;
#endif
}

}  // namespace

namespace rule_formula {
template <>
struct Lane<Floats> {
  [[gnu::always_inline]] static Floats fused(Floats a, Floats b, Floats c) { return fused_lanes(a, b, c); }
  [[gnu::always_inline]] static Floats root(Floats value) { return root_of_lanes(value); }
  [[gnu::always_inline]] static Floats all(float value) { return value - Floats{}; }  // keeps -0
};
}  // namespace rule_formula

}  // namespace braid
