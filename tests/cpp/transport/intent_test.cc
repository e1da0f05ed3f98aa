// SPDX-License-Identifier: Apache-2.0
// Intents: what travels of an operation, and how errors describe it.
#include <gtest/gtest.h>

#include "base/dtype.h"
#include "transport/frame.h"

namespace braid {
namespace {

Intent all_reduce_of(uint64_t bytes) {
  Intent intent;
  intent.dtype = static_cast<uint8_t>(DType::kFloat32);
  intent.op = static_cast<uint8_t>(ReduceOp::kSum);
  intent.bytes = bytes;
  return intent;
}

std::string name_of_seven(uint32_t number) { return number == 7 ? "seven" : ""; }

TEST(IntentTest, HasRoomForTheLargestOfEverything) {
  Intent intent;
  intent.kind = kCollectiveKindCount - 1;
  intent.dtype = kDTypeCount - 1;
  intent.op = kReduceOpCount - 1;
  intent.root = kMaxRanks - 1;
  intent.codec = (1u << 26) - 1;
  intent.bytes = kMostIntentBytes;
  EXPECT_EQ(intent.kind, kCollectiveKindCount - 1u);
  EXPECT_EQ(intent.dtype, kDTypeCount - 1u);
  EXPECT_EQ(intent.op, kReduceOpCount - 1u);
  EXPECT_EQ(intent.root, kMaxRanks - 1u);
  EXPECT_EQ(intent.codec, (1u << 26) - 1);
  EXPECT_EQ(intent.bytes, kMostIntentBytes);
}

TEST(IntentTest, IsDescribedWithoutKnowingCodecs) {
  Intent intent = all_reduce_of(4096);
  EXPECT_EQ(describe(intent), "all_reduce sum of 4096 bytes of float32");
  intent.codec = 7;
  EXPECT_EQ(describe(intent), "all_reduce sum of 4096 bytes of float32 by the codec 7");
  EXPECT_EQ(describe(intent, name_of_seven), "all_reduce sum of 4096 bytes of float32 by the codec seven");
  intent.codec = 8;
  EXPECT_EQ(describe(intent, name_of_seven), "all_reduce sum of 4096 bytes of float32 by the codec 8");
  intent = all_reduce_of(kMostIntentBytes);
  EXPECT_EQ(describe(intent), "all_reduce sum of at least 274877906943 bytes of float32");
}

TEST(IntentTest, ADisagreementNamesTheCodecs) {
  Intent one = all_reduce_of(64), other = one;
  other.codec = 7;
  EXPECT_NE(one, other);
  const Status status = disagree(3, 0, one, 1, other, name_of_seven);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_EQ(status.message(),
            "ranks disagree about operation 3: rank 0 is in all_reduce sum of 64 bytes of float32, rank 1 in "
            "all_reduce sum of 64 bytes of float32 by the codec seven");
}

}  // namespace
}  // namespace braid
