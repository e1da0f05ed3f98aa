// SPDX-License-Identifier: Apache-2.0
// How far the products are from those of doubles.
#include <gtest/gtest.h>

#include <cmath>

#include "low_rank/matrices.h"

namespace braid::testing {
namespace {

// Over the sum of the magnitudes of what is added.
struct Sum {
  double value = 0, magnitudes = 0;
  void add(double product) {
    value += product;
    magnitudes += std::abs(product);
  }
  double error(float found) const {
    return magnitudes == 0 ? std::abs(found) : std::abs(found - value) / magnitudes;
  }
};

// A dozen roundings of 2^-24, where a sum one by one would have as many as it has terms.
constexpr double kFew = 12 * 0x1p-24;

TEST(LowRankAccuracy, IsThatOfAFewRoundings) {
  for (const LowRankShape& shape :
       {LowRankShape{3000, 40, 2}, LowRankShape{40, 30000, 2}, LowRankShape{50, 60, 64}}) {
    const auto [rows, columns, rank] = shape;
    const Numbers m = even_numbers(rows * columns, 1), p = even_numbers(rows * rank, 2),
                  q = even_numbers(columns * rank, 3);
    Numbers matrix(m.size()), found_p(p.size()), found_q(q.size()), product(m.size());
    low_rank_project(shape, m.data(), matrix.data(), nullptr, q.data(), {0, rows}, found_p.data());
    low_rank_gather(shape, m.data(), p.data(), {0, columns}, found_q.data());
    low_rank_rebuild(shape, p.data(), q.data(), {0, rows}, product.data());
    double most_p = 0, most_q = 0, most = 0;
    for (size_t k = 0; k < rank; ++k) {
      for (size_t i = 0; i < rows; ++i) {
        Sum sum;
        for (size_t j = 0; j < columns; ++j) sum.add(double{m[i * columns + j]} * q[k * columns + j]);
        most_p = std::max(most_p, sum.error(found_p[k * rows + i]));
      }
      for (size_t j = 0; j < columns; ++j) {
        Sum sum;
        for (size_t i = 0; i < rows; ++i) sum.add(double{m[i * columns + j]} * p[k * rows + i]);
        most_q = std::max(most_q, sum.error(found_q[k * columns + j]));
      }
    }
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) {
        Sum sum;
        for (size_t k = 0; k < rank; ++k) sum.add(double{p[k * rows + i]} * q[k * columns + j]);
        most = std::max(most, sum.error(product[i * columns + j]));
      }
    }
    EXPECT_LT(most_p, kFew) << shape;
    EXPECT_LT(most_q, kFew) << shape;
    EXPECT_LT(most, kFew) << shape;
  }
}

// What was sent and what is carried over make up what came in, to a rounding of each element.
TEST(LowRankAccuracy, NothingIsLost) {
  const LowRankShape shape{60, 70, 3};
  const Numbers gradient = even_numbers(4200, 4), nothing(4200);
  Numbers error(4200), p(180), q = even_numbers(210, 5), sent(4200);
  low_rank_project(shape, gradient.data(), error.data(), nullptr, q.data(), {0, 60}, p.data());
  ASSERT_TRUE(orthonormalize(p, 60));
  low_rank_gather(shape, error.data(), p.data(), {0, 70}, q.data());
  low_rank_rebuild(shape, p.data(), q.data(), {0, 60}, sent.data());
  // The next step subtracts on its way; settle() does so at once, with the same result.
  Numbers next = error, next_p(180);
  low_rank_project(shape, nothing.data(), next.data(), p.data(), q.data(), {0, 60}, next_p.data());
  low_rank_settle(shape, p.data(), q.data(), {0, 60}, error.data());
  EXPECT_TRUE(same_bits(error, next));
  double all = 0, left = 0;
  for (size_t i = 0; i < 4200; ++i) {
    EXPECT_NEAR(sent[i] + error[i], gradient[i], 0x1p-23);
    all += double{gradient[i]} * gradient[i];
    left += double{error[i]} * error[i];
  }
  EXPECT_LT(left, 0.95 * all);  // 3 of 60 components, of numbers without any pattern
}

}  // namespace
}  // namespace braid::testing
