// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "transport/shm/write_policy.h"

namespace braid::shm {
namespace {

constexpr size_t kBlock = 128 * 1024;
constexpr std::chrono::microseconds kNear{4}, kFar{60}, kPast{5};

// Writes blocks as they would take on a machine, and counts those that went past the caches.
int streamed_of(WritePolicy& policy, int blocks, std::chrono::nanoseconds through, std::chrono::nanoseconds past) {
  int streamed = 0;
  for (int i = 0; i < blocks; ++i) {
    streamed += policy.streams();
    policy.wrote(kBlock, policy.streams() ? past : through);
  }
  return streamed;
}

TEST(WritePolicy, NearCoresShareACache) {
  WritePolicy policy;
  EXPECT_EQ(streamed_of(policy, 1000, kNear, kPast), 0);
}

TEST(WritePolicy, FarCoresDoNot) {
  WritePolicy policy;
  EXPECT_GT(streamed_of(policy, 1000, kFar, kPast), 950);
  // And back again.
  streamed_of(policy, 100, kNear, kPast);
  EXPECT_EQ(streamed_of(policy, 1000, kNear, kPast), 0);
}

TEST(WritePolicy, AnInterruptionIsNoDistance) {
  WritePolicy policy;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(policy.streams());
    policy.wrote(kBlock, i % 2 == 0 ? std::chrono::microseconds(3000) : kNear);
  }
}

TEST(WritePolicy, WhatIsSlowEitherWayStaysInTheCaches) {
  WritePolicy policy;
  EXPECT_LT(streamed_of(policy, 1000, kFar, kFar), 1000 / 60);
}

}  // namespace
}  // namespace braid::shm
