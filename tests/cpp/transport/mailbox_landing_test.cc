// SPDX-License-Identifier: Apache-2.0
// Frames of one peer that arrive side by side, as over several connections: none gets memory that another fills.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "transport/recording_channel.h"

namespace braid::testing {
namespace {

constexpr Tag kTag{kPointToPoint, 0};

// Rank 0 of two. What rank 1 sends is up to the test, frame by frame.
class LandingTest : public ::testing::Test {
 protected:
  explicit LandingTest(const ChannelTraits& traits = {.eager_bytes = 64, .piece_bytes = 64}) {
    auto channel = std::make_unique<RecordingChannel>(traits);
    channel_ = channel.get();
    box_.attach(1, std::move(channel));
  }

  Result<Bytes> land(const Frame& frame) {
    const std::lock_guard lock(box_.mutex());
    return box_.landing(1, frame);
  }
  void arrive(const Frame& frame) {
    const std::lock_guard lock(box_.mutex());
    box_.arrived(1, frame);
  }
  void expect_refused(const Frame& frame) {
    const Result<Bytes> landing = land(frame);
    ASSERT_FALSE(landing.ok());
    EXPECT_EQ(landing.status().code(), Code::kPeerLost);
    EXPECT_NE(landing.status().message().find("rank 1 broke the protocol"), std::string::npos)
        << landing.status().message();
  }
  void recv(size_t bytes) {
    memory_.resize(bytes);
    box_.recv(1, kTag, memory_, &request_);
  }

  static Frame frame_of(FrameKind kind, size_t payload_bytes, size_t message_bytes, uint64_t offset = 0) {
    Frame frame;
    frame.kind = kind;
    frame.tag = kTag;
    frame.payload_bytes = static_cast<uint32_t>(payload_bytes);
    frame.message_bytes = message_bytes;
    frame.offset = offset;
    return frame;
  }

  DoorbellWord bell_;
  std::vector<std::byte> memory_;
  Request request_;
  RecordingChannel* channel_ = nullptr;
  Mailbox box_{0, 2, bell_};
};

struct OfferLandingTest : LandingTest {
  OfferLandingTest()
      : LandingTest({.eager_bytes = 64, .piece_bytes = 64, .peer_reads = true, .reads_peer = true}) {}
};

TEST_F(LandingTest, ASecondReasonIsRefusedWhileTheFirstLands) {
  const std::string packed = pack_status({Code::kAborted, "enough", 1});
  const Frame first = frame_of(FrameKind::kFail, packed.size(), packed.size());
  const Result<Bytes> landing = land(first);
  ASSERT_TRUE(landing.ok());
  ASSERT_NO_FATAL_FAILURE(expect_refused(frame_of(FrameKind::kFail, kMostReasonBytes, kMostReasonBytes)));
  std::memcpy(landing.value().data(), packed.data(), packed.size());
  arrive(first);
  EXPECT_EQ(box_.failure().message(), "enough");
}

TEST_F(LandingTest, AMessageWithATagThatLandsAlreadyIsRefused) {
  const Frame message = frame_of(FrameKind::kMessage, 16, 16);
  ASSERT_TRUE(land(message).ok());
  expect_refused(message);
  recv(16);  // asked for meanwhile
  expect_refused(message);
  arrive(message);
  EXPECT_TRUE(request_.done());
}

TEST_F(LandingTest, AWholeMessageIsRefusedWhereItsPiecesLand) {
  recv(16);
  arrive(frame_of(FrameKind::kRequestToSend, 0, 16));
  ASSERT_TRUE(land(frame_of(FrameKind::kPiece, 8, 16)).ok());
  expect_refused(frame_of(FrameKind::kMessage, 16, 16));
  EXPECT_FALSE(request_.done()) << "the first piece is still landing in its memory";
}

TEST_F(LandingTest, NoMorePiecesLandThanTheMessageHolds) {
  recv(100);
  const Frame first = frame_of(FrameKind::kPiece, 60, 100), second = frame_of(FrameKind::kPiece, 40, 100, 60);
  ASSERT_TRUE(land(first).ok());
  expect_refused(frame_of(FrameKind::kPiece, 60, 100, 40));  // twice the same bytes, in part
  ASSERT_TRUE(land(second).ok());
  expect_refused(frame_of(FrameKind::kPiece, 1, 100));
  arrive(second);
  EXPECT_FALSE(request_.done());
  arrive(first);
  EXPECT_TRUE(request_.done());
}

TEST_F(LandingTest, OfMemoryThatCannotBeReadAnOfferIsRefused) {
  expect_refused(frame_of(FrameKind::kOffer, 0, 100));
}

TEST_F(OfferLandingTest, AnOfferIsRefusedWhereAMessageLands) {
  const Frame message = frame_of(FrameKind::kMessage, 16, 16);
  const Result<Bytes> landing = land(message);
  ASSERT_TRUE(landing.ok());
  expect_refused(frame_of(FrameKind::kOffer, 0, 16));
  std::memset(landing.value().data(), 7, 16);
  arrive(message);
  recv(16);
  ASSERT_TRUE(request_.done());
  EXPECT_EQ(memory_[15], std::byte{7});
}

TEST_F(OfferLandingTest, AnOfferIsRefusedWhereTheReceiveIsBeingFilled) {
  recv(16);
  ASSERT_TRUE(land(frame_of(FrameKind::kMessage, 16, 16)).ok());
  expect_refused(frame_of(FrameKind::kOffer, 0, 16));
  EXPECT_FALSE(request_.done());
}

}  // namespace
}  // namespace braid::testing
