// SPDX-License-Identifier: Apache-2.0
#include "base/half.h"

#include <gtest/gtest.h>

#include <random>

#include "reduce/reference.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace braid::testing {
namespace {

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

TEST(Half, EveryFloat16ComesThroughFloatUnchanged) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = float_from_float16(half);
    const double expected = decode_narrow(kFloat16Format, bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_EQ(float16_from_float(value), half | 0x0200);  // quiet from then on
    } else {
      ASSERT_EQ(bits_of(value), bits_of(static_cast<float>(expected)));
      ASSERT_EQ(float16_from_float(value), half);
    }
  }
}

TEST(Half, EveryBFloat16ComesThroughFloatUnchanged) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = float_from_bfloat16(half);
    ASSERT_EQ(bits_of(value), bits << 16);
    const bool nan = std::isnan(decode_narrow(kBFloat16Format, bits));
    ASSERT_EQ(std::isnan(value), nan);
    ASSERT_EQ(bfloat16_from_float(value), nan ? half | 0x0040 : half);
  }
}

// Half way between two neighbours, and the floats next to that.
TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    for (const NarrowFormat format : {kFloat16Format, kBFloat16Format}) {
      const bool float16 = format.mantissa == 10;
      if (float16 && bits >= 0x7bff) continue;
      const double low = decode_narrow(format, bits);
      double high = decode_narrow(format, bits + 1);
      if (std::isinf(high)) high = std::ldexp(1.0, 128);
      const auto middle = static_cast<float>((low + high) / 2);
      const auto rounded = [&](float value) {
        return float16 ? float16_from_float(value) : bfloat16_from_float(value);
      };
      ASSERT_EQ(rounded(middle), bits + (bits & 1));
      ASSERT_EQ(rounded(-middle), 0x8000u + bits + (bits & 1));
      ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), bits);
      ASSERT_EQ(rounded(std::nextafter(middle, INFINITY)), bits + 1);
    }
  }
}

TEST(Half, Float16OverflowsFrom65520) {
  EXPECT_EQ(float16_from_float(65504.0f), 0x7bff);
  EXPECT_EQ(float16_from_float(65519.996f), 0x7bff);
  EXPECT_EQ(float16_from_float(65520.0f), 0x7c00);
  EXPECT_EQ(float16_from_float(65536.0f), 0x7c00);
  EXPECT_EQ(float16_from_float(-3e38f), 0xfc00);
  EXPECT_EQ(float16_from_float(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float16_from_float(-0.0f), 0x8000);
}

// NaNs whose payload is all in the bits that are cut off stay NaNs.
TEST(Half, NanWithALowPayloadStaysNan) {
  EXPECT_EQ(float16_from_float(std::bit_cast<float>(0x7f800001u)), 0x7e00);
  EXPECT_EQ(float16_from_float(std::bit_cast<float>(0xff800001u)), 0xfe00);
  EXPECT_EQ(bfloat16_from_float(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
  EXPECT_EQ(bfloat16_from_float(std::bit_cast<float>(0xffffffffu)), 0xffff);
}

TEST(Half, RandomFloatsRoundAsTheReference) {
  std::mt19937 random(1);
  for (int i = 0; i < 400000; ++i) {
    auto bits = static_cast<uint32_t>(random());
    if (i % 2 == 0) bits = (bits & 0x80ffffffu) | ((0x32u + random() % 0x18) << 24);  // where float16 lives
    const auto value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(float16_from_float(value), encode_narrow(kFloat16Format, value)) << value;
    ASSERT_EQ(bfloat16_from_float(value), encode_narrow(kBFloat16Format, value)) << value;
  }
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) uint16_t hardware_float16(float value) {
  return static_cast<uint16_t>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT), 0));
}
__attribute__((target("avx,f16c"))) float hardware_float(uint16_t half) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

TEST(Half, HasTheBitsOfTheHardware) {
  if (!__builtin_cpu_supports("f16c")) GTEST_SKIP() << "this CPU has no F16C";
  for (uint32_t half = 0; half < 65536; ++half) {
    ASSERT_EQ(bits_of(float_from_float16(static_cast<uint16_t>(half))),
              bits_of(hardware_float(static_cast<uint16_t>(half))));
  }
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 4093) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    ASSERT_EQ(float16_from_float(value), hardware_float16(value)) << value;
  }
}

TEST(Half, FlushingSubnormalsChangesNothing) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040u);  // flush to zero, subnormals are zero
  bool same = true;
  for (uint32_t half = 0; half < 0x0400; ++half) {
    const float value = float_from_float16(static_cast<uint16_t>(half));
    same = same && float16_from_float(value) == half;
  }
  _mm_setcsr(before);
  EXPECT_TRUE(same);
}
#endif

}  // namespace
}  // namespace braid::testing
