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

Wire loopback(const std::string& name, bool read_peers) {
  return {name, [read_peers](int ranks) {
            LoopbackOptions options;
            options.read_peers = read_peers;
            return std::make_unique<LoopbackGroup>(ranks, options);
          }};
}

INSTANTIATE_TEST_SUITE_P(Loopback, TransportContract,
                         ::testing::Values(loopback("pieces", false), loopback("single_copy", true)), wire_name);

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
