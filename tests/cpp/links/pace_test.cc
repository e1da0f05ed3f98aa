// SPDX-License-Identifier: Apache-2.0
#include "links/pace.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Pace, SlowNicsSendALittleFasterThanWasMeasured) {
  for (const double bytes_per_s : {1e6, 12.5e6, 125e6})
    EXPECT_DOUBLE_EQ(pace_for(1 / bytes_per_s), 1.3 * bytes_per_s);
}

TEST(Pace, FastOnesAndThoseOfWhichNothingIsKnownAreNotHeldBack) {
  for (const double bytes_per_s : {400e6, 1.25e9, 12.5e9}) EXPECT_EQ(pace_for(1 / bytes_per_s), 0);
  EXPECT_EQ(pace_for(0), 0);
}

}  // namespace
}  // namespace braid
