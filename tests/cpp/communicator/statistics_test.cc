// SPDX-License-Identifier: Apache-2.0
#include "communicator/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace braid::testing {
namespace {

constexpr double kPrecision = 1.0 / 16;

TEST(Histogram, PercentilesAreRightWithinASixteenth) {
  std::mt19937 random(1);
  for (const double scale : {1e-6, 1e-3, 10.0}) {
    std::lognormal_distribution<double> durations(0, 2);
    std::vector<double> all;
    Histogram histogram;
    for (int i = 0; i < 10'001; ++i) {
      all.push_back(scale * durations(random));
      histogram.add(all.back());
    }
    std::sort(all.begin(), all.end());
    for (const double share : {0.01, 0.5, 0.95, 0.99}) {
      const double exact = all[static_cast<size_t>(share * 10'000)];
      EXPECT_NEAR(histogram.percentile(share), exact, kPrecision * exact) << share << " of " << scale;
    }
    EXPECT_EQ(histogram.longest(), all.back());
    EXPECT_LE(histogram.percentile(1), histogram.longest());
  }
}

TEST(Histogram, HoldsNothingAndExtremes) {
  Histogram histogram;
  EXPECT_EQ(histogram.percentile(0.5), 0);
  EXPECT_EQ(histogram.longest(), 0);
  histogram.add(0);
  EXPECT_EQ(histogram.percentile(0.5), 0);  // no more than the longest
  histogram.add(1e9);                       // longer than the last bucket
  EXPECT_EQ(histogram.longest(), 1e9);
  EXPECT_GT(histogram.percentile(0.99), 1e4);
}

TEST(Statistics, KeepsARowPerNameAndAlgorithm) {
  Statistics statistics;
  statistics.record(statistics.row("all_reduce", "ring"), 100, 1e-3);
  statistics.record(statistics.row("all_reduce", "ring"), 300, 3e-3);
  statistics.record(statistics.row("all_reduce", "direct"), 7, 2e-3);
  statistics.record(statistics.row("send", "message"), 8, 1e-6);
  const std::vector<OperationStats> rows = statistics.snapshot();
  ASSERT_EQ(rows.size(), size_t{3});
  const auto ring =
      std::find_if(rows.begin(), rows.end(), [](const auto& row) { return row.algorithm == "ring"; });
  ASSERT_NE(ring, rows.end());
  EXPECT_EQ(ring->calls, uint64_t{2});
  EXPECT_EQ(ring->bytes, uint64_t{400});
  EXPECT_EQ(ring->min_bytes, uint64_t{100});
  EXPECT_EQ(ring->max_bytes, uint64_t{300});
  EXPECT_NEAR(ring->seconds, 4e-3, 1e-9);
  EXPECT_NEAR(ring->p50_s, 1e-3, kPrecision * 1e-3);
  EXPECT_EQ(ring->max_s, 3e-3);
}

}  // namespace
}  // namespace braid::testing
