// SPDX-License-Identifier: Apache-2.0
// Messages that nobody has asked for: how many go ahead, and that the others arrive whatever the order of receives.
// One thread polls all ranks, so a group in which nothing moves any more stands still for ever.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "transport/loopback/loopback.h"
#include "transport/mailbox.h"

namespace braid::testing {
namespace {

constexpr Mailbox::Limits kSmallLimits{.early_bytes = 4096, .announced = 8};
constexpr size_t kEarlyMessages = 16;  // without bytes: each counts as 256

struct Sent {
  Sent(Tag name, size_t size) : tag(name), out(size), in(size) {
    for (size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(tag.stream * 3 + tag.index * 7 + i);
  }
  bool done() const { return sent.done() && received.done(); }

  Tag tag;
  std::vector<std::byte> out, in;
  Request sent, received;
};

struct WireKind {
  std::string name;
  LoopbackOptions options;
};

// Rank 0 sends, rank 1 receives.
class WindowTest : public ::testing::TestWithParam<WireKind> {
 protected:
  WindowTest() {
    for (Node rank = 0; rank < 2; ++rank) {
      boxes_.push_back(std::make_unique<Mailbox>(rank, 2, bells_[static_cast<size_t>(rank)]));
      boxes_[rank]->set_limits(kSmallLimits);
      boxes_[rank]->set_credit(3000);
      boxes_[rank]->attach(1 - rank, hub_.channel(rank, 1 - rank, *boxes_[rank], bells_[rank]));
    }
  }

  void make(size_t count, size_t size, uint64_t stream = kPointToPoint) {
    for (size_t i = 0; i < count; ++i) messages_.emplace_back(Tag{stream, messages_.size()}, size);
  }
  void send(Sent& m) { boxes_[0]->send(1, m.tag, m.out, &m.sent); }
  void recv(Sent& m) { boxes_[1]->recv(0, m.tag, m.in, &m.received); }
  void send_all() {
    for (Sent& m : messages_) send(m);
  }
  void poll_until_still() {
    while (boxes_[0]->poll() | boxes_[1]->poll()) {
    }
  }
  size_t sent() const {
    return static_cast<size_t>(
        std::count_if(messages_.begin(), messages_.end(), [](const Sent& m) { return m.sent.done(); }));
  }
  void receive(Sent& m) {
    recv(m);
    poll_until_still();
    ASSERT_TRUE(m.received.done()) << m.tag.index;
    ASSERT_TRUE(m.received.status().ok()) << m.received.status().message();
    ASSERT_EQ(m.in, m.out) << m.tag.index;
  }
  void expect_all_sent() {
    poll_until_still();
    for (const Sent& m : messages_) {
      ASSERT_TRUE(m.done()) << m.tag.stream << ", " << m.tag.index;
      EXPECT_TRUE(m.sent.status().ok()) << m.sent.status().message();
      EXPECT_EQ(m.in, m.out) << m.tag.index;
    }
  }

  LoopbackHub hub_{2, GetParam().options};
  std::deque<DoorbellWord> bells_ = std::deque<DoorbellWord>(2);
  std::deque<Sent> messages_;  // outlive the mailboxes
  std::vector<std::unique_ptr<Mailbox>> boxes_;
};

INSTANTIATE_TEST_SUITE_P(
    Loopback, WindowTest,
    ::testing::Values(WireKind{"pieces", {.eager_bytes = 64, .piece_bytes = 400}},
                      WireKind{"nic", {.eager_bytes = 64, .piece_bytes = 400, .has_nic = true}},
                      WireKind{"single_copy", {.eager_bytes = 64, .piece_bytes = 400, .read_peers = true}}),
    [](const auto& info) { return info.param.name; });

TEST_P(WindowTest, SmallMessagesBeyondItWaitAtTheSender) {
  make(1000, 64);
  send_all();
  poll_until_still();
  EXPECT_EQ(sent(), kSmallLimits.early_bytes / (256 + 64));
  for (Sent& m : messages_) ASSERT_NO_FATAL_FAILURE(receive(m));
  expect_all_sent();
}

TEST_P(WindowTest, MessagesWithoutBytesCountToo) {
  make(1000, 0);
  send_all();
  poll_until_still();
  EXPECT_EQ(sent(), kEarlyMessages);
  for (auto m = messages_.rbegin(); m != messages_.rend(); ++m) ASSERT_NO_FATAL_FAILURE(receive(*m));
  expect_all_sent();
}

TEST_P(WindowTest, SmallOnesArriveInReverse) {
  make(1000, 24);
  send_all();
  for (auto m = messages_.rbegin(); m != messages_.rend(); ++m) ASSERT_NO_FATAL_FAILURE(receive(*m));
  expect_all_sent();
}

TEST_P(WindowTest, LargeOnesArriveInReverse) {
  make(300, 1000);
  send_all();
  for (auto m = messages_.rbegin(); m != messages_.rend(); ++m) ASSERT_NO_FATAL_FAILURE(receive(*m));
  expect_all_sent();
}

TEST_P(WindowTest, OpensAgainWithWhatIsReceived) {
  for (int round = 0; round < 20; ++round) {
    const size_t first = messages_.size();
    make(kEarlyMessages / 2, 0);
    for (size_t i = first; i < messages_.size(); ++i) {
      send(messages_[i]);
      EXPECT_TRUE(messages_[i].sent.done()) << "goes at once, in round " << round;
    }
    for (size_t i = first; i < messages_.size(); ++i) ASSERT_NO_FATAL_FAILURE(receive(messages_[i]));
  }
}

// The receive waits, nothing announces its message, and everything else that may be announced is.
TEST_P(WindowTest, AReceiveThatWaitsIsFoundBehindAFullTable) {
  for (const size_t size : {size_t{0}, size_t{1000}}) {
    const size_t first = messages_.size();
    make(50, 0);
    make(1, size);
    Sent& last = messages_.back();
    recv(last);
    poll_until_still();
    for (size_t i = first; i < messages_.size(); ++i) send(messages_[i]);
    poll_until_still();
    EXPECT_TRUE(last.done()) << size;
    for (size_t i = first; i + 1 < messages_.size(); ++i) ASSERT_NO_FATAL_FAILURE(receive(messages_[i]));
  }
  expect_all_sent();
}

// As a receive from any rank looks for it.
TEST_P(WindowTest, AMessageIsLookedForBehindAFullTable) {
  make(50, 1000);
  send_all();
  poll_until_still();
  EXPECT_FALSE(boxes_[1]->look_for_message(0, messages_.back().tag).arrived);
  poll_until_still();
  EXPECT_TRUE(boxes_[1]->look_for_message(0, messages_.back().tag).arrived);
  for (Sent& m : messages_) ASSERT_NO_FATAL_FAILURE(receive(m));
  expect_all_sent();
}

TEST_P(WindowTest, ARankRunsAheadOfSlowOnesByThousandsOfOperations) {
  constexpr uint64_t kOperations = 20'000;
  const Signature signature{.kind = 1, .bytes = 8};
  for (uint64_t stream = 1; stream <= kOperations; ++stream) {
    boxes_[0]->begin(stream, signature);
    send(messages_.emplace_back(Tag{stream, 0}, 8));
  }
  for (Sent& m : messages_) {
    boxes_[1]->begin(m.tag.stream, signature);
    ASSERT_NO_FATAL_FAILURE(receive(m));
    boxes_[1]->end_stream(m.tag.stream);
    boxes_[0]->end_stream(m.tag.stream);
  }
  EXPECT_TRUE(boxes_[1]->failure().ok()) << boxes_[1]->failure().message();
}

TEST_P(WindowTest, WhatWaitsHearsOfAnEnd) {
  make(100, 0);
  send_all();
  poll_until_still();
  boxes_[0]->close();
  for (size_t i = 0; i < messages_.size(); ++i) {
    ASSERT_TRUE(messages_[i].sent.done()) << i;
    EXPECT_EQ(messages_[i].sent.status().ok(), i < kEarlyMessages) << i;
  }
  for (size_t i = 0; i < kEarlyMessages; ++i) ASSERT_NO_FATAL_FAILURE(receive(messages_[i]));
}

TEST_P(WindowTest, WhatWaitsHearsOfADeath) {
  make(100, 0);
  send_all();
  hub_.kill(1);
  boxes_[0]->poll();
  for (const Sent& m : messages_) ASSERT_TRUE(m.sent.done()) << m.tag.index;
  EXPECT_EQ(messages_.back().sent.status().rank(), 1);
}

// Sends in one order, receives in another, a few of them open at a time, and polls in between as they come.
TEST_P(WindowTest, WhateverTheOrderEverythingArrives) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    messages_.clear();
    for (size_t i = 0; i < 300; ++i) {
      constexpr size_t kSizes[] = {0, 1, 63, 64, 65, 400, 1000, 5000};
      messages_.emplace_back(Tag{kPointToPoint | random() % 3, seed * 1000 + i}, kSizes[random() % 8]);
    }
    std::vector<Sent*> sends, receives;
    for (Sent& m : messages_) sends.push_back(&m);
    receives = sends;
    if (seed % 2 == 0) std::shuffle(sends.begin(), sends.end(), random);
    if (seed % 3 != 0) std::shuffle(receives.begin(), receives.end(), random);
    const size_t most_open = 1 + random() % kSmallLimits.announced;
    const unsigned sends_of_ten = 1 + random() % 8;
    std::vector<Sent*> open;
    size_t started = 0, posted = 0;
    for (size_t idle = 0; idle < 1000 && posted + started < 2 * messages_.size(); ++idle) {
      std::erase_if(open, [](const Sent* m) { return m->received.done(); });
      if (started < sends.size() && random() % 10 < sends_of_ten) {
        send(*sends[started++]);
        idle = 0;
      } else if (posted < receives.size() && open.size() < most_open) {
        recv(*open.emplace_back(receives[posted++]));
        idle = 0;
      }
      const unsigned polls = random() % 4;
      if (polls & 1) boxes_[0]->poll();
      if (polls & 2) boxes_[1]->poll();
    }
    ASSERT_EQ(posted, receives.size()) << "stands still, seed " << seed;
    ASSERT_NO_FATAL_FAILURE(expect_all_sent()) << seed;
    ASSERT_TRUE(boxes_[0]->failure().ok()) << boxes_[0]->failure().message();
  }
}

}  // namespace
}  // namespace braid::testing
