// SPDX-License-Identifier: Apache-2.0
// Every collective, on every wire, against plain loops.
#include <atomic>
#include <cmath>
#include <complex>
#include <thread>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

constexpr size_t kMebibyte = (1 << 20) / sizeof(uint32_t);

class Collectives : public ::testing::TestWithParam<std::tuple<Wire, int>> {};

TEST_P(Collectives, OfEverySizeInlineAndQueuedInPlaceAndNot) {
  const auto& [wire, ranks] = GetParam();
  on_all_ranks(ranks, options_for(wire), [&](Communicator& group) {
    uint32_t turn = 0;
    for (const size_t count : {size_t{0}, size_t{1}, size_t{1009}, kMebibyte}) {
      for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
        const auto what = static_cast<CollectiveKind>(kind);
        if (what == CollectiveKind::kBarrier) continue;
        const Node last_root = has_root(what) && count == 1009 ? group.ranks() - 1 : 0;
        for (Node root = 0; root <= last_root; ++root) {
          const bool in_place = turn % 2 == 1, inline_if_idle = turn % 4 < 2;
          ++turn;
          const Collective collective{what, group.ranks(), root};
          const size_t each = is_vector(what) ? count : (count + group.ranks() - 1) / group.ranks();
          Blocks blocks(collective, group.rank(), each, in_place, turn);
          const Status status = run(group, operation_on(blocks, collective), inline_if_idle);
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_TRUE(blocks.right());
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, Collectives,
                         ::testing::Combine(::testing::ValuesIn(wires()), ::testing::Values(1, 2, 3, 5, 8)),
                         [](const auto& chosen) {
                           return std::get<0>(chosen.param).name + std::to_string(std::get<1>(chosen.param));
                         });

class Reductions : public EveryWire {};

// Every dtype holds these sums exactly.
template <class T>
void expect_sum(Communicator& group, DType dtype, T one, T total) {
  std::vector<T> values(1009, one);
  const Status status = run(group, all_reduce(values, dtype));
  ASSERT_TRUE(status.ok()) << name_of(dtype) << ": " << status.message();
  for (const T value : values) ASSERT_EQ(value, total) << name_of(dtype);
}

TEST_P(Reductions, SumOfEveryDtype) {
  on_all_ranks(3, options(), [](Communicator& group) {
    expect_sum<double>(group, DType::kFloat64, 2.5, 7.5);
    expect_sum<float>(group, DType::kFloat32, 2.5f, 7.5f);
    expect_sum<uint16_t>(group, DType::kFloat16, 0x4100, 0x4780);   // 2.5, 7.5
    expect_sum<uint16_t>(group, DType::kBFloat16, 0x4020, 0x40f0);  // 2.5, 7.5
    expect_sum<int8_t>(group, DType::kInt8, -7, -21);
    expect_sum<int16_t>(group, DType::kInt16, -700, -2100);
    expect_sum<int32_t>(group, DType::kInt32, -70'000, -210'000);
    expect_sum<int64_t>(group, DType::kInt64, -7'000'000'000, -21'000'000'000);
    expect_sum<uint8_t>(group, DType::kUInt8, 80, 240);
    expect_sum<uint16_t>(group, DType::kUInt16, 20'000, 60'000);
    expect_sum<uint32_t>(group, DType::kUInt32, 1'000'000'000, 3'000'000'000);
    expect_sum<uint64_t>(group, DType::kUInt64, uint64_t{1} << 62, 3 * (uint64_t{1} << 62));
    expect_sum<uint8_t>(group, DType::kBool, 1, 1);
    expect_sum<uint8_t>(group, DType::kFloat8E4M3Fn, 0x42, 0x4f);  // 2.5, 7.5
    expect_sum<uint8_t>(group, DType::kFloat8E5M2, 0x40, 0x46);    // 2, 6
    expect_sum<std::complex<float>>(group, DType::kComplex64, {2.5f, -1}, {7.5f, -3});
    expect_sum<std::complex<double>>(group, DType::kComplex128, {2.5, -1}, {7.5, -3});
  });
}

TEST_P(Reductions, EveryOperator) {
  on_all_ranks(3, options(), [](Communicator& group) {
    const auto outcome_of = [&](ReduceOp op) {
      std::vector<float> values(100, static_cast<float>(group.rank() + 2));
      const Status status = run(group, all_reduce(values, DType::kFloat32, op));
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(values.front(), values.back());
      return values.back();
    };
    EXPECT_EQ(outcome_of(ReduceOp::kSum), 9.0f);
    EXPECT_EQ(outcome_of(ReduceOp::kAvg), 3.0f);
    EXPECT_EQ(outcome_of(ReduceOp::kProduct), 24.0f);
    EXPECT_EQ(outcome_of(ReduceOp::kMin), 2.0f);
    EXPECT_EQ(outcome_of(ReduceOp::kMax), 4.0f);
    const auto bits_of = [&](ReduceOp op) {
      std::vector<int32_t> values(100, 10 + group.rank());  // 1010, 1011, 1100
      const Status status = run(group, all_reduce(values, DType::kInt32, op));
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(values.front(), values.back());
      return values.back();
    };
    EXPECT_EQ(bits_of(ReduceOp::kBand), 0b1000);
    EXPECT_EQ(bits_of(ReduceOp::kBor), 0b1111);
    EXPECT_EQ(bits_of(ReduceOp::kBxor), 0b1101);
  });
}

class Barrier : public EveryWire {};

// Nobody may leave before the last has come, whatever blocks the caller gives.
TEST_P(Barrier, WaitsForTheLast) {
  std::atomic<int> come{0};
  on_all_ranks(3, options(), [&](Communicator& group) {
    for (int round = 1; round <= 5; ++round) {
      if (group.rank() == round % 3) std::this_thread::sleep_for(milliseconds(20));
      ++come;
      Operation operation = barrier();
      if (round % 2 == 0) {
        operation.inputs = {ConstBytes()};
        operation.outputs = {Bytes()};
      }
      const Status status = run(group, operation, round < 3);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_GE(come, 3 * round);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, Reductions, ::testing::ValuesIn(wires()), wire_name);
INSTANTIATE_TEST_SUITE_P(Wires, Barrier, ::testing::ValuesIn(wires()), wire_name);

// Hosts are told apart by name: two ranks on each of two, so both wires carry one collective.
TEST(MixedWires, CarryOneCollective) {
  at_all_places(4, options_for({"both", "shm,tcp", true}), [](const Place& place) {
    Place here = place;
    here.options.host = place.rank < 2 ? "first" : "second";
    auto group = here.form("mixed");
    ASSERT_TRUE(group.ok()) << group.status().message();
    const auto lines = group.value()->describe_wires();
    ASSERT_EQ(lines.size(), 4u);
    for (Node peer = 0; peer < 4; ++peer) {
      const std::string wire = peer == here.rank ? "this process" : (peer < 2) == (here.rank < 2) ? "shm" : "tcp";
      EXPECT_NE(lines[peer].find("rank " + std::to_string(peer) + ": " + wire), std::string::npos) << lines[peer];
    }
    const Collective collective{CollectiveKind::kAllReduce, 4, 0};
    for (const size_t count : {size_t{5}, kMebibyte}) {
      Blocks blocks(collective, here.rank, count, true);
      const Status status = run(*group.value(), operation_on(blocks, collective));
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_TRUE(blocks.right());
    }
    group.value()->shutdown();
  });
}

}  // namespace
}  // namespace braid::testing
