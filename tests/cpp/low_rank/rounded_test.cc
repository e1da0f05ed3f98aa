// SPDX-License-Identifier: Apache-2.0
// Gradients of 16 bits: the passes for floats, with a rounding where the result is read and written.
#include "low_rank/rounded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "low_rank/matrices.h"
#include "reduce/convert.h"
#include "support/instruction_sets.h"

namespace braid::testing {
namespace {

using Halves = std::vector<std::byte>;

Halves narrow(DType dtype, const Numbers& numbers) {
  Halves halves(numbers.size() * 2);
  from_floats(dtype, numbers.data(), numbers.size(), 1, halves.data());
  return halves;
}
Numbers widen(DType dtype, const Halves& halves) {
  Numbers numbers(halves.size() / 2);
  to_floats(dtype, halves.data(), numbers.size(), 1, numbers.data());
  return numbers;
}

class RoundedLowRank : public ::testing::TestWithParam<DType> {};

// Sizes below, at and beyond a block of rows, and cuts anywhere.
TEST_P(RoundedLowRank, IsThatOfFloatsButForTheRounding) {
  const DType dtype = GetParam();
  for (const LowRankShape& shape : {LowRankShape{0, 5, 2},
                                    {5, 0, 2},
                                    {1, 1, 1},
                                    {7, 33, 3},
                                    {3000, 19, 2},
                                    {13, 5000, 4},
                                    {3, 20000, 1},
                                    {40, 50, 64}}) {
    const size_t n = shape.rows * shape.columns;
    const Halves gradient = narrow(dtype, even_numbers(n, 1));
    const Numbers error = even_numbers(n, 2), sent = even_numbers(shape.rows * shape.rank, 3),
                  q = even_numbers(shape.columns * shape.rank, 4), wide = widen(dtype, gradient);
    const Halves product = narrow(dtype, reference_rebuilt(shape, sent, q));
    const Numbers given = widen(dtype, product);
    Numbers settled = error;
    for (size_t i = 0; i < n; ++i) settled[i] -= given[i];
    for (const std::string_view set : instruction_sets()) {
      ASSERT_TRUE(set_instruction_set(set));
      for (const bool subtracts : {false, true}) {
        Numbers expected = subtracts ? settled : error, matrix = error, p(sent.size());
        for (size_t i = 0; i < n; ++i) expected[i] = wide[i] + expected[i];
        const size_t cut = shape.rows / 3;
        for (const LowRankRange rows : {LowRankRange{0, cut}, {cut, shape.rows}}) {
          low_rank_project_rounded(dtype, shape, gradient.data(), matrix.data(), subtracts ? sent.data() : nullptr,
                                   q.data(), rows, p.data());
        }
        ASSERT_TRUE(same_bits(matrix, expected)) << shape << " " << set;
        ASSERT_TRUE(same_bits(p, reference_projected(shape, expected, q))) << shape << " " << set;
      }
      Halves found(2 * n + 1);  // at an odd address
      low_rank_rebuild_rounded(dtype, shape, sent.data(), q.data(), {0, shape.rows}, found.data() + 1);
      ASSERT_TRUE(std::equal(product.begin(), product.end(), found.begin() + 1)) << shape << " " << set;
      Numbers left = error;
      low_rank_settle_rounded(dtype, shape, sent.data(), q.data(), {0, shape.rows}, left.data());
      ASSERT_TRUE(same_bits(left, settled)) << shape << " " << set;
    }
  }
}

// What is too large shows, and nothing of it is carried over.
TEST_P(RoundedLowRank, KeepsNothingOfAnInfinity) {
  const DType dtype = GetParam();
  const LowRankShape shape{2, 3, 1};
  const float large = dtype == DType::kFloat16 ? 70000.0f : std::numeric_limits<float>::max();
  const Numbers p = {1, 2}, q = {large, 1, -large};
  Halves product(12);
  low_rank_rebuild_rounded(dtype, shape, p.data(), q.data(), {0, 2}, product.data());
  const Numbers given = widen(dtype, product);
  EXPECT_EQ(given[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(given[2], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(given[4], 2.0f);
  Numbers matrix = {5, 5, 5, 5, 5, 5};
  low_rank_settle_rounded(dtype, shape, p.data(), q.data(), {0, 2}, matrix.data());
  EXPECT_EQ(matrix, (Numbers{0, 4, 0, 0, 3, 0}));
}

INSTANTIATE_TEST_SUITE_P(DTypes, RoundedLowRank, ::testing::Values(DType::kFloat16, DType::kBFloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace braid::testing
