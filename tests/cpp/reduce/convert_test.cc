// SPDX-License-Identifier: Apache-2.0
// Conversions to and from float32, in every width this CPU has, beside the reference's numbers.
#include "reduce/convert.h"

#include <gtest/gtest.h>

#include "base/instruction_set.h"
#include "reduce/operands.h"
#include "reduce/reference.h"

namespace braid::testing {
namespace {

constexpr DType kFloats[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr float kScale = 1.0f / 3;

double number_at(DType dtype, const std::byte* at) {
  uint16_t bits;
  double wide;
  float single;
  switch (dtype) {
    case DType::kFloat64: std::memcpy(&wide, at, sizeof wide); return wide;
    case DType::kFloat32: std::memcpy(&single, at, sizeof single); return single;
    default: std::memcpy(&bits, at, sizeof bits); return decode_narrow(narrow_format(dtype), bits);
  }
}

::testing::AssertionResult same(float got, float expected) {
  const bool equal =
      std::isnan(expected) ? std::isnan(got) : std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(expected);
  return equal ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << got << ", not " << expected;
}

class Convert : public ::testing::Test {
 protected:
  void TearDown() override { set_instruction_set(before_); }
  std::string_view before_ = instruction_set_name();
};

TEST_F(Convert, KnowsTheFloatsOfTwoBytesAndMore) {
  int known = 0;
  for (int i = 0; i < kDTypeCount; ++i) known += is_convertible(static_cast<DType>(i)) ? 1 : 0;
  EXPECT_EQ(known, 4);
  for (const DType dtype : kFloats) EXPECT_TRUE(is_convertible(dtype));
}

// At odd addresses, and of all lengths about a block; the memory behind is left alone.
TEST_F(Convert, WidensEveryDtypeInEveryWidth) {
  for (const auto set : instruction_sets()) {
    ASSERT_TRUE(set_instruction_set(set));
    for (const DType dtype : kFloats) {
      std::mt19937_64 random(1);
      for (size_t count = 0; count < 150; ++count) {
        std::vector<std::byte> memory(count * size_of(dtype) + 1);
        std::byte* const from = memory.data() + 1;
        fill_randomly(dtype, from, count, random);
        std::vector<float> stored(count + 1, 7.0f), added(count + 1, 0.3f);
        to_floats(dtype, from, count, kScale, stored.data());
        add_floats(dtype, from, count, kScale, added.data());
        for (size_t i = 0; i < count; ++i) {
          const float value = static_cast<float>(number_at(dtype, from + i * size_of(dtype))) * kScale;
          ASSERT_TRUE(same(stored[i], value)) << set << " " << name_of(dtype) << " " << i << " of " << count;
          ASSERT_TRUE(same(added[i], 0.3f + value)) << set << " " << name_of(dtype) << " " << i << " of " << count;
        }
        ASSERT_EQ(stored[count], 7.0f);
        ASSERT_EQ(added[count], 0.3f);
      }
    }
  }
}

TEST_F(Convert, RoundsToEveryDtypeInEveryWidth) {
  for (const auto set : instruction_sets()) {
    ASSERT_TRUE(set_instruction_set(set));
    for (const DType dtype : kFloats) {
      std::mt19937_64 random(2);
      for (size_t count = 0; count < 150; ++count) {
        std::vector<float> values(count);
        fill_randomly(DType::kFloat32, reinterpret_cast<std::byte*>(values.data()), count, random);
        for (size_t i = 0; i < count; i += 2) {  // where float16 rounds, is subnormal, or overflows
          int exponent;
          values[i] = std::ldexp(std::frexp(values[i], &exponent), static_cast<int>(i % 48) - 28);
        }
        std::vector<std::byte> memory(count * size_of(dtype) + 2, std::byte{0x55});
        std::byte* const to = memory.data() + 1;
        from_floats(dtype, values.data(), count, kScale, to);
        for (size_t i = 0; i < count; ++i) {
          const float value = values[i] * kScale;
          const double got = number_at(dtype, to + i * size_of(dtype));
          double expected = value;
          if (size_of(dtype) == 2 && !std::isnan(value)) {
            const NarrowFormat format = narrow_format(dtype);
            expected = decode_narrow(format, encode_narrow(format, value));
          }
          ASSERT_TRUE(std::isnan(expected) ? std::isnan(got)
                                           : std::bit_cast<uint64_t>(got) == std::bit_cast<uint64_t>(expected))
              << set << " " << name_of(dtype) << " " << value << " became " << got << ", not " << expected;
        }
        ASSERT_EQ(memory[0], std::byte{0x55});
        ASSERT_EQ(memory.back(), std::byte{0x55});
      }
    }
  }
}

// The values a factor of 1 must not change.
TEST_F(Convert, EveryHalfComesBackInEveryWidth) {
  std::vector<uint16_t> halves(65536), back(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> values(halves.size());
  for (const auto set : instruction_sets()) {
    ASSERT_TRUE(set_instruction_set(set));
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      to_floats(dtype, reinterpret_cast<const std::byte*>(halves.data()), halves.size(), 1, values.data());
      from_floats(dtype, values.data(), values.size(), 1, reinterpret_cast<std::byte*>(back.data()));
      const uint16_t quiet = dtype == DType::kFloat16 ? 0x0200 : 0x0040;
      for (size_t i = 0; i < halves.size(); ++i) {
        ASSERT_EQ(back[i], std::isnan(values[i]) ? halves[i] | quiet : halves[i]) << set << " " << name_of(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace braid::testing
