// SPDX-License-Identifier: Apache-2.0
// What the tests of codecs encode, and with which codecs.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "codec/codec.h"

namespace braid::testing {

inline Codec codec_of(const std::string& text) { return codec_from_text(text).value(); }

inline const std::vector<std::string>& codec_texts() {
  static const std::vector<std::string> all = {"fp16",       "bf16",       "fp8_e4m3",      "fp8_e5m2",
                                               "int8",       "int4",       "qsgd",          "sign",
                                               "top_k:0.01", "top_k:0.25", "random_k:0.01", "random_k:0.25"};
  return all;
}
inline std::vector<std::string> dense_codec_texts() { return {codec_texts().begin(), codec_texts().begin() + 8}; }

// For names of tests.
inline std::string identifier(std::string text) {
  for (char& letter : text) letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
  return text;
}

enum class Input { kBell, kWide, kAwkward, kEqual, kHuge, kTiny, kOddOnes };
inline constexpr Input kInputs[] = {Input::kBell, Input::kWide, Input::kAwkward, Input::kEqual,
                                    Input::kHuge, Input::kTiny, Input::kOddOnes};

inline std::vector<float> numbers(Input input, size_t n, uint32_t seed) {
  constexpr float kAwkward[] = {0.0f,
                                -0.0f,
                                1.0f,
                                -1.0f,
                                std::numeric_limits<float>::denorm_min(),
                                -0x1.fffffcp-127f,
                                std::numeric_limits<float>::min(),
                                std::numeric_limits<float>::max(),
                                -std::numeric_limits<float>::max(),
                                65504.0f,
                                65519.9f,
                                65520.0f,
                                -65536.0f,
                                0x1p-24f,
                                0x1p-25f,
                                0x1.8p-25f,
                                0x1.ffcp-15f,
                                448.0f,
                                464.0f,
                                57344.0f};
  std::mt19937 random(seed);
  std::normal_distribution<float> bell;
  const auto bits = [&] { return static_cast<uint32_t>(random()); };
  const auto of_bits = [](uint32_t of) { return std::bit_cast<float>(of); };
  std::vector<float> values(n);
  for (float& value : values) {
    switch (input) {
      case Input::kBell: value = bell(random); break;
      case Input::kWide: value = std::ldexp(bell(random), static_cast<int>(bits() % 60) - 30); break;
      case Input::kAwkward: value = kAwkward[bits() % std::size(kAwkward)]; break;
      case Input::kEqual: value = bits() % 2 == 0 ? 0.75f : -0.75f; break;
      case Input::kHuge: value = of_bits((0x7f7fffffu - bits() % 4) | (bits() << 31)); break;
      case Input::kTiny: value = of_bits((bits() % 0x1000000u) | (bits() << 31)); break;
      case Input::kOddOnes: value = bits() % 512 == 0 ? of_bits(bits() | 0x7f800000u) : bell(random);
    }
  }
  return values;
}

inline std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

inline std::vector<std::byte> encoded(const Codec& codec, const std::vector<float>& values, float scale = 1,
                                      std::vector<float>* residual = nullptr, uint32_t seed = 0) {
  std::vector<std::byte> message(encoded_bytes(codec, values.size()), std::byte{0xee});
  encode(codec, values.data(), values.size(), scale, residual == nullptr ? nullptr : residual->data(), seed,
         message);
  return message;
}
// REQUIRES: a good message.
inline std::vector<float> decoded(const Codec& codec, const std::vector<std::byte>& message, size_t n) {
  std::vector<float> values(n, 1e30f);
  if (!decode(codec, message, values.data(), n).ok()) values.clear();
  return values;
}

}  // namespace braid::testing
