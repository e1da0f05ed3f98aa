// SPDX-License-Identifier: Apache-2.0
// A member that says on one connection what does not go with what it is saying on another.
#include <thread>

#include "transport/stranger.h"
#include "transport/tcp_group.h"

namespace braid::testing {
namespace {

// Rank 0 of two. Rank 1 is in the group, over connections that the test holds.
class TcpLandingTest : public ::testing::Test, public TestGroup {
 protected:
  TcpLandingTest() : net_(1, tcp_options()), box_(0, 2, bell_) {
    auto joined = net_.endpoint(0).join("half", kSecret, 0, 2, box_);
    EXPECT_TRUE(joined.ok()) << joined.status().message();
    group_ = joined.value();
    auto channel = group_->channel(1, net_.endpoint(0).address());
    EXPECT_TRUE(channel.ok()) << channel.status().message();
    box_.attach(1, std::move(channel).value());
  }

  std::unique_ptr<Stranger> connection(uint32_t index) {
    auto member = std::make_unique<Stranger>(net_.endpoint(0).address());
    EXPECT_TRUE(member->is_accepted(member->claim("half", kSecret, 1, 0, index), kSecret));
    return member;
  }
  static void let_it_land() { std::this_thread::sleep_for(milliseconds(50)); }

  Mailbox& mailbox(Node) override { return box_; }
  DoorbellWord& bell(Node) override { return bell_; }

  TcpNet net_;
  DoorbellWord bell_;
  std::shared_ptr<TcpGroup> group_;
  Mailbox box_;
};

TEST_F(TcpLandingTest, TwoReasonsAtOnceAreRefused) {
  const auto one = connection(0), other = connection(1);
  std::vector<std::byte> memory(16);
  Request recv;
  box_.recv(1, {kPointToPoint, 0}, memory, &recv);
  Frame reason;
  reason.kind = FrameKind::kFail;
  reason.payload_bytes = 4096;
  const std::vector<std::byte> words(kMostReasonBytes, std::byte{'x'});
  one->send_frame(reason, std::span(words).first(8));
  let_it_land();
  reason.payload_bytes = kMostReasonBytes;
  other->send_frame(reason, std::span(words).first(8));
  let_it_land();
  one->say(words.data(), 2000);  // into the first one's memory
  const Status status = wait(*this, 0, recv);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("rank 1 broke the protocol"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace braid::testing
