// SPDX-License-Identifier: Apache-2.0
#include "tuner/tuner.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "cost/flight.h"
#include "schedule/segments.h"
#include "support/choices.h"

namespace braid {
namespace {

using testing::chosen;
using testing::considered;
using testing::kHuge;
using testing::kTiny;

constexpr Collective kEight{CollectiveKind::kAllReduce, 8, 0};

TEST(Tuner, TakesFewRoundsForTinyTensors) {
  EXPECT_EQ(chosen(kEight, kTiny, uniform(8, 5e-5, 8e-9)).algorithm, "gather_all");
  EXPECT_EQ(chosen({CollectiveKind::kAllToAll, 8, 0}, kTiny, uniform(8, 5e-5, 8e-9)).algorithm, "direct");
  EXPECT_EQ(chosen({CollectiveKind::kAllGather, 8, 0}, kTiny, uniform(8, 5e-5, 8e-9)).algorithm, "direct");
}

TEST(Tuner, TakesFewBytesForLargeTensors) {
  std::string algorithm = chosen(kEight, kHuge, uniform(8, 5e-5, 8e-9)).algorithm;
  EXPECT_TRUE(algorithm == "ring" || algorithm == "direct" || algorithm == "halving_doubling") << algorithm;
  EXPECT_EQ(chosen({CollectiveKind::kBroadcast, 8, 3}, kHuge, uniform(8, 5e-5, 8e-9)).algorithm, "binomial");
}

TEST(Tuner, DoesNotFloodPortsWhenMessagesAreDear) {
  TunerOptions options;
  options.rates.overhead_s = 1e-4;  // as much as the latency: 63 messages are dearer than 6 rounds
  Collective many{CollectiveKind::kAllReduce, 64, 0};
  EXPECT_EQ(chosen(many, kTiny, uniform(64, 1e-4, 1e-9), DType::kFloat32, ReduceOp::kSum, options).algorithm,
            "doubling");
}

Topology with_a_slow_nic(int hosts, int ranks_per_host = 1) {
  std::vector<int> host_of;
  for (int host = 0; host < hosts; ++host) host_of.insert(host_of.end(), ranks_per_host, host);
  Topology topology(host_of, {1e-6, 1e-10}, {1e-4, 8e-9});
  topology.set_nic(hosts - 1, {1.25e-8, 1.25e-8});  // a tree with this rank as a leaf is slower than direct
  return topology;
}

TEST(Tuner, GivesASlowNicASmallShare) {
  TunerOptions options;
  options.chunk_bytes = 1 << 18;
  Choice choice = chosen({CollectiveKind::kAllReduce, 4, 0}, kHuge, with_a_slow_nic(4), DType::kFloat32,
                         ReduceOp::kSum, options);
  EXPECT_EQ(choice.algorithm, "direct");
  const auto& shares = choice.schedule->schedule().shares;
  ASSERT_EQ(shares.size(), 4u);
  EXPECT_LT(shares[3], shares[0] / 4);
}

TEST(Tuner, KeepsEqualSharesForASingleSegment) {
  TunerOptions options;
  options.algorithm = "direct";
  for (const std::optional<int64_t>& chunk_bytes : {std::optional<int64_t>(), std::optional(kHuge)}) {
    options.chunk_bytes = chunk_bytes;
    Choice choice = chosen({CollectiveKind::kAllReduce, 4, 0}, 1 << 20, with_a_slow_nic(4), DType::kFloat32,
                           ReduceOp::kSum, options);
    EXPECT_TRUE(choice.schedule->schedule().shares.empty()) << chunk_bytes.value_or(0);
    EXPECT_TRUE(choice.runners_up.empty());
  }
}

TEST(Tuner, CountsSegmentsAsTheyWillBeCut) {
  const Topology topology = uniform(4, 0, 8e-9);
  TunerOptions options;
  options.algorithm = "direct";
  options.rates = {0, 0};
  options.chunk_bytes = 1 << 16;
  const auto seconds = [&](int window) {
    options.window = window;
    return chosen({CollectiveKind::kAllReduce, 4, 0}, 1 << 24, topology, DType::kFloat32, ReduceOp::kSum, options)
        .predicted_s;
  };
  // The NIC is busy all the time with one segment under way, too: nothing is computed and there is no latency.
  EXPECT_NEAR(seconds(1), 1.5 * (1 << 24) * 8e-9, 1e-6);
  EXPECT_NEAR(seconds(64), seconds(1), 1e-9);
  options.rates.reduce_s_per_byte = 8e-9;
  EXPECT_LT(seconds(64), 0.8 * seconds(1));
  options.chunk_bytes = std::nullopt;
  EXPECT_NEAR(seconds(64), seconds(1), 1e-12);
}

TEST(Tuner, CutsToSuitTheNics) {
  TunerOptions options;
  options.algorithm = "direct";
  const Collective four{CollectiveKind::kAllReduce, 4, 0};
  const auto choice = [&] {
    return chosen(four, 1 << 24, with_a_slow_nic(4), DType::kFloat32, ReduceOp::kSum, options);
  };
  EXPECT_EQ(choice().chunk_bytes, 0);
  options.chunk_bytes = 1 << 14;
  EXPECT_EQ(choice().chunk_bytes, 1 << 14);
  options.chunk_bytes = 0;
  Choice suited = choice();
  EXPECT_EQ(suited.chunk_bytes, chunk_bytes_for(suited.schedule->schedule(), with_a_slow_nic(4), options.window));
}

// 64 KiB over a NIC of 25 Mbit/s: whole, its owner-less rank sends all of it and then receives all of it.
TEST(Tuner, CutsFinerWhereThatOverlapsMoreThanItCosts) {
  Topology slow = uniform(4, 1e-4, 8e-8);
  slow.set_nic(3, {3.2e-7, 3.2e-7});
  TunerOptions options;
  options.algorithm = "direct";
  options.chunk_bytes = 0;
  const Collective four{CollectiveKind::kAllReduce, 4, 0};
  const auto choice = [&](int64_t bytes) {
    return chosen(four, bytes, slow, DType::kFloat32, ReduceOp::kSum, options);
  };
  const Choice cut = choice(1 << 16);
  const Schedule& schedule = cut.schedule->schedule();
  EXPECT_LT(cut.chunk_bytes, chunk_bytes_for(schedule, slow, options.window));
  EXPECT_GE(cut.chunk_bytes, 4096);
  EXPECT_EQ(cut.chunk_bytes % 64, 0);
  EXPECT_LT(cut.predicted_s, 0.9 * 1.5 * (1 << 16) * 3.2e-7) << "as long as a ring's bytes take";
  EXPECT_EQ(cut.predicted_s, predict_s(schedule, 1 << 16, slow, options.rates,
                                       {segments_of(schedule, 1 << 16, cut.chunk_bytes), options.window})
                                 .value());
  // Nor where the user has said how, nor where messages cost as much as they bring.
  options.chunk_bytes = 1 << 15;
  EXPECT_EQ(choice(1 << 16).chunk_bytes, 1 << 15);
  options.chunk_bytes = 0;
  options.rates.nic_overhead_s = 1e-2;
  const Choice dear = choice(1 << 16);
  EXPECT_EQ(dear.chunk_bytes, chunk_bytes_for(dear.schedule->schedule(), slow, options.window));
}

TEST(Tuner, LeavesThePlainAlgorithmForAGainAboveTheMargin) {
  TunerOptions options;
  options.chunk_bytes = 1 << 18;
  const Collective four{CollectiveKind::kAllReduce, 4, 0};
  const Topology topology = uniform(4, 1e-4, 8e-9);
  const auto choice = [&](int64_t bytes, double margin) {
    options.margin = margin;
    return chosen(four, bytes, topology, DType::kFloat32, ReduceOp::kSum, options);
  };
  Choice eager = choice(1 << 22, 0);
  EXPECT_NE(eager.algorithm, "ring");
  Choice plain = choice(1 << 22, 0.5);
  EXPECT_EQ(plain.algorithm, "ring");
  ASSERT_EQ(plain.runners_up.size(), eager.runners_up.size());
  EXPECT_EQ(plain.runners_up[0].algorithm, eager.algorithm);
  EXPECT_NE(choice(64, 0.5).algorithm, "ring");
}

TEST(Tuner, ExplainsTheSharesOfTheClass) {
  TunerOptions options;
  options.chunk_bytes = 1 << 18;
  auto tuner = std::move(Tuner::create(with_a_slow_nic(4), options)).value();
  const Collective four{CollectiveKind::kAllReduce, 4, 0};
  Choice large = tuner->explain(four, DType::kFloat32, ReduceOp::kSum, kHuge, kHuge).value();
  Choice small = tuner->explain(four, DType::kFloat32, ReduceOp::kSum, kHuge, 1 << 16).value();
  EXPECT_EQ(large.schedule, small.schedule);
  EXPECT_LT(small.predicted_s, large.predicted_s);
}

TEST(Tuner, UsesTheSharesItIsGiven) {
  TunerOptions options;
  options.algorithm = "direct";
  options.shares = {1, 2, 3};
  Choice choice =
      chosen({CollectiveKind::kAllReduce, 3, 0}, kTiny, one_host(3), DType::kFloat32, ReduceOp::kSum, options);
  EXPECT_EQ(choice.schedule->schedule().shares, options.shares);
  options.shares = {1, 2};
  ScheduleCache cache;
  const auto refused = choose({CollectiveKind::kAllReduce, 3, 0}, DType::kFloat32, ReduceOp::kSum, kTiny,
                              one_host(3), options, cache);
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
}

TEST(Tuner, GivesAlgorithmsOfHostsSharesPerHost) {
  TunerOptions options;
  options.algorithm = "hierarchical_direct";
  options.chunk_bytes = 1 << 18;
  const Collective twelve{CollectiveKind::kAllReduce, 12, 0};
  const Topology topology = with_a_slow_nic(4, 3);
  Choice choice = chosen(twelve, kHuge, topology, DType::kFloat32, ReduceOp::kSum, options);
  EXPECT_FALSE(choice.schedule->schedule().shares.empty());
  // The closed form: 1.5 / 0.64 seconds against 6 / 3.64.
  options.shares = std::vector<uint64_t>(12, 1);
  Choice equal = chosen(twelve, kHuge, topology, DType::kFloat32, ReduceOp::kSum, options);
  EXPECT_NEAR(equal.predicted_s / choice.predicted_s, 1.5 / 0.64 / (6 / 3.64), 0.05);
}

TEST(Tuner, RoundsSumsOfNarrowFloatsOnce) {
  const std::set<std::string> once = {"direct", "gather_all"};
  for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3Fn, DType::kFloat8E5M2}) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
      for (int64_t bytes : {kTiny, kHuge}) {
        Choice choice = chosen(kEight, bytes, uniform(8, 5e-5, 8e-9), dtype, op);
        EXPECT_EQ(considered(choice), once);
        EXPECT_NE(choice.reason.find("is rounded once, so not ring, doubling, halving_doubling, double_tree"),
                  std::string::npos)
            << choice.reason;
      }
    }
    EXPECT_EQ(considered(chosen(kEight, kHuge, one_host(8), dtype, ReduceOp::kMax)).size(), 6u);
    EXPECT_EQ(considered(chosen({CollectiveKind::kAllGather, 8, 0}, kHuge, one_host(8), dtype)).size(), 2u);
    EXPECT_EQ(considered(chosen({CollectiveKind::kReduce, 8, 0}, kHuge, one_host(8), dtype)),
              std::set<std::string>{"direct"});
  }
  EXPECT_EQ(considered(chosen(kEight, kHuge, one_host(8))).size(), 6u);
}

TEST(Tuner, ObeysTheForcedAlgorithm) {
  TunerOptions options;
  options.algorithm = "all_reduce=ring";
  Choice choice = chosen(kEight, kTiny, one_host(8), DType::kFloat16, ReduceOp::kSum, options);
  EXPECT_EQ(choice.algorithm, "ring");
  EXPECT_TRUE(choice.runners_up.empty());
  EXPECT_NE(choice.reason.find("forced by algorithm=all_reduce=ring"), std::string::npos) << choice.reason;
  Choice other =
      chosen({CollectiveKind::kBroadcast, 8, 0}, kTiny, one_host(8), DType::kFloat32, ReduceOp::kSum, options);
  EXPECT_EQ(considered(other).size(), 2u);
}

TEST(Tuner, ExplainsItself) {
  Choice choice = chosen({CollectiveKind::kAllReduce, 2, 0}, 1 << 20, uniform(2, 1e-3, 1e-9));
  EXPECT_EQ(choice.reason.rfind("all_reduce of 1 MiB on 2 ranks: " + choice.algorithm + " ", 0), 0u)
      << choice.reason;
  ASSERT_EQ(choice.runners_up.size(), 5u);
  double last_s = choice.predicted_s;
  for (const Candidate& candidate : choice.runners_up) {
    EXPECT_GE(candidate.predicted_s, last_s);
    last_s = candidate.predicted_s;
    EXPECT_NE(choice.reason.find(", then " + candidate.algorithm + " "), std::string::npos) << choice.reason;
  }
  EXPECT_EQ(choice.schedule->schedule().algorithm, choice.algorithm);
}

TEST(Tuner, HasAScheduleForEverything) {
  std::unique_ptr<Tuner> tuner = std::move(Tuner::create(one_host(5), {})).value();
  for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
    Collective collective{static_cast<CollectiveKind>(kind), 5, 0};
    auto choice = tuner->choose(collective, DType::kBFloat16, ReduceOp::kAvg, 1000);
    ASSERT_TRUE(choice.ok()) << choice.status().message();
    EXPECT_EQ(choice.value()->schedule->schedule().collective, collective);
  }
}

TEST(Tuner, RemembersChoicesPerSizeClass) {
  std::unique_ptr<Tuner> tuner = std::move(Tuner::create(one_host(8), {})).value();
  auto choose = [&](int64_t bytes, DType dtype = DType::kFloat32) {
    return tuner->choose(kEight, dtype, ReduceOp::kSum, bytes).value();
  };
  EXPECT_EQ(choose(1025), choose(2048));
  EXPECT_NE(choose(1024), choose(1025));
  EXPECT_EQ(choose(0), choose(1));
  EXPECT_EQ(choose(4096), choose(4096, DType::kInt64));
  EXPECT_NE(choose(4096), choose(4096, DType::kFloat16));
  EXPECT_EQ(choose(INT64_MAX), choose(INT64_MAX - 1));
}

// What two ranks choose may not depend on what either was asked before.
TEST(Tuner, ChoosesAlikeWhateverTheHistory) {
  std::unique_ptr<Tuner> one = std::move(Tuner::create(one_host(8), {})).value();
  std::unique_ptr<Tuner> other = std::move(Tuner::create(one_host(8), {})).value();
  for (int64_t bytes = 1; bytes < kHuge; bytes *= 3) {
    (void)one->choose(kEight, DType::kFloat32, ReduceOp::kSum, bytes + bytes / 2);
  }
  for (int64_t bytes = kHuge; bytes >= 1; bytes /= 5) {
    auto a = one->choose(kEight, DType::kFloat32, ReduceOp::kSum, bytes).value();
    auto b = other->choose(kEight, DType::kFloat32, ReduceOp::kSum, bytes).value();
    EXPECT_EQ(a->reason, b->reason);
    EXPECT_EQ(a->schedule->digest(), b->schedule->digest());
  }
}

TEST(Tuner, RefusesWrongArguments) {
  EXPECT_EQ(Tuner::create(one_host(2), TunerOptions{"spiral"}).status().code(), Code::kInvalidArgument);
  std::unique_ptr<Tuner> tuner = std::move(Tuner::create(one_host(2), {})).value();
  auto code = [&](const Collective& collective, int64_t bytes) {
    return tuner->choose(collective, DType::kFloat32, ReduceOp::kSum, bytes).status().code();
  };
  EXPECT_EQ(code({CollectiveKind::kAllReduce, 2, 0}, -1), Code::kInvalidArgument);
  EXPECT_EQ(code({CollectiveKind::kAllReduce, 3, 0}, 8), Code::kInvalidArgument);
  EXPECT_EQ(code({CollectiveKind::kBroadcast, 2, 2}, 8), Code::kInvalidArgument);
  for (const auto& [chunk_bytes, window] : {std::pair<int64_t, int>{-1, 4}, {1024, 0}}) {
    TunerOptions options;
    options.chunk_bytes = chunk_bytes;
    options.window = window;
    tuner = std::move(Tuner::create(one_host(2), options)).value();
    EXPECT_EQ(code({CollectiveKind::kAllReduce, 2, 0}, 8), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace braid
