// SPDX-License-Identifier: Apache-2.0
// The promises of reduce.h with numbers one can check in the head, in every width.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>

#include "base/half.h"
#include "reduce/operands.h"

namespace braid::testing {
namespace {

template <class T>
using Sources = std::vector<std::vector<T>>;

template <class T>
std::vector<T> reduced(DType dtype, ReduceOp op, const Sources<T>& sources, int divisor = 1) {
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) pointers.push_back(reinterpret_cast<const std::byte*>(source.data()));
  std::vector<T> target(sources[0].size());
  reduce(dtype, op, reinterpret_cast<std::byte*>(target.data()), pointers, target.size(), divisor);
  return target;
}

class Meaning : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { ASSERT_TRUE(set_instruction_set(GetParam())); }
  void TearDown() override { set_instruction_set(before_); }
  std::string_view before_ = instruction_set_name();
};

TEST_P(Meaning, Float16AverageDoesNotOverflowOnTheWay) {
  const std::vector<uint16_t> large(37, float16_from_float(40000.0f));
  EXPECT_EQ(reduced<uint16_t>(DType::kFloat16, ReduceOp::kAvg, {large, large}, 2), large);
  const std::vector<uint16_t> infinite(37, 0x7c00);
  EXPECT_EQ(reduced<uint16_t>(DType::kFloat16, ReduceOp::kSum, {large, large}), infinite);
}

TEST_P(Meaning, HalvesRoundOnceForAllSources) {
  // 256 + 1 is half way between 256 and 258: rounding at each step would stay at 256 for ever.
  const std::vector<uint16_t> large(19, bfloat16_from_float(256.0f)), one(19, bfloat16_from_float(1.0f));
  const std::vector<uint16_t> expected(19, bfloat16_from_float(260.0f));
  EXPECT_EQ(reduced<uint16_t>(DType::kBFloat16, ReduceOp::kSum, {large, one, one, one, one}), expected);
  const std::vector<uint16_t> tie(19, bfloat16_from_float(256.0f));
  EXPECT_EQ(reduced<uint16_t>(DType::kBFloat16, ReduceOp::kSum, {large, one}), tie);
}

TEST_P(Meaning, AnyAlignmentWillDo) {
  const std::vector<float> ones(41, 1.0f), twos(41, 2.0f);
  std::vector<std::byte> shifted(1 + sizeof(float) * ones.size());
  std::memcpy(shifted.data() + 1, ones.data(), shifted.size() - 1);
  const std::vector<const std::byte*> sources(2, shifted.data() + 1);
  reduce(DType::kFloat32, ReduceOp::kSum, shifted.data() + 1, sources, ones.size());
  EXPECT_EQ(std::memcmp(shifted.data() + 1, twos.data(), shifted.size() - 1), 0);
}

TEST_P(Meaning, AverageDividesTheSum) {
  const Sources<float> sources = {{1, 2, 10}, {2, 5, 10}, {2, 7, 9}};
  const std::vector<float> expected = {5.0f / 3.0f, 14.0f / 3.0f, 29.0f / 3.0f};
  EXPECT_EQ(reduced(DType::kFloat32, ReduceOp::kAvg, sources, 3), expected);
  const std::vector<float> sum = {5, 14, 29};
  EXPECT_EQ(reduced(DType::kFloat32, ReduceOp::kAvg, sources, 1), sum);
  EXPECT_EQ(reduced(DType::kFloat32, ReduceOp::kSum, sources, 3), sum);
}

TEST_P(Meaning, IntegerAverageTruncatesTowardZero) {
  const std::vector<int32_t> expected = {2, -2, 0};
  EXPECT_EQ(reduced<int32_t>(DType::kInt32, ReduceOp::kAvg, {{3, -3, 1}, {2, -2, 0}}, 2), expected);
  const std::vector<int8_t> nothing = {0};  // 300 is no int8, but is the divisor all the same
  EXPECT_EQ(reduced<int8_t>(DType::kInt8, ReduceOp::kAvg, {{100}, {27}}, 300), nothing);
}

TEST_P(Meaning, IntegersWrap) {
  const std::vector<int8_t> sum = {-128, 127}, product = {127, -128};
  EXPECT_EQ(reduced<int8_t>(DType::kInt8, ReduceOp::kSum, {{127, -128}, {1, -1}}), sum);
  EXPECT_EQ(reduced<int8_t>(DType::kInt8, ReduceOp::kProduct, {{-127, -128}, {-1, -1}}), product);
  const std::vector<uint16_t> square = {1};  // 65535 * 65535, beyond int
  EXPECT_EQ(reduced<uint16_t>(DType::kUInt16, ReduceOp::kProduct, {{65535}, {65535}}), square);
  const std::vector<int64_t> lowest = {std::numeric_limits<int64_t>::min()};
  EXPECT_EQ(reduced<int64_t>(DType::kInt64, ReduceOp::kSum, {{std::numeric_limits<int64_t>::max()}, {1}}), lowest);
}

TEST_P(Meaning, BoolTakesAnyByteAndGivesZeroOrOne) {
  const Sources<uint8_t> sources = {{2, 0, 255, 0}, {255, 0, 0, 2}};
  const std::vector<uint8_t> any = {1, 0, 1, 1}, all = {1, 0, 0, 0};
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kBor}) {
    EXPECT_EQ(reduced(DType::kBool, op, sources, 2), any) << name_of(op);
  }
  for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kBand}) {
    EXPECT_EQ(reduced(DType::kBool, op, sources), all) << name_of(op);
  }
  const std::vector<uint8_t> either = {0, 0, 1, 1};
  EXPECT_EQ(reduced(DType::kBool, ReduceOp::kBxor, sources), either);
  const std::vector<uint8_t> single = {1, 0};
  EXPECT_EQ(reduced<uint8_t>(DType::kBool, ReduceOp::kSum, {{2, 0}}), single);
  EXPECT_EQ(reduced<uint8_t>(DType::kBool, ReduceOp::kBxor, {{2, 0}}), single);
}

TEST_P(Meaning, BitwiseOperatorsTakeEveryBit) {
  const Sources<int16_t> sources = {{0x0ff0, -1, 5}, {0x3c3c, 7, 5}, {-1, 2, 5}};
  const std::vector<int16_t> band = {0x0c30, 2, 5}, bor = {-1, -1, 5}, bxor = {0x33cc ^ -1, -6, 5};
  EXPECT_EQ(reduced(DType::kInt16, ReduceOp::kBand, sources), band);
  EXPECT_EQ(reduced(DType::kInt16, ReduceOp::kBor, sources), bor);
  EXPECT_EQ(reduced(DType::kInt16, ReduceOp::kBxor, sources), bxor);
  const std::vector<uint64_t> high = {uint64_t{1} << 63};
  EXPECT_EQ(reduced<uint64_t>(DType::kUInt64, ReduceOp::kBxor, {{~uint64_t{0}}, {~uint64_t{0} >> 1}}), high);
}

TEST_P(Meaning, ComplexNumbersAreAddedPartByPart) {
  const Sources<std::complex<float>> sources = {{{1, 2}, {0, -1}}, {{3, -5}, {0.5f, 1}}};
  const std::vector<std::complex<float>> sum = {{4, -3}, {0.5f, 0}}, average = {{2, -1.5f}, {0.25f, 0}};
  EXPECT_EQ(reduced(DType::kComplex64, ReduceOp::kSum, sources), sum);
  EXPECT_EQ(reduced(DType::kComplex64, ReduceOp::kAvg, sources, 2), average);
  const std::vector<std::complex<double>> ones(19, {1, 2}), threes(19, {3, 6});
  EXPECT_EQ(reduced<std::complex<double>>(DType::kComplex128, ReduceOp::kSum, {ones, ones, ones}), threes);
}

// One NaN, at each place of a block and its tail, in each source.
template <class T>
void expect_nan_found(DType dtype, T nan, T one, T expected) {
  constexpr size_t kCount = 77;
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    for (const size_t k : {1, 2, 3, 4, 5, 8}) {
      for (size_t at = 0; at < kCount; ++at) {
        Sources<T> sources(k, std::vector<T>(kCount, one));
        sources[at % k][at] = nan;
        std::vector<T> result = reduced(dtype, op, sources);
        ASSERT_EQ(std::memcmp(&result[at], &expected, sizeof(T)), 0) << name_of(op) << " k=" << k << " at " << at;
        result[at] = one;
        ASSERT_EQ(result, std::vector<T>(kCount, one));
      }
    }
  }
}

TEST_P(Meaning, NanWinsInMinAndMax) {
  expect_nan_found<double>(DType::kFloat64, -std::nan("5"), 1.0, std::numeric_limits<double>::quiet_NaN());
  expect_nan_found<float>(DType::kFloat32, -std::nanf("5"), 1.0f, std::numeric_limits<float>::quiet_NaN());
  expect_nan_found<uint16_t>(DType::kFloat16, 0xfd05, 0x3c00, 0x7e00);
  expect_nan_found<uint16_t>(DType::kBFloat16, 0xff85, 0x3f80, 0x7fc0);
  expect_nan_found<uint8_t>(DType::kFloat8E4M3Fn, 0xff, 0x38, 0x7f);
  expect_nan_found<uint8_t>(DType::kFloat8E5M2, 0xfd, 0x3c, 0x7f);
}

TEST_P(Meaning, TheOrderOfTwoSourcesNeverShows) {
  const std::vector<float> a = {0.0f, -0.0f, std::nanf("1"), 1.0f}, b = {-0.0f, 0.0f, -std::nanf("2"), -1.0f};
  const auto same_bits = [](const std::vector<float>& x, const std::vector<float>& y) {
    return std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  };
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_TRUE(
        same_bits(reduced<float>(DType::kFloat32, op, {a, b}), reduced<float>(DType::kFloat32, op, {b, a})))
        << name_of(op);
  }
  EXPECT_TRUE(std::signbit(reduced<float>(DType::kFloat32, ReduceOp::kMin, {a, b})[0]));
  EXPECT_FALSE(std::signbit(reduced<float>(DType::kFloat32, ReduceOp::kMax, {a, b})[0]));
}

INSTANTIATE_TEST_SUITE_P(All, Meaning, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& set) { return std::string(set.param); });

}  // namespace
}  // namespace braid::testing
