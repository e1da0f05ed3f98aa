// SPDX-License-Identifier: Apache-2.0
#include "executor/shared_execution.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/cache.h"
#include "executor/rehearsal.h"
#include "support/blocks.h"
#include "support/every_family.h"

namespace braid::testing {
namespace {

constexpr milliseconds kPatience{60'000};

void expect_right_on_boards(const Family& family, const Collective& collective, size_t count, bool in_place,
                            size_t stage_bytes) {
  std::vector<std::unique_ptr<Blocks>> blocks;
  std::vector<Operands> operands;
  for (Node rank = 0; rank < collective.ranks; ++rank) {
    blocks.push_back(std::make_unique<Blocks>(collective, rank, count, in_place));
    operands.push_back({DType::kUInt32, ReduceOp::kSum, blocks.back()->inputs(), blocks.back()->outputs()});
  }
  const Status status = rehearse_shared(planned(family, collective), operands, stage_bytes, kPatience);
  ASSERT_TRUE(status.ok()) << family.name << " on " << collective.ranks << ": " << status.message();
  for (const auto& rank : blocks) ASSERT_TRUE(rank->right()) << family.name << " on " << collective.ranks;
}

TEST(SharedExecution, EveryFamilyInNoneOneAndManySegments) {
  for_every_family({1, 2, 3, 5}, [&](const Family& family, const Collective& collective) {
    if (!family.supports(collective)) return;
    for (const size_t count : {0, 1, 7, 20'011}) {
      for (const bool in_place : {false, true}) {
        expect_right_on_boards(family, collective, count, in_place, 32 * 1024);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(SharedExecution, EveryFamilyOnEightRanks) {
  for_every_family({8}, [&](const Family& family, const Collective& collective) {
    if (!family.supports(collective) || collective.root > 0) return;
    expect_right_on_boards(family, collective, 100'003, true, size_t{1} << 20);
  });
}

// Large enough to be written past the caches.
TEST(SharedExecution, LargeBlocksThatAreOnlyMoved) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllGather, CollectiveKind::kAllToAll, CollectiveKind::kBroadcast}) {
    const size_t count = shared_cache_bytes() / 3 / 4 + 5;
    expect_right_on_boards(*find_family(kind, "direct"), {kind, 3, 0}, count, true, size_t{1} << 20);
  }
}

TEST(SharedPlan, ACrowdTakesFewerTurns) {
  const Collective collective{CollectiveKind::kBroadcast, 4, 0};
  const auto schedule = planned(*find_family(collective.kind, "direct"), collective);
  EXPECT_GT(plan_shared(*schedule, size_t{1} << 20, true).chunk_bytes,
            plan_shared(*schedule, size_t{1} << 20, false).chunk_bytes);
}

TEST(SharedPlan, OnlySchedulesThatKeepStepOverlap) {
  const Collective all_reduce{CollectiveKind::kAllReduce, 4, 0};
  const auto stride = [&](const char* family, const Collective& collective) {
    return plan_shared(*planned(*find_family(collective.kind, family), collective), size_t{1} << 20).stride;
  };
  EXPECT_EQ(stride("direct", all_reduce), 1);
  EXPECT_EQ(stride("gather_all", all_reduce), 1);
  EXPECT_EQ(stride("ring", all_reduce), 6);
}

TEST(SharedPlan, ATurnFitsHalfAStage) {
  for_every_family({2, 5, 8}, [&](const Family& family, const Collective& collective) {
    const SharedPlan plan = plan_shared(*planned(family, collective), size_t{1} << 20);
    ASSERT_TRUE(plan.possible) << family.name;
    EXPECT_EQ(plan.chunk_bytes % 64, 0u);
    EXPECT_GE(plan.chunk_bytes, 64u);
  });
  const Collective large{CollectiveKind::kAllReduce, 8, 0};
  EXPECT_FALSE(plan_shared(*planned(*find_family(large.kind, "direct"), large), 4096).possible);
}

// One rank of a pair, whose peer is played by the test.
class Pair : public ::testing::Test {
 protected:
  Pair() {
    for (Node node = 0; node < 2; ++node) {
      peers_.push_back({memory_[node].data(), &bells_[node]});
    }
    for (Node node = 0; node < 2; ++node) {
      boards_.push_back(std::make_unique<shm::Board>(node, memory_[node].data(), peers_, kStage));
    }
    plan_ = plan_shared(*schedule_, kStage);
  }

  std::unique_ptr<SharedExecution> start(Node node, uint64_t digest) {
    auto& block = data_[node];
    return std::make_unique<SharedExecution>(
        schedule_, plan_, node, Operands{DType::kUInt8, ReduceOp::kSum, {block}, {block}},
        *boards_[static_cast<size_t>(node)], digest, pool_, workspaces_[node]);
  }

  static constexpr size_t kStage = 64 * 1024;
  std::vector<std::byte> memory_[2] = {std::vector<std::byte>(shm::board_bytes(2, kStage) + 64),
                                       std::vector<std::byte>(shm::board_bytes(2, kStage) + 64)};
  std::vector<std::byte> data_[2] = {std::vector<std::byte>(64, std::byte{1}),
                                     std::vector<std::byte>(64, std::byte{2})};
  DoorbellWord bells_[2];
  Pool pool_{0};
  SharedWorkspace workspaces_[2];
  std::vector<shm::BoardPeer> peers_;
  std::vector<std::unique_ptr<shm::Board>> boards_;
  std::shared_ptr<const VerifiedSchedule> schedule_ =
      planned(*find_family(CollectiveKind::kAllReduce, "gather_all"), {CollectiveKind::kAllReduce, 2, 0});
  SharedPlan plan_;
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
      reinterpret_cast<shm::Notice*>(memory_[0].data() + sizeof(shm::BoardHeader) + 2 * sizeof(shm::Taken));
  notices[shm::kNotices + 1].offset = kStage - 8;  // the first to rank 1
  const auto other = start(1, 1);
  EXPECT_TRUE(other->advance());
  EXPECT_EQ(other->status().code(), Code::kPeerLost);
}

}  // namespace
}  // namespace braid::testing
