// SPDX-License-Identifier: Apache-2.0
// The 8-bit floats: small enough to try every pair of numbers, in every width, against doubles.
#include <gtest/gtest.h>

#include <string>

#include "reduce/operands.h"
#include "reduce/reference.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace braid::testing {
namespace {

using Numbers = std::vector<uint8_t>;

class Float8 : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { ASSERT_TRUE(set_instruction_set(GetParam())); }
  void TearDown() override { set_instruction_set(before_); }

  static Numbers reduced(DType dtype, ReduceOp op, const std::vector<Numbers>& sources, int divisor = 1) {
    std::vector<const std::byte*> pointers;
    for (const Numbers& source : sources) pointers.push_back(reinterpret_cast<const std::byte*>(source.data()));
    Numbers target(sources[0].size());
    reduce(dtype, op, reinterpret_cast<std::byte*>(target.data()), pointers, target.size(), divisor);
    return target;
  }

  std::string_view before_ = instruction_set_name();
};

// No sum or product of two is rounded by float before it is rounded to 8 bits, so the reference rounds just once.
TEST_P(Float8, EveryPairOfNumbers) {
  Numbers a(65536), b(65536);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<uint8_t>(i >> 8);
    b[i] = static_cast<uint8_t>(i);
  }
  for (const DType dtype : {DType::kFloat8E4M3Fn, DType::kFloat8E5M2}) {
    const NarrowFormat format = narrow_format(dtype);
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
      const Numbers result = reduced(dtype, op, {a, b}, 2);
      for (size_t i = 0; i < a.size(); ++i) {
        double exact = combine_floats(op, decode_narrow(format, a[i]), decode_narrow(format, b[i]));
        if (op == ReduceOp::kAvg) exact /= 2;
        ASSERT_EQ(result[i], encode_narrow(format, exact))
            << name_of(op) << " of " << name_of(dtype) << " " << int{a[i]} << " and " << int{b[i]};
      }
    }
  }
}

TEST_P(Float8, ASingleSourceComesThroughUnchanged) {
  Numbers all(256);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
  Numbers expected = all;
  expected[0xff] = 0x7f;  // one NaN
  EXPECT_EQ(reduced(DType::kFloat8E4M3Fn, ReduceOp::kSum, {all}), expected);
  for (const size_t nan : {0x7d, 0x7e, 0xfd, 0xfe}) expected[nan] = 0x7f;
  EXPECT_EQ(reduced(DType::kFloat8E5M2, ReduceOp::kSum, {all}), expected);
}

TEST_P(Float8, OverflowSaturatesWhereThereIsNoInfinity) {
  // 448 + 448, -448 - 448, 448 + 16 (half way to what would be 480), 448 + NaN
  EXPECT_EQ(reduced(DType::kFloat8E4M3Fn, ReduceOp::kSum, {{0x7e, 0xfe, 0x7e, 0x7e}, {0x7e, 0xfe, 0x58, 0xff}}),
            (Numbers{0x7e, 0xfe, 0x7e, 0x7f}));
  // The product of fifteen times 448 is infinite even in float32.
  EXPECT_EQ(reduced(DType::kFloat8E4M3Fn, ReduceOp::kProduct, std::vector<Numbers>(15, {0x7e, 0xfe})),
            (Numbers{0x7e, 0xfe}));
  // 57344 + 57344; 57344 + 4096 is half way to 65536 and goes there; 57344 + 3584 does not; inf - inf
  EXPECT_EQ(reduced(DType::kFloat8E5M2, ReduceOp::kSum, {{0x7b, 0x7b, 0x7b, 0x7c}, {0x7b, 0x6c, 0x6b, 0xfc}}),
            (Numbers{0x7c, 0x7c, 0x7b, 0x7f}));
}

TEST_P(Float8, RoundsOnceForAllSources) {
  // 16 + 1 is half way between 16 and 18: rounding at each step would stay at 16 for ever.
  const Numbers sixteen(37, 0x58), one(37, 0x38), twenty(37, 0x5a);
  EXPECT_EQ(reduced(DType::kFloat8E4M3Fn, ReduceOp::kSum, {sixteen, one, one, one, one}), twenty);
  // The sum of two times 448 is no float8_e4m3fn, but their average is.
  const Numbers largest(37, 0x7e);
  EXPECT_EQ(reduced(DType::kFloat8E4M3Fn, ReduceOp::kAvg, {largest, largest}, 2), largest);
}

#if defined(__x86_64__)
// torch.set_flush_denormal must not make subnormals vanish.
TEST_P(Float8, SubnormalsSurviveFlushing) {
  const Numbers small = {0, 1, 2, 3, 4, 5, 6, 7, 0x81, 0x82, 0x83}, zero(small.size());
  const unsigned before = _mm_getcsr();
  for (const DType dtype : {DType::kFloat8E4M3Fn, DType::kFloat8E5M2}) {
    _mm_setcsr(before | 0x8040u);
    const Numbers result = reduced(dtype, ReduceOp::kSum, {small, zero});
    _mm_setcsr(before);
    EXPECT_EQ(result, small) << name_of(dtype);
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(All, Float8, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& set) { return std::string(set.param); });

}  // namespace
}  // namespace braid::testing
