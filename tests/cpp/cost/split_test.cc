// SPDX-License-Identifier: Apache-2.0
// Against closed forms; tests/python/test_shares.py compares with a solver of linear programmes.
#include "cost/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace braid {
namespace {

Split best(const std::vector<Owner>& owners, double push_ratio = 1, double pull_ratio = 1) {
  Result<Split> split = optimal_split(owners, push_ratio, pull_ratio);
  EXPECT_TRUE(split.ok()) << split.status().message();
  return split.ok() ? split.value() : Split();
}

Owner contributor(double rate) { return {rate, rate, true}; }
Owner reducer(double rate) { return {rate, rate, false}; }

TEST(OptimalSplit, IsTheClosedFormWhereThereIsOne) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const int n = 3 + static_cast<int>(random() % 9);
    const int reducers = static_cast<int>(random() % 8);
    std::vector<Owner> owners;
    double contributing = 0;
    double others = 0;
    double least = std::numeric_limits<double>::infinity();
    for (int k = 0; k < n + reducers; ++k) {
      const double rate = 1e6 * (1 + random() % 1000);
      owners.push_back(k < n ? contributor(rate) : reducer(rate));
      (k < n ? contributing : others) += rate;
      if (k < n) least = std::min(least, rate);
    }
    const double from_all_s = 2 * (n - 1) / (contributing + others * (n - 2) / n);
    const double s = std::max(1 / least, from_all_s);
    const Split split = best(owners);
    EXPECT_NEAR(split.seconds_per_byte, s, s * 1e-12);
    EXPECT_NEAR(std::accumulate(split.shares.begin(), split.shares.end(), 0.0), 1, 1e-12);
    if (from_all_s < 1 / least) continue;  // there is room, and more than one best split
    for (int k = 0; k < n + reducers; ++k) {
      const double rate = owners[k].up_bytes_per_s;
      EXPECT_NEAR(split.shares[k], k < n ? (s * rate - 1) / (n - 2) : s * rate / n, 1e-9);
    }
  }
}

// 100, 100, 100 and 80 Mbit/s and a reducer of 100, for 12.5 MB, which is 100 Mbit.
TEST(OptimalSplit, IsTheWorkedExample) {
  const Split with = best({contributor(1), contributor(1), contributor(1), contributor(0.8), reducer(1)});
  EXPECT_NEAR(with.seconds_per_byte, 6 / 4.3, 1e-12);
  EXPECT_NEAR(with.shares[0], 0.1977, 1e-4);
  EXPECT_NEAR(with.shares[3], 0.0581, 1e-4);
  EXPECT_NEAR(with.shares[4], 0.3488, 1e-4);
  const Split without = best({contributor(1), contributor(1), contributor(1), contributor(0.8)});
  EXPECT_NEAR(without.seconds_per_byte, 6 / 3.8, 1e-12);
}

TEST(OptimalSplit, OfTwoDependsOnTheSlowerAlone) {
  EXPECT_NEAR(best({contributor(1), contributor(4)}).seconds_per_byte, 1, 1e-12);
  // Nobody can relieve them: each must send its vector or receive the other's, and the sum the other way.
  EXPECT_NEAR(best({contributor(1), contributor(4), reducer(9)}).seconds_per_byte, 1, 1e-12);
}

TEST(OptimalSplit, OfOneTakesNoTime) {
  const Split alone = best({contributor(5)});
  EXPECT_NEAR(alone.seconds_per_byte, 0, 1e-30);
  EXPECT_NEAR(alone.shares[0], 1, 1e-12);
}

// Three that can send ten times as fast as they receive, and one the other way round, which must get each of its
// own bytes out and in.
TEST(OptimalSplit, KnowsBothDirections) {
  const Split split = best({{10, 1, true}, {10, 1, true}, {10, 1, true}, {1, 10, true}});
  // In comes (1 + 2x) S at 1 for the first three, out goes as much for the last: the same T for all.
  EXPECT_NEAR(split.seconds_per_byte, 1.5, 1e-12);
  for (double share : split.shares) EXPECT_NEAR(share, 0.25, 1e-9);
}

// Sums that travel compressed to a quarter, or sums and contributions.
TEST(OptimalSplit, KnowsRatios) {
  const Split equal = best({contributor(1), contributor(1), contributor(1)}, 1, 0.25);
  EXPECT_NEAR(equal.seconds_per_byte, 2.0 / 3 + 1.0 / 6, 1e-12);  // (1-x) push + 2 x pull, and the reverse is less
  EXPECT_NEAR(best({contributor(1), contributor(1), contributor(1)}, 0.25, 0.25).seconds_per_byte, 1.0 / 3, 1e-12);
}

TEST(OptimalSplit, BearsRatesThatDifferWildly) {
  const Split split = best({contributor(1e-3), contributor(1e12), contributor(1e12)});
  EXPECT_NEAR(split.seconds_per_byte, 1e3, 1e-9);
  EXPECT_NEAR(split.shares[0], 0, 1e-12);
  const Split helped = best({contributor(1e9), contributor(1e9), contributor(1e9), reducer(1e-6)});
  EXPECT_NEAR(helped.seconds_per_byte, 4 / 3e9, 1e-20);
}

TEST(OptimalSplit, RefusesWhatMakesNoSense) {
  const auto code = [](const std::vector<Owner>& owners, double push_ratio = 1, double pull_ratio = 1) {
    return optimal_split(owners, push_ratio, pull_ratio).status().code();
  };
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(code({}), Code::kInvalidArgument);
  EXPECT_EQ(code({reducer(1)}), Code::kInvalidArgument);
  EXPECT_EQ(code({contributor(0)}), Code::kInvalidArgument);
  EXPECT_EQ(code({contributor(1), {1, -1, true}}), Code::kInvalidArgument);
  EXPECT_EQ(code({contributor(1), {infinity, 1, false}}), Code::kInvalidArgument);
  EXPECT_EQ(code({contributor(std::numeric_limits<double>::quiet_NaN())}), Code::kInvalidArgument);
  EXPECT_EQ(code({contributor(1)}, 0, 1), Code::kInvalidArgument);
  EXPECT_EQ(code({contributor(1)}, 1, infinity), Code::kInvalidArgument);
  EXPECT_EQ(code({contributor(1e-310)}, 1e10, 1), Code::kInvalidArgument);
}

}  // namespace
}  // namespace braid
