// SPDX-License-Identifier: Apache-2.0
// What each dense codec does to one element and to one block, written once for the host and for CUDA, so that both
// give the same bytes. Only single IEEE operations, in a fixed order: whoever compiles this must not contract a
// product and a sum into one (-ffp-contract=off, --fmad=false), nor flush subnormal numbers.
//
// A block of kBlock elements shares a scale. Where an element of it is infinite or no number, the scale is a NaN: the
// whole block decodes to NaN, as a loss scaler expects, and nothing of it stays behind as a residual.
//
// Which sign and payload the NaN of an operation has differs among processors, so no codec sends them.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define BRAID_FORMULA __host__ __device__ __forceinline__
#else
#define BRAID_FORMULA [[gnu::always_inline]] inline
#endif

namespace braid::formula {

BRAID_FORMULA uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
BRAID_FORMULA float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr uint32_t kNanBits = 0x7fc00000u;

// The bits without the sign order like the magnitudes, NaNs above all: the largest of a block is theirs.
BRAID_FORMULA uint32_t magnitude_bits(float value) { return bits_of(value) & 0x7fffffffu; }
BRAID_FORMULA bool is_finite(float value) { return magnitude_bits(value) < kInfinityBits; }

// What an element leaves behind when `decoded` has been sent for it.
BRAID_FORMULA float left_of(float value, float decoded) { return is_finite(decoded) ? value - decoded : 0.0f; }

// ---- float16 and bfloat16: 2 bytes an element, rounded to nearest even. A finite number stays finite: what is too
// large becomes the largest. All NaNs become one.

BRAID_FORMULA uint16_t float16_of(float value) {
  const uint32_t sign = (bits_of(value) >> 16) & 0x8000u;
  const uint32_t bits = magnitude_bits(value);
  if (bits > kInfinityBits) return 0x7e00u;
  uint32_t half = 0;
  if (bits == kInfinityBits) {
    half = 0x7c00u;
  } else if (bits >= 0x477ff000u) {  // would be rounded to 65536 and up
    half = 0x7bffu;
  } else if (bits < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the rounded subnormal in the last bits
    half = bits_of(float_of(bits) + 0.5f) - 0x3f000000u;
  } else {
    half = (bits - (112u << 23) + 0x0fffu + ((bits >> 13) & 1u)) >> 13;
  }
  return static_cast<uint16_t>(half | sign);
}

BRAID_FORMULA float float_of_float16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(half & 0x7fffu) << 13;
  uint32_t bits = shifted + (112u << 23);
  if (shifted >= 0x0f800000u) {  // inf or NaN
    bits = shifted > 0x0f800000u ? kNanBits : kInfinityBits;
  } else if (shifted < 0x00800000u) {  // zero or subnormal: let the subtraction normalise it
    bits = bits_of(float_of(shifted + (113u << 23)) - 0x1p-14f);
  }
  return float_of(bits | sign);
}

BRAID_FORMULA uint16_t bfloat16_of(float value) {
  const uint32_t sign = (bits_of(value) >> 16) & 0x8000u;
  const uint32_t bits = magnitude_bits(value);
  if (bits > kInfinityBits) return 0x7fc0u;
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  if (bits == kInfinityBits) {
    rounded = 0x7f80u;
  } else if (rounded > 0x7f7fu) {
    rounded = 0x7f7fu;
  }
  return static_cast<uint16_t>(rounded | sign);
}

BRAID_FORMULA float float_of_bfloat16(uint16_t half) { return float_of(static_cast<uint32_t>(half) << 16); }

// ---- Codecs with a scale: the largest magnitude of the block becomes the largest code.

constexpr int kBlock = 256;
// Below this a block is sent as zeros: dividing by its largest magnitude might overflow. 2^-100.
constexpr uint32_t kSmallestLargest = (127u - 100u) << 23;

struct Scale {
  float scale;    // what a code is multiplied by; sent
  float inverse;  // what an element is multiplied by; 0 where all codes are 0
};

// `most`: the largest code.
BRAID_FORMULA Scale scale_of(uint32_t largest_bits, float most) {
  if (largest_bits >= kInfinityBits) return {float_of(kNanBits), 0.0f};
  if (largest_bits < kSmallestLargest) return {0.0f, 0.0f};
  // 127 times a 127th of the largest float of all would be infinite; of the one before it, it is not.
  const float largest = float_of(largest_bits - (largest_bits == kInfinityBits - 1u ? 1u : 0u));
  return {largest / most, most / largest};
}

// Rounds to the nearest integer, ties to even. REQUIRES: |value| < 2^22.
BRAID_FORMULA int nearest(float value) {
  const float shifted = value + 12582912.0f;  // 1.5 * 2^23: an integer is left in the last bits
  return static_cast<int>(bits_of(shifted)) - static_cast<int>(0x4b400000u);
}

// int8: codes -127..127. int4: codes -7..7, two to a byte: the low half has element e of the first half of a block, the
// high half element e + kBlock/2; each is the code + 8.
constexpr float kMostInt8 = 127.0f;
constexpr float kMostInt4 = 7.0f;

// REQUIRES for the codes below: a block whose scale is not a NaN.
BRAID_FORMULA int code_of(float value, float inverse) { return nearest(value * inverse); }
BRAID_FORMULA float value_of(int code, float scale) { return static_cast<float>(code) * scale; }

// ---- Stochastic rounding (QSGD, Alistarh et al. 2017, with the largest magnitude in place of the norm): 8 bits,
// unbiased, from random numbers that depend on the message's seed and the element's position alone.

// A bijection of 32 bits with good mixing (multiplications and shifts, after C. Wellons' lowbias32).
BRAID_FORMULA uint32_t mixed(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  x ^= x >> 16;
  return x;
}

// In [0, 1), a multiple of 2^-24.
BRAID_FORMULA float uniform(uint32_t seed, uint32_t position) {
  return static_cast<float>(mixed(position + seed * 0x9e3779b9u) >> 8) * 0x1p-24f;
}

BRAID_FORMULA int stochastic_code_of(float value, float inverse, float dither) {
  const float magnitude = float_of(magnitude_bits(value)) * inverse + dither;  // below 129
  int code = static_cast<int>(magnitude);
  if (code > 127) code = 127;
  return (bits_of(value) >> 31) != 0 ? -code : code;
}

// ---- float8 with a scale: the formats of the Open Compute Project. The largest magnitude of a block becomes the
// format's largest number.

struct E4M3 {
  static constexpr int kMantissa = 3, kBias = 7, kLargestCode = 0x7e;
  static constexpr float kLargest = 448.0f;
};
struct E5M2 {
  static constexpr int kMantissa = 2, kBias = 15, kLargestCode = 0x7b;
  static constexpr float kLargest = 57344.0f;
};

// Of a finite number; what is too large becomes the largest.
template <class Format>
BRAID_FORMULA uint8_t float8_of(float value) {
  constexpr int kDropped = 23 - Format::kMantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - Format::kBias) << 23;
  constexpr uint32_t kRounder = kRebias + (static_cast<uint32_t>(kDropped + 1) << 23);
  const uint32_t sign = (bits_of(value) >> 24) & 0x80u;
  const uint32_t bits = magnitude_bits(value);
  uint32_t code = 0;
  if (bits < kRebias + (1u << 23)) {  // subnormal here: adding this rounds to its last bit
    code = bits_of(float_of(bits) + float_of(kRounder)) - kRounder;
  } else {
    code = (bits - kRebias + ((1u << (kDropped - 1)) - 1u) + ((bits >> kDropped) & 1u)) >> kDropped;
  }
  if (code > static_cast<uint32_t>(Format::kLargestCode)) code = Format::kLargestCode;
  return static_cast<uint8_t>(code | sign);
}

// Codes above the largest, which no encoder makes, are numbers like the others.
template <class Format>
BRAID_FORMULA float float_of_float8(uint8_t code) {
  constexpr int kDropped = 23 - Format::kMantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - Format::kBias) << 23;
  const uint32_t shifted = static_cast<uint32_t>(code & 0x7fu) << kDropped;
  uint32_t bits = shifted + kRebias;
  if (shifted < (1u << 23)) {  // zero or subnormal
    bits = bits_of(float_of(bits + (1u << 23)) - float_of(kRebias + (1u << 23)));
  }
  return float_of(bits | static_cast<uint32_t>(code & 0x80u) << 24);
}

// ---- sign: one bit an element, 1 where it is negative (-0 too); the scale is the mean magnitude of the block, which
// leaves the least squared error (Seide et al. 2014; Karimireddy et al. 2019).
//
// A block is kSignRows rows of kSignLanes elements. The mean's sum: each lane adds its column from the first row on;
// then lane l takes what lane l + 16 has, then l + 8, 4, 2, 1. Places past the end count as 0.

constexpr int kSignLanes = 32;
constexpr int kSignRows = 32;
constexpr int kSignBlock = kSignLanes * kSignRows;

BRAID_FORMULA float sign_scale_of(float sum_of_magnitudes, int elements) {
  const float mean = sum_of_magnitudes / static_cast<float>(elements);
  return is_finite(mean) ? mean : float_of(kNanBits);
}
BRAID_FORMULA float signed_scale(float scale, bool negative) {
  return float_of(bits_of(scale) ^ (static_cast<uint32_t>(negative) << 31));
}

// ---- Sparse codecs: the floats themselves, all NaNs as one.

BRAID_FORMULA float sent_of(float value) {
  return magnitude_bits(value) <= kInfinityBits ? value : float_of(kNanBits);
}
// What an element leaves behind that is not sent.
BRAID_FORMULA float left_unsent(float value) { return is_finite(value) ? value : 0.0f; }

// random-k: of every `stretch` consecutive elements one is sent, the same on all ranks that share the seed.
BRAID_FORMULA uint32_t chosen_of(uint32_t seed, uint32_t stretch_index, uint32_t stretch_elements) {
  const uint64_t wide = static_cast<uint64_t>(mixed(stretch_index + seed * 0x9e3779b9u)) * stretch_elements;
  return static_cast<uint32_t>(wide >> 32);
}

}  // namespace braid::formula
