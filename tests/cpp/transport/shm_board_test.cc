// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "transport/shm/board.h"

namespace braid::shm {
namespace {

constexpr size_t kStage = 4096;
constexpr uint64_t kDigest = 7;

// The boards of three ranks, in private memory.
class BoardTest : public ::testing::Test {
 protected:
  BoardTest() {
    for (auto& memory : memory_) {
      memory.resize(board_bytes(3, kStage) / sizeof(Page));
      peers_.push_back({memory.front().bytes, &bells_[peers_.size()], ::getpid()});
    }
    for (Node node = 0; node < 3; ++node) {
      boards_.push_back(std::make_unique<Board>(node, peers_[static_cast<size_t>(node)].board, peers_, kStage));
    }
  }

  static std::vector<std::byte> message(size_t bytes, int value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
  }
  // Takes the next message from the peer, and says whether all of it has this value.
  bool takes(Node reader, Node from, size_t bytes, int value) {
    Board& board = *boards_[static_cast<size_t>(reader)];
    if (!board.has_come(from, 0)) return false;
    const auto data = board.open(from, 0, kDigest, bytes);
    if (!data.ok()) return false;
    const bool right =
        std::vector<std::byte>(data.value().here, data.value().here + bytes) == message(bytes, value);
    board.take(from, 1);
    return right;
  }

  struct Page {
    alignas(kPageBytes) std::byte bytes[kPageBytes];
  };
  std::vector<Page> memory_[3];
  DoorbellWord bells_[3];
  std::vector<BoardPeer> peers_;
  std::vector<std::unique_ptr<Board>> boards_;
};

TEST_F(BoardTest, SmallMessagesLieInTheirNotices) {
  Board& sender = *boards_[0];
  for (size_t bytes = 0; bytes <= kInlineBytes; ++bytes) {
    ASSERT_TRUE(sender.post(1, kDigest, message(bytes, 3), kInline));
    ASSERT_TRUE(takes(1, 0, bytes, 3)) << bytes;
  }
}

TEST_F(BoardTest, WhatIsLentIsReadWhereItLies) {
  std::vector<std::byte> lent = message(100'000, 3), got(lent.size());
  ASSERT_TRUE(boards_[0]->lend(1, kDigest, lent));
  EXPECT_FALSE(boards_[0]->has_taken_all(1));
  lent[0] = std::byte{4};  // nothing was copied
  ASSERT_TRUE(boards_[1]->has_come(0, 0));
  const auto posted = boards_[1]->open(0, 0, kDigest, lent.size());
  ASSERT_TRUE(posted.ok());
  ASSERT_EQ(posted.value().here, nullptr);
  EXPECT_TRUE(boards_[1]->read(0, posted.value().there, got).ok());
  EXPECT_EQ(got, lent);
  boards_[1]->take(0, 1);
  EXPECT_TRUE(boards_[0]->has_taken_all(1));
}

TEST_F(BoardTest, WhatWasWithdrawnIsNotUsed) {
  std::vector<std::byte> lent = message(100'000, 3), got(lent.size());
  ASSERT_TRUE(boards_[0]->lend(1, kDigest, lent));
  const auto posted = boards_[1]->open(0, 0, kDigest, lent.size());
  boards_[0]->withdraw();
  const Status status = boards_[1]->read(0, posted.value().there, got);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(status.rank(), 0);
}

TEST_F(BoardTest, TheMemoryOfTheDeadIsNotTrusted) {
  const std::atomic<bool> died = true;
  peers_[0].died = &died;
  const Board reader(1, peers_[1].board, peers_, kStage);
  std::vector<std::byte> lent = message(100, 3), got(lent.size());
  const Status status = reader.read(0, reinterpret_cast<uint64_t>(lent.data()), got);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("died"), std::string::npos);
}

TEST_F(BoardTest, MemoryThatIsGoneIsNotRead) {
  std::vector<std::byte> got(4096);
  const Status status = boards_[1]->read(0, 4096, got);  // no program has its first pages
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("of rank 0 cannot be read"), std::string::npos) << status.message();
}

TEST_F(BoardTest, NoticesAreBounded) {
  Board& sender = *boards_[0];
  for (size_t i = 0; i < kNotices; ++i) ASSERT_TRUE(sender.post(1, kDigest, message(8, 1), kInline));
  EXPECT_FALSE(sender.post(1, kDigest, message(8, 1), kInline));
  EXPECT_TRUE(sender.post(2, kDigest, message(8, 1), kInline));
  EXPECT_FALSE(sender.has_taken_all(1));
  ASSERT_TRUE(takes(1, 0, 8, 1));
  EXPECT_TRUE(sender.post(1, kDigest, message(8, 1), kInline));
}

TEST_F(BoardTest, AStageIsGivenUpWhenAllHaveTaken) {
  Board& sender = *boards_[0];
  for (int round = 0; round < 20; ++round) {
    sender.begin_round();
    const auto place = sender.stage(message(kStage / 2, round));
    ASSERT_TRUE(place) << round;
    ASSERT_TRUE(sender.post(1, kDigest, message(kStage / 2, round), *place));
    ASSERT_TRUE(sender.post(2, kDigest, message(kStage / 2, round), *place));
    if (round < 1) continue;
    // The round before is still held by both: no room for a third.
    sender.begin_round();
    EXPECT_FALSE(sender.stage(message(kStage / 2, 0)));
    EXPECT_TRUE(takes(1, 0, kStage / 2, round - 1));
    EXPECT_FALSE(sender.stage(message(kStage / 2, 0)));
    EXPECT_TRUE(takes(2, 0, kStage / 2, round - 1));
  }
}

TEST_F(BoardTest, WhatARoundStagedStaysUntilTheNext) {
  Board& sender = *boards_[0];
  sender.begin_round();
  const auto place = sender.stage(message(kStage / 2, 1));
  ASSERT_TRUE(place);
  ASSERT_TRUE(sender.post(1, kDigest, message(kStage / 2, 1), *place));
  ASSERT_TRUE(takes(1, 0, kStage / 2, 1));
  // Taken by all who have it, but it may yet be posted to rank 2.
  ASSERT_TRUE(sender.stage(message(kStage / 2, 2)));
  EXPECT_FALSE(sender.stage(message(kStage / 2, 3)));
  ASSERT_TRUE(sender.post(2, kDigest, message(kStage / 2, 1), *place));
  EXPECT_TRUE(takes(2, 0, kStage / 2, 1));
}

TEST_F(BoardTest, AMessageNeverWraps) {
  Board& sender = *boards_[0];
  for (int i = 0; i < 50; ++i) {
    sender.begin_round();
    const size_t bytes = 1000 + static_cast<size_t>(i) * 7;
    const auto place = sender.stage(message(bytes, i));
    ASSERT_TRUE(place);
    EXPECT_LE(*place + bytes, kStage);
    ASSERT_TRUE(sender.post(1, kDigest, message(bytes, i), *place));
    ASSERT_TRUE(takes(1, 0, bytes, i)) << i;
  }
}

TEST_F(BoardTest, IntentsAreSeenWhileTheyAreRecent) {
  Intent intent;
  EXPECT_FALSE(boards_[1]->intent_of(0, 1));
  for (uint64_t stream = 1; stream <= kIntents + 1; ++stream) {
    intent.bytes = stream;
    boards_[0]->announce(stream, intent);
    for (const Node reader : {0, 1}) {
      const auto seen = boards_[static_cast<size_t>(reader)]->intent_of(0, stream);
      ASSERT_TRUE(seen);
      EXPECT_EQ(*seen, intent);
    }
  }
  EXPECT_FALSE(boards_[1]->intent_of(0, 1));
  EXPECT_TRUE(boards_[1]->intent_of(0, 2));
}

TEST_F(BoardTest, RingsForSleepersOnly) {
  ASSERT_TRUE(boards_[0]->post(1, kDigest, message(8, 1), kInline));
  bells_[1].sleepers = 1;
  bells_[2].sleepers = 1;
  boards_[0]->wake();
  EXPECT_EQ(bells_[1].rings, 1u);
  EXPECT_EQ(bells_[2].rings, 0u);  // nothing was posted for it
  boards_[0]->wake();
  EXPECT_EQ(bells_[1].rings, 1u);
  ASSERT_TRUE(takes(1, 0, 8, 1));
  boards_[1]->wake();
  EXPECT_EQ(bells_[0].rings, 0u);  // nobody sleeps
}

}  // namespace
}  // namespace braid::shm
