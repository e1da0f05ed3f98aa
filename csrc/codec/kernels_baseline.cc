// SPDX-License-Identifier: Apache-2.0
// The formulas, element by element.
#include <cstring>

#include "codec/formulas.h"
#include "codec/kernels.h"

namespace braid {
namespace {

using namespace formula;

template <class T>
void put_at(std::byte* at, size_t index, T value) {
  std::memcpy(at + index * sizeof(T), &value, sizeof(T));
}
template <class T>
T get_at(const std::byte* at, size_t index) {
  T value;
  std::memcpy(&value, at + index * sizeof(T), sizeof(T));
  return value;
}

struct Store {
  static void to(float* out, float value) { *out = value; }
};
struct Add {
  static void to(float* out, float value) { *out += value; }
};

// ---- 16-bit floats

template <uint16_t (*Narrow)(float), float (*Widen)(uint16_t)>
void encode_half(const float* values, size_t n, uint32_t, uint32_t, std::byte*, std::byte* data, float* left) {
  for (size_t i = 0; i < n; ++i) {
    const float value = values[i];
    const uint16_t half = Narrow(value);
    put_at(data, i, half);
    if (left != nullptr) left[i] = left_of(value, Widen(half));
  }
}

template <float (*Widen)(uint16_t), class Into>
void decode_half(const std::byte*, const std::byte* data, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) Into::to(out + i, Widen(get_at<uint16_t>(data, i)));
}

// ---- a byte an element, with a scale. A Code: kMost, code(value, inverse, position, seed), value(code, scale)

struct Int8 {
  static constexpr float kMost = kMostInt8;
  static uint8_t code(float value, float inverse, uint32_t, uint32_t) {
    return static_cast<uint8_t>(code_of(value, inverse));
  }
  static float value(uint8_t code, float scale) { return value_of(static_cast<int8_t>(code), scale); }
};

struct Qsgd : Int8 {
  static uint8_t code(float value, float inverse, uint32_t position, uint32_t seed) {
    return static_cast<uint8_t>(stochastic_code_of(value, inverse, uniform(seed, position)));
  }
};

template <class Format>
struct Float8 {
  static constexpr float kMost = Format::kLargest;
  static uint8_t code(float value, float inverse, uint32_t, uint32_t) {
    return float8_of<Format>(value * inverse);
  }
  static float value(uint8_t code, float scale) { return float_of_float8<Format>(code) * scale; }
};

Scale scale_of_block(const float* values, size_t n, float most) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i)
    largest = magnitude_bits(values[i]) > largest ? magnitude_bits(values[i]) : largest;
  return scale_of(largest, most);
}

template <class Code>
void encode_bytes(const float* values, size_t n, uint32_t position, uint32_t seed, std::byte* scales,
                  std::byte* data, float* left) {
  for (size_t begin = 0, block = 0; begin < n; begin += kBlock, ++block) {
    const size_t count = n - begin < kBlock ? n - begin : kBlock;
    const Scale scale = scale_of_block(values + begin, count, Code::kMost);
    put_at(scales, block, scale.scale);
    for (size_t i = begin; i < begin + kBlock; ++i) {
      uint8_t code = 0;
      if (i < begin + count) {
        const float value = values[i];
        if (scale.inverse != 0) code = Code::code(value, scale.inverse, position + static_cast<uint32_t>(i), seed);
        if (left != nullptr) left[i] = left_of(value, Code::value(code, scale.scale));
      }
      put_at(data, i, code);
    }
  }
}

template <class Code, class Into>
void decode_bytes(const std::byte* scales, const std::byte* data, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    Into::to(out + i, Code::value(get_at<uint8_t>(data, i), get_at<float>(scales, i / kBlock)));
  }
}

// ---- int4

constexpr size_t kHalf = kBlock / 2;

void encode_int4(const float* values, size_t n, uint32_t, uint32_t, std::byte* scales, std::byte* data,
                 float* left) {
  for (size_t begin = 0, block = 0; begin < n; begin += kBlock, ++block) {
    const size_t count = n - begin < kBlock ? n - begin : kBlock;
    const Scale scale = scale_of_block(values + begin, count, kMostInt4);
    put_at(scales, block, scale.scale);
    uint8_t codes[kBlock];
    for (size_t i = 0; i < kBlock; ++i) {
      int code = 0;
      if (i < count) {
        const float value = values[begin + i];
        if (scale.inverse != 0) code = code_of(value, scale.inverse);
        if (left != nullptr) left[begin + i] = left_of(value, value_of(code, scale.scale));
      }
      codes[i] = static_cast<uint8_t>(code + 8);
    }
    for (size_t i = 0; i < kHalf; ++i) {
      put_at(data, block * kHalf + i, static_cast<uint8_t>(codes[i] | codes[i + kHalf] << 4));
    }
  }
}

template <class Into>
void decode_int4(const std::byte* scales, const std::byte* data, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const size_t block = i / kBlock, inside = i % kBlock;
    const auto both = get_at<uint8_t>(data, block * kHalf + inside % kHalf);
    const int code = (inside < kHalf ? both & 15 : both >> 4) - 8;
    Into::to(out + i, value_of(code, get_at<float>(scales, block)));
  }
}

// ---- sign

float sum_of_magnitudes(const float* values, size_t n) {
  float lanes[kSignLanes] = {};
  for (size_t i = 0; i < n; ++i) lanes[i % kSignLanes] += float_of(magnitude_bits(values[i]));
  for (int step = kSignLanes / 2; step > 0; step /= 2) {
    for (int lane = 0; lane < step; ++lane) lanes[lane] += lanes[lane + step];
  }
  return lanes[0];
}

void encode_sign(const float* values, size_t n, uint32_t, uint32_t, std::byte* scales, std::byte* data,
                 float* left) {
  for (size_t begin = 0, block = 0; begin < n; begin += kSignBlock, ++block) {
    const size_t count = n - begin < kSignBlock ? n - begin : kSignBlock;
    const float scale = sign_scale_of(sum_of_magnitudes(values + begin, count), static_cast<int>(count));
    put_at(scales, block, scale);
    for (size_t byte = 0; byte < kSignBlock / 8; ++byte) {
      uint8_t bits = 0;
      for (size_t bit = 0; bit < 8 && byte * 8 + bit < count; ++bit) {
        const size_t i = begin + byte * 8 + bit;
        const float value = values[i];
        const bool negative = bits_of(value) >> 31 != 0 && is_finite(scale);
        bits = static_cast<uint8_t>(bits | negative << bit);
        if (left != nullptr) left[i] = left_of(value, signed_scale(scale, negative));
      }
      put_at(data, block * (kSignBlock / 8) + byte, bits);
    }
  }
}

template <class Into>
void decode_sign(const std::byte* scales, const std::byte* data, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const bool negative = (get_at<uint8_t>(data, i / 8) >> (i % 8) & 1) != 0;
    Into::to(out + i, signed_scale(get_at<float>(scales, i / kSignBlock), negative));
  }
}

template <uint16_t (*Narrow)(float), float (*Widen)(uint16_t)>
constexpr DenseKernels kHalfKernels{encode_half<Narrow, Widen>, decode_half<Widen, Store>,
                                    decode_half<Widen, Add>};
template <class Code>
constexpr DenseKernels kByteKernels{encode_bytes<Code>, decode_bytes<Code, Store>, decode_bytes<Code, Add>};

}  // namespace

const CodecKernels kBaselineCodecKernels = {{
    kHalfKernels<float16_of, float_of_float16>,
    kHalfKernels<bfloat16_of, float_of_bfloat16>,
    kByteKernels<Float8<E4M3>>,
    kByteKernels<Float8<E5M2>>,
    kByteKernels<Int8>,
    {encode_int4, decode_int4<Store>, decode_int4<Add>},
    kByteKernels<Qsgd>,
    {encode_sign, decode_sign<Store>, decode_sign<Add>},
    {},
    {},
}};

}  // namespace braid
