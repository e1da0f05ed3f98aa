// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "transport/shm/store_choice.h"

namespace braid::shm {
namespace {

constexpr size_t kBlock = 128 * 1024;
constexpr std::chrono::microseconds kNear{4}, kFar{60}, kPast{5};

// Writes blocks as they would take on a machine, and counts those that went past the caches.
int streamed_of(StoreChoice& choice, int blocks, std::chrono::nanoseconds through, std::chrono::nanoseconds past) {
  int streamed = 0;
  for (int i = 0; i < blocks; ++i) {
    streamed += choice.streams();
    choice.wrote(kBlock, choice.streams() ? past : through);
  }
  return streamed;
}

TEST(StoreChoice, NearCoresShareACache) {
  StoreChoice choice;
  EXPECT_EQ(streamed_of(choice, 1000, kNear, kPast), 0);
}

TEST(StoreChoice, FarCoresDoNot) {
  StoreChoice choice;
  EXPECT_GT(streamed_of(choice, 1000, kFar, kPast), 950);
  // And back again.
  streamed_of(choice, 100, kNear, kPast);
  EXPECT_EQ(streamed_of(choice, 1000, kNear, kPast), 0);
}

TEST(StoreChoice, AnInterruptionIsNoDistance) {
  StoreChoice choice;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(choice.streams());
    choice.wrote(kBlock, i % 2 == 0 ? std::chrono::microseconds(3000) : kNear);
  }
}

TEST(StoreChoice, WhatIsSlowEitherWayStaysInTheCaches) {
  StoreChoice choice;
  EXPECT_LT(streamed_of(choice, 1000, kFar, kFar), 1000 / 60);
}

}  // namespace
}  // namespace braid::shm
