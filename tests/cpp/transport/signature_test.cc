// SPDX-License-Identifier: Apache-2.0
// Signatures: what travels of an operation, and how errors describe it.
#include <gtest/gtest.h>

#include "base/dtype.h"
#include "transport/frame.h"

namespace braid {
namespace {

Signature all_reduce_of(uint64_t bytes) {
  Signature signature;
  signature.dtype = static_cast<uint8_t>(DType::kFloat32);
  signature.op = static_cast<uint8_t>(ReduceOp::kSum);
  signature.bytes = bytes;
  return signature;
}

std::string name_of_seven(uint32_t number) { return number == 7 ? "seven" : ""; }

TEST(SignatureTest, HasRoomForTheLargestOfEverything) {
  Signature signature;
  signature.kind = kCollectiveKindCount - 1;
  signature.dtype = kDTypeCount - 1;
  signature.op = kReduceOpCount - 1;
  signature.root = kMaxRanks - 1;
  signature.codec = (1u << 26) - 1;
  signature.bytes = kMostSignatureBytes;
  EXPECT_EQ(signature.kind, kCollectiveKindCount - 1u);
  EXPECT_EQ(signature.dtype, kDTypeCount - 1u);
  EXPECT_EQ(signature.op, kReduceOpCount - 1u);
  EXPECT_EQ(signature.root, kMaxRanks - 1u);
  EXPECT_EQ(signature.codec, (1u << 26) - 1);
  EXPECT_EQ(signature.bytes, kMostSignatureBytes);
}

TEST(SignatureTest, IsDescribedWithoutKnowingCodecs) {
  Signature signature = all_reduce_of(4096);
  EXPECT_EQ(describe(signature), "all_reduce sum of 4096 bytes of float32");
  signature.codec = 7;
  EXPECT_EQ(describe(signature), "all_reduce sum of 4096 bytes of float32 by the codec 7");
  EXPECT_EQ(describe(signature, name_of_seven), "all_reduce sum of 4096 bytes of float32 by the codec seven");
  signature.codec = 8;
  EXPECT_EQ(describe(signature, name_of_seven), "all_reduce sum of 4096 bytes of float32 by the codec 8");
  signature = all_reduce_of(kMostSignatureBytes);
  EXPECT_EQ(describe(signature), "all_reduce sum of at least 274877906943 bytes of float32");
}

TEST(SignatureTest, ADisagreementNamesTheCodecs) {
  Signature one = all_reduce_of(64), other = one;
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
