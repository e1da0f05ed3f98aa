// SPDX-License-Identifier: Apache-2.0
// The formulas of the small floats against doubles.
#include <gtest/gtest.h>

#include "codec/formulas.h"
#include "codec/inputs.h"
#include "reduce/reference.h"

namespace braid::testing {
namespace {

constexpr Input kFinite[] = {Input::kBell, Input::kWide, Input::kAwkward, Input::kHuge, Input::kTiny};

// What `value` is rounded to when numbers of the format may not become infinite.
uint16_t held(NarrowFormat format, double largest, float value) {
  return encode_narrow(format, std::clamp<double>(value, -largest, largest));
}

TEST(Rounding, Float16AndBFloat16) {
  const double largest_bfloat16 = decode_narrow(kBFloat16Format, 0x7f7f);
  for (const Input input : kFinite) {
    for (const float value : numbers(input, 20000, 1)) {
      ASSERT_EQ(formula::float16_of(value), held(kFloat16Format, 65504, value)) << value;
      ASSERT_EQ(formula::bfloat16_of(value), held(kBFloat16Format, largest_bfloat16, value)) << value;
    }
  }
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const auto expect = [&](NarrowFormat format, float value) {
      const double exact = decode_narrow(format, bits);
      if (std::isnan(exact)) return std::isnan(value);
      return std::bit_cast<uint32_t>(static_cast<float>(exact)) == std::bit_cast<uint32_t>(value);
    };
    ASSERT_TRUE(expect(kFloat16Format, formula::float_of_float16(half))) << bits;
    ASSERT_TRUE(expect(kBFloat16Format, formula::float_of_bfloat16(half))) << bits;
  }
}

template <class Format>
void check_float8(NarrowFormat format) {
  for (const Input input : kFinite) {
    for (const float value : numbers(input, 20000, 2)) {
      ASSERT_EQ(formula::float8_of<Format>(value), held(format, Format::kLargest, value)) << value;
    }
  }
  for (uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7f) > static_cast<uint32_t>(Format::kLargestCode)) continue;
    const auto exact = static_cast<float>(decode_narrow(format, code));
    ASSERT_EQ(std::bit_cast<uint32_t>(formula::float_of_float8<Format>(static_cast<uint8_t>(code))),
              std::bit_cast<uint32_t>(exact));
  }
}
TEST(Rounding, Float8E4M3) { check_float8<formula::E4M3>(kFloat8E4M3FnFormat); }
TEST(Rounding, Float8E5M2) { check_float8<formula::E5M2>(kFloat8E5M2Format); }

TEST(Rounding, NumbersStayFiniteAndNansBecomeOne) {
  const float largest = std::numeric_limits<float>::max(), infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(formula::float16_of(largest), 0x7bff);
  EXPECT_EQ(formula::float16_of(-65520.0f), 0xfbff);
  EXPECT_EQ(formula::float16_of(-infinity), 0xfc00);
  EXPECT_EQ(formula::bfloat16_of(-largest), 0xff7f);
  EXPECT_EQ(formula::bfloat16_of(infinity), 0x7f80);
  for (const uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu}) {
    EXPECT_EQ(formula::float16_of(std::bit_cast<float>(nan)), 0x7e00);
    EXPECT_EQ(formula::bfloat16_of(std::bit_cast<float>(nan)), 0x7fc0);
    EXPECT_EQ(std::bit_cast<uint32_t>(formula::sent_of(std::bit_cast<float>(nan))), 0x7fc00000u);
  }
}

// The value that comes with a code is the one the code is decoded to.
TEST(Rounding, ValuesBelongToTheirCodes) {
  for (const Input input : kFinite) {
    for (const float value : numbers(input, 20000, 3)) {
      const auto half = formula::rounded_to_float16(value);
      const auto byte = formula::rounded_to_float8<formula::E5M2>(value);
      ASSERT_EQ(bits_of({half.value}), bits_of({formula::float_of_float16(static_cast<uint16_t>(half.code))}));
      ASSERT_EQ(bits_of({byte.value}),
                bits_of({formula::float_of_float8<formula::E5M2>(static_cast<uint8_t>(byte.code))}));
    }
  }
}

}  // namespace
}  // namespace braid::testing
