// SPDX-License-Identifier: Apache-2.0
#include "executor/board_execution.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/cache.h"
#include "executor/rehearsal.h"
#include "support/blocks.h"
#include "support/every_algorithm.h"
#include "transport/shm/local_boards.h"

namespace braid::testing {
namespace {

constexpr milliseconds kTimeLimit{60'000};

void expect_right_on_boards(const Algorithm& algorithm, const Collective& collective, size_t count, bool in_place,
                            size_t bounce_bytes, size_t lend_from = Layout::kNever) {
  std::vector<std::unique_ptr<Blocks>> blocks;
  std::vector<Operands> operands;
  for (Node rank = 0; rank < collective.ranks; ++rank) {
    blocks.push_back(std::make_unique<Blocks>(collective, rank, count, in_place));
    operands.push_back({DType::kUInt32, ReduceOp::kSum, blocks.back()->inputs(), blocks.back()->outputs()});
  }
  const Status status =
      rehearse_on_boards(planned(algorithm, collective), operands, bounce_bytes, kTimeLimit, lend_from);
  ASSERT_TRUE(status.ok()) << algorithm.name << " on " << collective.ranks << ": " << status.message();
  for (const auto& rank : blocks) ASSERT_TRUE(rank->right()) << algorithm.name << " on " << collective.ranks;
}

TEST(BoardExecution, EveryAlgorithmInNoneOneAndManySegments) {
  for_every_algorithm({1, 2, 3, 5}, [&](const Algorithm& algorithm, const Collective& collective) {
    if (!algorithm.supports(collective)) return;
    for (const size_t count : {0, 1, 7, 20'011}) {
      for (const bool in_place : {false, true}) {
        expect_right_on_boards(algorithm, collective, count, in_place, 32 * 1024);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(BoardExecution, EveryAlgorithmOnEightRanks) {
  for_every_algorithm({8}, [&](const Algorithm& algorithm, const Collective& collective) {
    if (!algorithm.supports(collective) || collective.root > 0) return;
    expect_right_on_boards(algorithm, collective, 100'003, true, size_t{1} << 20);
  });
}

// Blocks just above and below what is lent, and much larger.
TEST(BoardExecution, EveryAlgorithmLendsWhatItMay) {
  for_every_algorithm({1, 2, 3, 5}, [&](const Algorithm& algorithm, const Collective& collective) {
    if (!algorithm.supports(collective)) return;
    for (const size_t count : {0, 16'383, 16'384, 20'011}) {
      for (const bool in_place : {false, true}) {
        expect_right_on_boards(algorithm, collective, count, in_place, 64 * 1024, 65'536);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

// Two full chunks, which segments of whole cache lines make a line larger.
TEST(BoardExecution, NothingSmallerThanThatIsLent) {
  const Collective collective{CollectiveKind::kBroadcast, 2, 0};
  const auto schedule = planned(*find_algorithm(collective.kind, "direct"), collective);
  constexpr size_t kBounceBytes = 128 * 1024;
  BoardPlan plan = plan_for_boards(*schedule, {kBounceBytes, true, true});
  Pool pool(0);
  BoardWorkspace workspace;
  std::vector<std::byte> sent(2 * plan.chunk_bytes);
  for (const bool lends : {false, true}) {
    plan.lend_from = lends ? sent.size() : sent.size() + 1;
    shm::LocalBoards boards(2, kBounceBytes);
    BoardExecution root(schedule, plan, 0, {DType::kUInt8, ReduceOp::kSum, {sent}, {sent}}, boards[0], 1, pool,
                        workspace);
    EXPECT_EQ(root.advance(), !lends);  // what is in the bounce buffer needs no reader to end
  }
}

TEST(BoardPlan, LendsWhatStaysAsItIsAndHasOneReaderOrOneSender) {
  bool crowded = true;
  const auto lends = [&](CollectiveKind kind, const char* algorithm) {
    const Collective collective{kind, 4, 0};
    const auto schedule = planned(*find_algorithm(kind, algorithm), collective);
    EXPECT_EQ(plan_for_boards(*schedule, {size_t{1} << 20, crowded, false}).lend_from, Layout::kNever);
    return plan_for_boards(*schedule, {size_t{1} << 20, crowded, true}).lend_from != Layout::kNever;
  };
  EXPECT_TRUE(lends(CollectiveKind::kBroadcast, "direct"));
  EXPECT_TRUE(lends(CollectiveKind::kAllGather, "ring"));
  EXPECT_TRUE(lends(CollectiveKind::kAllToAll, "direct"));
  EXPECT_TRUE(lends(CollectiveKind::kGather, "direct"));
  EXPECT_TRUE(lends(CollectiveKind::kScatter, "direct"));
  EXPECT_TRUE(lends(CollectiveKind::kBroadcast, "binomial"));  // to one peer per round
  EXPECT_FALSE(lends(CollectiveKind::kAllGather, "direct"));
  EXPECT_FALSE(lends(CollectiveKind::kAllReduce, "direct"));
  EXPECT_FALSE(lends(CollectiveKind::kReduceScatter, "direct"));
  crowded = false;  // a root copies while the others read
  EXPECT_FALSE(lends(CollectiveKind::kBroadcast, "direct"));
  EXPECT_TRUE(lends(CollectiveKind::kAllToAll, "direct"));
  EXPECT_TRUE(lends(CollectiveKind::kScatter, "direct"));
}

// They are written past the caches, which nobody can see from here.
TEST(BoardExecution, BlocksLargerThanTheCacheArriveWhole) {
  const Collective collective{CollectiveKind::kAllGather, 2, 0};
  const size_t count = shared_cache_bytes() / 4 / sizeof(uint32_t) + 5;  // of two blocks, on two ranks
  expect_right_on_boards(*find_algorithm(collective.kind, "direct"), collective, count, false, size_t{1} << 20);
}

TEST(BoardPlan, OnlySchedulesThatKeepStepOverlap) {
  const Collective all_reduce{CollectiveKind::kAllReduce, 4, 0};
  const auto stride = [&](const char* algorithm, const Collective& collective) {
    return plan_for_boards(*planned(*find_algorithm(collective.kind, algorithm), collective), {size_t{1} << 20})
        .stride;
  };
  EXPECT_EQ(stride("direct", all_reduce), 1);
  EXPECT_EQ(stride("gather_all", all_reduce), 1);
  EXPECT_EQ(stride("ring", all_reduce), 6);
}

TEST(BoardPlan, ATurnFitsHalfABounceBuffer) {
  for_every_algorithm({2, 5, 8}, [&](const Algorithm& algorithm, const Collective& collective) {
    const BoardPlan plan = plan_for_boards(*planned(algorithm, collective), {size_t{1} << 20});
    ASSERT_TRUE(plan.possible) << algorithm.name;
    EXPECT_EQ(plan.chunk_bytes % 64, 0u);
    EXPECT_GE(plan.chunk_bytes, 64u);
  });
  const Collective large{CollectiveKind::kAllReduce, 8, 0};
  EXPECT_FALSE(plan_for_boards(*planned(*find_algorithm(large.kind, "direct"), large), {4096}).possible);
}

// One rank of a pair, whose peer is played by the test.
class Pair : public ::testing::Test {
 protected:
  Pair() { plan_ = plan_for_boards(*schedule_, {kBounceBytes}); }

  std::unique_ptr<BoardExecution> start(Node node, uint64_t digest) {
    auto& block = data_[node];
    return std::make_unique<BoardExecution>(schedule_, plan_, node,
                                            Operands{DType::kUInt8, ReduceOp::kSum, {block}, {block}},
                                            boards_[node], digest, pool_, workspaces_[node]);
  }

  static constexpr size_t kBounceBytes = 64 * 1024;
  std::vector<std::byte> data_[2] = {std::vector<std::byte>(64, std::byte{1}),
                                     std::vector<std::byte>(64, std::byte{2})};
  Pool pool_{0};
  BoardWorkspace workspaces_[2];
  shm::LocalBoards boards_{2, kBounceBytes};
  std::shared_ptr<const VerifiedSchedule> schedule_ =
      planned(*find_algorithm(CollectiveKind::kAllReduce, "gather_all"), {CollectiveKind::kAllReduce, 2, 0});
  BoardPlan plan_;
};

TEST_F(Pair, SaysWhatItWaitsFor) {
  const auto execution = start(0, 1);
  EXPECT_FALSE(execution->advance());
  EXPECT_TRUE(execution->moved());
  EXPECT_FALSE(execution->advance());
  EXPECT_FALSE(execution->moved());
  EXPECT_NE(execution->waiting_for(3).find("r1"), std::string::npos) << execution->waiting_for(3);
  EXPECT_EQ(execution->waiting_peers(), std::vector<Node>{1});
}

TEST_F(Pair, OfTwoRanksEitherMayComeFirst) {
  for (int round = 0; round < 100; ++round) {
    const Node first = round % 2;
    data_[0].assign(64, std::byte{1});
    data_[1].assign(64, std::byte{2});
    const auto one = start(first, 1);
    EXPECT_FALSE(one->advance());
    const auto other = start(1 - first, 1);
    EXPECT_TRUE(other->advance());
    EXPECT_TRUE(one->advance());
    EXPECT_EQ(data_[0], std::vector<std::byte>(64, std::byte{3}));
    EXPECT_EQ(data_[1], data_[0]);
  }
}

TEST_F(Pair, AnotherOperationIsSeen) {
  const auto one = start(0, 1);
  EXPECT_FALSE(one->advance());
  const auto other = start(1, 2);
  EXPECT_TRUE(other->advance());
  EXPECT_EQ(other->status().code(), Code::kMismatch);
  EXPECT_EQ(other->status().rank(), 0);
}

// It would be read after its owner has got it back.
TEST(BoardExecution, WhatIsGivenUpIsNotUsed) {
  const Collective collective{CollectiveKind::kBroadcast, 2, 0};
  const auto schedule = planned(*find_algorithm(collective.kind, "direct"), collective);
  constexpr size_t kBounceBytes = 64 * 1024;
  BoardPlan plan = plan_for_boards(*schedule, {kBounceBytes, false, true});
  plan.lend_from = 65'536;
  shm::LocalBoards boards(2, kBounceBytes);
  Pool pool(0);
  BoardWorkspace workspaces[2];
  std::vector<std::byte> sent(100'000, std::byte{7}), got(sent.size());
  {
    BoardExecution gives_up(schedule, plan, 0, {DType::kUInt8, ReduceOp::kSum, {sent}, {sent}}, boards[0], 1, pool,
                            workspaces[0]);
    EXPECT_FALSE(gives_up.advance());
    EXPECT_EQ(gives_up.waiting_peers(), std::vector<Node>{1});
    EXPECT_NE(gives_up.waiting_for(1).find("lent"), std::string::npos);
    boards.hang_up(0);  // as a group that fails does first
  }
  BoardExecution late(schedule, plan, 1, {DType::kUInt8, ReduceOp::kSum, {}, {got}}, boards[1], 1, pool,
                      workspaces[1]);
  EXPECT_TRUE(late.advance());
  EXPECT_EQ(late.status().code(), Code::kPeerLost);
  EXPECT_EQ(late.status().rank(), 0);
}

TEST_F(Pair, AnotherSizeIsSeen) {
  data_[1].resize(32);
  const auto one = start(0, 1);
  EXPECT_FALSE(one->advance());
  const auto other = start(1, 1);
  EXPECT_TRUE(other->advance());
  EXPECT_EQ(other->status().code(), Code::kMismatch);
  EXPECT_NE(other->status().message().find("64 bytes"), std::string::npos) << other->status().message();
}

TEST_F(Pair, ABrokenNoticeIsRefused) {
  const auto one = start(0, 1);
  EXPECT_FALSE(one->advance());
  auto* notices =
      reinterpret_cast<shm::Notice*>(boards_.memory(0) + sizeof(shm::BoardHeader) + 2 * sizeof(shm::Taken));
  notices[shm::kNotices + 1].offset = kBounceBytes - 8;  // the first to rank 1
  const auto other = start(1, 1);
  EXPECT_TRUE(other->advance());
  EXPECT_EQ(other->status().code(), Code::kPeerLost);
}

}  // namespace
}  // namespace braid::testing
