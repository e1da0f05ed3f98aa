// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "transport/shm/local_boards.h"

namespace braid::shm {
namespace {

constexpr size_t kBounceBytes = 4096;
constexpr uint64_t kDigest = 7;

// The boards of three ranks, in private memory.
class BoardTest : public ::testing::Test {
 protected:
  static std::vector<std::byte> message(size_t bytes, int value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
  }
  // Takes the next message from the peer, and says whether all of it has this value.
  bool takes(Node reader, Node from, size_t bytes, int value) {
    Board& board = boards_[reader];
    if (!board.has_come(from, 0)) return false;
    const auto data = board.open(from, 0, kDigest, bytes);
    if (!data.ok()) return false;
    const bool right =
        std::vector<std::byte>(data.value().here, data.value().here + bytes) == message(bytes, value);
    board.take(from, 1);
    return right;
  }

  LocalBoards boards_{3, kBounceBytes};
};

TEST_F(BoardTest, SmallMessagesLieInTheirNotices) {
  Board& sender = boards_[0];
  for (size_t bytes = 0; bytes <= kInlineBytes; ++bytes) {
    ASSERT_TRUE(sender.post(1, kDigest, message(bytes, 3), kInline));
    ASSERT_TRUE(takes(1, 0, bytes, 3)) << bytes;
  }
}

TEST_F(BoardTest, WhatIsLentIsReadWhereItLies) {
  std::vector<std::byte> lent = message(100'000, 3), got(lent.size());
  ASSERT_TRUE(boards_[0].lend(1, kDigest, lent));
  EXPECT_FALSE(boards_[0].has_taken_all(1));
  lent[0] = std::byte{4};  // nothing was copied
  ASSERT_TRUE(boards_[1].has_come(0, 0));
  const auto posted = boards_[1].open(0, 0, kDigest, lent.size());
  ASSERT_TRUE(posted.ok());
  ASSERT_EQ(posted.value().here, nullptr);
  EXPECT_TRUE(boards_[1].read(0, posted.value().there, got).ok());
  EXPECT_EQ(got, lent);
  boards_[1].take(0, 1);
  EXPECT_TRUE(boards_[0].has_taken_all(1));
}

TEST_F(BoardTest, WhatWasReadOfOneWhoHangsUpIsNotUsed) {
  std::vector<std::byte> lent = message(100'000, 3), got(lent.size());
  ASSERT_TRUE(boards_[0].lend(1, kDigest, lent));
  const auto posted = boards_[1].open(0, 0, kDigest, lent.size());
  boards_.hang_up(0);
  const Status status = boards_[1].read(0, posted.value().there, got);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(status.rank(), 0);
}

TEST_F(BoardTest, TheMemoryOfTheDeadIsNotTrusted) {
  boards_.die(0);
  std::vector<std::byte> lent = message(100, 3), got(lent.size());
  const Status status = boards_[1].read(0, reinterpret_cast<uint64_t>(lent.data()), got);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("died"), std::string::npos);
}

TEST_F(BoardTest, MemoryThatIsGoneIsNotRead) {
  std::vector<std::byte> got(4096);
  const Status status = boards_[1].read(0, 4096, got);  // no program has its first pages
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("of rank 0 (pid "), std::string::npos) << status.message();
}

TEST_F(BoardTest, NoticesAreBounded) {
  Board& sender = boards_[0];
  for (size_t i = 0; i < kNotices; ++i) ASSERT_TRUE(sender.post(1, kDigest, message(8, 1), kInline));
  EXPECT_FALSE(sender.post(1, kDigest, message(8, 1), kInline));
  EXPECT_TRUE(sender.post(2, kDigest, message(8, 1), kInline));
  EXPECT_FALSE(sender.has_taken_all(1));
  ASSERT_TRUE(takes(1, 0, 8, 1));
  EXPECT_TRUE(sender.post(1, kDigest, message(8, 1), kInline));
}

TEST_F(BoardTest, ABounceBufferIsGivenUpWhenAllHaveTaken) {
  Board& sender = boards_[0];
  for (int round = 0; round < 20; ++round) {
    sender.begin_round();
    const auto place = sender.bounce(message(kBounceBytes / 2, round));
    ASSERT_TRUE(place) << round;
    ASSERT_TRUE(sender.post(1, kDigest, message(kBounceBytes / 2, round), *place));
    ASSERT_TRUE(sender.post(2, kDigest, message(kBounceBytes / 2, round), *place));
    if (round < 1) continue;
    // The round before is still held by both: no room for a third.
    sender.begin_round();
    EXPECT_FALSE(sender.bounce(message(kBounceBytes / 2, 0)));
    EXPECT_TRUE(takes(1, 0, kBounceBytes / 2, round - 1));
    EXPECT_FALSE(sender.bounce(message(kBounceBytes / 2, 0)));
    EXPECT_TRUE(takes(2, 0, kBounceBytes / 2, round - 1));
  }
}

TEST_F(BoardTest, WhatARoundBouncedStaysUntilTheNext) {
  Board& sender = boards_[0];
  sender.begin_round();
  const auto place = sender.bounce(message(kBounceBytes / 2, 1));
  ASSERT_TRUE(place);
  ASSERT_TRUE(sender.post(1, kDigest, message(kBounceBytes / 2, 1), *place));
  ASSERT_TRUE(takes(1, 0, kBounceBytes / 2, 1));
  // Taken by all who have it, but it may yet be posted to rank 2.
  ASSERT_TRUE(sender.bounce(message(kBounceBytes / 2, 2)));
  EXPECT_FALSE(sender.bounce(message(kBounceBytes / 2, 3)));
  ASSERT_TRUE(sender.post(2, kDigest, message(kBounceBytes / 2, 1), *place));
  EXPECT_TRUE(takes(2, 0, kBounceBytes / 2, 1));
}

TEST_F(BoardTest, AMessageNeverWraps) {
  Board& sender = boards_[0];
  for (int i = 0; i < 50; ++i) {
    sender.begin_round();
    const size_t bytes = 1000 + static_cast<size_t>(i) * 7;
    const auto place = sender.bounce(message(bytes, i));
    ASSERT_TRUE(place);
    EXPECT_LE(*place + bytes, kBounceBytes);
    ASSERT_TRUE(sender.post(1, kDigest, message(bytes, i), *place));
    ASSERT_TRUE(takes(1, 0, bytes, i)) << i;
  }
}

TEST_F(BoardTest, SignaturesAreSeenWhileTheyAreRecent) {
  Signature signature;
  EXPECT_FALSE(boards_[1].signature_of(0, 1));
  for (uint64_t stream = 1; stream <= kSignatures + 1; ++stream) {
    signature.bytes = stream;
    boards_[0].announce(stream, signature);
    for (const Node reader : {0, 1}) {
      const auto seen = boards_[reader].signature_of(0, stream);
      ASSERT_TRUE(seen);
      EXPECT_EQ(*seen, signature);
    }
  }
  EXPECT_FALSE(boards_[1].signature_of(0, 1));
  EXPECT_TRUE(boards_[1].signature_of(0, 2));
}

TEST_F(BoardTest, RingsForSleepersOnly) {
  ASSERT_TRUE(boards_[0].post(1, kDigest, message(8, 1), kInline));
  boards_.bell(1).sleepers = 1;
  boards_.bell(2).sleepers = 1;
  boards_[0].wake();
  EXPECT_EQ(boards_.bell(1).rings, 1u);
  EXPECT_EQ(boards_.bell(2).rings, 0u);  // nothing was posted for it
  boards_[0].wake();
  EXPECT_EQ(boards_.bell(1).rings, 1u);
  ASSERT_TRUE(takes(1, 0, 8, 1));
  boards_[1].wake();
  EXPECT_EQ(boards_.bell(0).rings, 0u);  // nobody sleeps
}

}  // namespace
}  // namespace braid::shm
