// SPDX-License-Identifier: Apache-2.0
#include "links/tuning.h"

#include <gtest/gtest.h>

#include <memory>

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
  EXPECT_EQ(chosen_by_three(1)->family, "ring");
  const auto choice = chosen_by_three(1.15);
  EXPECT_EQ(choice->family, "direct");
  for (const Candidate& other : choice->runners_up) {
    if (other.family != "ring") continue;
    EXPECT_LT(choice->predicted_s, 0.95 * other.predicted_s);
    EXPECT_GT(choice->predicted_s, 0.9 * other.predicted_s) << "so a margin of ten would show";
  }
}

}  // namespace
}  // namespace braid
