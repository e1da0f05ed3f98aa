// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "parameters/call.h"

namespace braid {
namespace {

constexpr uint64_t kMost = 1000;

Call push_of(uint64_t count) {
  Call call;
  call.kind = CallKind::kPush;
  call.count = count;
  call.body_bytes = count * sizeof(float);
  return call;
}

TEST(Call, OfAPeerOfThisVersionIsAccepted) {
  EXPECT_TRUE(check(push_of(10), {kMost, 2, std::nullopt}).ok());
  Call restore = push_of(10);
  restore.kind = CallKind::kRestore;
  restore.body_bytes *= 3;
  EXPECT_TRUE(check(restore, {kMost, 2, std::nullopt}).ok());
}

TEST(Call, ThatNoPeerSendsIsRefused) {
  Call call = push_of(10);
  call.version = 99;
  EXPECT_NE(check(call, {kMost, 0, std::nullopt}).message().find("version 99"), std::string::npos);
  call = push_of(10);
  call.kind = static_cast<CallKind>(77);
  EXPECT_FALSE(check(call, {kMost, 0, std::nullopt}).ok());
  call.kind = static_cast<CallKind>(0);
  EXPECT_FALSE(check(call, {kMost, 0, std::nullopt}).ok());
  EXPECT_FALSE(check(push_of(kMost + 1), {kMost, 0, std::nullopt}).ok());
  call = push_of(10);
  call.body_bytes = 39;
  EXPECT_FALSE(check(call, {kMost, 0, std::nullopt}).ok());
  call = push_of(10);
  call.ranges = kMostRanges + 1;
  EXPECT_FALSE(check(call, {kMost, 0, std::nullopt}).ok());
  call = {};
  call.kind = CallKind::kJoin;
  call.body_bytes = kMostSettingsBytes + 1;
  EXPECT_FALSE(check(call, {kMost, 0, std::nullopt}).ok());
}

TEST(Call, OfAShardWaitsForNoOtherShard) {
  Call push = push_of(10);
  push.shard = 4;
  EXPECT_EQ(lane_of(push), 5u);
  EXPECT_NE(lane_number(5, 0), lane_number(4, 0));
  push.kind = CallKind::kSnapshot;
  EXPECT_EQ(lane_of(push), 5u);
  push.hand_over = HandOver::kYes;
  EXPECT_EQ(lane_of(push), 0u) << "a hand-over does not wait behind what it moves";
}

TEST(Call, EveryKindHasAName) {
  for (uint8_t kind = 1; kind <= kLastCallKind; ++kind) {
    EXPECT_NE(name_of(static_cast<CallKind>(kind)), "an unknown call") << int(kind);
  }
}

TEST(Call, WithNumbersThatNoWorkerSendsIsRefused) {
  const CallLimits limits{kMost, 0, std::nullopt};
  Call push = push_of(10);
  push.scale = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(check(push, limits).message().find("multiplies by nan"), std::string::npos);
  push = push_of(10);
  push.hand_over = static_cast<HandOver>(4);
  EXPECT_NE(check(push, limits).message().find("no hand-over that there is"), std::string::npos);
}

// A copy without the rows of a hand-over would be read beyond its end.
TEST(Call, BelongsToAHandOverOnlyIfItsKindMay) {
  const CallLimits limits{kMost, 0, std::nullopt};
  Call call;
  call.count = 10;
  call.kind = CallKind::kReplica;
  call.hand_over = HandOver::kNo;
  call.body_bytes = snapshot_floats(call, 0) * sizeof(float);
  EXPECT_NE(check(call, limits).message().find("no hand-over that there is"), std::string::npos);
  call.hand_over = HandOver::kYes;
  call.body_bytes = snapshot_floats(call, 0) * sizeof(float);
  EXPECT_TRUE(check(call, limits).ok());
  call.body_bytes = 0;
  for (const CallKind kind : {CallKind::kFind, CallKind::kMoved, CallKind::kPull, CallKind::kAttend}) {
    call.kind = kind;
    EXPECT_FALSE(check(call, limits).ok()) << name_of(kind);
  }
}

}  // namespace
}  // namespace braid
