// SPDX-License-Identifier: Apache-2.0
#include "links/link_watch.h"

#include <gtest/gtest.h>

namespace braid::testing {
namespace {

// NICs that can pass anything.
bool has_drifted(LinkWatch& watch, const std::vector<SeenRates>& seen) {
  return watch.has_drifted(seen, std::vector<SeenRates>(seen.size(), {1e9, 1e9}));
}

// How many looks in a row at these rates it takes; 0 when a hundred are not enough.
int looks_until_drift(LinkWatch& watch, const std::vector<SeenRates>& seen) {
  for (int looks = 1; looks <= 100; ++looks) {
    if (has_drifted(watch, seen)) return looks;
  }
  return 0;
}

// All is well for long, and then a NIC has changed; so far as many looks as can be were needed.
void change_after_long(LinkWatch& watch) {
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(has_drifted(watch, {{100, 100}}));
  EXPECT_EQ(looks_until_drift(watch, {{50, 100}}), 64);
  watch.measured_again(true);
}

TEST(LinkWatch, OneLookThatIsOffMayBeAnything) {
  LinkWatch watch;
  EXPECT_FALSE(has_drifted(watch, {{100, 50}}));
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(has_drifted(watch, {{50, 50}}));
    EXPECT_FALSE(has_drifted(watch, {{100, 50}})) << "it was back to normal in between";
  }
  EXPECT_EQ(looks_until_drift(watch, {{50, 50}}), 2);
}

TEST(LinkWatch, WatchesEachNicBothWays) {
  const std::vector<SeenRates> usual = {{100, 200}, {300, 400}};
  for (const double factor : {0.79, 0.1, 1.21, 10.0}) {
    for (int which = 0; which < 4; ++which) {
      LinkWatch watch;
      EXPECT_FALSE(has_drifted(watch, usual));
      std::vector<SeenRates> seen = usual;
      SeenRates& host = seen[static_cast<size_t>(which / 2)];
      (which % 2 == 0 ? host.up : host.down) *= factor;
      EXPECT_EQ(looks_until_drift(watch, seen), 2) << factor << " of rate " << which;
    }
  }
  for (const double factor : {0.81, 1.19}) {
    LinkWatch watch;
    EXPECT_FALSE(has_drifted(watch, usual));
    EXPECT_EQ(looks_until_drift(watch, {{100 * factor, 200 * factor}, {300 * factor, 400 * factor}}), 0);
  }
}

// Two NICs that are off once each are not one that is off twice.
TEST(LinkWatch, CountsEachNicByItself) {
  LinkWatch watch;
  EXPECT_FALSE(has_drifted(watch, {{100, 100}, {100, 100}}));
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(has_drifted(watch, {{50, 100}, {100, 100}}));
    EXPECT_FALSE(has_drifted(watch, {{100, 100}, {100, 50}}));
  }
}

TEST(LinkWatch, ZeroIsNotKnown) {
  LinkWatch watch;
  EXPECT_EQ(looks_until_drift(watch, {{0, 0}}), 0);
  EXPECT_FALSE(has_drifted(watch, {{0, 100}}));  // the first that was seen is the usual one
  EXPECT_FALSE(has_drifted(watch, {{70, 50}}));
  EXPECT_FALSE(has_drifted(watch, {{70, 0}})) << "nothing was seen, so nothing was off";
  EXPECT_TRUE(has_drifted(watch, {{70, 50}})) << "off in all looks that saw anything";
}

// A NIC that had recovered before anything was seen of it: then the usual rate is that of a fast NIC.
TEST(LinkWatch, SeesThatANicIsFasterThanItWasMeasuredToBe) {
  LinkWatch watch;
  const std::vector<SeenRates> measured = {{30, 30}, {100, 100}};
  EXPECT_FALSE(watch.has_drifted({{0, 0}, {30, 30}}, measured));
  EXPECT_FALSE(watch.has_drifted({{35, 30}, {30, 30}}, measured));
  EXPECT_FALSE(watch.has_drifted({{35, 30}, {30, 30}}, measured)) << "within 20 %";
  LinkWatch other;
  EXPECT_FALSE(other.has_drifted({{0, 37}, {30, 30}}, measured));
  EXPECT_TRUE(other.has_drifted({{0, 37}, {30, 30}}, measured));
}

// Of two ranks on a host, each at its own time: their sum may be more than the NIC can pass, what one passes is not.
TEST(LinkWatch, SeesThatOneRankAloneIsFasterThanTheNic) {
  LinkWatch watch;
  const std::vector<SeenRates> measured = {{100, 100}};
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(watch.has_drifted({{180, 180}}, measured, {{110, 110}}));
  EXPECT_FALSE(watch.has_drifted({{180, 180}}, measured, {{125, 90}}));
  EXPECT_TRUE(watch.has_drifted({{180, 180}}, measured, {{125, 90}}));
  LinkWatch led;  // only the first of the host's ranks sends
  EXPECT_FALSE(led.has_drifted({{0, 0}}, measured, {{130, 130}}));
  EXPECT_TRUE(led.has_drifted({{0, 0}}, measured, {{130, 130}}));
}

TEST(LinkWatch, AfterMeasuringInVainItTakesTwiceAsMany) {
  LinkWatch watch;
  for (const int looks : {2, 4, 8, 16, 32, 64, 64}) {
    EXPECT_FALSE(has_drifted(watch, {{100, 100}}));
    EXPECT_EQ(looks_until_drift(watch, {{50, 100}}), looks);
    watch.measured_again(false);
  }
  change_after_long(watch);
  EXPECT_FALSE(has_drifted(watch, {{50, 100}})) << "the usual rate is that after the measuring";
  EXPECT_EQ(looks_until_drift(watch, {{50, 100}}), 0);
  EXPECT_EQ(looks_until_drift(watch, {{100, 100}}), 2);
}

// Measuring takes a second, in which nothing else is done.
TEST(LinkWatch, WhatComesAndGoesIsMeasuredMoreAndMoreRarely) {
  LinkWatch watch;
  for (const int looks : {2, 2, 4, 8, 16, 32, 64, 64, 64}) {
    EXPECT_FALSE(has_drifted(watch, {{100, 100}}));
    EXPECT_EQ(looks_until_drift(watch, {{50, 100}}), looks);
    watch.measured_again(true);
  }
  change_after_long(watch);
  EXPECT_FALSE(has_drifted(watch, {{100, 100}}));
  EXPECT_EQ(looks_until_drift(watch, {{50, 100}}), 2) << "all was well for long";
}

TEST(LinkWatch, FastNicsAreAllAlike) {
  constexpr double kGbit = 1e9 / 8;
  LinkWatch watch;
  EXPECT_FALSE(watch.has_drifted({{4 * kGbit, 9 * kGbit}}, {{5 * kGbit, 3 * kGbit}}));
  for (const double rate : {8 * kGbit, 2.6 * kGbit, 25 * kGbit}) {
    for (int i = 0; i < 10; ++i) EXPECT_FALSE(watch.has_drifted({{rate, rate}}, {{5 * kGbit, 3 * kGbit}})) << rate;
  }
  // But not those that are fast no more, or were taken for slow.
  EXPECT_FALSE(watch.has_drifted({{1.5 * kGbit, 9 * kGbit}}, {{5 * kGbit, 3 * kGbit}}));
  EXPECT_TRUE(watch.has_drifted({{1.5 * kGbit, 9 * kGbit}}, {{5 * kGbit, 3 * kGbit}}));
  for (const double taken_for : {1.0, 2.2, 2.4}) {
    LinkWatch other;
    EXPECT_FALSE(other.has_drifted({{8 * kGbit, 8 * kGbit}}, {{taken_for * kGbit, 8 * kGbit}}));
    EXPECT_TRUE(other.has_drifted({{8 * kGbit, 8 * kGbit}}, {{taken_for * kGbit, 8 * kGbit}})) << taken_for;
  }
}

}  // namespace
}  // namespace braid::testing
