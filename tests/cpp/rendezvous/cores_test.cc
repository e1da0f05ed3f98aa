// SPDX-License-Identifier: Apache-2.0
// Who shares cores with whom, and what that does to choices.
#include "rendezvous/cores.h"

#include <gtest/gtest.h>

#include <memory>

#include "links/tuning.h"

namespace braid {
namespace {

constexpr Collective kSix{CollectiveKind::kAllReduce, 6, 0};

TEST(Cores, ContainersOfAMachineShareItsCores) {
  const auto crowds = crowds_of(
      {{"boot-a ipc:[1]", "0,1"}, {"boot-a ipc:[2]", "0,1"}, {"boot-b ipc:[1]", "0,1"}, {"boot-a ipc:[2]", "1"}});
  ASSERT_EQ(crowds.size(), 2u);
  EXPECT_EQ(crowds.at("boot-a").ranks, 3u);
  EXPECT_EQ(crowds.at("boot-a").cores.size(), 2u);
  EXPECT_EQ(crowds.at("boot-b").ranks, 1u);
  EXPECT_DOUBLE_EQ(most_ranks_per_core(crowds), 1.5);
}

TEST(Cores, WhatTheUserCallsAHostIsAMachine) {
  const auto crowds = crowds_of({{"set:left wing", "0"}, {"set:left rack", "0"}, {"set:left wing", "0"}});
  ASSERT_EQ(crowds.size(), 2u);
  EXPECT_EQ(crowds.at("set:left wing").ranks, 2u);
}

TEST(Cores, RanksWithoutKnownCoresHaveOne) {
  EXPECT_DOUBLE_EQ(most_ranks_per_core(crowds_of({{"a x", ""}, {"a y", ""}})), 2);
  EXPECT_DOUBLE_EQ(most_ranks_per_core(crowds_of({{"a x", "0,1,2,3"}})), 1);
  EXPECT_DOUBLE_EQ(most_ranks_per_core({}), 1);
}

// What 1 KiB on six hosts would be carried by, where so many ranks share a core.
std::shared_ptr<const Choice> chosen_by_six(double ranks_per_core) {
  const Topology topology({0, 1, 2, 3, 4, 5}, link_within_hosts(ranks_per_core), {1e-4, 8e-8});
  const auto tuner = tuner_for(topology, {});
  EXPECT_TRUE(tuner.ok());
  return tuner.value()->choose(kSix, DType::kFloat32, ReduceOp::kSum, 1024).value();
}

TEST(Cores, MessagesAreDearWhereRanksShareACore) {
  EXPECT_EQ(chosen_by_six(1)->algorithm, "direct");
  EXPECT_EQ(chosen_by_six(3)->algorithm, "doubling") << "12 messages in the place of 60";
  EXPECT_EQ(chosen_by_six(0.5)->predicted_s, chosen_by_six(1)->predicted_s);
}

}  // namespace
}  // namespace braid
