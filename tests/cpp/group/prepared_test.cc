// SPDX-License-Identifier: Apache-2.0
// Blocking operations that are repeated, which take a shorter way from the second time on; nobody may see a difference.
#include <atomic>
#include <thread>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

// As a blocking caller does it.
Status run_blocking(Communicator& group, Operation operation) {
  auto left = group.run(std::move(operation));
  if (!left.ok()) return left.status();
  return left.value() ? left.value()->wait(deadline_after(milliseconds(30'000))) : Status();
}

class Prepared : public EveryWire {};

TEST_P(Prepared, EveryCollectiveAgainAndAgain) {
  for (const int ranks : {1, 2, 3, 5}) {
    on_all_ranks(ranks, options(), [&](Communicator& group) {
      for (uint32_t turn = 0; turn < 60; ++turn) {
        for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
          const Collective collective{static_cast<CollectiveKind>(kind), ranks,
                                      static_cast<Node>(turn % static_cast<uint32_t>(ranks))};
          if (collective.kind == CollectiveKind::kBarrier) {
            ASSERT_TRUE(run_blocking(group, barrier()).ok());
            continue;
          }
          const size_t count = turn % 3 == 0 ? 2 : turn % 3 == 1 ? 300 : 9000;
          Blocks blocks(collective, group.rank(), count, turn % 2 == 0, turn);
          if (turn % 20 == 7 && group.rank() == 0) std::this_thread::sleep_for(milliseconds(1));
          const Status status = run_blocking(group, operation_on(blocks, collective));
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_TRUE(blocks.right());
        }
      }
      // Counted like all others.
      uint64_t calls = 0;
      for (const OperationStats& row : group.stats()) calls += row.calls;
      EXPECT_EQ(calls, 60u * kCollectiveKindCount);
      EXPECT_EQ(group.sequence(), 60u * kCollectiveKindCount);
    });
  }
}

TEST_P(Prepared, ThreadsOfOneGroupTakeItInTurn) {
  on_all_ranks(2, options(), [](Communicator& group) {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int turn = 0; turn < 200; ++turn) {
          // The order among threads is not the same on all ranks: all add the same.
          std::vector<float> values(3, 1);
          wrong += !run_blocking(group, all_reduce(values)).ok() || values != std::vector<float>(3, 2);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  });
}

// More senders' turns than there is room for; the root need not wait for the others, nor is anything lost.
TEST_P(Prepared, AStartedOneHasItsWork) {
  on_all_ranks(3, options(), [](Communicator& group) {
    for (uint64_t turn = 1; turn <= 50; ++turn) {
      std::vector<float> values(3, 1);
      const auto started = group.start(all_reduce(values), true);
      ASSERT_TRUE(started.ok() && started.value()) << started.status().message();
      const Work& work = *started.value();
      ASSERT_TRUE(work.wait(deadline_after(milliseconds(30'000))).ok());
      EXPECT_EQ(values, std::vector<float>(3, 3));
      EXPECT_EQ(work.sequence(), turn);
      EXPECT_EQ(work.what().find("all_reduce #" + std::to_string(turn) + " (sum, float32, 12 bytes, "), 0u);
      EXPECT_GT(work.duration().count(), 0);
    }
  });
}

TEST_P(Prepared, ABroadcastRunsAhead) {
  on_all_ranks(3, options(), [](Communicator& group) {
    const Collective collective{CollectiveKind::kBroadcast, 3, 0};
    for (uint32_t turn = 0; turn < 300; ++turn) {
      Blocks blocks(collective, group.rank(), 2 + turn / 100 * 40, false, turn);
      if (turn % 100 == 50 && group.rank() > 0) std::this_thread::sleep_for(milliseconds(2));
      ASSERT_TRUE(run_blocking(group, operation_on(blocks, collective)).ok());
      ASSERT_TRUE(blocks.right());
    }
  });
}

TEST_P(Prepared, AnotherSizeOnAPeerIsTold) {
  on_all_ranks(2, options(), [](Communicator& group) {
    std::vector<float> values(4), more(8);
    for (int turn = 0; turn < 5; ++turn) {
      ASSERT_TRUE(run_blocking(group, all_reduce(values)).ok());
      ASSERT_TRUE(run_blocking(group, all_reduce(more)).ok());
    }
    Status status = run_blocking(group, all_reduce(group.rank() == 0 ? values : more));
    EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
    EXPECT_TRUE(says(status, "all_reduce #11")) << status.message();
    EXPECT_FALSE(run_blocking(group, all_reduce(values)).ok());  // a failed group stays failed
  });
}

TEST_P(Prepared, APeerThatDoesNotComeIsWaitedForNoLongerThanTheTimeout) {
  std::atomic<bool> over{false};
  on_all_ranks(2, options(), [&](Communicator& group) {
    std::vector<float> values(4);
    for (int turn = 0; turn < 3; ++turn) ASSERT_TRUE(run_blocking(group, all_reduce(values)).ok());
    if (group.rank() == 1) {
      while (!over) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    Operation operation = all_reduce(values);
    operation.timeout = milliseconds(60);
    const Status status = run_blocking(group, operation);
    over = true;
    EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
    EXPECT_TRUE(says(status, "rank 1")) << status.message();
  });
}

TEST_P(Prepared, MemoryIsLookedAtEachTime) {
  on_all_ranks(2, options(), [](Communicator& group) {
    std::vector<float> values(8, 1);
    const Bytes all = std::as_writable_bytes(std::span(values));
    Operation operation = all_reduce(values);
    operation.inputs = {all.first(16)};
    operation.outputs = {all.last(16)};
    for (int turn = 0; turn < 3; ++turn) ASSERT_TRUE(run_blocking(group, operation).ok());
    EXPECT_EQ(values[7], 2.0F);
    operation.outputs = {all.subspan(8, 16)};
    EXPECT_EQ(run_blocking(group, operation).code(), Code::kInvalidArgument);
    EXPECT_TRUE(group.failure().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, Prepared, ::testing::ValuesIn(wires()), wire_name);

}  // namespace
}  // namespace braid::testing
