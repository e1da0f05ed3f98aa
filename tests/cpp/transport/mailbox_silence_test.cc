// SPDX-License-Identifier: Apache-2.0
// Who counts as silent, and when, without a clock: the looks are the test's.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "transport/mailbox.h"

namespace braid::testing {
namespace {

constexpr milliseconds kTimeout{2000}, kStep{250};

// A wire that keeps what is posted. Its peer is heard when the test says so.
class QuietChannel final : public Channel {
 public:
  explicit QuietChannel(bool has_nic) : traits_{.eager_bytes = 64, .piece_bytes = 1024, .has_nic = has_nic} {}

  const ChannelTraits& traits() const override { return traits_; }
  void post(const Frame& frame, ConstBytes, Request*) override { posted.push_back(frame.kind); }
  bool poll() override { return false; }
  Status pull(uint64_t, Bytes) override { return {Code::kUnsupported, ""}; }
  bool heard() override { return std::exchange(speaks, false); }
  void close() override {}

  size_t count(FrameKind kind) const {
    return static_cast<size_t>(std::count(posted.begin(), posted.end(), kind));
  }

  bool speaks = false;
  std::vector<FrameKind> posted;

 private:
  const ChannelTraits traits_;
};

class SilenceTest : public ::testing::TestWithParam<bool> {
 protected:
  SilenceTest() {
    for (Node peer = 1; peer < 3; ++peer) {
      auto channel = std::make_unique<QuietChannel>(has_nic());
      channels_.push_back(channel.get());
      box_.attach(peer, std::move(channel));
    }
    box_.set_name(1, "rank 1 (host n1, pid 4711)");
    box_.lose_silent(kTimeout, [this] { ++starts_; });
  }
  ~SilenceTest() override { box_.close(); }

  bool has_nic() const { return GetParam(); }
  void look(int times) {
    for (int i = 0; i < times; ++i) looks_on_ = box_.look_for_silence(kStep);
  }

  DoorbellWord bell_;
  Mailbox box_{0, 3, bell_};
  std::vector<QuietChannel*> channels_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(8), large_ = std::vector<std::byte>(1000);
  int starts_ = 0;
  bool looks_on_ = true;
};

TEST_P(SilenceTest, ANeededPeerIsLostAfterItsTimeAndToldSo) {
  Request recv;
  box_.recv(1, {kPointToPoint, 0}, bytes_, &recv);
  EXPECT_EQ(starts_, 1);
  look(7);
  EXPECT_FALSE(recv.done());
  EXPECT_EQ(channels_[0]->count(FrameKind::kAsk), has_nic() ? 1u : 0u) << "once, where that is how it is heard";
  look(1);
  ASSERT_TRUE(recv.done());
  EXPECT_EQ(recv.status().code(), Code::kPeerLost);
  EXPECT_EQ(recv.status().rank(), 1);
  EXPECT_EQ(recv.status().message().find("rank 1 (host n1, pid 4711) has not answered rank 0 for 2 s; "), 0u)
      << recv.status().message();
  EXPECT_NE(recv.status().message().find("(BRAID_PEER_TIMEOUT)"), std::string::npos);
  EXPECT_EQ(recv.status().message().find("network") != std::string::npos, has_nic());
  EXPECT_FALSE(looks_on_);
  EXPECT_EQ(channels_[0]->count(FrameKind::kFail), 1u) << "it may go on, and must not wait then";
  EXPECT_EQ(channels_[1]->count(FrameKind::kFail), 1u);
}

TEST_P(SilenceTest, AnythingHeardBeginsItAnew) {
  Request recv;
  box_.recv(1, {kPointToPoint, 0}, bytes_, &recv);
  for (int round = 0; round < 5; ++round) {
    look(7);
    channels_[0]->speaks = true;
    look(1);
  }
  EXPECT_FALSE(recv.done());
  EXPECT_EQ(channels_[0]->count(FrameKind::kAsk), has_nic() ? 5u : 0u);
  box_.close();
}

TEST_P(SilenceTest, WhoIsNotNeededMayBeSilent) {
  Request send, recv;
  box_.send(1, {kPointToPoint, 0}, large_, &send);
  look(4);
  box_.recv(2, {kPointToPoint, 0}, bytes_, &recv);
  for (int i = 0; i < 7; ++i) {
    channels_[0]->speaks = true;
    look(1);
  }
  EXPECT_FALSE(send.done() || recv.done());
  look(1);
  ASSERT_TRUE(recv.done());
  EXPECT_EQ(recv.status().rank(), 2) << "its silence counts from when it was needed";
}

TEST_P(SilenceTest, BoardsAndReceivesFromAnyRankNeedPeers) {
  box_.need({2});
  EXPECT_EQ(starts_, 1);
  look(7);
  box_.need({});
  look(1);
  EXPECT_TRUE(box_.failure().ok());
  box_.need_all(true);
  look(8);
  EXPECT_EQ(box_.failure().code(), Code::kPeerLost);
}

TEST_P(SilenceTest, LooksEndWhileNobodyIsNeededAndBeginAgain) {
  box_.need({1});
  look(1);
  EXPECT_TRUE(looks_on_);
  box_.need({});
  look(4);
  EXPECT_TRUE(looks_on_) << "a while, as the next operation may follow";
  look(1);
  EXPECT_FALSE(looks_on_);
  EXPECT_EQ(starts_, 1);
  box_.need({1});
  EXPECT_EQ(starts_, 2);
}

INSTANTIATE_TEST_SUITE_P(, SilenceTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "OverANic" : "InOneHost"; });

}  // namespace
}  // namespace braid::testing
