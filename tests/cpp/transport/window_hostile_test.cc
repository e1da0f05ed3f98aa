// SPDX-License-Identifier: Apache-2.0
// A peer that makes this rank keep more than it may, or says what cannot be.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/recording_channel.h"

namespace braid::testing {
namespace {

constexpr Mailbox::Limits kTightLimits{.early_bytes = 4096, .announced = 8};
constexpr ChannelTraits kWithNic{.eager_bytes = 64, .piece_bytes = 1000, .has_nic = true};
constexpr ChannelTraits kPlain{.eager_bytes = 64, .piece_bytes = 1000};
constexpr ChannelTraits kReads{.eager_bytes = 64, .piece_bytes = 1000, .peer_reads = true, .reads_peer = true};

// Rank 0 of two, whose peer is the test.
class Rank {
 public:
  explicit Rank(const ChannelTraits& traits, const Mailbox::Limits& limits = kTightLimits) {
    auto channel = std::make_unique<RecordingChannel>(traits);
    channel_ = channel.get();
    box_.set_limits(limits);
    box_.attach(1, std::move(channel));
  }

  static Frame frame_of(FrameKind kind, Tag tag, size_t message_bytes, size_t payload_bytes = 0) {
    Frame frame;
    frame.kind = kind;
    frame.tag = tag;
    frame.message_bytes = message_bytes;
    frame.payload_bytes = static_cast<uint32_t>(payload_bytes);
    return frame;
  }
  Status land(const Frame& frame) {
    const std::lock_guard lock(box_.mutex());
    const Result<Bytes> landing = box_.landing(1, frame);
    if (landing.ok()) box_.arrived(1, frame);
    return landing.status();
  }
  // Frames of the kind with tags 0, 1, ... until one is refused; how many were not.
  size_t flood(FrameKind kind, size_t message_bytes, size_t payload_bytes, std::string* words) {
    for (size_t i = 0; i < 100'000; ++i) {
      const Status status = land(frame_of(kind, {kPointToPoint, i}, message_bytes, payload_bytes));
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), Code::kPeerLost);
      EXPECT_EQ(status.rank(), 1);
      *words = status.message();
      return i;
    }
    return 100'000;
  }
  void recv(Tag tag, size_t bytes) { box_.recv(1, tag, memory_.emplace_back(bytes), &requests_.emplace_back()); }
  bool last_done() const { return requests_.back().done(); }
  size_t posted(FrameKind kind) const { return channel_->count(kind); }
  Mailbox& box() { return box_; }

 private:
  DoorbellWord bell_;
  std::deque<std::vector<std::byte>> memory_;
  std::deque<Request> requests_;
  RecordingChannel* channel_ = nullptr;
  Mailbox box_{0, 2, bell_};
};

TEST(HostileWindowTest, MoreSmallMessagesThanMayComeAreRefused) {
  for (const size_t bytes : {size_t{0}, size_t{64}}) {
    Rank rank(kPlain);
    std::string words;
    EXPECT_EQ(rank.flood(FrameKind::kMessage, bytes, bytes, &words), 4096 / (256 + bytes));
    EXPECT_EQ(
        words,
        "rank 1 broke the protocol (it has sent more than 4096 bytes of small messages that nobody asked for)");
  }
}

TEST(HostileWindowTest, BetweenTwoRanksTheBoundIsFourMebibytes) {
  Rank rank(kPlain, Mailbox::Limits::of(2));
  std::string words;
  EXPECT_EQ(rank.flood(FrameKind::kMessage, 64, 64, &words), 4 * 1024 * 1024 / (256 + 64));
}

TEST(HostileWindowTest, AllPeersTogetherHave64MebibytesUntilEachHasTheLeast) {
  EXPECT_EQ(Mailbox::Limits::of(1).early_bytes, 4u << 20);
  EXPECT_EQ(Mailbox::Limits::of(17).early_bytes, 4u << 20);
  EXPECT_EQ(Mailbox::Limits::of(65).early_bytes, 1u << 20);
  EXPECT_EQ(Mailbox::Limits::of(257).early_bytes, 256u << 10);
  EXPECT_EQ(Mailbox::Limits::of(100'000).early_bytes, 256u << 10);
}

TEST(HostileWindowTest, MoreAnnouncementsAndOffersThanMayComeAreRefused) {
  Rank plain(kPlain), reads(kReads);
  std::string words;
  EXPECT_EQ(plain.flood(FrameKind::kRequestToSend, 1000, 0, &words), 16u);
  EXPECT_EQ(words, "rank 1 broke the protocol (it has announced more than 16 messages that nobody asked for)");
  EXPECT_EQ(reads.flood(FrameKind::kOffer, 1000, 0, &words), 16u);
}

TEST(HostileWindowTest, MoreClearToSendThanMayComeIsRefused) {
  Rank rank(kPlain);
  std::string words;
  EXPECT_EQ(rank.flood(FrameKind::kClearToSend, 1000, 0, &words), 8u);
  EXPECT_EQ(words, "rank 1 broke the protocol (it asks for more than 8 messages before they are sent)");
  EXPECT_EQ(rank.flood(FrameKind::kWant, 0, 0, &words), 8u);
  EXPECT_EQ(words, "rank 1 broke the protocol (it wants more than 8 messages before they are sent)");
}

TEST(HostileWindowTest, MoreCreditThanWasUsedIsRefused) {
  Request sent;  // outlives the rank
  Rank rank(kPlain);
  rank.box().send(1, {kPointToPoint, 0}, {}, &sent);
  EXPECT_TRUE(rank.land(Rank::frame_of(FrameKind::kWindowUpdate, {}, 256)).ok());
  const Status status = rank.land(Rank::frame_of(FrameKind::kWindowUpdate, {}, 1));
  EXPECT_EQ(status.message(), "rank 1 broke the protocol (it reports more small messages than were sent to it)");
}

TEST(HostileWindowTest, WhatWasNotOfferedCannotBeTaken) {
  const std::vector<std::byte> large(1000);
  std::deque<Request> requests;  // outlive the ranks
  Rank plain(kPlain), reads(kReads);
  plain.box().send(1, {kPointToPoint, 0}, large, &requests.emplace_back());
  EXPECT_FALSE(plain.land(Rank::frame_of(FrameKind::kTaken, {kPointToPoint, 0}, 1000)).ok());
  for (size_t i = 0; i < 9; ++i) reads.box().send(1, {kPointToPoint, i}, large, &requests.emplace_back());
  EXPECT_FALSE(reads.land(Rank::frame_of(FrameKind::kTaken, {kPointToPoint, 8}, 1000)).ok())
      << "it waits for a turn";
  EXPECT_TRUE(reads.land(Rank::frame_of(FrameKind::kTaken, {kPointToPoint, 0}, 1000)).ok());
}

TEST(HostileWindowTest, PiecesOfWhatNobodyAskedForAreRefused) {
  Rank rank(kPlain);
  const Tag tag{kPointToPoint, 0};
  rank.recv(tag, 16);  // small: it would come at once
  EXPECT_FALSE(rank.land(Rank::frame_of(FrameKind::kPiece, tag, 16, 16)).ok());
  EXPECT_TRUE(rank.land(Rank::frame_of(FrameKind::kRequestToSend, tag, 16)).ok());
  EXPECT_EQ(rank.posted(FrameKind::kClearToSend), 1u);
  EXPECT_FALSE(rank.land(Rank::frame_of(FrameKind::kPiece, tag, 16, 0)).ok()) << "an empty piece of 16 bytes";
  EXPECT_TRUE(rank.land(Rank::frame_of(FrameKind::kPiece, tag, 16, 16)).ok());
  EXPECT_TRUE(rank.last_done());
}

// Else the queue of answers would grow while nobody reads them.
TEST(HostileWindowTest, WhoAsksWithoutEndIsAnsweredNowAndThen) {
  Rank rank(kPlain);
  for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(rank.land(Rank::frame_of(FrameKind::kAsk, {}, 0)).ok());
  EXPECT_GE(rank.posted(FrameKind::kTell), 1u);
  EXPECT_LT(rank.posted(FrameKind::kTell), 1000u);
}

TEST(HostileWindowTest, NoMoreClearToSendGoesAheadThanMayCome) {
  Rank rank(kPlain);
  for (size_t i = 0; i < 50; ++i) rank.recv({kPointToPoint, i}, 1000);
  EXPECT_EQ(rank.posted(FrameKind::kClearToSend), 8u);
  EXPECT_TRUE(rank.land(Rank::frame_of(FrameKind::kRequestToSend, {kPointToPoint, 49}, 1000)).ok());
  EXPECT_EQ(rank.posted(FrameKind::kClearToSend), 9u) << "the others when they are announced";
}

TEST(HostileWindowTest, AnAnnouncementThatPiecesOvertookIsNotKept) {
  Rank rank(kWithNic);
  for (size_t i = 0; i < 100; ++i) {
    const Tag tag{kPointToPoint | i, 0};
    rank.recv(tag, 1000);  // kClearToSend goes at once, and crosses the announcement
    Frame piece = Rank::frame_of(FrameKind::kPiece, tag, 1000, 1000);
    piece.was_announced = 1;
    ASSERT_TRUE(rank.land(piece).ok());
    ASSERT_TRUE(rank.last_done());
    ASSERT_TRUE(rank.land(Rank::frame_of(FrameKind::kRequestToSend, tag, 1000)).ok()) << i;
    EXPECT_FALSE(rank.box().look_for_message(1, tag).arrived);
  }
}

TEST(HostileWindowTest, APingPongCostsNoFrames) {
  Rank rank(kPlain, Mailbox::Limits::of(2));
  for (size_t i = 0; i < 3900; ++i) {
    const Tag tag{kPointToPoint, i};
    rank.recv(tag, 8);
    ASSERT_TRUE(rank.land(Rank::frame_of(FrameKind::kMessage, tag, 8, 8)).ok());
    ASSERT_TRUE(rank.last_done());
  }
  EXPECT_EQ(rank.posted(FrameKind::kWindowUpdate), 0u);
  for (size_t i = 3900; i < 4000; ++i) {
    ASSERT_TRUE(rank.land(Rank::frame_of(FrameKind::kMessage, {kPointToPoint, i}, 8, 8)).ok());
    rank.recv({kPointToPoint, i}, 8);
  }
  EXPECT_EQ(rank.posted(FrameKind::kWindowUpdate), 1u) << "of 1 MiB";
}

}  // namespace
}  // namespace braid::testing
