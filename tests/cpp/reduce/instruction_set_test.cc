// SPDX-License-Identifier: Apache-2.0
// The widths against each other, over operands where only the conversions and the odd values differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "reduce/operands.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace braid::testing {
namespace {

class InstructionSet : public ::testing::Test {
 protected:
  void TearDown() override { set_instruction_set(before_); }

  // The bytes that `set` makes of two sources.
  static std::vector<uint16_t> reduced(std::string_view set, DType dtype, ReduceOp op,
                                       const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
    EXPECT_TRUE(set_instruction_set(set));
    std::vector<uint16_t> result(a.size());
    const auto bytes = [](const std::vector<uint16_t>& of) {
      return reinterpret_cast<const std::byte*>(of.data());
    };
    const std::vector<const std::byte*> sources = {bytes(a), bytes(b)};
    reduce(dtype, op, reinterpret_cast<std::byte*>(result.data()), sources, a.size());
    return result;
  }

  std::string_view before_ = instruction_set_name();
};

TEST_F(InstructionSet, StartsWithTheBest) {
  const auto available = instruction_sets();
  EXPECT_EQ(available.front(), "baseline");
  EXPECT_EQ(instruction_set_name(), available.back());
}

TEST_F(InstructionSet, CanBeForcedAndRefusesTheUnknown) {
  for (const std::string_view set : instruction_sets()) {
    EXPECT_TRUE(set_instruction_set(set));
    EXPECT_EQ(instruction_set_name(), set);
    EXPECT_FALSE(set_instruction_set("mmx"));
    EXPECT_EQ(instruction_set_name(), set);
  }
}

// All 65536 halves with each of a few: their products meet every rounding and every kind of number.
TEST_F(InstructionSet, HalvesHaveTheSameBitsInAllWidths) {
  std::mt19937_64 random(7);
  std::vector<uint16_t> all(65536), other(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (int round = 0; round < 20; ++round) {
      fill_randomly(dtype, reinterpret_cast<std::byte*>(other.data()), other.size(), random);
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
        const auto baseline = reduced("baseline", dtype, op, all, other);
        for (const std::string_view set : instruction_sets()) {
          const auto result = reduced(set, dtype, op, all, other);
          ASSERT_TRUE(result == baseline) << set << " " << name_of(dtype) << " " << name_of(op);
          // The same the other way round: two ranks may each put their own operand first.
          ASSERT_TRUE(reduced(set, dtype, op, other, all) == baseline) << set << " " << name_of(op);
        }
      }
    }
  }
}

#if defined(__x86_64__)
// torch.set_flush_denormal must not make float16 subnormals vanish in some widths.
TEST_F(InstructionSet, Float16SubnormalsSurviveFlushing) {
  std::vector<uint16_t> small(0x0400), zero(0x0400);
  for (size_t i = 0; i < small.size(); ++i) small[i] = static_cast<uint16_t>(i);
  const unsigned before = _mm_getcsr();
  for (const std::string_view set : instruction_sets()) {
    _mm_setcsr(before | 0x8040u);
    const auto result = reduced(set, DType::kFloat16, ReduceOp::kSum, small, zero);
    _mm_setcsr(before);
    EXPECT_TRUE(result == small) << set;
  }
}
#endif

}  // namespace
}  // namespace braid::testing
