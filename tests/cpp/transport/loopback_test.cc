// SPDX-License-Identifier: Apache-2.0
#include "transport/loopback/loopback.h"

#include "transport/contract.h"

namespace braid::testing {
namespace {

class LoopbackGroup final : public TestGroup {
 public:
  LoopbackGroup(int ranks, LoopbackOptions options) : hub_(ranks, options), bells_(static_cast<size_t>(ranks)) {
    for (Node rank = 0; rank < ranks; ++rank) {
      mailboxes_.push_back(std::make_unique<Mailbox>(rank, ranks, bell(rank)));
      for (Node peer = 0; peer < ranks; ++peer) {
        if (peer != rank) mailbox(rank).attach(peer, hub_.channel(rank, peer, mailbox(rank), bell(rank)));
      }
    }
  }

  Mailbox& mailbox(Node rank) override { return *mailboxes_[static_cast<size_t>(rank)]; }
  DoorbellWord& bell(Node rank) override { return bells_[static_cast<size_t>(rank)]; }
  LoopbackHub& hub() { return hub_; }

 private:
  LoopbackHub hub_;
  std::vector<DoorbellWord> bells_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
};

Wire loopback(const std::string& name, bool read_peers, std::chrono::microseconds delay = {}) {
  return {name, [read_peers, delay](int ranks) {
            LoopbackOptions options;
            options.read_peers = read_peers;
            options.delay = delay;
            return std::make_unique<LoopbackGroup>(ranks, options);
          }};
}

INSTANTIATE_TEST_SUITE_P(Loopback, TransportContract,
                         ::testing::Values(loopback("pieces", false), loopback("single_copy", true),
                                           loopback("delayed", false, std::chrono::microseconds(200))),
                         wire_name);

TEST(LoopbackTest, ADelayIsWaitedFor) {
  constexpr milliseconds kDelay{30};
  LoopbackGroup group(2, {.delay = kDelay});
  const auto data = pattern(100, 3);
  std::vector<std::byte> there(100), back(100);
  Request sent, got, returned;
  const auto begun = Clock::now();
  group.mailbox(1).recv(0, {1, 0}, there, &got);
  group.mailbox(0).recv(1, {1, 0}, back, &returned);
  group.mailbox(0).send(1, {1, 0}, data, &sent);
  EXPECT_TRUE(wait(group, 1, got).ok());
  EXPECT_GE(Clock::now() - begun, kDelay);
  group.mailbox(1).send(0, {1, 0}, there, &sent);
  EXPECT_TRUE(wait(group, 0, returned).ok());
  EXPECT_GE(Clock::now() - begun, 2 * kDelay);
  EXPECT_EQ(back, data);
}

TEST(LoopbackTest, WhatIsUnderWayMayBeLeft) {
  LoopbackGroup group(2, {.delay = milliseconds(50)});
  const auto data = pattern(100, 3);
  Request sent;
  group.mailbox(0).send(1, {1, 0}, data, &sent);
}

TEST(LoopbackTest, ADeadPeerIsSeenAfterWhatItHadSent) {
  LoopbackGroup group(2, {});
  const auto data = pattern(100, 3);
  std::vector<std::byte> first(100), second(100);
  Request send, got_first, got_second;
  group.mailbox(0).send(1, {1, 0}, data, &send);
  group.hub().kill(0);
  group.mailbox(1).recv(0, {1, 0}, first, &got_first);
  group.mailbox(1).recv(0, {1, 1}, second, &got_second);
  EXPECT_TRUE(wait(group, 1, got_first).ok());
  EXPECT_EQ(first, data);
  const Status lost = wait(group, 1, got_second);
  EXPECT_EQ(lost.code(), Code::kPeerLost);
  EXPECT_EQ(lost.rank(), 0);
}

}  // namespace
}  // namespace braid::testing
