// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "low_rank/matrices.h"
#include "support/instruction_sets.h"

namespace braid::testing {
namespace {

double product_of(const Numbers& p, size_t rows, size_t a, const Numbers& other, size_t b) {
  double sum = 0;
  for (size_t i = 0; i < rows; ++i) sum += double{p[a * rows + i]} * other[b * rows + i];
  return sum;
}

// The largest distance from what a basis of `components` has.
double error_of(const Numbers& p, size_t rows, size_t components) {
  double most = 0;
  for (size_t a = 0; a < components; ++a) {
    for (size_t b = 0; b <= a; ++b) {
      most = std::max(most, std::abs(product_of(p, rows, a, p, b) - (a == b ? 1.0 : 0.0)));
    }
  }
  return most;
}

constexpr double kRight = 1e-6;

TEST(Orthonormal, SpansWhatWasThere) {
  for (const size_t rows : {64, 65, 300, 5000}) {
    for (const size_t rank : {1, 2, 4, 7, 64}) {
      const Numbers before = even_numbers(rows * rank, rows + rank);
      Numbers p = before;
      ASSERT_TRUE(orthonormalize(p, rows));
      ASSERT_LT(error_of(p, rows, rank), kRight) << rows << " " << rank;
      for (size_t k = 0; k < rank && rows > rank; ++k) {
        double held = 0;
        for (size_t other = 0; other <= k; ++other) held += std::pow(product_of(before, rows, k, p, other), 2);
        ASSERT_NEAR(held / product_of(before, rows, k, before, k), 1, 1e-5) << rows << " " << rank << " " << k;
      }
    }
  }
}

// Components that are nearly, or quite, those before them: what is left may be any direction, but a right one.
TEST(Orthonormal, HasARightDirectionForWhatDepends) {
  constexpr size_t kRows = 200, kRank = 6;
  for (const float difference : {1e-2f, 1e-5f, 1e-7f, 0.0f}) {
    const Numbers same = even_numbers(kRows, 1), other = even_numbers(kRows * kRank, 2);
    Numbers p(kRows * kRank);
    for (size_t i = 0; i < p.size(); ++i) p[i] = same[i % kRows] * float(1 + i / kRows) + difference * other[i];
    ASSERT_TRUE(orthonormalize(p, kRows));
    EXPECT_LT(error_of(p, kRows, kRank), kRight) << difference;
  }
  Numbers zeros(kRows * kRank);
  ASSERT_TRUE(orthonormalize(zeros, kRows));
  EXPECT_LT(error_of(zeros, kRows, kRank), kRight);
}

TEST(Orthonormal, AnySize) {
  for (const float size : {1e-44f, 1e-37f, 1e-30f, 1e-15f, 1e15f, 1e30f}) {
    Numbers p = even_numbers(300, 3);
    for (float& number : p) number *= size;
    ASSERT_TRUE(orthonormalize(p, 100));
    EXPECT_LT(error_of(p, 100, 3), kRight) << size;
  }
}

TEST(Orthonormal, MoreComponentsThanRows) {
  for (const size_t rows : {1, 2, 3, 5}) {
    for (const bool is_zero : {false, true}) {
      Numbers p = is_zero ? Numbers(rows * 8) : even_numbers(rows * 8, 4);
      ASSERT_TRUE(orthonormalize(p, rows));
      EXPECT_LT(error_of(p, rows, rows), kRight) << rows;
      for (size_t i = rows * rows; i < p.size(); ++i) EXPECT_EQ(p[i], 0) << rows;
    }
  }
  EXPECT_TRUE(orthonormalize({}, 0));
  EXPECT_TRUE(orthonormalize({}, 5));
}

TEST(Orthonormal, RefusesWhatIsNotFinite) {
  for (const float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), -0x1p120f}) {
    for (const size_t place : {0, 133, 299}) {
      Numbers p = even_numbers(300, 5);
      p[place] = odd;
      const Numbers before = p;
      EXPECT_FALSE(orthonormalize(p, 100));
      EXPECT_TRUE(same_bits(p, before));
    }
  }
  Numbers p = even_numbers(300, 5);
  p[7] = 0x1.fffffep119f;
  EXPECT_TRUE(orthonormalize(p, 100));
}

TEST(Orthonormal, TheSameBitsOfAllInstructionSets) {
  const std::string_view before = instruction_set_name();
  for (const size_t rows : {1, 3, 17, 1000, 2049}) {
    Numbers given = even_numbers(rows * 9, 6);
    for (size_t i = 0; i < rows; ++i) given[4 * rows + i] = given[2 * rows + i] * 3 - given[i];  // depends
    Numbers first;
    for (const std::string_view set : instruction_sets()) {
      ASSERT_TRUE(set_instruction_set(set));
      Numbers p = given;
      ASSERT_TRUE(orthonormalize(p, rows));
      if (first.empty()) first = p;
      EXPECT_TRUE(same_bits(p, first)) << set << " " << rows;
    }
  }
  set_instruction_set(before);
}

TEST(DrawUniform, CoversItsRange) {
  Numbers numbers(100000), again(100000), other(100000);
  draw_uniform(1, numbers);
  draw_uniform(1, again);
  draw_uniform(2, other);
  EXPECT_TRUE(same_bits(numbers, again));
  EXPECT_FALSE(same_bits(numbers, other));
  double sum = 0, squares = 0, crossed = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_TRUE(numbers[i] >= -1 && numbers[i] < 1);
    sum += numbers[i];
    squares += double{numbers[i]} * numbers[i];
    crossed += double{numbers[i]} * other[i];
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.01);
  EXPECT_NEAR(squares / 1e5, 1.0 / 3, 0.01);
  EXPECT_NEAR(crossed / 1e5, 0, 0.01);
}

}  // namespace
}  // namespace braid::testing
