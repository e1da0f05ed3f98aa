// SPDX-License-Identifier: Apache-2.0
// Rounds of all workers whose server is lost in the middle: each push counts once, and nobody waits for ever.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "parameters/one_server.h"
#include "support/slowness.h"

namespace braid::testing {
namespace {

class LostRounds : public OneServer {
 protected:
  Played& push(int worker, uint64_t number, float update) {
    return call_with(worker, CallKind::kPushPull, update, [&](Call& call) { call.steps = number; });
  }
  // Another server was lost; so many rounds are in the values.
  void take_over(int workers, uint64_t rounds, float value) {
    make(Mode::kSync, workers);
    const Played& installed = call_with(0, CallKind::kInstall, value, [&](Call& call) { call.steps = rounds; });
    ASSERT_TRUE(installed.done());
  }
};

TEST_F(LostRounds, APushThatCountsAlreadyIsAnsweredAndChangesNothing) {
  take_over(2, 3, 10);
  const Played& repeated = push(0, 3, 100);
  ASSERT_TRUE(repeated.done());
  EXPECT_EQ(repeated.result[0], 10);
  const Played& next = push(0, 4, 2);
  EXPECT_FALSE(next.done());
  EXPECT_TRUE(push(1, 4, 4).done());
  ASSERT_TRUE(next.done());
  EXPECT_EQ(next.result[0], 7);
  EXPECT_EQ(next.job.answer.steps, 4u);
}

TEST_F(LostRounds, ARoundThatWasLostIsMadeAgain) {
  take_over(2, 2, 10);
  const Played& zero = push(0, 3, 2);
  EXPECT_FALSE(zero.done());
  EXPECT_TRUE(push(1, 3, 4).done());
  EXPECT_EQ(zero.result[0], 7);
}

// Worker 0 has its answer of round 3, and the values are older.
TEST_F(LostRounds, NobodyWaitsForAWorkerThatIsFurther) {
  take_over(2, 2, 10);
  const Played& further = push(0, 4, 1);
  EXPECT_FALSE(further.done());
  const Played& behind = push(1, 3, 4);
  ASSERT_TRUE(behind.done());
  EXPECT_EQ(behind.result[0], 6) << "of this worker alone";
  EXPECT_FALSE(further.done());
  EXPECT_TRUE(push(1, 4, 3).done());
  ASSERT_TRUE(further.done());
  EXPECT_EQ(further.result[0], 4);
}

TEST_F(LostRounds, WhoWaitsForAWorkerHearsThatItIsFurther) {
  take_over(2, 2, 10);
  const Played& behind = push(1, 3, 4);
  EXPECT_FALSE(behind.done());
  const Played& further = push(0, 4, 1);
  ASSERT_TRUE(behind.done());
  EXPECT_EQ(behind.result[0], 6);
  EXPECT_FALSE(further.done());
  EXPECT_TRUE(push(1, 4, 3).done());
  EXPECT_TRUE(further.done());
}

TEST_F(LostRounds, RoundsThatAllHaveLostAreOver) {
  take_over(2, 2, 10);
  const Played& zero = push(0, 5, 1);
  EXPECT_FALSE(zero.done());
  EXPECT_TRUE(push(1, 5, 3).done());
  ASSERT_TRUE(zero.done());
  EXPECT_EQ(zero.result[0], 8);
  EXPECT_EQ(zero.job.answer.steps, 5u);
}

class DeathInARound : public EveryWire {};
INSTANTIATE_TEST_SUITE_P(Wires, DeathInARound, ::testing::ValuesIn(wires()), wire_name);

// Member 1 has the shard, and ends while worker 0's push waits for worker 2. Workers 0 and 2 push equally often, and
// neither says that it rests.
TEST_P(DeathInARound, LosesNoPush) {
  constexpr size_t kElements = 100;
  constexpr int kBefore = 3, kAfter = 5;
  std::atomic<int> stage{0};
  const auto meet = [&stage](int count) {
    ++stage;
    while (stage.load() < count) std::this_thread::yield();
  };
  at_all_places(3, options(), [&](const Place& place) {
    ServiceSetup setup = setup_of(place, kElements);
    setup.servers = {1, 0};
    setup.shares = {1, 0};
    setup.server.mode = Mode::kSync;
    auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kElements);
    const std::vector<float> update(kElements, -1.0f);
    const auto begin = [&] {
      return service->push(update.data(), values.data(), table_of(kElements, 1), 1, nullptr);
    };
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
    }
    meet(3);
    for (int i = 0; i < kBefore; ++i) ASSERT_TRUE(outcome(*service, begin()).ok());
    meet(6);
    ParameterService::Request waits;
    if (place.rank == 0) {
      waits = begin();
      EXPECT_EQ(service->wait(*waits, Clock::now() + milliseconds(50), {}), Waited::kLate);
    }
    meet(9);
    if (place.rank == 1) return service.reset();
    if (waits) {
      EXPECT_EQ(service->wait(*waits, Clock::now() + milliseconds(200), {}), Waited::kLate) << "for worker 2";
    }
    ++stage;
    while (stage.load() < 11) std::this_thread::yield();
    for (int i = waits ? 1 : 0; i < kAfter; ++i) {
      if (waits && i == 1) {
        ASSERT_TRUE(outcome(*service, waits).ok());
      }
      const Status done = outcome(*service, begin());
      ASSERT_TRUE(done.ok()) << done.message();
    }
    EXPECT_EQ(values, std::vector<float>(kElements, kBefore + kAfter));
    EXPECT_EQ(service->stats().lost_parts, 0u);
    service->close(milliseconds(20'000), {});
  });
}

// A call waits for longer than its limit: the servers live, and are not lost.
TEST_P(DeathInARound, IsNotWhatASlowWorkerLooksLike) {
  constexpr size_t kElements = 100;
  std::atomic<bool> is_late{false};
  at_all_places(2, options(), [&](const Place& place) {
    ServiceSetup setup = setup_of(place, kElements);
    setup.server.mode = Mode::kSync;
    setup.options.timeout = limit(milliseconds(2'000));
    auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kElements);
    const std::vector<float> update(kElements, -1.0f);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
    }
    ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    while (place.rank == 1 && !is_late.load()) std::this_thread::sleep_for(milliseconds(1));
    const auto request = service->push(update.data(), values.data(), table_of(kElements, 1), 1, nullptr);
    if (place.rank == 0) {
      EXPECT_EQ(service->wait(*request, Clock::now() + milliseconds(50), {}), Waited::kLate);
      const std::string text = service->unanswered(*request);
      EXPECT_NE(text.find("push_pull is not answered yet by the server of member"), std::string::npos) << text;
      EXPECT_NE(text.find("it may wait for other workers"), std::string::npos) << text;
      while (Clock::now() < request->due() + milliseconds(100)) std::this_thread::sleep_for(milliseconds(1));
      is_late = true;
    }
    const Status done = outcome(*service, request);
    ASSERT_TRUE(done.ok()) << done.message();
    EXPECT_EQ(values, std::vector<float>(kElements, 1.0f));
    service->close(milliseconds(20'000), {});
  });
}

}  // namespace
}  // namespace braid::testing
