// SPDX-License-Identifier: Apache-2.0
// Timeouts, aborts, shutdowns, and what is possible after them.
#include <barrier>
#include <latch>
#include <thread>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

class Failure : public EveryWire {};

TEST_P(Failure, ATimeoutNamesTheRankThatNeverCalled) {
  for (const bool inline_if_idle : {true, false}) {
    std::latch told(3);
    on_all_ranks(4, options(), [&](Communicator& group) {
      std::vector<float> values(10'000, 1.0f);
      Operation operation = all_reduce(values);
      if (group.rank() == 2) {
        told.wait();
        const Status status = run(group, operation);  // it has heard of it by now
        EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
        return;
      }
      ASSERT_TRUE(run(group, {CollectiveKind::kAllReduce}).code() == Code::kInvalidArgument);
      operation.timeout = milliseconds(1000);
      const auto begun = Clock::now();
      const Status status = run(group, operation, inline_if_idle);
      EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
      EXPECT_EQ(status.rank(), 2) << status.message();
      EXPECT_TRUE(says(status, "not there yet: rank 2;")) << status.message();
      EXPECT_TRUE(says(status, "all_reduce #1")) << status.message();
      EXPECT_GE(Clock::now() - begun, milliseconds(1000));
      EXPECT_LT(Clock::now() - begun, milliseconds(15'000));
      told.count_down();
      told.wait();
    });
  }
}

// Of a size that is lent: the root must wait for its readers, and may not wait forever.
TEST_P(Failure, TheRootOfALargeBroadcastNamesTheRankThatNeverReadIt) {
  std::latch told(2);
  on_all_ranks(3, options(), [&](Communicator& group) {
    std::vector<float> values(size_t{1} << 20, group.rank() == 0 ? 1.0f : 0.0f);
    const Bytes bytes = std::as_writable_bytes(std::span(values));
    Operation operation{CollectiveKind::kBroadcast, DType::kFloat32, ReduceOp::kSum, 0};
    if (group.rank() == 0) operation.inputs = {bytes};
    operation.outputs = {bytes};
    operation.timeout = milliseconds(1000);
    if (group.rank() == 2) {
      told.wait();
      EXPECT_EQ(run(group, operation).code(), Code::kTimeout);  // the reason, not that it was given up
      return;
    }
    const Status status = run(group, operation);
    if (group.rank() == 0) {
      EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
      EXPECT_EQ(says(status, "rank 2 to read what was lent"), GetParam().name == std::string("shm"))
          << status.message();
      EXPECT_TRUE(says(status, "not there yet: rank 2;")) << status.message();
      values.assign(values.size(), 7.0f);  // it is ours again
    } else if (status.ok()) {
      EXPECT_EQ(values, std::vector<float>(values.size(), 1.0f));
    }
    told.count_down();
  });
}

TEST_P(Failure, ALateRankIsStillInTime) {
  on_all_ranks(2, options(), [](Communicator& group) {
    std::vector<float> values(1000, 1.0f);
    Operation operation = all_reduce(values);
    operation.timeout = milliseconds(20'000);
    if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(100));
    const Status status = run(group, operation);
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

TEST_P(Failure, AnAbortReachesAllEvenThoseWhoNeverMetIt) {
  on_all_ranks(4, options(), [](Communicator& group) {
    std::vector<float> values(10'000, 1.0f);
    std::vector<uint32_t> letter(10);
    Status status;
    if (group.rank() == 3) {
      std::this_thread::sleep_for(milliseconds(100));
      group.abort("enough");
      status = run(group, all_reduce(values));
    } else if (group.rank() == 2) {
      status = run(group, all_reduce(values));
    } else {  // these two have nothing to do with rank 3
      status = outcome(
          group.recv(1 - group.rank(), 0, std::as_writable_bytes(std::span(letter)), milliseconds(20'000)));
    }
    EXPECT_EQ(status.code(), Code::kAborted) << status.message();
    EXPECT_EQ(status.rank(), 3) << status.message();
    EXPECT_TRUE(says(status, "enough")) << status.message();
    EXPECT_EQ(group.failure().code(), Code::kAborted);
  });
}

TEST_P(Failure, EverythingQueuedAndEverythingLaterFailsWithTheFirst) {
  std::latch failed(2);
  on_all_ranks(2, options(), [&](Communicator& group) {
    if (group.rank() == 1) {
      failed.arrive_and_wait();
      return;
    }
    std::vector<std::vector<float>> values(5, std::vector<float>(100));
    std::vector<std::shared_ptr<Work>> works;
    for (auto& v : values) {
      auto work = group.start(all_reduce(v), false);
      ASSERT_TRUE(work.ok()) << work.status().message();
      works.push_back(std::move(work).value());
    }
    group.abort("first");
    group.abort("second");
    for (const auto& work : works) {
      const Status status = work->wait(deadline_after(milliseconds(20'000)));
      EXPECT_EQ(status.code(), Code::kAborted);
      EXPECT_TRUE(says(status, "first")) << status.message();
    }
    const auto later = group.start(all_reduce(values[0]), true);
    ASSERT_FALSE(later.ok());
    EXPECT_TRUE(says(later.status(), "all_reduce #6")) << later.status().message();
    EXPECT_TRUE(says(later.status(), "failed earlier")) << later.status().message();
    EXPECT_TRUE(says(later.status(), "first")) << later.status().message();
    failed.arrive_and_wait();
  });
}

// One test for all wires, since shutdown() gives what is under way a few seconds.
TEST(Shutdown, EndsWhatNobodyCarriesOn) {
  const auto over_wire = [](const Wire& wire) {
    std::latch over(2);
    on_all_ranks(2, options_for(wire), [&](Communicator& group) {
      if (group.rank() == 0) {
        std::vector<float> values(100'000);
        std::vector<uint32_t> letter(10);
        const auto work = group.start(all_reduce(values), false);
        const auto message = group.recv(1, 0, std::as_writable_bytes(std::span(letter)), milliseconds(0));
        const auto begun = Clock::now();
        group.shutdown();
        EXPECT_LT(Clock::now() - begun, milliseconds(15'000));
        EXPECT_EQ(outcome(work).code(), Code::kAborted) << outcome(work).message();
        EXPECT_EQ(outcome(message).code(), Code::kAborted) << outcome(message).message();
        EXPECT_EQ(group.start(barrier(), true).status().code(), Code::kAborted);
        group.shutdown();  // once more does nothing
      }
      over.arrive_and_wait();
    });
  };
  std::vector<std::thread> threads;
  for (const Wire& wire : wires()) threads.emplace_back(over_wire, wire);
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Failure, ShutdownWaitsForWhatIsStarted) {
  on_all_ranks(2, options(), [](Communicator& group) {
    std::vector<float> values(100'000, 1.0f);
    if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(100));
    const auto work = group.start(all_reduce(values), false);
    group.shutdown();
    EXPECT_TRUE(outcome(work).ok()) << outcome(work).message();
    EXPECT_EQ(values.back(), 2.0f);
  });
}

// A rank that is through may go; the others need nothing from it any more.
TEST_P(Failure, WhoIsDoneMayLeaveWhileOthersStillRead) {
  for (int round = 0; round < 5; ++round) {
    on_all_ranks(3, options(), [](Communicator& group) {
      const Collective collective{CollectiveKind::kBroadcast, 3, 0};
      Blocks blocks(collective, group.rank(), 50'000, false);
      if (group.rank() == 2) std::this_thread::sleep_for(milliseconds(30));
      const Status status = run(group, operation_on(blocks, collective));
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(blocks.right());
    });
  }
}

TEST_P(Failure, ANewGroupWorksInTheSameProcess) {
  std::barrier all(3);
  at_all_places(3, options(), [&](const Place& place) {
    for (int round = 0; round < 3; ++round) {
      auto group = place.form("round" + std::to_string(round));
      ASSERT_TRUE(group.ok()) << group.status().message();
      const Collective collective{CollectiveKind::kAllReduce, 3, 0};
      Blocks blocks(collective, place.rank, 1009, false);
      const Status status = run(*group.value(), operation_on(blocks, collective));
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(blocks.right());
      all.arrive_and_wait();  // an abort fails what is under way
      if (place.rank == round) group.value()->abort("on purpose");
      EXPECT_EQ(run(*group.value(), operation_on(blocks, collective)).code(), Code::kAborted);
      group.value()->shutdown();
    }
  });
}

// Nobody shuts down: the last reference goes, perhaps on the progress thread.
TEST_P(Failure, AGroupMayJustBeDropped) {
  at_all_places(2, options(), [](const Place& place) {
    Place mine = place;
    for (int round = 0; round < 3; ++round) {
      auto group = mine.form("round" + std::to_string(round));
      ASSERT_TRUE(group.ok()) << group.status().message();
      std::vector<float> values(1000, 1.0f);
      auto work = group.value()->start(all_reduce(values), false);
      group = Status(Code::kAborted, "dropped");
      EXPECT_TRUE(outcome(work).ok()) << outcome(work).message();
      EXPECT_EQ(values.back(), 2.0f);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, Failure, ::testing::ValuesIn(wires()), wire_name);

}  // namespace
}  // namespace braid::testing
