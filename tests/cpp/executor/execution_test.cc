// SPDX-License-Identifier: Apache-2.0
#include "executor/execution.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "executor/rehearsal.h"
#include "support/blocks.h"
#include "support/every_algorithm.h"

namespace braid::testing {
namespace {

// Runs one collective on all ranks and looks at what came out.
void expect_right(const Algorithm& algorithm, const Collective& collective, size_t count, bool in_place,
                  const RehearsalOptions& options, const PlanOptions& plan_options = {}) {
  std::vector<std::unique_ptr<Blocks>> blocks;
  std::vector<Operands> operands;
  for (Node rank = 0; rank < collective.ranks; ++rank) {
    blocks.push_back(std::make_unique<Blocks>(collective, rank, count, in_place));
    operands.push_back({DType::kUInt32, ReduceOp::kSum, blocks.back()->inputs(), blocks.back()->outputs()});
  }
  const Status status = rehearse(planned(algorithm, collective, plan_options), operands, options);
  ASSERT_TRUE(status.ok()) << algorithm.name << ": " << status.message();
  for (const auto& rank : blocks) ASSERT_TRUE(rank->right()) << algorithm.name;
}

TEST(Execution, EveryAlgorithmInManySegments) {
  RehearsalOptions options;
  options.execution.chunk_bytes = 256;
  for_every_algorithm({1, 2, 3, 5}, [&](const Algorithm& algorithm, const Collective& collective) {
    if (!algorithm.supports(collective)) return;
    for (const size_t count : {0, 1, 1009}) {
      for (const bool in_place : {false, true}) {
        options.loopback.read_peers = in_place;
        expect_right(algorithm, collective, count, in_place, options);
      }
    }
  });
}

TEST(Execution, EveryAlgorithmOnSeveralHosts) {
  RehearsalOptions options;
  options.execution.chunk_bytes = 256;
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0, 1, 1, 1}, {0, 1, 0, 2, 1}}) {
    for_every_algorithm({5}, [&](const Algorithm& algorithm, const Collective& collective) {
      for (const size_t count : {1, 1009}) {
        for (const bool in_place : {false, true}) {
          expect_right(algorithm, collective, count, in_place, options, {{}, hosts});
        }
      }
    });
  }
}

TEST(Execution, HostsMayOwnNothing) {
  const Algorithm& algorithm = *find_algorithm(CollectiveKind::kAllReduce, "hierarchical_direct");
  for (const std::vector<uint64_t>& shares : std::vector<std::vector<uint64_t>>{{3, 0, 1}, {0, 1, 0}}) {
    for (const size_t count : {0, 1, 7, 1009}) {
      expect_right(algorithm, {CollectiveKind::kAllReduce, 5, 0}, count, true, {}, {shares, {0, 0, 1, 2, 2}});
    }
  }
}

TEST(Execution, MessagesLargerThanEagerGoInPiecesOrAreRead) {
  RehearsalOptions options;
  options.execution.chunk_bytes = 64 * 1024;
  options.loopback.piece_bytes = 1000;
  for (const bool read_peers : {false, true}) {
    options.loopback.read_peers = read_peers;
    for_every_algorithm({4}, [&](const Algorithm& algorithm, const Collective& collective) {
      if (collective.root == 0 && algorithm.supports(collective)) {
        expect_right(algorithm, collective, 20'011, false, options);
      }
    });
  }
}

TEST(Execution, AnyWindowGivesTheSame) {
  const Algorithm& ring = *find_algorithm(CollectiveKind::kAllReduce, "ring");
  RehearsalOptions options;
  options.execution.chunk_bytes = 128;
  for (const int window : {0, 1, 2, 7, 1000}) {
    options.execution.window = window;
    expect_right(ring, {CollectiveKind::kAllReduce, 3, 0}, 3001, true, options);
  }
}

TEST(Execution, AnAverageIsDividedOnceInEveryAlgorithm) {
  for (const Algorithm& algorithm : algorithms(CollectiveKind::kAllReduce)) {
    const Collective collective{CollectiveKind::kAllReduce, 5, 0};
    if (!algorithm.supports(collective)) continue;
    std::vector<std::vector<float>> data;
    std::vector<Operands> operands;
    for (int rank = 0; rank < 5; ++rank) data.emplace_back(777, static_cast<float>(10 * rank));
    for (auto& values : data) {
      const Bytes bytes = std::as_writable_bytes(std::span(values));
      operands.push_back({DType::kFloat32, ReduceOp::kAvg, {bytes}, {bytes}});
    }
    const Status status = rehearse(planned(algorithm, collective), operands, {});
    ASSERT_TRUE(status.ok()) << algorithm.name << ": " << status.message();
    for (const auto& values : data) ASSERT_EQ(values, std::vector<float>(777, 20.0f)) << algorithm.name;
  }
}

// One rank of a pair, whose peer stays silent.
class Alone : public ::testing::Test {
 protected:
  Alone() {
    mailbox_.attach(1, hub_.channel(0, 1, mailbox_, bell_));
    execution_.emplace(schedule_, 0, Operands{DType::kUInt8, ReduceOp::kSum, {}, {memory_}}, mailbox_, 1, pool_,
                       ExecutionOptions());
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(64);
  std::shared_ptr<const VerifiedSchedule> schedule_ =
      planned(*find_algorithm(CollectiveKind::kBroadcast, "binomial"), {CollectiveKind::kBroadcast, 2, 1});
  LoopbackHub hub_{2, {}};
  DoorbellWord bell_;
  Pool pool_{0};
  Mailbox mailbox_{0, 2, bell_};
  std::optional<Execution> execution_;
};

TEST_F(Alone, SaysWhatItWaitsFor) {
  EXPECT_FALSE(execution_->advance());
  EXPECT_NE(execution_->waiting_for(3).find("r1"), std::string::npos) << execution_->waiting_for(3);
  EXPECT_EQ(execution_->waiting_peers(), std::vector<Node>{1});
  mailbox_.close();
}

TEST_F(Alone, AFailureNamesTheStep) {
  EXPECT_FALSE(execution_->advance());
  hub_.kill(1);
  mailbox_.poll();
  ASSERT_TRUE(execution_->advance());
  EXPECT_EQ(execution_->status().code(), Code::kPeerLost);
  EXPECT_EQ(execution_->status().rank(), 1);
  EXPECT_NE(execution_->status().message().find("(step: recv"), std::string::npos)
      << execution_->status().message();
}

}  // namespace
}  // namespace braid::testing
