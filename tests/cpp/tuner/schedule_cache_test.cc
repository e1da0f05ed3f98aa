// SPDX-License-Identifier: Apache-2.0
#include "tuner/schedule_cache.h"

#include <gtest/gtest.h>

#include <thread>

namespace braid {
namespace {

constexpr Collective kFour{CollectiveKind::kAllReduce, 4, 0};

TEST(ScheduleCache, DrawsOnce) {
  ScheduleCache cache;
  VerifiedSchedulePtr first = cache.get(kFour, "direct", {{1, 2, 3, 4}, {}}).value();
  EXPECT_EQ(cache.get(kFour, "direct", {{1, 2, 3, 4}, {}}).value(), first);
  EXPECT_NE(cache.get(kFour, "direct", {{4, 3, 2, 1}, {}}).value(), first);
  EXPECT_NE(cache.get(kFour, "ring").value(), first);
  Collective from_one{CollectiveKind::kBroadcast, 4, 1};
  Collective from_two{CollectiveKind::kBroadcast, 4, 2};
  EXPECT_EQ(cache.get(from_one, "binomial").value()->schedule().collective, from_one);
  EXPECT_EQ(cache.get(from_two, "binomial").value()->schedule().collective, from_two);
}

TEST(ScheduleCache, PassesErrorsOn) {
  ScheduleCache cache;
  EXPECT_EQ(cache.get(kFour, "spiral").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(cache.get(kFour, "direct", {{1, 2}, {}}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(cache.get(kFour, "direct", {{0, 0, 0, 0}, {}}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(cache.get({CollectiveKind::kBroadcast, 4, 9}, "direct").status().code(), Code::kInvalidArgument);
}

TEST(ScheduleCache, GivesAllThreadsTheSame) {
  ScheduleCache cache;
  std::vector<VerifiedSchedulePtr> seen(8);
  std::vector<std::thread> threads;
  for (VerifiedSchedulePtr& mine : seen) {
    threads.emplace_back([&] { mine = cache.get({CollectiveKind::kAllReduce, 16, 0}, "ring").value(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const VerifiedSchedulePtr& mine : seen) EXPECT_EQ(mine, seen[0]);
}

}  // namespace
}  // namespace braid
