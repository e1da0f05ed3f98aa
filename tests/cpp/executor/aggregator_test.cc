// SPDX-License-Identifier: Apache-2.0
// Runs with nodes that only add up give the bits of runs without them.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <string>

#include "executor/rehearsal.h"
#include "planner/hosts.h"
#include "support/every_algorithm.h"

namespace braid::testing {
namespace {

using Memory = std::vector<std::byte>;

// Numbers of which a sum rounds.
Memory numbers(DType dtype, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Memory memory(count * size_of(dtype));
  const auto fill = [&](const auto& draw) {
    using T = decltype(draw());
    for (size_t e = 0; e < count; ++e) {
      const T value = draw();
      std::memcpy(memory.data() + e * sizeof(T), &value, sizeof(T));
    }
  };
  std::normal_distribution<float> normal;
  switch (dtype) {
    case DType::kFloat32: fill([&] { return normal(random); }); break;
    case DType::kFloat64: fill([&] { return static_cast<double>(normal(random)) / 3; }); break;
    case DType::kFloat16:  // of some size between 2^-5 and 2^4
      fill([&] { return static_cast<uint16_t>((random() & 0x83ff) | (10 + random() % 9) << 10); });
      break;
    case DType::kBFloat16:
      fill([&] { return static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(random)) >> 16); });
      break;
    default: fill([&] { return static_cast<uint8_t>(random()); });
  }
  return memory;
}

struct Run {
  const char* algorithm = "direct";
  int ranks = 1;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  size_t count = 0;
  bool on_boards = false;
};

// What all ranks have in the end, which must be the same.
Memory result_of(const Run& run, const PlanOptions& plan) {
  const Collective collective{CollectiveKind::kAllReduce, run.ranks, 0};
  std::vector<Memory> inputs;
  std::vector<Memory> outputs;
  std::vector<Operands> operands;
  for (int rank = 0; rank < run.ranks; ++rank) {
    inputs.push_back(numbers(run.dtype, run.count, static_cast<uint32_t>(rank) + 1));
    outputs.emplace_back(inputs.back().size(), std::byte{0x5a});
  }
  for (int rank = 0; rank < run.ranks; ++rank) {
    const auto i = static_cast<size_t>(rank);
    operands.push_back({run.dtype, run.op, {inputs[i]}, {outputs[i]}});
  }
  RehearsalOptions options;
  options.execution.chunk_bytes = 1024;
  options.loopback.piece_bytes = 500;
  const auto schedule = planned(*find_algorithm(collective.kind, run.algorithm), collective, plan);
  EXPECT_EQ(schedule->schedule().aggregators(), plan.aggregators);
  const Status status = run.on_boards ? rehearse_on_boards(schedule, operands, 64 * 1024, options.timeout)
                                      : rehearse(schedule, operands, options);
  EXPECT_TRUE(status.ok()) << status.message();
  for (const Memory& output : outputs) EXPECT_EQ(output, outputs[0]);
  return outputs[0];
}

void expect_bits_of_a_run_without(const Run& run, const PlanOptions& plan) {
  PlanOptions without;
  without.hosts.assign(plan.hosts.begin(), plan.hosts.empty() ? plan.hosts.end() : plan.hosts.begin() + run.ranks);
  EXPECT_EQ(result_of(run, plan), result_of(run, without))
      << run.algorithm << " " << run.ranks << "+" << plan.aggregators << " of " << run.count << " "
      << name_of(run.dtype);
}

TEST(Aggregator, GivesTheBitsOfARunWithoutIt) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int aggregators = 0; aggregators <= 3; ++aggregators) {
      for (const size_t count : {0, 1, 1009, 20'011}) {
        for (const bool on_boards : {false, true}) {
          expect_bits_of_a_run_without({"direct", ranks, DType::kFloat32, ReduceOp::kSum, count, on_boards},
                                       {{}, {}, aggregators});
        }
      }
    }
  }
}

TEST(Aggregator, GivesTheSameBitsOfEveryTypeAndOperator) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kUInt8}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
      for (const size_t count : {1, 3, 1009}) {
        expect_bits_of_a_run_without({"direct", 3, dtype, op, count}, {{}, {}, 2});
      }
    }
  }
}

// Owners of nothing, among them aggregators, and aggregators that own all.
TEST(Aggregator, GivesTheSameBitsWithAnyShares) {
  for (const std::vector<uint64_t>& shares :
       std::vector<std::vector<uint64_t>>{{1, 5, 0, 2, 7}, {3, 0, 1, 0, 2}, {1, 1, 1, 0, 0}, {0, 0, 0, 0, 1}}) {
    for (const size_t count : {0, 1, 7, 1009}) {
      for (const bool on_boards : {false, true}) {
        expect_bits_of_a_run_without({"direct", 3, DType::kFloat32, ReduceOp::kAvg, count, on_boards},
                                     {shares, {}, 2});
      }
    }
  }
}

TEST(Aggregator, WorksBetweenHosts) {
  for (const std::vector<int>& hosts :
       std::vector<std::vector<int>>{{0, 0, 1, 1, 1, 2, 2}, {0, 1, 0, 2, 1, 2, 3}}) {
    std::vector<uint64_t> shares(Hosts(5, hosts).count() + 2, 3);
    shares.back() = 1;
    for (const size_t count : {0, 1, 1009, 20'011}) {
      expect_bits_of_a_run_without({"hierarchical_direct", 5, DType::kFloat32, ReduceOp::kAvg, count},
                                   {shares, hosts, 2});
    }
  }
}

// It learns the size from its operands, and cuts alike.
TEST(Aggregator, CutsAsTheRanksDo) {
  const Collective collective{CollectiveKind::kAllReduce, 3, 0};
  const auto schedule = planned(*find_algorithm(collective.kind, "direct"), collective, {{5, 1, 2, 3}, {}, 1});
  for (const size_t count : {0, 1, 1009, 40'009}) {
    Memory memory(count * 4);
    const Operands of_rank{DType::kFloat32, ReduceOp::kSum, {memory}, {memory}};
    const Operands of_aggregator{DType::kFloat32, ReduceOp::kSum, {}, {}, memory.size()};
    const Layout rank(schedule->schedule(), of_rank, 256);
    const Layout aggregator(schedule->schedule(), of_aggregator, 256);
    ASSERT_EQ(aggregator.segments(), rank.segments());
    std::vector<std::byte> scratch(aggregator.scratch_bytes());
    for (int64_t segment = 0; segment < rank.segments(); ++segment) {
      const Bytes sum = aggregator.write({Buffer::kScratch, 3}, segment, scratch.data());
      EXPECT_EQ(sum.size(), rank.read({Buffer::kInput, 3}, segment, nullptr).size());
      EXPECT_LE(sum.data() + sum.size(), scratch.data() + scratch.size());
    }
  }
}

}  // namespace
}  // namespace braid::testing
