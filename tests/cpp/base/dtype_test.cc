// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace braid {
namespace {

TEST(DType, HasTheSizeThatItsNameSays) {
  const std::map<std::string_view, size_t> odd = {{"bool", 1}, {"float8_e4m3fn", 1}, {"float8_e5m2", 1}};
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name(name_of(dtype));
    EXPECT_EQ(dtype_from_name(name), dtype);
    const auto special = odd.find(name);
    const size_t digits = name.find_first_of("0123456789");
    const size_t expected = special != odd.end() ? special->second : std::stoul(name.substr(digits)) / 8;
    EXPECT_EQ(size_of(dtype), expected) << name;
  }
  EXPECT_FALSE(dtype_from_name("float4"));
}

TEST(ReduceOp, IsFoundByItsName) {
  for (int i = 0; i < kReduceOpCount; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    EXPECT_EQ(reduce_op_from_name(name_of(op)), op);
  }
  EXPECT_FALSE(reduce_op_from_name("premul_sum"));
}

// The numbers travel between ranks, perhaps of different versions.
TEST(DType, KeepsItsNumber) {
  EXPECT_EQ(static_cast<int>(DType::kBool), 12);
  EXPECT_EQ(static_cast<int>(DType::kComplex128), 16);
  EXPECT_EQ(static_cast<int>(ReduceOp::kMax), 4);
  EXPECT_EQ(static_cast<int>(ReduceOp::kBxor), 7);
}

TEST(Defined, FollowsTheKindOfNumber) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name(name_of(dtype));
    const bool complex = name.starts_with("complex"), real = name.find("float") != std::string::npos;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) EXPECT_TRUE(is_defined(dtype, op)) << name;
    for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
      EXPECT_EQ(is_defined(dtype, op), !complex) << name;
    }
    for (const ReduceOp op : {ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor}) {
      EXPECT_EQ(is_defined(dtype, op), !complex && !real) << name;
    }
  }
}

TEST(Defined, SaysWhatIsPossible) {
  EXPECT_EQ(undefined_text(DType::kComplex64, ReduceOp::kProduct),
            "product is not defined for complex64, only sum, avg");
  EXPECT_EQ(undefined_text(DType::kFloat8E5M2, ReduceOp::kBxor),
            "bxor is not defined for float8_e5m2, only sum, avg, product, min, max");
}

}  // namespace
}  // namespace braid
