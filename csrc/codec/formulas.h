// SPDX-License-Identifier: Apache-2.0
// The arithmetic of each dense codec for one element and for one block. It is written once for the host and for
// CUDA, so that both give the same bytes. It uses only single IEEE operations, in a fixed order. So the compiler
// must not contract a product and a sum into one operation (-ffp-contract=off, --fmad=false), and must not flush
// subnormal numbers.
//
// Functions of elements take a float, or a vector of floats in the compiler's vector types. So they use selects
// instead of branches. Functions of a block take a float.
//
// A block of kBlock elements shares a scale. If an element is infinite or a NaN, the scale is a NaN. Then the
// whole block decodes to NaN, as a loss scaler expects, and leaves no residual.
//
// The sign and payload of a NaN result differ among CPUs, so no codec sends them.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define BRAID_FORMULA __host__ __device__ __forceinline__
#else
#define BRAID_FORMULA [[gnu::always_inline]] inline
#endif

namespace braid::formula {

// The integers that belong to a float or to a vector of floats, and the conversions of values among them; whoever
// has vectors adds a row (codec/lanes.h).
template <class Float>
struct Lane;
template <>
struct Lane<float> {
  using Bits = uint32_t;
  using Int = int32_t;
  BRAID_FORMULA static float to_float(int32_t value) { return static_cast<float>(value); }
  BRAID_FORMULA static int32_t to_int(float value) { return static_cast<int32_t>(value); }  // towards 0
};
template <class Float>
using BitsOf = typename Lane<Float>::Bits;
template <class Float>
using IntOf = typename Lane<Float>::Int;

template <class Float>
BRAID_FORMULA BitsOf<Float> bits_of(Float value) {
  return __builtin_bit_cast(BitsOf<Float>, value);
}
template <class Float = float>
BRAID_FORMULA Float float_of(BitsOf<Float> bits) {
  return __builtin_bit_cast(Float, bits);
}
// REQUIRES: both < 2^31: the CPUs compare signed lanes.
template <class Float>
BRAID_FORMULA auto below(BitsOf<Float> bits, uint32_t limit) {
  return (IntOf<Float>)bits < static_cast<int32_t>(limit);
}

constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr uint32_t kNanBits = 0x7fc00000u;

// The bits without the sign order like the magnitudes, NaNs above all: the largest of a block is theirs.
template <class Float>
BRAID_FORMULA BitsOf<Float> magnitude_bits(Float value) {
  return bits_of(value) & 0x7fffffffu;
}
template <class Float>
BRAID_FORMULA auto is_finite(Float value) {
  return below<Float>(magnitude_bits(value), kInfinityBits);
}

// What an element leaves behind when `decoded` has been sent for it.
template <class Float>
BRAID_FORMULA Float left_of(Float value, Float decoded) {
  return is_finite(decoded) ? value - decoded : Float{};
}

// A number in fewer bits: the code, in the lowest bits, and the float that the code stands for.
template <class Float>
struct Rounded {
  BitsOf<Float> code;
  Float value;
};

// ---- float16 and bfloat16: 2 bytes an element, rounded to nearest even. A finite number stays finite: what is
// too large becomes the largest. All NaNs become one.

// The value is right of finite numbers only.
template <class Float>
BRAID_FORMULA Rounded<Float> rounded_to_float16(Float value) {
  using Bits = BitsOf<Float>;
  constexpr uint32_t kLargest = 0x477fe000u;  // 65504
  const Bits magnitude = magnitude_bits(value);
  const Bits sign = bits_of(value) & 0x80000000u;
  const Bits held = below<Float>(magnitude, kLargest) ? magnitude : Bits{} + kLargest;
  const Bits raised = held + 0x0fffu + ((held >> 13) & 1u);
  // Below 2^-14: adding 0.5 leaves the rounded subnormal in the last bits.
  const Float shifted = float_of<Float>(held) + 0.5f;
  const auto is_subnormal = below<Float>(held, 0x38800000u);
  const Bits finite = is_subnormal ? bits_of(shifted) - 0x3f000000u : (raised >> 13) - (112u << 10);
  const Bits rounded = is_subnormal ? bits_of(shifted - 0.5f) : raised & ~0x1fffu;
  const Bits number = (below<Float>(magnitude, kInfinityBits) ? finite : Bits{} + 0x7c00u) | (sign >> 16);
  const Bits code = below<Float>(magnitude, kInfinityBits + 1u) ? number : Bits{} + 0x7e00u;
  return {code, float_of<Float>(rounded | sign)};
}
template <class Float>
BRAID_FORMULA Float float_of_float16_bits(BitsOf<Float> half) {
  using Bits = BitsOf<Float>;
  const Bits shifted = (half & 0x7fffu) << 13;
  // Zero or subnormal: let the subtraction normalise it.
  const Bits subnormal = bits_of(float_of<Float>(shifted + (113u << 23)) - 0x1p-14f);
  const Bits finite = below<Float>(shifted, 0x00800000u) ? subnormal : shifted + (112u << 23);
  const Bits special = below<Float>(shifted, 0x0f800001u) ? Bits{} + kInfinityBits : Bits{} + kNanBits;
  return float_of<Float>((below<Float>(shifted, 0x0f800000u) ? finite : special) | ((half & 0x8000u) << 16));
}

template <class Float>
BRAID_FORMULA Rounded<Float> rounded_to_bfloat16(Float value) {
  using Bits = BitsOf<Float>;
  constexpr uint32_t kLargest = 0x7f7f0000u;
  const Bits magnitude = magnitude_bits(value);
  const Bits sign = (bits_of(value) >> 16) & 0x8000u;
  const Bits held = below<Float>(magnitude, kLargest) ? magnitude : Bits{} + kLargest;
  const Bits finite = (held + 0x7fffu + ((held >> 16) & 1u)) >> 16;
  const Bits number = (below<Float>(magnitude, kInfinityBits) ? finite : Bits{} + 0x7f80u) | sign;
  const Bits code = below<Float>(magnitude, kInfinityBits + 1u) ? number : Bits{} + 0x7fc0u;
  return {code, float_of<Float>(code << 16)};
}
template <class Float>
BRAID_FORMULA Float float_of_bfloat16_bits(BitsOf<Float> half) {
  return float_of<Float>(half << 16);
}

BRAID_FORMULA uint16_t float16_of(float value) { return static_cast<uint16_t>(rounded_to_float16(value).code); }
BRAID_FORMULA float float_of_float16(uint16_t half) { return float_of_float16_bits<float>(half); }
BRAID_FORMULA uint16_t bfloat16_of(float value) { return static_cast<uint16_t>(rounded_to_bfloat16(value).code); }
BRAID_FORMULA float float_of_bfloat16(uint16_t half) { return float_of_bfloat16_bits<float>(half); }

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
template <class Float>
BRAID_FORMULA IntOf<Float> nearest(Float value) {
  const Float shifted = value + 12582912.0f;  // 1.5 * 2^23: an integer is left in the last bits
  return (IntOf<Float>)(bits_of(shifted) - 0x4b400000u);
}

// int8: codes -127..127. int4: codes -7..7, two to a byte: the low half has element e of the first half of a
// block, the high half element e + kBlock/2; each is the code + 8.
constexpr float kMostInt8 = 127.0f;
constexpr float kMostInt4 = 7.0f;

// REQUIRES for the codes below: a block whose scale is not a NaN.
template <class Float>
BRAID_FORMULA IntOf<Float> code_of(Float value, float inverse) {
  return nearest(value * inverse);
}
template <class Float = float>
BRAID_FORMULA Float value_of(IntOf<Float> code, float scale) {
  return Lane<Float>::to_float(code) * scale;
}

// ---- Stochastic rounding (QSGD, Alistarh et al. 2017, with the largest magnitude in place of the norm): 8 bits,
// unbiased, from random numbers that depend on the message's seed and the element's position alone.

// A bijection of 32 bits with good mixing (multiplications and shifts, after C. Wellons' lowbias32).
template <class Bits>
BRAID_FORMULA Bits mixed(Bits x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  x ^= x >> 16;
  return x;
}

// In [0, 1), a multiple of 2^-24.
template <class Float = float>
BRAID_FORMULA Float uniform(uint32_t seed, BitsOf<Float> position) {
  const BitsOf<Float> random = mixed(position + seed * 0x9e3779b9u) >> 8;
  return Lane<Float>::to_float((IntOf<Float>)random) * 0x1p-24f;
}

template <class Float>
BRAID_FORMULA IntOf<Float> stochastic_code_of(Float value, float inverse, Float dither) {
  using Int = IntOf<Float>;
  const Int floor = Lane<Float>::to_int(float_of<Float>(magnitude_bits(value)) * inverse + dither);  // below 129
  const Int code = (floor < 127) ? floor : Int{} + 127;
  return ((Int)bits_of(value) < 0) ? -code : code;
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
template <class Format, class Float>
BRAID_FORMULA Rounded<Float> rounded_to_float8(Float value) {
  using Bits = BitsOf<Float>;
  constexpr int kDropped = 23 - Format::kMantissa;
  constexpr uint32_t kOne = 1u << 23;  // of an exponent of float
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - Format::kBias) * kOne;
  constexpr uint32_t kRounder = kRebias + static_cast<uint32_t>(kDropped + 1) * kOne;
  constexpr uint32_t kLargest = (static_cast<uint32_t>(Format::kLargestCode) << kDropped) + kRebias;
  const Bits magnitude = magnitude_bits(value);
  const Bits sign = bits_of(value) & 0x80000000u;
  const Bits held = below<Float>(magnitude, kLargest) ? magnitude : Bits{} + kLargest;
  const Bits raised = held + ((1u << (kDropped - 1)) - 1u) + ((held >> kDropped) & 1u);
  // Subnormal in the format: adding this rounds to its last bit.
  const Float shifted = float_of<Float>(held) + float_of(kRounder);
  const auto is_subnormal = below<Float>(held, kRebias + kOne);
  const Bits code = is_subnormal ? bits_of(shifted) - kRounder : (raised >> kDropped) - (kRebias >> kDropped);
  const Bits rounded = is_subnormal ? bits_of(shifted - float_of(kRounder)) : raised & ~((1u << kDropped) - 1u);
  return {code | (sign >> 24), float_of<Float>(rounded | sign)};
}

// Codes above the largest, which no encoder makes, are numbers like the others.
template <class Format, class Float>
BRAID_FORMULA Float float_of_float8_bits(BitsOf<Float> code) {
  using Bits = BitsOf<Float>;
  constexpr int kDropped = 23 - Format::kMantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - Format::kBias) << 23;
  const Bits shifted = (code & 0x7fu) << kDropped;
  const Bits normal = shifted + kRebias;
  const Bits subnormal = bits_of(float_of<Float>(normal + (1u << 23)) - float_of(kRebias + (1u << 23)));
  return float_of<Float>((below<Float>(shifted, 1u << 23) ? subnormal : normal) | ((code & 0x80u) << 24));
}

template <class Format>
BRAID_FORMULA uint8_t float8_of(float value) {
  return static_cast<uint8_t>(rounded_to_float8<Format>(value).code);
}
template <class Format>
BRAID_FORMULA float float_of_float8(uint8_t code) {
  return float_of_float8_bits<Format, float>(code);
}

// ---- sign: one bit an element, 1 where it is negative (-0 too); the scale is the mean magnitude of the block,
// which leaves the least squared error (Seide et al. 2014; Karimireddy et al. 2019).
//
// A block is kSignRows rows of kSignLanes elements. The mean's sum: each lane adds its column from the first row
// on; then lane l takes what lane l + 16 has, then l + 8, 4, 2, 1. Places past the end count as 0.

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

template <class Float>
BRAID_FORMULA Float sent_of(Float value) {
  const BitsOf<Float> nan = BitsOf<Float>{} + kNanBits;  // as bits: a sum would be the processor's own NaN
  return float_of<Float>(below<Float>(magnitude_bits(value), kInfinityBits + 1u) ? bits_of(value) : nan);
}
// What an element leaves behind that is not sent.
template <class Float>
BRAID_FORMULA Float left_unsent(Float value) {
  return is_finite(value) ? value : Float{};
}

// random-k: of every `stretch` consecutive elements one is sent, the same on all ranks that share the seed. Where
// one that is not chosen is not finite, a NaN is sent in place of the chosen one.
BRAID_FORMULA uint32_t chosen_of(uint32_t seed, uint32_t stretch_index, uint32_t stretch_elements) {
  const uint64_t wide = static_cast<uint64_t>(mixed(stretch_index + seed * 0x9e3779b9u)) * stretch_elements;
  return static_cast<uint32_t>(wide >> 32);
}

}  // namespace braid::formula
