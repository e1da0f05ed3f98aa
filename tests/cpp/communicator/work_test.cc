// SPDX-License-Identifier: Apache-2.0
// What a caller holds of an operation: Work, and the counters.
#include "communicator/work.h"

#include <latch>
#include <thread>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

TEST(WorkTest, WaitEndsAtItsDeadlineAndTheOperationGoesOn) {
  Work work([] { return "all_reduce #1"; }, 1);
  const auto begun = Clock::now();
  const Status early = work.wait(deadline_after(milliseconds(30)));
  EXPECT_EQ(early.code(), Code::kTimeout);
  EXPECT_NE(early.message().find("all_reduce #1"), std::string::npos);
  EXPECT_GE(Clock::now() - begun, milliseconds(30));
  EXPECT_FALSE(work.done());
  EXPECT_TRUE(work.status().ok());
  std::thread finisher([&] { work.finish({Code::kPeerLost, "gone", 3}); });
  const Status status = work.wait(kNoDeadline);
  finisher.join();
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(status.rank(), 3);
  EXPECT_EQ(work.wait(deadline_after(milliseconds(1))).code(), Code::kPeerLost);
  EXPECT_GE(work.duration(), milliseconds(30));
}

TEST(WorkTest, EachCallbackIsCalledOnceWithTheOutcome) {
  Work work([] { return "send"; }, 0);
  std::vector<std::string> calls;
  work.on_done([&](const Status& status) { calls.push_back("first " + status.message()); });
  work.on_done([&](const Status& status) {
    calls.push_back("second " + status.message());
    work.on_done([&](const Status&) { calls.push_back("from inside"); });
  });
  EXPECT_TRUE(calls.empty());
  work.finish({Code::kAborted, "why"});
  work.on_done([&](const Status& status) { calls.push_back("late " + status.message()); });
  EXPECT_EQ(calls, (std::vector<std::string>{"first why", "second why", "from inside", "late why"}));
}

class WorkOfGroup : public EveryWire {};

TEST_P(WorkOfGroup, IsNotDoneBeforeThePeerHasCome) {
  std::latch seen(2);
  on_all_ranks(2, options(), [&](Communicator& group) {
    std::vector<float> values(100, 1.0f);
    if (group.rank() == 1) seen.arrive_and_wait();
    const auto work = group.start(all_reduce(values), false);
    ASSERT_TRUE(work.ok()) << work.status().message();
    std::latch called(1);
    Status told(Code::kInternal, "not told");
    work.value()->on_done([&](const Status& status) {
      told = status;
      called.count_down();
    });
    if (group.rank() == 0) {
      EXPECT_EQ(work.value()->wait(deadline_after(milliseconds(30))).code(), Code::kTimeout);
      EXPECT_FALSE(work.value()->done());
      seen.arrive_and_wait();
    }
    EXPECT_TRUE(outcome(work).ok()) << outcome(work).message();
    called.wait();
    EXPECT_TRUE(told.ok()) << told.message();
    EXPECT_EQ(work.value()->what().find("all_reduce #1 (sum, float32, 400 bytes, "), 0u) << work.value()->what();
  });
}

TEST_P(WorkOfGroup, TheCountersCountWhatEndedWell) {
  on_all_ranks(2, options(), [](Communicator& group) {
    for (const size_t count : {10, 20, 0}) {
      std::vector<float> values(count);
      ASSERT_TRUE(run(group, all_reduce(values)).ok());
    }
    ASSERT_TRUE(run(group, barrier()).ok());
    ASSERT_FALSE(run(group, {CollectiveKind::kAllReduce}).ok());  // refused: not counted
    uint64_t calls = 0, bytes = 0, largest = 0;
    for (const OperationStats& row : group.stats()) {
      EXPECT_FALSE(row.algorithm.empty());
      EXPECT_GE(row.seconds, 0.0);
      if (row.collective == "barrier") {
        EXPECT_EQ(row.calls, 1u);
        EXPECT_EQ(row.bytes, 0u);
        continue;
      }
      EXPECT_EQ(row.collective, "all_reduce");
      calls += row.calls;
      bytes += row.bytes;
      largest = std::max(largest, row.max_bytes);
    }
    EXPECT_EQ(calls, 3u);
    EXPECT_EQ(bytes, 120u);
    EXPECT_EQ(largest, 80u);
    EXPECT_EQ(group.sequence(), 4u);
  });
}

TEST_P(WorkOfGroup, TheGroupsTimeoutHoldsWhereAnOperationHasNone) {
  std::latch over(2);
  on_all_ranks(2, options(), [&](Communicator& group) {
    if (group.rank() == 0) {
      group.set_timeout(milliseconds(100));
      EXPECT_EQ(run(group, barrier()).code(), Code::kTimeout);
    }
    over.arrive_and_wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, WorkOfGroup, ::testing::ValuesIn(wires()), wire_name);

}  // namespace
}  // namespace braid::testing
