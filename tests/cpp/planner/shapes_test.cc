// SPDX-License-Identifier: Apache-2.0
// The numbers that the planners' header comments claim: rounds, and bytes sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>

#include "planner/planners.h"
#include "support/traffic.h"

namespace braid {
namespace {

Schedule draw(CollectiveKind kind, const char* algorithm, int ranks, const std::vector<uint64_t>& shares = {}) {
  return find_algorithm(kind, algorithm)->plan({kind, ranks, 0}, {shares}).value();
}

size_t rounds(const Schedule& schedule) {
  size_t most = 0;
  for (const Program& program : schedule.programs) most = std::max(most, program.size());
  return most;
}

using enum CollectiveKind;
using testing::sent;

TEST(Shapes, RingSendsTheLeast) {
  for (int n : {2, 3, 5, 8}) {
    Schedule ring = draw(kAllReduce, "ring", n);
    EXPECT_EQ(rounds(ring), 2u * (n - 1));
    for (Node node = 0; node < n; ++node) EXPECT_EQ(sent(ring, node, 60 * n), 2 * (n - 1) * 60);
  }
}

TEST(Shapes, HalvingDoublingSendsTheLeastForPowersOfTwo) {
  Schedule schedule = draw(kAllReduce, "halving_doubling", 8);
  EXPECT_EQ(rounds(schedule), 6u);
  for (Node node = 0; node < 8; ++node) EXPECT_EQ(sent(schedule, node, 800), 2 * 7 * 100);
}

TEST(Shapes, HalvingDoublingFoldsTheRest) {
  Schedule schedule = draw(kAllReduce, "halving_doubling", 5);
  EXPECT_EQ(rounds(schedule), 6u);
  EXPECT_EQ(sent(schedule, 0, 400), 400);
  EXPECT_EQ(sent(schedule, 1, 400), 2 * 300 + 400);
  EXPECT_EQ(sent(schedule, 4, 400), 2 * 300);
}

TEST(Shapes, DoublingHasLogarithmicRounds) {
  EXPECT_EQ(rounds(draw(kAllReduce, "doubling", 16)), 4u);
  EXPECT_EQ(rounds(draw(kAllReduce, "doubling", 17)), 6u);
  EXPECT_EQ(rounds(draw(CollectiveKind::kBarrier, "doubling", 8)), 3u);
}

TEST(Shapes, DirectSendsByShares) {
  Schedule schedule = draw(kAllReduce, "direct", 4, {5, 3, 2, 0});
  EXPECT_EQ(rounds(schedule), 2u);
  for (Node node = 0; node < 4; ++node) {
    EXPECT_EQ(sent(schedule, node, 100), 100 + 2 * static_cast<int64_t>(schedule.shares[node]) * 10);
  }
}

TEST(Shapes, DirectReducesInOnePassInTheOrderOfRanks) {
  Schedule schedule = draw(kAllReduce, "direct", 4);
  for (Node node = 0; node < 4; ++node) {
    const Step& last = schedule.programs[node][0].back();
    ASSERT_EQ(last.op, Op::kReduce);
    ASSERT_EQ(last.sources.size(), 4u);
    for (Node from = 0; from < 4; ++from) EXPECT_EQ(last.sources[from].from, from == node ? -1 : from);
  }
}

TEST(Shapes, OneShotHasOneRound) { EXPECT_EQ(rounds(draw(kAllReduce, "gather_all", 7)), 1u); }

TEST(Shapes, TreesHaveLogarithmicRounds) {
  EXPECT_EQ(sent(draw(CollectiveKind::kBroadcast, "binomial", 9), 0, 10), 40);
  EXPECT_EQ(sent(draw(CollectiveKind::kBroadcast, "direct", 9), 0, 10), 80);
  EXPECT_EQ(draw(CollectiveKind::kReduce, "binomial", 9).programs[0].size(), 4u);
  EXPECT_EQ(draw(CollectiveKind::kReduce, "binomial", 8).programs[0].size(), 3u);
}

TEST(Shapes, DoubleTreeSharesTheWork) {
  for (int n = 2; n <= 33; ++n) {
    Schedule schedule = draw(kAllReduce, "double_tree", n);
    size_t levels = std::bit_width(static_cast<unsigned>(n)) - 1;
    EXPECT_LE(rounds(schedule), 2 * levels) << n;
    int leaves_of_both = 0;
    for (Node node = 0; node < n; ++node) {
      EXPECT_LE(sent(schedule, node, 100), 200) << n;
      std::set<int> inner_in;
      for (const Round& round : schedule.programs[node]) {
        for (const Step& step : round) {
          if (step.op == Op::kReduce) inner_in.insert(step.target.first);
        }
      }
      EXPECT_LE(inner_in.size(), 1u) << n << " " << node;
      if (inner_in.empty()) ++leaves_of_both;
    }
    EXPECT_EQ(leaves_of_both, n % 2) << n;
  }
}

TEST(Shapes, ReduceKeepsPartialSumsInScratch) {
  Schedule schedule = draw(CollectiveKind::kReduce, "binomial", 8);
  for (Node node = 0; node < 8; ++node) {
    for (const Round& round : schedule.programs[node]) {
      for (const Step& step : round) {
        if (step.op != Op::kReduce) continue;
        EXPECT_EQ(step.target.buffer, node == 0 ? Buffer::kOutput : Buffer::kScratch);
      }
    }
  }
}

TEST(Shapes, PairwiseReceivesFromOneAtATime) {
  Schedule schedule = draw(CollectiveKind::kAllToAll, "pairwise", 6);
  EXPECT_EQ(rounds(schedule), 5u);
  for (const Program& program : schedule.programs) {
    for (const Round& round : program) {
      EXPECT_EQ(std::count_if(round.begin(), round.end(), [](const Step& s) { return s.op == Op::kRecv; }), 1);
    }
  }
  EXPECT_EQ(rounds(draw(CollectiveKind::kAllToAll, "direct", 6)), 1u);
}

}  // namespace
}  // namespace braid
