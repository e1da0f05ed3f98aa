// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace braid {
namespace {

TEST(DeadlineAfter, IsThatFromNow) {
  const Clock::time_point now = Clock::now();
  EXPECT_EQ(deadline_after(milliseconds(5), now), now + milliseconds(5));
  EXPECT_GE(deadline_after(milliseconds(5)), now + milliseconds(5));
}

TEST(DeadlineAfter, NothingIsNoDeadline) {
  EXPECT_EQ(deadline_after(milliseconds(0)), kNoDeadline);
  EXPECT_EQ(deadline_after(milliseconds(-1)), kNoDeadline);
}

TEST(DeadlineAfter, CenturiesAreNeitherThePastNorAnOverflow) {
  const Clock::time_point now = Clock::now();
  for (const int64_t years : {int64_t{100}, int64_t{280}, int64_t{300}, int64_t{1000}}) {
    EXPECT_GT(deadline_after(milliseconds(years * 365 * 24 * 3'600'000), now), now + std::chrono::hours(24 * 365));
  }
  EXPECT_EQ(deadline_after(milliseconds(std::numeric_limits<int64_t>::max()), now), kNoDeadline);
}

}  // namespace
}  // namespace braid
