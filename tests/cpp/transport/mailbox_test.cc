// SPDX-License-Identifier: Apache-2.0
// A mailbox in situations that need one side to stand still, so that the order of things is certain.
#include "transport/mailbox.h"

#include <gtest/gtest.h>

#include <deque>

#include "schedule/collective.h"
#include "transport/loopback/loopback.h"
#include "transport/shm_side.h"

namespace braid::testing {
namespace {

class MailboxTest : public ::testing::Test {
 protected:
  MailboxTest() {
    for (Node rank = 0; rank < 3; ++rank) {
      boxes_.push_back(std::make_unique<Mailbox>(rank, 3, bells_[static_cast<size_t>(rank)]));
      for (Node peer = 0; peer < 3; ++peer) {
        if (peer != rank) boxes_[rank]->attach(peer, hub_.channel(rank, peer, *boxes_[rank], bells_[rank]));
      }
    }
  }

  static Signature signature(CollectiveKind kind, uint64_t bytes) {
    return {.kind = static_cast<uint8_t>(kind), .bytes = bytes};
  }

  LoopbackHub hub_{3, {.eager_bytes = 64}};
  std::deque<DoorbellWord> bells_ = std::deque<DoorbellWord>(3);
  std::vector<std::unique_ptr<Mailbox>> boxes_;
  std::vector<std::byte> small_ = std::vector<std::byte>(8), large_ = std::vector<std::byte>(1000);
};

TEST_F(MailboxTest, ALargeMessageAnnouncedBeforeASmallReceiveIsAMismatch) {
  Request send, recv;
  boxes_[0]->send(1, {kPointToPoint, 0}, large_, &send);
  boxes_[1]->poll();
  boxes_[1]->recv(0, {kPointToPoint, 0}, small_, &recv);
  ASSERT_TRUE(recv.done());
  EXPECT_EQ(recv.status().code(), Code::kMismatch) << recv.status().message();
  boxes_[0]->poll();
  ASSERT_TRUE(send.done());
  EXPECT_EQ(send.status().code(), Code::kMismatch) << send.status().message();
}

TEST_F(MailboxTest, AMessageForAnOperationThatHasEndedIsAMismatch) {
  boxes_[1]->begin(1, signature(CollectiveKind::kAllReduce, 0));
  boxes_[1]->end_stream(1);
  Request send;
  boxes_[0]->begin(1, signature(CollectiveKind::kAllReduce, small_.size()));
  boxes_[0]->send(1, {1, 0}, small_, &send);
  boxes_[1]->poll();
  EXPECT_EQ(boxes_[1]->failure().code(), Code::kMismatch);
  EXPECT_EQ(boxes_[1]->failure().rank(), 0);
}

TEST_F(MailboxTest, AnAnnouncementForAnOperationThatHasEndedOtherwiseIsAMismatch) {
  boxes_[1]->begin(1, signature(CollectiveKind::kAllReduce, 0));
  boxes_[1]->end_stream(1);
  Request send;
  boxes_[0]->begin(1, signature(CollectiveKind::kAllReduce, large_.size()));
  boxes_[0]->send(1, {1, 0}, large_, &send);
  boxes_[1]->poll();
  EXPECT_EQ(boxes_[1]->failure().code(), Code::kMismatch);
  boxes_[0]->poll();
  EXPECT_EQ(send.status().code(), Code::kMismatch);
}

TEST_F(MailboxTest, AFailureReachesPeersThatNothingWasExchangedWith) {
  boxes_[0]->fail({Code::kAborted, "enough", 0});
  for (const Node peer : {1, 2}) {
    boxes_[peer]->poll();
    EXPECT_EQ(boxes_[peer]->failure().code(), Code::kAborted);
    EXPECT_EQ(boxes_[peer]->failure().rank(), 0);
  }
}

TEST_F(MailboxTest, ASendToALostPeerFailsTheGroup) {
  hub_.kill(1);
  boxes_[0]->poll();
  EXPECT_TRUE(boxes_[0]->failure().ok()) << "nobody needed rank 1";
  Request send;
  boxes_[0]->send(1, {kPointToPoint, 0}, small_, &send);
  EXPECT_EQ(send.status().code(), Code::kPeerLost);
  EXPECT_EQ(boxes_[0]->failure().rank(), 1);
}

// Two ranks that read each other's memory.
class Offers : public ::testing::Test {
 protected:
  void SetUp() override {
    for (auto [here, there] : {std::pair(&a_, &b_), std::pair(&b_, &a_)}) {
      ASSERT_TRUE(here->group->connect(there->rank, there->group->endpoint()).ok());
    }
    if (!a_.group->can_read(1)) GTEST_SKIP() << "this machine lets no process read another's memory";
    a_.attach(1, true);
    b_.attach(0, true);
  }

  ShmSide a_{0, 2}, b_{1, 2};
  std::vector<std::byte> out_ = std::vector<std::byte>(100'000, std::byte{7}),
                         in_ = std::vector<std::byte>(100'000);
};

// Else nobody might poll any more when there is room at last, and the sender would wait for ever.
TEST_F(Offers, AReceiveEndsNotBeforeItsSenderCanHearOfIt) {
  Request send, recv;
  a_.mailbox->send(1, {kPointToPoint, 0}, out_, &send);
  b_.mailbox->poll();
  std::deque<Request> fillers;
  do {  // until the way back is full
    b_.mailbox->send(0, {kPointToPoint | 1, fillers.size()}, {}, &fillers.emplace_back());
  } while (fillers.back().done());
  b_.mailbox->recv(0, {kPointToPoint, 0}, in_, &recv);
  EXPECT_FALSE(recv.done());
  while (a_.mailbox->poll() || b_.mailbox->poll()) {
  }
  ASSERT_TRUE(recv.done());
  EXPECT_TRUE(recv.status().ok()) << recv.status().message();
  ASSERT_TRUE(send.done());
  EXPECT_TRUE(send.status().ok()) << send.status().message();
  EXPECT_EQ(in_, out_);
}

TEST_F(Offers, OfAPeerThatFailedGiveItsReason) {
  Request send, recv;
  a_.mailbox->send(1, {kPointToPoint, 0}, out_, &send);
  b_.mailbox->poll();
  a_.mailbox->fail({Code::kPeerLost, "rank 7 died", 7});
  b_.mailbox->recv(0, {kPointToPoint, 0}, in_, &recv);
  EXPECT_EQ(b_.wait(recv).rank(), 7) << recv.status().message();
  EXPECT_EQ(b_.mailbox->failure().message(), "rank 7 died");
}

// Wherever it was cut, Python must be able to read it.
TEST(PackedStatus, KeepsWholeCharacters) {
  const std::string text = "a\u00e9\u20ac\U0001f600";  // of 1, 2, 3 and 4 bytes
  const std::string packed = pack_status({Code::kTimeout, text, 3});
  EXPECT_EQ(unpack_status(packed).message(), text);
  const size_t whole[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
  for (size_t kept = 0; kept <= text.size(); ++kept) {
    const Status cut = unpack_status(packed.substr(0, packed.size() - text.size() + kept));
    EXPECT_EQ(cut.message(), text.substr(0, whole[kept])) << kept;
    EXPECT_EQ(cut.rank(), 3);
  }
}

// Python would fail with an error of its own, and the reason be lost.
TEST(PackedStatus, IsReadableWhateverThePeerWrote) {
  const auto read = [](const std::string& text) {
    return unpack_status(pack_status({Code::kTimeout, text, 3})).message();
  };
  EXPECT_EQ(read("a\xff z"), "a? z");
  EXPECT_EQ(read("\x80\x80"), "??");
  EXPECT_EQ(read("\xc0\x80z"), "??z");            // a zero in two bytes
  EXPECT_EQ(read("\xed\xa0\x80z"), "???z");       // half of a pair
  EXPECT_EQ(read("\xf4\x90\x80\x80z"), "????z");  // beyond the last character
  EXPECT_EQ(read("\xe2\x82z"), "??z");
  EXPECT_EQ(read("\xff\xff\xff"), "???");
}

}  // namespace
}  // namespace braid::testing
