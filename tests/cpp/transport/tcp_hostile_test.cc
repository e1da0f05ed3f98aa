// SPDX-License-Identifier: Apache-2.0
// Connections that do not belong here, while those that do carry on.
#include <atomic>
#include <cstring>
#include <thread>

#include "transport/stranger.h"
#include "transport/tcp_group.h"

namespace braid::testing {
namespace {

class TcpHostileTest : public ::testing::Test {
 protected:
  TcpHostileTest() {
    std::vector<TcpOptions> options(3, tcp_options());
    options[0].handshake_timeout = milliseconds(500);  // the strangers come to rank 0
    net_ = std::make_shared<TcpNet>(options);
    group_ = std::make_unique<TcpTestGroup>(net_, "traffic");
    traffic_ = std::thread([this] {
      for (uint64_t round = 0; !stop_; ++round) {
        exchange(*group_, 3, round, size_t{1} << (round % 18));
        ++rounds_;
      }
    });
  }
  ~TcpHostileTest() override {
    const int before = rounds_;
    while (rounds_ < before + 3 && !HasFailure()) std::this_thread::sleep_for(milliseconds(1));
    stop_ = true;
    traffic_.join();
    EXPECT_TRUE(group_->mailbox(0).failure().ok()) << group_->mailbox(0).failure().message();
  }

  std::string address() { return net_->endpoint(0).address(); }
  // The only line that was logged, waiting a moment for it.
  void expect_logged(const std::string& reason) {
    for (int i = 0; i < 1000 && log_.take().empty(); ++i) std::this_thread::sleep_for(milliseconds(1));
    const auto lines = log_.take();
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("from 127.0.0.1: " + reason), std::string::npos) << lines[0];
  }

  KeptLog log_;
  std::shared_ptr<TcpNet> net_;
  std::unique_ptr<TcpTestGroup> group_;
  std::atomic<bool> stop_{false};
  std::atomic<int> rounds_{0};
  std::thread traffic_;
};

TEST_F(TcpHostileTest, AnotherProtocolIsClosedAtOnceAndLoggedOnce) {
  for (int i = 0; i < 5; ++i) {
    Stranger stranger(address());
    stranger.say("GET / HTTP/1.1\r\n\r\n", 18);
    EXPECT_TRUE(stranger.is_closed_within(400));
  }
  expect_logged("it does not speak braid's protocol");
}

TEST_F(TcpHostileTest, AnotherVersionIsNamed) {
  Stranger stranger(address());
  Claim claim = stranger.claim("traffic", kSecret, 1, 0, 9);
  claim.version = 99;
  EXPECT_FALSE(stranger.is_accepted(claim, kSecret));
  expect_logged("it speaks version 99 of the protocol");
}

TEST_F(TcpHostileTest, AWrongSecretProvesNothing) {
  Stranger stranger(address());
  const std::string guess(32, 'x');
  EXPECT_FALSE(stranger.is_accepted(stranger.claim("traffic", guess, 1, 0, 9), guess));
  expect_logged("it could not prove that it belongs to the group");
}

TEST_F(TcpHostileTest, AProofIsGoodForItsOwnWordsOnly) {
  for (int field = 0; field < 3; ++field) {
    Stranger stranger(address());
    Claim claim = stranger.claim("traffic", kSecret, 1, 0, 9);
    if (field == 0) claim.from_rank = 2;
    if (field == 1) claim.index = 10;
    if (field == 2) claim.nonce.low ^= 1;
    EXPECT_FALSE(stranger.is_accepted(claim, kSecret)) << field;
  }
  expect_logged("it could not prove that it belongs to the group");
}

TEST_F(TcpHostileTest, AReplayedHandshakeIsRefused) {
  Mailbox alone(0, 2, group_->bell(0));
  auto other = net_->endpoint(0).join("other", kSecret, 0, 2, alone);
  ASSERT_TRUE(other.ok());
  Stranger member(address());
  const Claim recorded = member.claim("other", kSecret, 1, 0);
  EXPECT_TRUE(member.is_accepted(recorded, kSecret));
  Stranger replay(address());
  replay.claim("other", kSecret, 1, 0);
  EXPECT_FALSE(replay.is_accepted(recorded, kSecret));
  expect_logged("it could not prove that it belongs to the group");
  other.value()->leave();
}

TEST_F(TcpHostileTest, AGroupThatIsNotHereIsRefused) {
  Stranger stranger(address());
  EXPECT_FALSE(stranger.is_accepted(stranger.claim("elsewhere", kSecret, 1, 0), kSecret));
  expect_logged("it named a group or rank that is not here");
}

TEST_F(TcpHostileTest, ARankOutOfRangeIsRefused) {
  for (const auto& [from, index] : std::vector<std::pair<Node, uint32_t>>{{3, 0}, {-1, 0}, {0, 0}, {1, 4711}}) {
    Stranger stranger(address());
    EXPECT_FALSE(stranger.is_accepted(stranger.claim("traffic", kSecret, from, 0, index), kSecret)) << from;
  }
  expect_logged("it named a rank that the group does not have");
}

TEST_F(TcpHostileTest, ASecondConnectionOfTheSameIndexIsRefused) {
  while (rounds_ == 0) std::this_thread::sleep_for(milliseconds(1));
  Stranger stranger(address());
  EXPECT_FALSE(stranger.is_accepted(stranger.claim("traffic", kSecret, 1, 0, 0), kSecret));
  expect_logged("the peer has that connection already");
}

TEST_F(TcpHostileTest, TooMuchIsRefused) {
  Stranger stranger(address());
  std::string words(sizeof(Claim) + 100, '\0');
  const Claim claim = stranger.claim("traffic", kSecret, 1, 0, 9);
  std::memcpy(words.data(), &claim, sizeof claim);
  stranger.say(words.data(), words.size());
  EXPECT_TRUE(stranger.is_closed_within(400));
  expect_logged("it sent more than a handshake");
}

TEST_F(TcpHostileTest, SilenceAndHalfAHandshakeHaveTheirTime) {
  Stranger silent(address()), slow(address());
  const Claim claim = slow.claim("traffic", kSecret, 1, 0, 9);
  slow.say(&claim, sizeof claim / 2);
  EXPECT_FALSE(silent.is_closed_within(100));
  EXPECT_TRUE(silent.is_closed_within(3000));
  EXPECT_TRUE(slow.is_closed_within(3000));
  expect_logged("it did not say who it is within 500 ms");
}

TEST_F(TcpHostileTest, ACrowdIsTakenInTurnsAndMembersStillGetIn) {
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(std::make_unique<Stranger>(address()));
  size_t greeted = 0;
  for (const auto& stranger : crowd) {
    Challenge challenge;
    greeted += stranger->hear(&challenge, sizeof challenge);
  }
  EXPECT_EQ(greeted, 200u) << "each has its turn";
  // A new group needs new connections, behind whatever is left of the crowd.
  TcpTestGroup newcomers(net_, "newcomers");
  exchange(newcomers, 3, 1, 5000);
  for (const auto& stranger : crowd) EXPECT_TRUE(stranger->is_closed_within(3000));
  expect_logged("it did not say who it is");
}

}  // namespace
}  // namespace braid::testing
