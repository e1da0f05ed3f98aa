// SPDX-License-Identifier: Apache-2.0
// Ranks that mean different things are told so, by name, instead of waiting for ever or mixing their data.
#include <thread>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

struct Disagreement {
  std::string name;
  Operation first, second;  // of ranks 0 and 1
};

class Mismatch : public EveryWire {
 protected:
  Bytes bytes(Node rank, size_t count) { return Bytes(memory_[rank]).first(count); }
  Operation vector_of(CollectiveKind kind, Node rank, size_t count, Node root = 0) {
    Operation operation{kind, DType::kFloat32, ReduceOp::kSum, root, {bytes(rank, count)}, {bytes(rank, count)}};
    if (kind == CollectiveKind::kBroadcast && rank != root) operation.inputs.clear();
    if (kind == CollectiveKind::kReduce && rank != root) operation.outputs.clear();
    return operation;
  }
  Operation gather_of(Node rank, size_t from_0, size_t from_1) {
    Operation operation{CollectiveKind::kGather, DType::kFloat32, ReduceOp::kSum, 0, {}, {}};
    operation.inputs = {bytes(rank, rank == 0 ? from_0 : from_1)};
    if (rank == 0) operation.outputs = {bytes(0, from_0), Bytes(memory_[2]).first(from_1)};
    return operation;
  }

  std::vector<Disagreement> disagreements() {
    const auto all_reduce = CollectiveKind::kAllReduce;
    const auto broadcast = CollectiveKind::kBroadcast;
    std::vector<Disagreement> all = {
        {"small sizes", vector_of(all_reduce, 0, 40), vector_of(all_reduce, 1, 80)},
        {"large sizes", vector_of(all_reduce, 0, 1 << 20), vector_of(all_reduce, 1, 1 << 19)},
        {"a small and a large size", vector_of(all_reduce, 0, 40), vector_of(all_reduce, 1, 1 << 20)},
        {"nothing and something small", vector_of(all_reduce, 0, 0), vector_of(all_reduce, 1, 40)},
        {"nothing and something large", vector_of(all_reduce, 0, 0), vector_of(all_reduce, 1, 1 << 20)},
        {"roots", vector_of(broadcast, 0, 400, 0), vector_of(broadcast, 1, 400, 1)},
        {"roots of large ones", vector_of(broadcast, 0, 1 << 20, 0), vector_of(broadcast, 1, 1 << 20, 1)},
        {"kinds", vector_of(all_reduce, 0, 400), vector_of(broadcast, 1, 400)},
        {"a barrier and a large one", barrier(), vector_of(all_reduce, 1, 1 << 20)},
        {"blocks", gather_of(0, 400, 400), gather_of(1, 400, 800)},
        {"a small and a large block", gather_of(0, 400, 400), gather_of(1, 400, 1 << 20)},
    };
    Operation other = vector_of(all_reduce, 1, 400);
    other.op = ReduceOp::kMax;
    all.push_back({"operators", vector_of(all_reduce, 0, 400), other});
    other.op = ReduceOp::kSum;
    other.dtype = DType::kInt32;
    all.push_back({"dtypes", vector_of(all_reduce, 0, 400), other});
    return all;
  }

  std::vector<std::vector<std::byte>> memory_{3, std::vector<std::byte>(1 << 20)};
};

TEST_P(Mismatch, IsToldToBothAndNamesBoth) {
  for (const Disagreement& case_ : disagreements()) {
    for (const Node late : {0, 1}) {
      on_all_ranks(2, options(), [&](Communicator& group) {
        if (group.rank() == late) std::this_thread::sleep_for(milliseconds(20));
        Status status = run(group, group.rank() == 0 ? case_.first : case_.second, late == 0);
        // Who had nothing to wait for hears of it at the next call.
        if (status.ok()) status = run(group, barrier());
        EXPECT_EQ(status.code(), Code::kMismatch) << case_.name << ": " << status.message();
        EXPECT_NE(status.message().find("rank 0"), std::string::npos) << case_.name << ": " << status.message();
        EXPECT_NE(status.message().find("rank 1"), std::string::npos) << case_.name << ": " << status.message();
        EXPECT_FALSE(group.failure().ok());
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Wires, Mismatch, ::testing::ValuesIn(wires()), wire_name);

}  // namespace
}  // namespace braid::testing
