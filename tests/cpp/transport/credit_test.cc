// SPDX-License-Identifier: Apache-2.0
// Large messages through a NIC: who may send, and when. One thread polls all ranks, so that the order of
// things is certain, and a group in which nothing moves any more stands still for ever.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "transport/loopback/loopback.h"
#include "transport/mailbox.h"

namespace braid::testing {
namespace {

constexpr int kBoxes = 3;

struct Message {
  Message(Node from, Node to, Tag tag, size_t size) : from(from), to(to), tag(tag), out(size), in(size) {
    const auto seed = static_cast<size_t>(from) * 7 + static_cast<size_t>(to) * 31 + tag.stream * 3 + tag.index;
    for (size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(seed + i);
  }

  bool done() const { return sent.done() && received.done(); }
  void expect_arrived() const {
    ASSERT_TRUE(done()) << from << " to " << to << ", " << tag.stream;
    EXPECT_TRUE(sent.status().ok()) << sent.status().message();
    EXPECT_TRUE(received.status().ok()) << received.status().message();
    EXPECT_EQ(in, out) << from << " to " << to << ", " << tag.stream;
  }

  const Node from, to;
  const Tag tag;
  std::vector<std::byte> out, in;
  Request sent, received;
};

class CreditTest : public ::testing::Test {
 protected:
  CreditTest() {
    for (Node rank = 0; rank < kBoxes; ++rank) {
      boxes_.push_back(std::make_unique<Mailbox>(rank, kBoxes, bells_[static_cast<size_t>(rank)]));
      for (Node peer = 0; peer < kBoxes; ++peer) {
        if (peer != rank) boxes_[rank]->attach(peer, hub_.channel(rank, peer, *boxes_[rank], bells_[rank]));
      }
      boxes_[rank]->set_credit(1000);
    }
  }

  Message& message(Node from, Node to, uint64_t stream, size_t size) {
    return messages_.emplace_back(from, to, Tag{stream, 0}, size);
  }
  void send(Message& m) { boxes_[m.from]->send(m.to, m.tag, m.out, &m.sent); }
  void recv(Message& m) { boxes_[m.to]->recv(m.from, m.tag, m.in, &m.received); }
  // Its receiver knows of it before it asks for it.
  Message& announced(Node from, Node to, uint64_t stream, size_t size) {
    Message& m = message(from, to, stream, size);
    send(m);
    boxes_[to]->poll();
    return m;
  }

  void poll_senders() {
    boxes_[1]->poll();
    boxes_[2]->poll();
  }
  bool poll_all() {
    bool moved = false;
    for (const auto& box : boxes_) moved |= box->poll();
    return moved;
  }
  void poll_until_still() {
    while (poll_all()) {
    }
  }
  void expect_all_arrive() {
    poll_until_still();
    for (const Message& m : messages_) m.expect_arrived();
  }

  LoopbackHub hub_{kBoxes, {.eager_bytes = 64, .piece_bytes = 400, .has_nic = true}};
  std::deque<DoorbellWord> bells_ = std::deque<DoorbellWord>(kBoxes);
  std::deque<Message> messages_;  // outlive the mailboxes
  std::vector<std::unique_ptr<Mailbox>> boxes_;
};

TEST_F(CreditTest, IsSharedByAllPeers) {
  Message& first = announced(1, 0, 1, 1000);
  Message& second = announced(2, 0, 2, 1000);
  recv(first);
  recv(second);
  for (int i = 0; i < 3; ++i) poll_senders();
  EXPECT_TRUE(first.sent.done());
  EXPECT_FALSE(second.sent.done());
  EXPECT_FALSE(first.received.done());
  boxes_[0]->poll();  // takes the first, which gives the credit back
  first.expect_arrived();
  EXPECT_FALSE(second.done());
  boxes_[2]->poll();
  EXPECT_TRUE(second.sent.done());
  expect_all_arrive();
}

TEST_F(CreditTest, IsForAsManyMessagesAsFit) {
  for (uint64_t stream = 1; stream <= 5; ++stream) {
    recv(announced(static_cast<Node>(1 + stream % 2), 0, stream, 300));
  }
  for (int i = 0; i < 3; ++i) poll_senders();
  const auto gone = [](const Message& m) { return m.sent.done(); };
  EXPECT_EQ(std::count_if(messages_.begin(), messages_.end(), gone), 3);
  expect_all_arrive();
}

TEST_F(CreditTest, TwoHalvesGoTogetherAlsoWhereRoundingMadeThemLarger) {
  for (uint64_t stream = 1; stream <= 3; ++stream) recv(announced(1, 0, stream, 508));
  for (int i = 0; i < 3; ++i) poll_senders();
  EXPECT_TRUE(messages_[0].sent.done());
  EXPECT_TRUE(messages_[1].sent.done());
  EXPECT_FALSE(messages_[2].sent.done());
  expect_all_arrive();
}

TEST_F(CreditTest, OfMoreBytesLetsThoseGoThatWait) {
  recv(announced(1, 0, 1, 1000));
  Message& second = announced(2, 0, 2, 1000);
  recv(second);
  poll_senders();
  EXPECT_FALSE(second.sent.done());
  boxes_[0]->set_credit(2000);
  poll_senders();
  EXPECT_TRUE(second.sent.done());
  expect_all_arrive();
}

TEST_F(CreditTest, OneMessageMayGoWhateverItsSize) {
  Message& alone = announced(1, 0, 1, 5000);
  recv(alone);
  poll_senders();
  EXPECT_TRUE(alone.sent.done());
  Message& small = announced(2, 0, 2, 100);
  Message& behind = announced(1, 0, 3, 5000);  // nor does it starve behind a small one
  alone.expect_arrived();
  recv(small);
  recv(behind);
  poll_senders();
  EXPECT_TRUE(small.sent.done());
  EXPECT_FALSE(behind.sent.done());
  expect_all_arrive();
}

TEST_F(CreditTest, TheOldestGoesFirst) {
  Message& holder = announced(1, 0, 9, 1000);
  Message& newest = announced(1, 0, 5, 1000);
  Message& middle = announced(1, 0, 4, 1000);
  Message& oldest = announced(2, 0, 3, 1000);
  for (Message* m : {&holder, &newest, &middle, &oldest}) recv(*m);
  poll_senders();
  EXPECT_TRUE(holder.sent.done());
  for (const Message* next : {&oldest, &middle, &newest}) {
    EXPECT_FALSE(next->sent.done()) << next->tag.stream;
    boxes_[0]->poll();
    poll_senders();
    EXPECT_TRUE(next->sent.done()) << next->tag.stream;
    const auto gone = [](const Message& m) { return m.sent.done() && !m.received.done(); };
    EXPECT_EQ(std::count_if(messages_.begin(), messages_.end(), gone), 1);
  }
  expect_all_arrive();
}

TEST_F(CreditTest, SomeIsGivenInAdvance) {
  constexpr size_t kSize = 64 * 1024;
  for (uint64_t stream = 1; stream <= 6; ++stream) {
    recv(message(static_cast<Node>(1 + stream % 2), 0, stream, kSize));
  }
  poll_senders();
  for (Message& m : messages_) {
    send(m);
    EXPECT_EQ(m.sent.done(), m.tag.stream <= 4) << m.tag.stream;  // 256 KiB of them
  }
  expect_all_arrive();
  // All of it came back; and one may go in advance whatever its size.
  Message& huge = message(1, 0, 7, 1024 * 1024);
  Message& other = message(2, 0, 8, 1000);
  recv(huge);
  recv(other);
  poll_senders();
  send(huge);
  send(other);
  EXPECT_TRUE(huge.sent.done());
  EXPECT_FALSE(other.sent.done());
  expect_all_arrive();
}

TEST_F(CreditTest, InAdvanceIsNotTakenFromWhatIsAnnounced) {
  Message& never = message(1, 0, 1, 200'000);
  recv(never);  // its sender does not come to it for long
  Message& other = announced(2, 0, 2, 1000);
  recv(other);
  poll_until_still();
  other.expect_arrived();
  EXPECT_FALSE(never.received.done());
  send(never);
  expect_all_arrive();
}

TEST_F(CreditTest, SmallMessagesNeedNone) {
  recv(announced(1, 0, 1, 1000));
  recv(announced(1, 0, 2, 1000));
  Message& small = message(2, 0, 3, 64);
  recv(small);
  send(small);
  boxes_[0]->poll();
  small.expect_arrived();
  expect_all_arrive();
}

TEST_F(CreditTest, WhoWaitsForItHearsOfAFailure) {
  for (uint64_t stream = 1; stream <= 4; ++stream) {
    recv(announced(static_cast<Node>(1 + stream % 2), 0, stream, 1000));
  }
  boxes_[0]->fail({Code::kAborted, "enough", 0});
  for (const Message& m : messages_) {
    ASSERT_TRUE(m.received.done()) << m.tag.stream;
    EXPECT_EQ(m.received.status().code(), Code::kAborted);
  }
  boxes_[0]->set_credit(1'000'000);  // nobody is left to give it to
  poll_until_still();
  for (const Message& m : messages_) {
    ASSERT_TRUE(m.sent.done()) << m.tag.stream;
    // The first was let go before.
    if (m.tag.stream > 1) EXPECT_EQ(m.sent.status().message(), "enough") << m.tag.stream;
  }
}

TEST_F(CreditTest, WhoWaitsForItHearsOfADeath) {
  for (uint64_t stream = 1; stream <= 4; ++stream) {
    recv(announced(static_cast<Node>(1 + stream % 2), 0, stream, 1000));
  }
  hub_.kill(2);
  boxes_[0]->poll();
  boxes_[1]->poll();
  for (const Message& m : messages_) {
    ASSERT_TRUE(m.received.done()) << m.tag.stream;
    EXPECT_EQ(m.received.status().rank(), 2) << m.received.status().message();
    if (m.from == 1) ASSERT_TRUE(m.sent.done()) << m.tag.stream;
  }
  EXPECT_EQ(boxes_[0]->failure().code(), Code::kPeerLost);
}

TEST_F(CreditTest, WhoWaitsForItHearsOfTheEnd) {
  for (uint64_t stream = 1; stream <= 4; ++stream) {
    recv(announced(static_cast<Node>(1 + stream % 2), 0, stream, 1000));
  }
  boxes_[0]->close();
  for (const Message& m : messages_) {
    ASSERT_TRUE(m.received.done()) << m.tag.stream;
    EXPECT_EQ(m.received.status().code(), Code::kAborted);
  }
}

// Everybody to everybody, each way a few at a time, begun here by the sender and there by the receiver.
TEST_F(CreditTest, ManyMessagesBothWaysAllArrive) {
  constexpr uint64_t kMessages = 60;
  struct Way {
    std::deque<Message> messages;
    size_t sends = 0, recvs = 0;
    size_t ahead = 1;
  };
  std::deque<Way> ways;
  for (Node from = 0; from < kBoxes; ++from) {
    for (Node to = 0; to < kBoxes; ++to) {
      if (from == to) continue;
      Way& way = ways.emplace_back();
      way.ahead = static_cast<size_t>(1 + (from + 2 * to) % 4);
      for (uint64_t stream = 1; stream <= kMessages; ++stream) {
        const size_t size = 65 + (stream * 7919 + static_cast<size_t>(from) * 977) % 3000;
        way.messages.emplace_back(from, to, Tag{stream, 0}, stream % 16 == 0 ? 200'000 : size);
      }
    }
  }
  const auto may_start = [](size_t begun, size_t ahead, const auto& is_done) {
    return begun < kMessages && (begun < ahead || is_done(begun - ahead));
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (Way& way : ways) {
      if (may_start(way.recvs, way.ahead, [&](size_t i) { return way.messages[i].received.done(); })) {
        recv(way.messages[way.recvs++]);
        moved = true;
      }
      if (may_start(way.sends, 5 - way.ahead, [&](size_t i) { return way.messages[i].sent.done(); })) {
        send(way.messages[way.sends++]);
        moved = true;
      }
    }
    moved |= poll_all();
  }
  for (const auto& box : boxes_) box->close();
  for (const Way& way : ways) {
    for (const Message& m : way.messages) m.expect_arrived();
  }
}

}  // namespace
}  // namespace braid::testing
