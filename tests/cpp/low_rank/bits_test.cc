// SPDX-License-Identifier: Apache-2.0
// Every instruction set against the definition, bit by bit, whatever the sizes, the cuts and the alignment.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/float_environment.h"
#include "base/sha256.h"
#include "low_rank/matrices.h"
#include "support/instruction_sets.h"

namespace braid::testing {
namespace {

class LowRankBits : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { ASSERT_TRUE(set_instruction_set(GetParam())); }
  void TearDown() override { set_instruction_set(before_); }

  std::string_view before_ = instruction_set_name();
};

std::vector<LowRankShape> shapes() {
  std::vector<LowRankShape> found;
  constexpr size_t kSizes[][2] = {{1, 1},  {1, 37}, {37, 1},   {4, 16},  {5, 17},
                                  {3, 31}, {9, 33}, {4, 1024}, {6, 2061}};
  for (const auto& [rows, columns] : kSizes) {
    for (const size_t rank : {1, 2, 3, 4, 5, 7, 8, 64}) found.push_back({rows, columns, rank});
  }
  found.insert(found.end(), {{0, 5, 2}, {5, 0, 2}, {0, 0, 1}, {101, 70, 4}, {64, 65, 6}});
  return found;
}

// Numbers at an address that is no multiple of a vector, with something after them that must stay.
class Odd {
 public:
  explicit Odd(const Numbers& numbers) : size_(numbers.size()), memory_(size_ + 2, 99.0f) {
    std::copy(numbers.begin(), numbers.end(), memory_.begin() + 1);
  }
  explicit Odd(size_t size) : Odd(Numbers(size, 77.0f)) {}

  float* data() { return memory_.data() + 1; }
  Numbers numbers() const {
    EXPECT_EQ(memory_.front(), 99.0f);
    EXPECT_EQ(memory_.back(), 99.0f);
    return {memory_.begin() + 1, memory_.end() - 1};
  }

 private:
  size_t size_;
  Numbers memory_;
};

// In two parts that are no multiples of anything.
template <class Call>
void in_parts(size_t extent, const Call& call) {
  call(LowRankRange{0, extent / 3});
  call(LowRankRange{extent / 3, extent});
}

TEST_P(LowRankBits, Project) {
  for (const LowRankShape& shape : shapes()) {
    const size_t n = shape.rows * shape.columns;
    const Numbers gradient = mixed_numbers(n, 1), error = mixed_numbers(n, 2);
    const Numbers q = even_numbers(shape.columns * shape.rank, 3), sent = even_numbers(shape.rows * shape.rank, 4);
    for (const bool subtracts : {false, true}) {
      Numbers expected = gradient;
      const Numbers product = reference_rebuilt(shape, sent, q);
      for (size_t i = 0; i < n; ++i) expected[i] += subtracts ? error[i] - product[i] : error[i];
      Odd matrix(error), p(sent.size()), from(gradient), components(q), before(sent);
      in_parts(shape.rows, [&](LowRankRange rows) {
        low_rank_project(shape, from.data(), matrix.data(), subtracts ? before.data() : nullptr, components.data(),
                         rows, p.data());
      });
      ASSERT_TRUE(same_bits(matrix.numbers(), expected)) << shape;
      ASSERT_TRUE(same_bits(p.numbers(), reference_projected(shape, expected, q))) << shape;
    }
  }
}

TEST_P(LowRankBits, Gather) {
  for (const LowRankShape& shape : shapes()) {
    const Numbers matrix = mixed_numbers(shape.rows * shape.columns, 5),
                  p = even_numbers(shape.rows * shape.rank, 6);
    Odd from(matrix), factors(p), q(shape.columns * shape.rank);
    in_parts(shape.columns, [&](LowRankRange columns) {
      low_rank_gather(shape, from.data(), factors.data(), columns, q.data());
    });
    ASSERT_TRUE(same_bits(q.numbers(), reference_gathered(shape, matrix, p))) << shape;
  }
}

TEST_P(LowRankBits, RebuildAndSettle) {
  for (const LowRankShape& shape : shapes()) {
    const Numbers matrix = mixed_numbers(shape.rows * shape.columns, 7),
                  p = mixed_numbers(shape.rows * shape.rank, 8), q = even_numbers(shape.columns * shape.rank, 9);
    const Numbers expected = reference_rebuilt(shape, p, q);
    Numbers left = matrix;
    for (size_t i = 0; i < left.size(); ++i) left[i] -= expected[i];
    Odd rebuilt(matrix.size()), settled(matrix), by_rows(p), by_columns(q);
    in_parts(shape.rows, [&](LowRankRange rows) {
      low_rank_rebuild(shape, by_rows.data(), by_columns.data(), rows, rebuilt.data());
      low_rank_settle(shape, by_rows.data(), by_columns.data(), rows, settled.data());
    });
    ASSERT_TRUE(same_bits(rebuilt.numbers(), expected)) << shape;
    ASSERT_TRUE(same_bits(settled.numbers(), left)) << shape;
  }
}

struct Step {
  Numbers matrix, p, q, gradient;
  bool is_finite = false;

  Step(const LowRankShape& shape, const Numbers& given, const Numbers& error, const Numbers& start)
      : matrix(error), p(shape.rows * shape.rank), q(start), gradient(given) {
    low_rank_project(shape, gradient.data(), matrix.data(), nullptr, q.data(), {0, shape.rows}, p.data());
    is_finite = orthonormalize(p, shape.rows);
    low_rank_gather(shape, matrix.data(), p.data(), {0, shape.columns}, q.data());
    low_rank_rebuild(shape, p.data(), q.data(), {0, shape.rows}, gradient.data());
  }
};

// Of all parts of a step: the same on every machine, by every compiler.
TEST_P(LowRankBits, AreThoseOfOtherMachines) {
  const LowRankShape shape{301, 1207, 5};
  const size_t n = shape.rows * shape.columns;
  const Step step(shape, even_numbers(n, 10), even_numbers(n, 11), even_numbers(shape.columns * shape.rank, 12));
  std::string digests;
  for (const Numbers* numbers : {&step.matrix, &step.p, &step.q, &step.gradient}) {
    digests += hex(sha256(std::as_bytes(std::span(*numbers)))).substr(0, 8) + " ";
  }
  EXPECT_EQ(digests, "3bbd1952 095b505d 0a891fb5 90edc149 ");
}

#if defined(__x86_64__)
TEST_P(LowRankBits, DoNotDependOnFlushing) {
  const LowRankShape shape{40, 50, 3};
  const Numbers gradient = mixed_numbers(2000, 13), error = mixed_numbers(2000, 14), q = mixed_numbers(150, 15);
  const Step plain(shape, gradient, error, q);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0xe040u);  // flushes, and rounds toward zero
  const Step flushed(shape, gradient, error, q);
  _mm_setcsr(before);
  EXPECT_TRUE(same_bits(plain.matrix, flushed.matrix));
  EXPECT_TRUE(same_bits(plain.p, flushed.p));
  EXPECT_TRUE(same_bits(plain.q, flushed.q));
  EXPECT_TRUE(same_bits(plain.gradient, flushed.gradient));
}
#endif

// One element that is not finite makes its row of P so, whatever Q is, and no other row.
TEST_P(LowRankBits, WhatIsNotFiniteShows) {
  const LowRankShape shape{10, 100, 4};
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float odd : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t column : {0, 17, 99}) {
      Numbers gradient = even_numbers(1000, 16), q = even_numbers(400, 17);
      gradient[3 * 100 + column] = odd;
      q[column] = 0;
      const Step step(shape, gradient, Numbers(1000), q);
      EXPECT_FALSE(step.is_finite);
      for (size_t k = 0; k < shape.rank; ++k) {
        for (size_t i = 0; i < shape.rows; ++i)
          EXPECT_EQ(std::isfinite(step.p[k * shape.rows + i]), i != 3) << odd;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LowRankBits, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace braid::testing
