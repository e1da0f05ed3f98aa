// SPDX-License-Identifier: Apache-2.0
// Wrong arguments are refused before anything moves, and the group goes on.
#include "communicator/ranks.h"

namespace braid::testing {
namespace {

struct Wrong {
  std::string why;  // part of the message
  Operation operation;
};

TEST(Arguments, ThatMakeNoSenseAreRefusedAndTheGroupStillWorks) {
  on_all_ranks(2, options_for(wires()[0]), [](Communicator& group) {
    std::vector<std::byte> memory(64), other(64);
    const Bytes a = memory, b = other;
    const auto own = static_cast<size_t>(group.rank());
    const std::vector<Wrong> all = {
        {"expected 1 input block(s), got 0",
         {CollectiveKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, {}, {a}}},
        {"expected 1 output block(s), got 2",
         {CollectiveKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, {a}, {a, b}}},
        {"64 and 32 bytes", {CollectiveKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, {a}, {b.first(32)}}},
        {"no whole number of float32",
         {CollectiveKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, {a.first(7)}, {b.first(7)}}},
        {"overlap",
         {CollectiveKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, {a.first(32)}, {a.subspan(16, 32)}}},
        {"product is not defined for complex64, only sum, avg",
         {CollectiveKind::kAllReduce, DType::kComplex64, ReduceOp::kProduct, 0, {a}, {a}}},
        {"bxor is not defined for float32",
         {CollectiveKind::kReduceScatter, DType::kFloat32, ReduceOp::kBxor, 0, {a.first(32), a.last(32)}, {b}}},
        {"root 2", {CollectiveKind::kReduce, DType::kFloat32, ReduceOp::kSum, 2, {a}, {a}}},
        {"root -1", {CollectiveKind::kReduce, DType::kFloat32, ReduceOp::kSum, -1, {a}, {a}}},
        {"expected 2 output block(s), got 1",
         {CollectiveKind::kAllGather, DType::kFloat32, ReduceOp::kSum, 0, {a}, {b}}},
        {"own block",
         {CollectiveKind::kAllGather, DType::kFloat32, ReduceOp::kSum, 0, {a.first(4)}, {b.first(8), b.last(8)}}},
        {"output blocks overlap",
         {CollectiveKind::kAllGather,
          DType::kFloat32,
          ReduceOp::kSum,
          0,
          {a.first(32)},
          {b.first(32), b.subspan(16, 32)}}},
        // In place, but in the other rank's block.
        {"overlap",
         {CollectiveKind::kAllGather,
          DType::kFloat32,
          ReduceOp::kSum,
          0,
          {own == 0 ? b.last(32) : b.first(32)},
          {b.first(32), b.last(32)}}},
    };
    for (const Wrong& wrong : all) {
      const auto refused = group.start(wrong.operation, true);
      ASSERT_FALSE(refused.ok()) << wrong.why;
      EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
      EXPECT_NE(refused.status().message().find(wrong.why), std::string::npos) << refused.status().message();
    }
    EXPECT_EQ(group.send(kAnyNode, 0, a, milliseconds(0)).status().code(), Code::kInvalidArgument);
    for (const Node nobody : {-2, 2, group.rank()}) {
      EXPECT_EQ(group.send(nobody, 0, a, milliseconds(0)).status().code(), Code::kInvalidArgument);
      EXPECT_EQ(group.recv(nobody, 0, a, milliseconds(0)).status().code(), Code::kInvalidArgument);
    }
    EXPECT_TRUE(group.failure().ok());
    EXPECT_EQ(group.sequence(), 0u);
    std::vector<float> values(10, 1.0f);
    const Status status = run(group, all_reduce(values));
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(values, std::vector<float>(10, 2.0f));
  });
}

}  // namespace
}  // namespace braid::testing
