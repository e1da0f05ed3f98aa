// SPDX-License-Identifier: Apache-2.0
// Choices where nodes after the ranks only add up.
#include <gtest/gtest.h>

#include "support/choices.h"

namespace braid::testing {
namespace {

// Four ranks and an aggregator, each on a host of its own; 1 Gbit/s, the aggregator's NIC as said.
Topology with_an_aggregator(double s_per_byte = 8e-9) {
  Topology topology = uniform(5, 1e-4, 8e-9);
  topology.set_nic(4, {s_per_byte, s_per_byte});
  return topology;
}

TEST(Aggregators, GetWhatTheirNicsBear) {
  TunerOptions options;
  options.chunk_bytes = 1 << 18;
  const Collective four{CollectiveKind::kAllReduce, 4, 0};
  const auto choice = [&](const Topology& topology) {
    return chosen(four, kHuge, topology, DType::kFloat32, ReduceOp::kSum, options);
  };
  const Choice helped = choice(with_an_aggregator());
  EXPECT_EQ(considered(helped), std::set<std::string>{"direct"});
  EXPECT_EQ(helped.schedule->schedule().aggregators(), 1);
  ASSERT_EQ(helped.shares.size(), 5u);
  EXPECT_GT(helped.shares[4], helped.shares[0]);
  EXPECT_NE(helped.reason.find("on 4 ranks and 1 aggregator: direct"), std::string::npos) << helped.reason;
  // The closed form: 6/4 without, 6/(4 + 1/2) with it.
  const Choice alone = choice(uniform(4, 1e-4, 8e-9));
  options.algorithm = "direct";
  EXPECT_NEAR(choice(uniform(4, 1e-4, 8e-9)).predicted_s / helped.predicted_s, 4.5 / 4, 0.02);
  EXPECT_LT(helped.predicted_s, alone.predicted_s);
}

TEST(Aggregators, AreLeftOutWhereTheyDoNotHelp) {
  TunerOptions options;
  options.algorithm = "direct";
  options.chunk_bytes = 1 << 18;
  const Collective four{CollectiveKind::kAllReduce, 4, 0};
  const auto choice = [&](const Topology& topology, int64_t bytes) {
    return chosen(four, bytes, topology, DType::kFloat32, ReduceOp::kSum, options);
  };
  for (const int64_t bytes : {kTiny, int64_t{4096}, kHuge}) {
    const Choice choice_with = choice(with_an_aggregator(1e-4), bytes);
    ASSERT_EQ(choice_with.shares.size(), 5u) << bytes;
    EXPECT_LE(choice_with.shares[4], 100u) << bytes;
    EXPECT_LE(choice_with.predicted_s, choice(uniform(4, 1e-4, 8e-9), bytes).predicted_s * 1.01) << bytes;
  }
  EXPECT_EQ(choice(with_an_aggregator(), kTiny).shares, (std::vector<uint64_t>{1, 1, 1, 1, 0}));
}

TEST(Aggregators, HavePartsBesideHosts) {
  TunerOptions options;
  options.chunk_bytes = 1 << 18;
  const Collective six{CollectiveKind::kAllReduce, 6, 0};
  const Topology topology({0, 0, 1, 1, 2, 2, 3, 0}, {1e-6, 1e-10}, {1e-4, 8e-9});
  const Choice choice = chosen(six, kHuge, topology, DType::kFloat32, ReduceOp::kSum, options);
  EXPECT_EQ(considered(choice), (std::set<std::string>{"direct", "hierarchical_direct"}));
  options.algorithm = "hierarchical_direct";
  const Choice forced = chosen(six, kHuge, topology, DType::kFloat32, ReduceOp::kSum, options);
  ASSERT_EQ(forced.shares.size(), 5u);  // three hosts, two aggregators, of which one is on the first host
  EXPECT_GT(forced.shares[3], 0u);
  EXPECT_EQ(forced.shares[4], 0u);
  options.shares = {1, 2, 3, 4, 5, 6, 7, 8};
  const Choice asked = chosen(six, kHuge, topology, DType::kFloat32, ReduceOp::kSum, options);
  EXPECT_EQ(asked.shares, (std::vector<uint64_t>{3, 7, 11, 7, 8}));
  // Ranks on one host are no hierarchy, wherever an aggregator is.
  options = {};
  const Topology flat({0, 0, 0, 1}, {1e-6, 1e-10}, {1e-4, 8e-9});
  EXPECT_EQ(considered(chosen({CollectiveKind::kAllReduce, 3, 0}, kHuge, flat)), std::set<std::string>{"direct"});
}

TEST(Aggregators, WithoutWorkAreRefused) {
  ScheduleCache cache;
  TunerOptions options;
  const auto refusal = [&](CollectiveKind kind) {
    return choose({kind, 4, 0}, DType::kFloat32, ReduceOp::kSum, kTiny, with_an_aggregator(), options, cache)
        .status();
  };
  EXPECT_EQ(refusal(CollectiveKind::kBroadcast).code(), Code::kUnsupported);
  EXPECT_EQ(refusal(CollectiveKind::kBroadcast).message(), "broadcast: no algorithm has work for aggregators");
  options.algorithm = "all_reduce=ring";
  EXPECT_EQ(refusal(CollectiveKind::kAllReduce).code(), Code::kInvalidArgument);
  EXPECT_EQ(refusal(CollectiveKind::kAllReduce).message(),
            "all_reduce: the forced algorithm ring has no work for aggregators");
  options = {};
  options.shares = {1, 1, 1, 1};
  EXPECT_EQ(refusal(CollectiveKind::kAllReduce).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace braid::testing
