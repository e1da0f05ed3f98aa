// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/rate_meter.h"

#include <gtest/gtest.h>

namespace braid::testing {
namespace {

constexpr milliseconds kTick{10};
constexpr uint64_t kFull = 200'000;  // 20 MB/s
constexpr double kRate = 20e6;

// `count` intervals in which `bytes` each passed.
void pass(RateMeter& meter, int count, uint64_t bytes, bool busy = true) {
  for (int i = 0; i < count; ++i) meter.interval(kTick, bytes, busy);
}

TEST(RateMeterTest, TellsTheRateOnceAndBeginsAnew) {
  RateMeter meter;
  EXPECT_EQ(meter.take(), 0);
  pass(meter, 50, kFull);
  EXPECT_DOUBLE_EQ(meter.take(), kRate);
  EXPECT_EQ(meter.take(), 0);
  pass(meter, 50, kFull / 3);
  EXPECT_NEAR(meter.take(), kRate / 3, 100);
}

TEST(RateMeterTest, KnowsNothingOfTooLittle) {
  RateMeter meter;
  pass(meter, 8, kFull);
  EXPECT_EQ(meter.take(), 0);
  // Nor does what went before count towards it.
  pass(meter, 5, kFull);
  EXPECT_EQ(meter.take(), 0);
  pass(meter, 12, kFull);
  EXPECT_DOUBLE_EQ(meter.take(), kRate);
}

TEST(RateMeterTest, LeavesOutWhatIsNotBusy) {
  RateMeter meter;
  for (int i = 0; i < 10; ++i) {
    pass(meter, 5, kFull);
    pass(meter, 5, kFull / 10, false);
  }
  EXPECT_DOUBLE_EQ(meter.take(), kRate);
  pass(meter, 100, kFull, false);
  EXPECT_EQ(meter.take(), 0);
}

TEST(RateMeterTest, DoesNotSpeakForWhatItLeavesOut) {
  RateMeter meter;
  for (const int idle : {40, 100}) {
    pass(meter, 20, kFull);
    for (int i = 0; i < idle; ++i) {
      meter.interval(kTick, 2 * kFull, true);
      meter.pause();
    }
    EXPECT_EQ(meter.take() > 0, idle == 40) << idle;
  }
}

TEST(RateMeterTest, LeavesOutTheFirstAndTheLastOfEachStretch) {
  RateMeter meter;
  for (int i = 0; i < 10; ++i) {
    meter.interval(kTick, 5 * kFull, true);  // what a bucket had saved up
    pass(meter, 4, kFull);
    meter.interval(kTick, kFull / 5, true);  // its end came half-way
    meter.pause();
  }
  EXPECT_DOUBLE_EQ(meter.take(), kRate);
  for (int i = 0; i < 100; ++i) {
    pass(meter, 2, 5 * kFull);
    meter.pause();
  }
  EXPECT_EQ(meter.take(), 0);
}

TEST(RateMeterTest, EvensOutLumps) {
  RateMeter meter;
  for (int i = 0; i < 40; ++i) {
    pass(meter, 3, 0);
    pass(meter, 1, 4 * kFull);
  }
  EXPECT_NEAR(meter.take(), kRate, kRate / 100);
}

TEST(RateMeterTest, IsNotMistakenAboutAFewStallsOrBursts) {
  RateMeter meter;
  for (int i = 0; i < 10; ++i) {
    pass(meter, 20, kFull);
    pass(meter, 3, 0);                       // the processor was taken
    meter.interval(kTick, 2 * kFull, true);  // and what had waited comes at once
  }
  EXPECT_NEAR(meter.take(), kRate, kRate / 20);
}

TEST(RateMeterTest, TakesIntervalsAsLongAsTheyWere) {
  RateMeter meter;
  for (int i = 0; i < 40; ++i) {
    meter.interval(kTick, kFull, true);
    meter.interval(3 * kTick, 3 * kFull, true);
  }
  EXPECT_DOUBLE_EQ(meter.take(), kRate);
}

TEST(RateMeterTest, ForgetsWhatIsLongAgo) {
  RateMeter meter;
  pass(meter, 10'000, kFull);
  pass(meter, 2'000, kFull / 2);
  EXPECT_DOUBLE_EQ(meter.take(), kRate / 2);
}

}  // namespace
}  // namespace braid::testing
