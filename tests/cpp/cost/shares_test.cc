// SPDX-License-Identifier: Apache-2.0
#include "cost/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace braid {
namespace {

std::vector<double> fractions(const Topology& topology) {
  std::vector<uint64_t> shares = optimal_shares(topology);
  double sum = static_cast<double>(std::accumulate(shares.begin(), shares.end(), uint64_t{0}));
  std::vector<double> parts;
  for (uint64_t share : shares) parts.push_back(static_cast<double>(share) / sum);
  return parts;
}

Topology cards(const std::vector<double>& mbit_per_s) {
  double fastest = *std::max_element(mbit_per_s.begin(), mbit_per_s.end());
  Topology topology = uniform(static_cast<int>(mbit_per_s.size()), 1e-4, 8e-6 / fastest);
  for (size_t node = 0; node < mbit_per_s.size(); ++node) {
    if (mbit_per_s[node] < fastest) topology.set_card(static_cast<int>(node), {1e-4, 8e-6 / mbit_per_s[node]});
  }
  return topology;
}

TEST(OptimalShares, AreEqualForEqualCards) {
  EXPECT_TRUE(optimal_shares(uniform(5, 1e-5, 1e-9)).empty());
  EXPECT_TRUE(optimal_shares(one_host(8)).empty());
  EXPECT_TRUE(optimal_shares(uniform(5, 1e-5, 0)).empty());
}

TEST(OptimalShares, OfTwoRanksDoNotMatter) { EXPECT_TRUE(optimal_shares(cards({100, 10})).empty()); }

// The worked example of the source: 100, 100, 100, 80 Mbit/s.
TEST(OptimalShares, FollowTheClosedForm) {
  std::vector<double> parts = fractions(cards({100, 100, 100, 80}));
  ASSERT_EQ(parts.size(), 4u);
  for (int node = 0; node < 3; ++node) EXPECT_NEAR(parts[node], 0.2895, 1e-4);
  EXPECT_NEAR(parts[3], 0.1316, 1e-4);
}

TEST(OptimalShares, GiveNothingToACardThatIsBusyWithItsOwn) {
  std::vector<double> parts = fractions(cards({100, 100, 100, 5}));
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[3], 0);
  EXPECT_NEAR(parts[0], 1.0 / 3, 1e-6);
}

}  // namespace
}  // namespace braid
