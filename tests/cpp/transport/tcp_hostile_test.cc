// SPDX-License-Identifier: Apache-2.0
// Connections that do not belong here, while those that do carry on.
#include <atomic>
#include <thread>

#include "support/slowness.h"
#include "transport/stranger.h"
#include "transport/tcp_group.h"

namespace braid::testing {
namespace {

class TcpHostileTest : public ::testing::Test {
 protected:
  TcpHostileTest() {
    std::vector<TcpOptions> options(3, tcp_options());
    options[0].handshake_timeout = milliseconds(handshake_ms_);  // the strangers come to rank 0
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

  static Opening opening_of(Node from, uint32_t index) {
    Opening opening;
    opening.from_rank = from;
    opening.to_rank = 0;
    opening.index = index;
    opening.group = sha256(bytes_of(std::string("traffic")));
    return opening;
  }
  std::string address() { return net_->endpoint(0).address(); }
  // The only line that was logged, waiting a moment for it.
  void expect_logged(const std::string& reason) {
    for (int i = 0; i < 20'000 && log_.take().empty(); ++i) std::this_thread::sleep_for(milliseconds(1));
    const auto lines = log_.take();
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("from 127.0.0.1: " + reason), std::string::npos) << lines[0];
  }

  // Who has the secret must shake hands in the first one, also on a busy machine. Strangers are closed sooner.
  const int handshake_ms_ = static_cast<int>(limit(milliseconds(500)).count());
  const int soon_ms_ = handshake_ms_ * 4 / 5;
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
    EXPECT_TRUE(stranger.is_closed_within(soon_ms_));
  }
  expect_logged("it does not speak braid's protocol");
}

TEST_F(TcpHostileTest, AnotherVersionIsNamed) {
  Stranger stranger(address());
  Opening opening = opening_of(1, 0);
  opening.version = 99;
  EXPECT_FALSE(stranger.is_accepted(stranger.claim(opening, opening, kSecret), kSecret));
  EXPECT_EQ(stranger.challenge().version, kHandshakeVersion) << "it is told ours";
  expect_logged("it speaks version 99 of the protocol");
}

// Members of the first version say nothing before they are challenged.
TEST_F(TcpHostileTest, AnOlderVersionThatWaitsForOurWordHearsWhatWeSpeak) {
  Stranger stranger(address());
  Challenge challenge;
  ASSERT_TRUE(stranger.hear(&challenge, sizeof challenge));
  EXPECT_EQ(challenge.magic, kMagic);
  EXPECT_EQ(challenge.version, 2u);
}

TEST_F(TcpHostileTest, AWrongSecretProvesNothing) {
  Stranger stranger(address());
  const std::string guess(32, 'x');
  EXPECT_FALSE(stranger.is_accepted(stranger.claim("traffic", guess, 1, 0, 1), guess));
  expect_logged("it could not prove that it belongs to the group");
}

TEST_F(TcpHostileTest, AProofIsGoodForItsOwnWordsOnly) {
  for (int field = 0; field < 4; ++field) {
    Stranger stranger(address());
    Opening said = opening_of(1, 0), proved = said;
    if (field == 0) said.from_rank = 2;
    if (field == 1) said.index = 1;
    if (field == 2) said.nonce.low ^= 1;
    if (field == 3)
      proved.version = kHandshakeVersion - 1;  // somebody between would have us speak an older protocol
    EXPECT_FALSE(stranger.is_accepted(stranger.claim(said, proved, kSecret), kSecret)) << field;
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
  replay.claim(recorded.opening, recorded.opening, kSecret);
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
  for (const Node from : {3, -1, 0, 1 << 30}) {
    Stranger stranger(address());
    EXPECT_FALSE(stranger.is_accepted(stranger.claim("traffic", kSecret, from, 0), kSecret)) << from;
  }
  expect_logged("it named a rank that the group does not have");
}

// One with the secret would else sit beside the rank whose name it bears.
TEST_F(TcpHostileTest, AConnectionBeyondThoseThatRanksHaveIsRefused) {
  while (rounds_ == 0) std::this_thread::sleep_for(milliseconds(1));
  Stranger stranger(address());
  EXPECT_FALSE(stranger.is_accepted(stranger.claim("traffic", kSecret, 1, 0, 2), kSecret));
  expect_logged("it named connection 2, but ranks of the group have 2 to each peer");
}

TEST_F(TcpHostileTest, ASecondHolderOfAPlaceIsRefusedAndTold) {
  while (rounds_ == 0) std::this_thread::sleep_for(milliseconds(1));
  Stranger stranger(address());
  const Claim claim = stranger.claim("traffic", kSecret, 1, 0, 0);
  EXPECT_FALSE(stranger.is_accepted(claim, kSecret));
  EXPECT_TRUE(stranger.is_told_of_another(claim, kSecret));
  expect_logged("it knows the group's secret and says it is rank 1, whose connection 0 from 127.0.0.1:");
}

TEST_F(TcpHostileTest, TooMuchIsRefused) {
  Stranger stranger(address());
  const std::string words(sizeof(Digest) + 100, '\0');
  stranger.claim("traffic", kSecret, 1, 0, 1);
  stranger.say(words.data(), words.size());
  EXPECT_TRUE(stranger.is_closed_within(soon_ms_));
  expect_logged("it sent more than a handshake");
}

TEST_F(TcpHostileTest, NobodyAnswersAChallengeBeforeItIsSent) {
  Stranger stranger(address());
  Claim claim{opening_of(1, 1), {}};
  claim.proof = prove_connect(kSecret, {}, claim.opening);
  stranger.say(&claim, sizeof claim);
  EXPECT_TRUE(stranger.is_closed_within(soon_ms_));
}

TEST_F(TcpHostileTest, SilenceAndHalfAHandshakeHaveTheirTime) {
  Stranger nearly_silent(address()), slow(address());
  nearly_silent.say(kMagic.data(), 1);
  const Claim claim = slow.claim("traffic", kSecret, 1, 0, 1);
  slow.say(&claim.proof, sizeof claim.proof / 2);
  EXPECT_FALSE(nearly_silent.is_closed_within(100));
  EXPECT_TRUE(nearly_silent.is_closed_within(6 * soon_ms_));
  EXPECT_TRUE(slow.is_closed_within(6 * soon_ms_));
  expect_logged("it did not say who it is within " + std::to_string(handshake_ms_) + " ms");
}

}  // namespace
}  // namespace braid::testing
