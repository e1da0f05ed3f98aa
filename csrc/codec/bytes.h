// SPDX-License-Identifier: Apache-2.0
// The codecs with a scale: one byte or half a byte per element. Included once by each kernels_<instruction
// set>.cc; base/vectors.h has the rules for such files.
#pragma once

#include "codec/tiles.h"

namespace braid {
namespace {

// A Code defines: kMost, the largest code; rounded(values, inverse, positions, seed), the code in the low byte;
// value(code), its value without the scale; kSigned, whether the bytes in memory are signed codes.

struct Int8 {
  static constexpr bool kSigned = true;
  static constexpr float kMost = kMostInt8;
  static Rounded<Floats> rounded(Floats value, float inverse, Bits, uint32_t) {
    const Ints code = code_of(value, inverse);
    return {(Bits)code, Lane<Floats>::to_float(code)};
  }
  static Floats value(Ints code) { return Lane<Floats>::to_float(code); }
};

struct Qsgd : Int8 {
  static Rounded<Floats> rounded(Floats value, float inverse, Bits position, uint32_t seed) {
    const Ints code = stochastic_code_of(value, inverse, uniform<Floats>(seed, position));
    return {(Bits)code, Lane<Floats>::to_float(code)};
  }
};

template <class Format>
struct Float8 {
  static constexpr bool kSigned = false;
  static constexpr float kMost = Format::kLargest;
  static Rounded<Floats> rounded(Floats value, float inverse, Bits, uint32_t) {
    return rounded_to_float8<Format>(value * inverse);
  }
  static Floats value(Ints code) { return float_of_float8_bits<Format, Floats>((Bits)code); }
};

// The elements of a block, and its scale.
struct Block {
  alignas(BRAID_VECTOR_BYTES) float values[kBlock];
  Scale scale;
};
void begin_block(const Terms& terms, float most, Block& block) {
  Ints largest[2] = {};  // two, so that one need not wait for the other
  for (size_t i = 0; i < kBlock; i += 2 * kStep) {
    for (size_t j = 0; j < 2; ++j) {
      const Floats value = load_terms(terms, i + j * kStep);
      store_floats(block.values + i + j * kStep, value);
      const auto magnitude = (Ints)magnitude_bits(value);
      largest[j] = (magnitude > largest[j]) ? magnitude : largest[j];
    }
  }
  block.scale = scale_of(largest_lane((largest[1] > largest[0]) ? largest[1] : largest[0]), most);
}

// For a block whose codes are all 0: its elements are too small, or some are not finite.
void leave_all(const Block& block, float* left) {
  if (left == nullptr) return;
  for (size_t i = 0; i < kBlock; i += kStep) {
    store_floats(left + i, is_finite(block.scale.scale) ? load_floats(block.values + i) : Floats{});
  }
}

template <class Code>
struct ByteBlock {
  static constexpr size_t kElements = kBlock;

  static void encode(const Terms& terms, size_t, uint32_t position, uint32_t seed, size_t index, std::byte* scales,
                     std::byte* data, float* left) {
    Block block;
    begin_block(terms, Code::kMost, block);
    const Scale scale = block.scale;
    __builtin_memcpy(scales + index * sizeof(float), &scale.scale, sizeof(float));
    std::byte* codes = data + index * kBlock;
    if (scale.inverse == 0) {
      __builtin_memset(codes, 0, kBlock);
      return leave_all(block, left);
    }
    for (size_t i = 0; i < kBlock; i += kStep) {
      const Floats value = load_floats(block.values + i);
      const Bits positions = lane_numbers() + position + static_cast<uint32_t>(i);
      const Rounded<Floats> code = Code::rounded(value, scale.inverse, positions, seed);
      store_bytes(codes + i, code.code);
      // With a finite scale all decoded elements are finite.
      if (left != nullptr) store_floats(left + i, value - code.value * scale.scale);
    }
  }

  template <class Into>
  static void decode(size_t index, const std::byte* scales, const std::byte* data, float* out) {
    float scale;
    __builtin_memcpy(&scale, scales + index * sizeof(float), sizeof(float));
    const std::byte* codes = data + index * kBlock;
    for (size_t i = 0; i < kBlock; i += kStep) {
      Into::to(out + i, Code::value(load_bytes<Code::kSigned>(codes + i)) * scale);
    }
  }
};

struct Int4Block {
  static constexpr size_t kElements = kBlock;
  static constexpr size_t kHalf = kBlock / 2;

  static void encode(const Terms& terms, size_t, uint32_t, uint32_t, size_t index, std::byte* scales,
                     std::byte* data, float* left) {
    Block block;
    begin_block(terms, kMostInt4, block);
    const Scale scale = block.scale;
    __builtin_memcpy(scales + index * sizeof(float), &scale.scale, sizeof(float));
    std::byte* codes = data + index * kHalf;
    if (scale.inverse == 0) {
      __builtin_memset(codes, 0x88, kHalf);
      return leave_all(block, left);
    }
    for (size_t i = 0; i < kHalf; i += kStep) {
      const Floats low = load_floats(block.values + i), high = load_floats(block.values + kHalf + i);
      const Ints low_code = code_of(low, scale.inverse), high_code = code_of(high, scale.inverse);
      store_bytes(codes + i, (Bits)(low_code + 8) | ((Bits)(high_code + 8) << 4));
      if (left != nullptr) {
        store_floats(left + i, low - value_of<Floats>(low_code, scale.scale));
        store_floats(left + kHalf + i, high - value_of<Floats>(high_code, scale.scale));
      }
    }
  }

  template <class Into>
  static void decode(size_t index, const std::byte* scales, const std::byte* data, float* out) {
    float scale;
    __builtin_memcpy(&scale, scales + index * sizeof(float), sizeof(float));
    const std::byte* codes = data + index * kHalf;
    // One half after the other, because memory is written fastest in order.
    for (size_t i = 0; i < kHalf; i += kStep) {
      Into::to(out + i, value_of<Floats>((load_bytes<false>(codes + i) & 15) - 8, scale));
    }
    for (size_t i = 0; i < kHalf; i += kStep) {
      Into::to(out + kHalf + i, value_of<Floats>((load_bytes<false>(codes + i) >> 4) - 8, scale));
    }
  }
};

}  // namespace
}  // namespace braid
