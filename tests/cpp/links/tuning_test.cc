// SPDX-License-Identifier: Apache-2.0
#include "links/tuning.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace braid {
namespace {

// Three NICs, of which the last needs so many times as long: what 1 MiB would be carried by.
std::shared_ptr<const Choice> chosen_by_three(double slower) {
  Topology topology({0, 1, 2}, kWithinHost, {1e-4, 8e-8});
  topology.set_nic(2, {slower * 8e-8, slower * 8e-8});
  const auto tuner = tuner_for(topology, {});
  EXPECT_TRUE(tuner.ok());
  const Collective three{CollectiveKind::kAllReduce, 3, 0};
  return tuner.value()->choose(three, DType::kFloat32, ReduceOp::kSum, 1 << 20).value();
}

TEST(Tuning, ARingGivesWayToAGainOfFivePerCent) {
  EXPECT_EQ(chosen_by_three(1)->algorithm, "ring");
  const auto choice = chosen_by_three(1.15);
  EXPECT_EQ(choice->algorithm, "direct");
  for (const Candidate& other : choice->runners_up) {
    if (other.algorithm != "ring") continue;
    EXPECT_LT(choice->predicted_s, 0.95 * other.predicted_s);
    EXPECT_GT(choice->predicted_s, 0.9 * other.predicted_s) << "so a margin of ten would show";
  }
}

// All_reduces of 4 KiB and 64 MiB on a host where memory takes so long.
std::vector<Choice> chosen_on_a_host(double touch_s_per_byte, double fetch_s_per_byte) {
  Topology topology({0, 0, 0, 0}, link_inside({true, 2}), kBetweenHosts);
  topology.set_work({{"touch", touch_s_per_byte}, {"fetch", fetch_s_per_byte}});
  const auto tuner = tuner_for(topology, {});
  EXPECT_TRUE(tuner.ok());
  const Collective four{CollectiveKind::kAllReduce, 4, 0};
  std::vector<Choice> choices;
  for (const int64_t bytes : {int64_t{4} << 10, int64_t{64} << 20}) {
    choices.push_back(tuner.value()->explain(four, DType::kFloat32, ReduceOp::kSum, bytes, bytes).value());
  }
  return choices;
}

TEST(Tuning, MeasuredMemoryChangesTimesOnAHostButNotTheChoice) {
  const auto usual = chosen_on_a_host(1e-11, 4e-11);
  const auto slow_memory = chosen_on_a_host(1e-11, 4e-10);
  const auto slow = chosen_on_a_host(1e-8, 4e-8);
  for (size_t i : {size_t{0}, size_t{1}}) {
    EXPECT_EQ(usual[i].algorithm, slow[i].algorithm);
    EXPECT_EQ(usual[i].algorithm, slow_memory[i].algorithm);
    EXPECT_GT(slow[i].predicted_s, 2 * usual[i].predicted_s);
    EXPECT_EQ(slow[i].runners_up.size(), usual[i].runners_up.size());
  }
  EXPECT_EQ(slow_memory[0].predicted_s, usual[0].predicted_s) << "4 KiB stay in the caches";
  EXPECT_GT(slow_memory[1].predicted_s, 2 * usual[1].predicted_s);
}

}  // namespace
}  // namespace braid
