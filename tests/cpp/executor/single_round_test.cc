// SPDX-License-Identifier: Apache-2.0
#include "executor/single_round.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "executor/board_execution.h"
#include "support/blocks.h"
#include "support/every_algorithm.h"
#include "transport/shm/local_boards.h"

namespace braid::testing {
namespace {

// All ranks of a host, played in one thread.
class Host {
 public:
  Host(const Algorithm& algorithm, const Collective& collective, size_t count, bool in_place)
      : schedule_(planned(algorithm, collective)),
        plan_(plan_for_boards(*schedule_, {kBounceBytes})),
        boards_(collective.ranks, kBounceBytes),
        workspaces_(schedule_->schedule().programs.size()) {
    const int ranks = collective.ranks;
    for (Node node = 0; node < ranks; ++node) {
      blocks_.push_back(std::make_unique<Blocks>(collective, node, count, in_place));
      operands_.push_back({DType::kUInt32, ReduceOp::kSum, blocks_.back()->inputs(), blocks_.back()->outputs()});
      rounds_.push_back(SingleRound::lay_out(schedule_, plan_, node, operands_.back()));
    }
  }

  int ranks() const { return static_cast<int>(rounds_.size()); }
  bool is_laid_out(Node node) const { return rounds_[at(node)].has_value(); }
  bool post(Node node, uint64_t digest = 1) {
    return rounds_[at(node)]->post(memory_of(node), boards_[node], digest);
  }
  bool complete(Node node, uint64_t digest = 1) {
    return rounds_[at(node)]->complete(memory_of(node), boards_[node], digest, 0);
  }
  std::unique_ptr<BoardExecution> execution(Node node, bool has_posted) {
    return std::make_unique<BoardExecution>(schedule_, plan_, node, operands_[at(node)], boards_[node], 1, pool_,
                                            workspaces_[at(node)], has_posted);
  }
  ::testing::AssertionResult right(Node node) const { return blocks_[at(node)]->right(); }
  const Schedule& schedule() const { return schedule_->schedule(); }

 private:
  static constexpr size_t kBounceBytes = 256 * 1024;

  static size_t at(Node node) { return static_cast<size_t>(node); }
  SingleRound::Memory memory_of(Node node) const {
    return {operands_[at(node)].inputs, operands_[at(node)].outputs};
  }

  const std::shared_ptr<const VerifiedSchedule> schedule_;
  const BoardPlan plan_;
  shm::LocalBoards boards_;
  std::vector<std::unique_ptr<Blocks>> blocks_;
  std::vector<Operands> operands_;
  std::vector<std::optional<SingleRound>> rounds_;
  Pool pool_{0};
  std::vector<BoardWorkspace> workspaces_;
};

const Collective kSum{CollectiveKind::kAllReduce, 3, 0};
const Algorithm& gather_all() { return *find_algorithm(CollectiveKind::kAllReduce, "gather_all"); }

// Of sizes that fit a notice, lie in the bounce buffer, and are none.
TEST(SingleRound, EveryAlgorithmOfOneRound) {
  int laid_out = 0;
  for_every_algorithm({2, 3, 5}, [&](const Algorithm& algorithm, const Collective& collective) {
    if (!algorithm.supports(collective)) return;
    for (const size_t count : {1, 7, 500}) {
      for (const bool in_place : {false, true}) {
        Host host(algorithm, collective, count, in_place);
        const auto& programs = host.schedule().programs;
        for (Node node = 0; node < host.ranks(); ++node) {
          const bool takes_part = !programs[static_cast<size_t>(node)].empty();
          ASSERT_EQ(host.is_laid_out(node), SingleRound::is_of(host.schedule()) && takes_part) << algorithm.name;
        }
        if (!SingleRound::is_of(host.schedule())) return;
        ++laid_out;
        for (Node node = 0; node < host.ranks(); ++node) {
          ASSERT_TRUE(!host.is_laid_out(node) || host.post(node));
        }
        for (Node node = 0; node < host.ranks(); ++node) {
          ASSERT_TRUE(!host.is_laid_out(node) || host.complete(node)) << algorithm.name;
          ASSERT_TRUE(host.right(node)) << algorithm.name << " on " << collective.ranks;
        }
      }
    }
  });
  EXPECT_GT(laid_out, 100);
}

TEST(SingleRound, MoreRoundsOrSegmentsAreNone) {
  const Host ring(*find_algorithm(CollectiveKind::kAllReduce, "ring"), kSum, 100, true);
  EXPECT_FALSE(ring.is_laid_out(0));
  const Host long_one(gather_all(), kSum, 1'000'000, true);
  EXPECT_FALSE(long_one.is_laid_out(0));
  const Host nothing(gather_all(), kSum, 0, true);
  EXPECT_FALSE(nothing.is_laid_out(0));
}

// Whoever has waited too long goes on with all that is needed to wait; the others need not know.
TEST(SingleRound, GoesOnAsABoardExecution) {
  for (const size_t count : {3, 500}) {
    Host host(gather_all(), kSum, count, true);
    ASSERT_TRUE(host.post(0));
    EXPECT_FALSE(host.complete(0));
    const auto late = host.execution(0, true);
    EXPECT_FALSE(late->advance());
    const auto general = host.execution(1, false);
    EXPECT_FALSE(general->advance());
    ASSERT_TRUE(host.post(2));
    EXPECT_TRUE(host.complete(2));
    EXPECT_TRUE(late->advance());
    EXPECT_TRUE(general->advance());
    for (Node node = 0; node < 3; ++node) EXPECT_TRUE(host.right(node));
  }
}

TEST(SingleRound, PostsNothingWithoutRoomForAll) {
  Host host(gather_all(), kSum, 3, true);
  for (size_t i = 0; i < shm::kNotices; ++i) ASSERT_TRUE(host.post(0)) << i;
  EXPECT_FALSE(host.post(0));
  ASSERT_TRUE(host.post(1));
  ASSERT_TRUE(host.post(2));
  ASSERT_TRUE(host.complete(1));  // the one peer has room now, the other has not
  EXPECT_FALSE(host.post(0));
  ASSERT_TRUE(host.complete(2));
  EXPECT_TRUE(host.post(0));
}

TEST(SingleRound, AnotherOperationIsNotTakenForThisOne) {
  Host host(gather_all(), kSum, 3, true);
  ASSERT_TRUE(host.post(0, 1));
  ASSERT_TRUE(host.post(1, 2));
  ASSERT_TRUE(host.post(2, 1));
  EXPECT_FALSE(host.complete(0, 1));
  const auto execution = host.execution(0, true);
  EXPECT_TRUE(execution->advance());
  EXPECT_EQ(execution->status().code(), Code::kMismatch);
}

TEST(SingleRound, AveragesOnce) {
  const auto schedule = planned(gather_all(), kSum);
  constexpr size_t kBounceBytes = 64 * 1024;
  const BoardPlan plan = plan_for_boards(*schedule, {kBounceBytes});
  shm::LocalBoards boards(3, kBounceBytes);
  std::vector<std::optional<SingleRound>> rounds;
  std::vector<std::vector<float>> data = {{1, 2}, {2, 4}, {6, 9}};
  std::vector<Operands> operands;
  for (Node node = 0; node < 3; ++node) {
    const auto bytes = std::as_writable_bytes(std::span(data[static_cast<size_t>(node)]));
    operands.push_back({DType::kFloat32, ReduceOp::kAvg, {bytes}, {bytes}});
    rounds.push_back(SingleRound::lay_out(schedule, plan, node, operands.back()));
    ASSERT_TRUE(rounds.back()->post({operands.back().inputs, operands.back().outputs}, boards[node], 1));
  }
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        rounds[i]->complete({operands[i].inputs, operands[i].outputs}, boards[static_cast<Node>(i)], 1, 0));
    EXPECT_EQ(data[i], (std::vector<float>{3, 5}));
  }
}

}  // namespace
}  // namespace braid::testing
