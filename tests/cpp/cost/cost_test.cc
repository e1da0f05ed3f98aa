// SPDX-License-Identifier: Apache-2.0
// Predictions against the closed forms of the literature.
#include "cost/cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cost/shares.h"
#include "planner/planners.h"

namespace braid {
namespace {

constexpr double kAlpha = 3e-5;
constexpr double kBeta = 8e-9;
constexpr Rates kRates{2e-10, 1e-6};
constexpr Pipeline kDeep{1024, 1024};
constexpr double kBytes = 64.0 * 9 * 7 * 5 * 1024;

Schedule draw(CollectiveKind kind, const char* algorithm, int ranks, const std::vector<uint64_t>& shares = {}) {
  return find_algorithm(kind, algorithm)->plan({kind, ranks, 0}, {shares, {}}).value();
}

double predicted_s(const Schedule& schedule, const Topology& topology) {
  Result<double> result = predict_s(schedule, static_cast<int64_t>(kBytes), topology, kRates);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result.value() : 0;
}

void expect_seconds(CollectiveKind kind, const char* algorithm, int n, double expected_s) {
  double s = predicted_s(draw(kind, algorithm, n), uniform(n, kAlpha, kBeta));
  EXPECT_NEAR(s, expected_s, expected_s * 1e-9) << algorithm << " " << n;
}

constexpr CollectiveKind kAllReduce = CollectiveKind::kAllReduce;
constexpr double kStart = kAlpha + kRates.overhead_s;
constexpr double kGamma = kRates.reduce_s_per_byte;

TEST(Cost, Ring) {
  for (int n : {2, 3, 4, 5, 8}) {
    expect_seconds(kAllReduce, "ring", n, 2 * (n - 1) * kStart + kBytes * (n - 1) / n * (2 * kBeta + kGamma));
  }
}

TEST(Cost, Doubling) {
  for (int log = 1; log <= 4; ++log) {
    expect_seconds(kAllReduce, "doubling", 1 << log, log * (kStart + kBytes * (kBeta + kGamma)));
  }
  expect_seconds(kAllReduce, "doubling", 5, 4 * (kStart + kBytes * kBeta) + 3 * kBytes * kGamma);
}

TEST(Cost, HalvingDoubling) {
  for (int log = 1; log <= 4; ++log) {
    double n = 1 << log;
    expect_seconds(kAllReduce, "halving_doubling", 1 << log,
                   2 * log * kStart + kBytes * (n - 1) / n * (2 * kBeta + kGamma));
  }
}

TEST(Cost, DirectPaysTwoLatencies) {
  for (int n : {2, 3, 4, 8}) {
    expect_seconds(kAllReduce, "direct", n,
                   2 * (kAlpha + (n - 1) * kRates.overhead_s) + 2 * kBytes * (n - 1) / n * kBeta +
                       kBytes / n * (n + 1) / 3 * kGamma);
  }
}

// Out of buckets that are full when it begins; what a round has spent the next one has not.
TEST(Cost, NicsPassABurstAtOnce) {
  const auto doubling = [](int ranks, double burst_bytes) {
    Topology topology = uniform(ranks, kAlpha, kBeta);
    topology.set_burst_bytes(burst_bytes);
    return predicted_s(draw(kAllReduce, "doubling", ranks), topology);
  };
  for (const int log : {1, 2}) {
    const int n = 1 << log;
    const double rest_s = log * (kStart + kBytes * kGamma);
    EXPECT_NEAR(doubling(n, 0), rest_s + log * kBytes * kBeta, 1e-9);
    EXPECT_NEAR(doubling(n, 0.25 * kBytes), rest_s + (log - 0.25) * kBytes * kBeta, 1e-9);
    EXPECT_NEAR(doubling(n, log * kBytes), rest_s, 1e-9);
    EXPECT_NEAR(doubling(n, 100 * kBytes), rest_s, 1e-9);
  }
  EXPECT_NEAR(doubling(4, 1.5 * kBytes), 2 * (kStart + kBytes * kGamma) + 0.5 * kBytes * kBeta, 1e-9);
}

// A message to a slow NIC passes as soon as that NIC lets it, whatever the sender could do.
TEST(Cost, BurstsOfSlowNicsCountOnTheirWayFromFastOnes) {
  Topology topology = uniform(2, kAlpha, kBeta);
  topology.set_nic(1, {4 * kBeta, 4 * kBeta});
  topology.set_burst_bytes(kBytes / 2);
  const double s = predicted_s(draw(kAllReduce, "doubling", 2), topology);
  EXPECT_NEAR(s, kStart + kBytes * kGamma + kBytes / 2 * 4 * kBeta, 1e-9);
}

TEST(Cost, OfManySegmentsTheFirstAloneHasABurst) {
  Topology topology = uniform(2, kAlpha, kBeta);
  const Schedule schedule = draw(kAllReduce, "ring", 2);
  const auto in_four = [&] {
    return predict_s(schedule, static_cast<int64_t>(kBytes), topology, kRates, {4, 4}).value();
  };
  const double without_s = in_four();
  topology.set_burst_bytes(kBytes / 16);
  EXPECT_NEAR(in_four(), without_s - kBytes / 16 * kBeta, 1e-9);
}

// Three ranks on every core: what all ranks' messages cost, once for a rank's own and twice for others'.
TEST(Cost, RanksThatShareCoresWaitForAllMessages) {
  const double message_s = 1e-4;
  const auto waits_s = [&](const char* algorithm, int ranks, int segments) {
    const Topology topology = uniform(ranks, kAlpha, kBeta);
    Rates rates = kRates;
    rates.nic_overhead_s = message_s;
    const Schedule schedule = draw(kAllReduce, algorithm, ranks);
    const auto bytes = static_cast<int64_t>(kBytes);
    const double alone_s = predict_s(schedule, bytes, topology, rates, {segments, 4}).value();
    rates.sharers = 3;
    return predict_s(schedule, bytes, topology, rates, {segments, 4}).value() - alone_s;
  };
  EXPECT_NEAR(waits_s("gather_all", 6, 1), 2 * 5 * message_s, 1e-9);
  EXPECT_NEAR(waits_s("doubling", 4, 1), 2 * 2 * message_s, 1e-9);
  EXPECT_NEAR(waits_s("doubling", 6, 1), 2 * 12 / 6 * message_s, 1e-9) << "two are done after one message each";
  EXPECT_EQ(waits_s("gather_all", 6, 8), 0) << "passes while the NICs are busy";
}

TEST(Cost, GatherAllPaysOneLatency) {
  for (int n : {2, 4, 7}) {
    expect_seconds(kAllReduce, "gather_all", n,
                   kAlpha + (n - 1) * (kRates.overhead_s + kBytes * kBeta) + kBytes * (n + 1) / 3 * kGamma);
  }
}

TEST(Cost, BlocksAreSharesOfTheWhole) {
  expect_seconds(CollectiveKind::kAllToAll, "pairwise", 5,
                 4 * (kStart + kBytes / 5 * kBeta) + kBytes / 5 * kGamma * 2 / 3);
  expect_seconds(CollectiveKind::kReduceScatter, "ring", 5, 4 * (kStart + kBytes / 5 * (kBeta + kGamma)));
}

TEST(Cost, OneRankOnlyCopies) { expect_seconds(kAllReduce, "ring", 1, kBytes * kGamma * 2 / 3); }

TEST(Cost, NothingToSendStillTakesItsLatency) {
  Result<double> s = predict_s(draw(kAllReduce, "ring", 4), 0, uniform(4, kAlpha, kBeta), kRates);
  EXPECT_NEAR(s.value(), 6 * kStart, 1e-12);
}

TEST(Cost, ARingIsAsSlowAsItsSlowestNic) {
  Topology topology = uniform(4, 0, kBeta);
  topology.set_nic(2, {5 * kBeta, 5 * kBeta});
  double s = predicted_s(draw(kAllReduce, "ring", 4), topology);
  EXPECT_NEAR(s, 2 * 3 * kBytes / 4 * 5 * kBeta, 0.02 * s);
}

TEST(Cost, RightSharesBeatTheRingOnUnequalNics) {
  // 1000/1000/1000/200 Mbit/s, 16 MiB: 1.007 s for any ring, 0.671 s at best.
  Topology topology = uniform(4, 0, 8e-9);
  topology.set_nic(3, {4e-8, 4e-8});
  auto seconds = [&](const char* algorithm, const std::vector<uint64_t>& shares) {
    return predict_s(draw(kAllReduce, algorithm, 4, shares), 16 << 20, topology, Rates{0, 0}, kDeep).value();
  };
  EXPECT_NEAR(seconds("ring", {}), 1.007, 0.001);
  EXPECT_NEAR(seconds("direct", {}), 1.007, 0.001);
  EXPECT_NEAR(seconds("direct", rank_shares(topology)), 0.671, 0.001);
}

TEST(Cost, SegmentsHideWhatIsNotTheBottleneck) {
  Schedule tree = draw(CollectiveKind::kBroadcast, "binomial", 8);
  Topology topology = uniform(8, 0, kBeta);
  auto seconds = [&](int segments) {
    return predict_s(tree, 1 << 20, topology, Rates{0, 0}, {segments, segments}).value();
  };
  double vector_s = (1 << 20) * kBeta;
  EXPECT_NEAR(seconds(1), 3 * vector_s, 1e-9);
  EXPECT_NEAR(seconds(1024), 3 * vector_s, 1e-9);  // the root's port is busy all the time either way
  Schedule sum = draw(kAllReduce, "gather_all", 2);
  double pair_s = predict_s(sum, 1 << 20, uniform(2, 0, kBeta), Rates{kBeta, 0}, kDeep).value();
  EXPECT_NEAR(pair_s, vector_s, 0.002 * vector_s);  // twice that when reducing waits for the wire
  EXPECT_EQ(predict_s(tree, 1 << 20, topology, kRates, {0, 4}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(predict_s(tree, 1 << 20, topology, kRates, {4, 0}).status().code(), Code::kInvalidArgument);
}

TEST(Cost, AWindowBoundsHowMuchIsHidden) {
  const Schedule ring = draw(kAllReduce, "ring", 8);
  const auto seconds = [&](int64_t segments, int window) {
    return predict_s(ring, 1 << 20, uniform(8, kAlpha, 0), Rates{0, 0}, {segments, window}).value();
  };
  const double one_s = 14 * kAlpha;  // and nothing is ever busy
  EXPECT_NEAR(seconds(1, 4), one_s, 1e-12);
  EXPECT_NEAR(seconds(9, 4), one_s + 8 * one_s / 4, 1e-12);
  EXPECT_NEAR(seconds(9, 1), 9 * one_s, 1e-12);
}

TEST(Cost, OnBoardsTheRootOfABroadcastWritesOnce) {
  const Schedule flat = draw(CollectiveKind::kBroadcast, "direct", 5);
  Rates rates = kRates;
  rates.writes_once = true;
  const double start_s = kAlpha + 4 * rates.overhead_s + 1e6 * kGamma * 2 / 3;  // the root copies its input, too
  const auto on_boards = predict_s(flat, 1'000'000, Topology({0, 0, 0, 0, 0}, {kAlpha, kBeta}, {}), rates);
  EXPECT_NEAR(on_boards.value(), start_s + 1e6 * kBeta, 1e-12);
  // Between hosts every copy leaves the NIC.
  EXPECT_NEAR(predict_s(flat, 1'000'000, uniform(5, kAlpha, kBeta), rates).value(), start_s + 4e6 * kBeta, 1e-12);
}

// Two hosts of four: in a flat ring one rank of each sends over its NIC, in direct exchange all do.
TEST(Cost, NodesOfAHostShareItsNic) {
  constexpr double kMemory = 1e-12;
  const Topology topology({0, 0, 0, 0, 1, 1, 1, 1}, {0, kMemory}, {0, kBeta});
  const auto seconds = [&](CollectiveKind kind, const char* algorithm, const Topology& on) {
    return predict_s(draw(kind, algorithm, 8), static_cast<int64_t>(kBytes), on, Rates{0, 0}).value();
  };
  EXPECT_NEAR(seconds(kAllReduce, "ring", topology), 2 * kBytes * 7 / 8 * kBeta, 1e-9);
  // A host sends 4 ranks' parts of 4 chunks, then 4 sums to 4 ranks each.
  EXPECT_NEAR(seconds(kAllReduce, "direct", topology), 2 * 16 * kBytes / 8 * kBeta, 1e-9);
  EXPECT_NEAR(seconds(kAllReduce, "gather_all", topology), 16 * kBytes * kBeta, 1e-9);
  Topology slow_down = topology;
  slow_down.set_nic(1, {kBeta, 3 * kBeta});
  EXPECT_NEAR(seconds(kAllReduce, "gather_all", slow_down), 16 * kBytes * 3 * kBeta, 1e-9);
  // Only the root sends, and has the NIC to itself, as the receivers' host has: 4 copies.
  EXPECT_NEAR(seconds(CollectiveKind::kBroadcast, "direct", topology), 4 * kBytes * kBeta, 1e-9);
}

TEST(Cost, NodesThatSendMoreGetMoreOfTheNic) {
  // Rank 0 owns all: rank 1 of its host sends nothing over the NIC, and ranks 2 and 3 the same as each other.
  const Topology topology({0, 0, 1, 1}, {0, 0}, {0, kBeta});
  const Schedule one_owner = draw(kAllReduce, "direct", 4, {1, 0, 0, 0});
  const double s = predict_s(one_owner, 1'000'000, topology, Rates{0, 0}).value();
  EXPECT_NEAR(s, 2e6 * kBeta + 2e6 * kBeta, 1e-12);
}

TEST(Cost, TheBottleneckIsTheBusiestNicOfAHost) {
  const Topology topology({0, 0, 0, 0, 1, 1, 1, 1}, {0, 1e-12}, {0, kBeta});
  const double s = predict_s(draw(kAllReduce, "direct", 8), 1 << 24, topology, Rates{0, 0}, kDeep).value();
  EXPECT_NEAR(s, 2 * 16 * double{1 << 24} / 8 * kBeta, 0.002 * s);
}

TEST(Cost, AFastSenderWaitsForASlowNicButIsNotBusyMeanwhile) {
  Topology topology = uniform(3, 0, kBeta);
  topology.set_nic(1, {kBeta, 5 * kBeta});
  topology.set_nic(2, {kBeta, 5 * kBeta});
  const Schedule flat = draw(CollectiveKind::kBroadcast, "direct", 3);
  // Both receivers take their copies at the same time.
  EXPECT_NEAR(predict_s(flat, 1'000'000, topology, Rates{0, 0}).value(), 5e6 * kBeta, 1e-12);
  const double s = predict_s(flat, 1'000'000, topology, Rates{0, 0}, kDeep).value();
  EXPECT_NEAR(s, 5e6 * kBeta, 0.002 * s);
}

TEST(Cost, ALinkOfItsOwnIsNotTheNic) {
  Topology slow = uniform(2, 0, kBeta);
  slow.set_link(0, 1, {0, 7 * kBeta});
  const Schedule pair = draw(CollectiveKind::kBroadcast, "direct", 2);
  EXPECT_NEAR(predict_s(pair, 1'000'000, slow, Rates{0, 0}).value(), 7e6 * kBeta, 1e-12);
  EXPECT_NEAR(predict_s(pair, 1 << 20, slow, Rates{0, 0}, kDeep).value(), (1 << 20) * 7 * kBeta, 1e-9);
  Topology fast = uniform(2, 0, kBeta);
  fast.set_link(0, 1, {0, kBeta / 4});
  EXPECT_NEAR(predict_s(pair, 1'000'000, fast, Rates{0, 0}).value(), 0.25e6 * kBeta, 1e-12);
}

TEST(Cost, IsNeverBelowTheBandwidthBound) {
  for (const Algorithm& algorithm : algorithms(kAllReduce)) {
    for (int n = 2; n <= 17; ++n) {
      double s = predicted_s(draw(kAllReduce, algorithm.name.data(), n), uniform(n, kAlpha, kBeta));
      EXPECT_GE(s, 2 * kBytes * (n - 1) / n * kBeta) << algorithm.name << n;
    }
  }
}

TEST(Cost, WhatHasNoShareTakesNothing) {
  const Collective three{kAllReduce, 3, 0};
  const auto seconds = [&](const PlanOptions& options) {
    const Schedule schedule = find_algorithm(kAllReduce, "direct")->plan(three, options).value();
    return predict_s(schedule, 3'000'000, uniform(schedule.nodes(), kAlpha, kBeta), kRates, {8, 4}).value();
  };
  EXPECT_EQ(seconds({{1, 1, 1, 0, 0}, {}, 2}), seconds({{1, 1, 1}, {}}));
  EXPECT_GT(seconds({{1000, 1000, 1000, 1, 0}, {}, 2}), seconds({{1, 1, 1}, {}}));
}

// Everything to the only owner and back: three vectors into its NIC and out of it.
TEST(Cost, AnAggregatorHasANicAndAddsUp) {
  const Schedule schedule =
      find_algorithm(kAllReduce, "direct")->plan({kAllReduce, 3, 0}, {{0, 0, 0, 1}, {}, 1}).value();
  const double s = predict_s(schedule, 1'000'000, uniform(4, kAlpha, kBeta), kRates).value();
  EXPECT_NEAR(s, 2 * (kAlpha + 3 * kRates.overhead_s + 3e6 * kBeta) + 1e6 * kGamma * 4 / 3, 1e-12);
}

TEST(Cost, RefusesWhatDoesNotFit) {
  const Schedule helped = find_algorithm(kAllReduce, "direct")->plan({kAllReduce, 3, 0}, {{}, {}, 1}).value();
  EXPECT_EQ(predict_s(helped, 8, uniform(3, 0, 0), kRates).status().message(),
            "a topology of 3 nodes for 3 ranks and 1 aggregator");
  Schedule ring = draw(kAllReduce, "ring", 4);
  EXPECT_EQ(predict_s(ring, 8, uniform(3, 0, 0), kRates).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(predict_s(ring, -8, uniform(4, 0, 0), kRates).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace braid
