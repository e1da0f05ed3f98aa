// SPDX-License-Identifier: Apache-2.0
// float16 and bfloat16 to and from float, one element at a time, in plain integer arithmetic. The bits equal the
// results of the F16C instructions: rounded to nearest even; a NaN stays a NaN, keeps its sign and leading
// payload, and becomes quiet. A thread that flushes subnormal floats to zero gets the same bits.
#pragma once

#include <cstdint>

namespace braid {

// Always inlined, and without std functions: files built for a wider instruction set use these functions, too, and
// the linker must never keep an out-of-line copy from such a file.
#define BRAID_HALF_INLINE [[gnu::always_inline]] constexpr

BRAID_HALF_INLINE float float_from_float16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(half & 0x7fffu) << 13;
  uint32_t bits = shifted + (112u << 23);  // the exponent's bias: 127 - 15
  if (shifted >= 0x0f800000u) {            // inf or NaN: the largest exponent
    bits += 112u << 23;
    if (shifted > 0x0f800000u) bits |= 0x00400000u;
  } else if (shifted < 0x00800000u) {  // zero or subnormal: let the subtraction normalise it
    bits += 1u << 23;
    bits = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, bits) - 0x1p-14f);
  }
  return __builtin_bit_cast(float, bits | sign);
}

BRAID_HALF_INLINE uint16_t float16_from_float(float value) {
  const uint32_t signed_bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = (signed_bits >> 16) & 0x8000u;
  const uint32_t bits = signed_bits & 0x7fffffffu;
  uint32_t half = 0;
  if (bits >= 0x47800000u) {  // 65536 and up, inf, NaN
    half = bits > 0x7f800000u ? 0x7e00u | ((bits >> 13) & 0x03ffu) : 0x7c00u;
  } else if (bits < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the rounded subnormal in the last bits
    half = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, bits) + 0.5f) - 0x3f000000u;
  } else {  // rounding up may carry into the exponent, and from there to inf, as it should
    half = (bits - (112u << 23) + 0x0fffu + ((bits >> 13) & 1u)) >> 13;
  }
  return static_cast<uint16_t>(half | sign);
}

BRAID_HALF_INLINE float float_from_bfloat16(uint16_t bfloat) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bfloat) << 16);
}

BRAID_HALF_INLINE uint16_t bfloat16_from_float(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#undef BRAID_HALF_INLINE

}  // namespace braid
