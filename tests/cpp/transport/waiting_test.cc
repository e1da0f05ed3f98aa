// SPDX-License-Identifier: Apache-2.0
// When a yield is dear, and what a Waiter does in each mode.
#include "transport/waiting.h"

#include <gtest/gtest.h>

#include "support/slowness.h"
#include "transport/doorbell.h"

namespace braid::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kSlice{4};

// A clock of its own, with a YieldPrice.
struct Yielder {
  YieldPrice price;
  Clock::time_point now = Clock::time_point() + std::chrono::hours(1);

  void yields(nanoseconds takes) {
    price.paid(now, now + takes);
    now += takes;
  }
  // How long a thread sleeps instead of yielding, from now on; whole milliseconds.
  milliseconds dear_for() const {
    milliseconds time{0};
    while (price.is_dear(now + time)) ++time;
    return time;
  }
};

TEST(YieldPrice, ShortYieldsAreCheap) {
  Yielder thread;
  for (int i = 0; i < 1000; ++i) thread.yields(microseconds(900));
  EXPECT_EQ(thread.dear_for(), milliseconds(0));
}

TEST(YieldPrice, ASliceAmongManyShortYieldsProvesNothing) {
  Yielder thread;
  for (int i = 0; i < 100; ++i) {
    thread.yields(milliseconds(3));
    EXPECT_EQ(thread.dear_for(), milliseconds(0)) << i;
    for (int k = 0; k < 20; ++k) thread.yields(microseconds(10));
  }
}

TEST(YieldPrice, SlicesInARowAreDear) {
  Yielder thread;
  thread.yields(milliseconds(2));
  EXPECT_EQ(thread.dear_for(), milliseconds(0));
  thread.yields(milliseconds(2));
  thread.yields(milliseconds(2));
  EXPECT_EQ(thread.dear_for(), milliseconds(16));
}

TEST(YieldPrice, EachTrialInVainDoublesThePause) {
  Yielder thread;
  for (int i = 0; thread.dear_for() == milliseconds(0); ++i) {
    ASSERT_LT(i, 10);
    thread.yields(kSlice);
  }
  for (const int pause : {32, 64, 128, 256, 512, 1024, 1024}) {
    thread.now += thread.dear_for();
    thread.yields(kSlice);
    EXPECT_EQ(thread.dear_for(), milliseconds(pause));
  }
}

TEST(YieldPrice, AfterAQuietWhileItBeginsAnew) {
  Yielder thread;
  for (int i = 0; i < 10; ++i) {
    thread.yields(kSlice);
    thread.now += thread.dear_for();
  }
  for (int i = 0; i < 400; ++i) thread.yields(milliseconds(1) - microseconds(1));
  EXPECT_EQ(thread.dear_for(), milliseconds(0));
  thread.yields(kSlice);
  EXPECT_EQ(thread.dear_for(), milliseconds(16));
}

TEST(VainYields, FourInARowSayThatNobodyWantsTheCore) {
  VainYields yields;
  EXPECT_FALSE(yields.are_enough(7));  // since an earlier wait
  for (int i = 1; i < 4; ++i) EXPECT_FALSE(yields.are_enough(7)) << i;
  EXPECT_TRUE(yields.are_enough(7));
  EXPECT_TRUE(yields.are_enough(7));
}

TEST(VainYields, OneThatRanAnotherThreadBeginsAnew) {
  VainYields yields;
  for (long switches = 1; switches < 100; ++switches) {
    for (int i = 0; i < 4; ++i) EXPECT_FALSE(yields.are_enough(switches)) << switches;
  }
}

TEST(VainYields, AWaitBeginsAnew) {
  VainYields yields;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(yields.are_enough(7)) << i;
    if (i % 3 == 2) yields.begin();
  }
}

class Modes : public ::testing::Test {
 protected:
  void SetUp() override { set_waiting(nanoseconds(milliseconds(20)).count(), false); }
  void TearDown() override {
    set_waiting(0, false);
    set_wait_mode(WaitMode::kAuto);
  }

  struct Waited {
    Clock::duration awake{};
    uint64_t turns = 0;
    uint64_t yields = 0;
    uint64_t sleeps = 0;
  };
  // One wait, until a sleep of a millisecond has ended.
  static Waited wait(WaitMode mode) {
    set_wait_mode(mode);
    const uint64_t turns = wait_counts().turns, yields = wait_counts().yields, sleeps = wait_counts().sleeps;
    DoorbellWord word;
    const auto begun = Clock::now();
    Waited waited;
    {
      Waiter waiter(word);
      while (!waiter.before_sleep()) waiter.idle(kNoDeadline);
      waited.awake = Clock::now() - begun;
      waiter.idle(Clock::now() + milliseconds(1));
    }
    waited.turns = wait_counts().turns - turns;
    waited.yields = wait_counts().yields - yields;
    waited.sleeps = wait_counts().sleeps - sleeps;
    return waited;
  }
};

TEST_F(Modes, AutoStaysAwakeAndKeepsItsCoreIfNobodySharesIt) {
  const Waited waited = wait(WaitMode::kAuto);
  EXPECT_GE(waited.awake, milliseconds(20));
  EXPECT_GT(waited.turns, 16U);
  EXPECT_EQ(waited.yields, 0U);
  EXPECT_EQ(waited.sleeps, 1U);
}

TEST_F(Modes, AutoGivesItsCoreAwayWhereRanksOutnumberCores) {
  set_waiting(nanoseconds(milliseconds(20)).count(), true);
  // Beside other work a yield may be dear for a while.
  const Deadline deadline = deadline_after(limit(milliseconds(20'000)));
  uint64_t yields = 0;
  while (yields == 0 && Clock::now() < deadline) yields = wait(WaitMode::kAuto).yields;
  EXPECT_GT(yields, 0U);
}

// Nobody takes the core, or somebody keeps it for a time slice. Both say that it is better to sleep.
TEST_F(Modes, AutoSleepsSoonWhereRanksOutnumberCoresButNoneTakesItsOwn) {
  constexpr milliseconds kAwake{60'000};
  set_waiting(nanoseconds(kAwake).count(), true);
  EXPECT_LT(wait(WaitMode::kAuto).awake, kAwake);
}

TEST_F(Modes, SpinKeepsItsCoreLonger) {
  set_waiting(nanoseconds(milliseconds(20)).count(), true);
  const Waited waited = wait(WaitMode::kSpin);
  EXPECT_GE(waited.awake, milliseconds(100));
  EXPECT_EQ(waited.yields, 0U);
}

TEST_F(Modes, YieldYieldsAtEveryTurn) {
  const Waited waited = wait(WaitMode::kYield);
  EXPECT_GE(waited.awake, milliseconds(20));
  EXPECT_GT(waited.yields, 0U);
  EXPECT_EQ(waited.yields + 1, waited.turns);
}

TEST_F(Modes, SleepSleepsAtOnce) {
  const Waited waited = wait(WaitMode::kSleep);
  EXPECT_EQ(waited.turns, 1U);
  EXPECT_EQ(waited.yields, 0U);
  EXPECT_EQ(waited.sleeps, 1U);
}

}  // namespace
}  // namespace braid::testing
