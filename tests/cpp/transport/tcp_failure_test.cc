// SPDX-License-Identifier: Apache-2.0
// Peers that die, refuse, leave in the middle, or break the protocol.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "transport/descriptors.h"
#include "transport/stranger.h"
#include "transport/tcp_group.h"

namespace braid::testing {
namespace {

// Rank 0 of two; what its peer is is up to the test.
class Half final : public TestGroup {
 public:
  explicit Half(const TcpOptions& options = tcp_options()) : net_(1, options), mailbox_(0, 2, bell_) {
    auto joined = endpoint().join("half", kSecret, 0, 2, mailbox_);
    EXPECT_TRUE(joined.ok()) << joined.status().message();
    group_ = joined.value();
  }
  void attach(const std::string& address) {
    auto channel = group_->channel(1, address);
    ASSERT_TRUE(channel.ok()) << channel.status().message();
    mailbox_.attach(1, std::move(channel).value());
  }
  Mailbox& mailbox(Node) override { return mailbox_; }
  DoorbellWord& bell(Node) override { return bell_; }
  TcpEndpoint& endpoint() { return net_.endpoint(0); }

 private:
  TcpNet net_;
  DoorbellWord bell_;
  std::shared_ptr<TcpGroup> group_;
  Mailbox mailbox_;
};

void put(int fd, const std::string& address) {
  std::string padded = address;
  padded.resize(64);
  ASSERT_EQ(::write(fd, padded.data(), 64), 64);
}

std::string get(int fd) {
  std::string padded(64, '\0');
  EXPECT_EQ(::read(fd, padded.data(), 64), 64);
  return padded.c_str();
}

// The other process: joins as rank 1, sends one message, then waits for its death. With `forks_worker` it has forked a child
// by then, which lives on, and tells its number.
[[noreturn]] void be_rank_one(int from_parent, int to_parent, bool forks_worker = false) {
  TcpNet net(1, tcp_options());
  DoorbellWord bell;
  Mailbox mailbox(1, 2, bell);
  auto group = net.endpoint(0).join("half", kSecret, 1, 2, mailbox).value();
  put(to_parent, net.endpoint(0).address());
  auto channel = group->channel(0, get(from_parent));
  mailbox.attach(0, std::move(channel).value());
  const auto data = pattern(100, 1);
  Request request;
  mailbox.send(0, {1, 0}, data, &request);
  while (!request.done()) std::this_thread::sleep_for(milliseconds(1));
  if (forks_worker) {
    const pid_t worker = ::fork();
    if (worker != 0) put(to_parent, std::to_string(worker));
  }
  for (;;) ::pause();
}

TEST(TcpFailureTest, AKilledProcessIsSeenAtOnceAfterWhatItHadSent) {
  int to_child[2], to_parent[2];
  ASSERT_EQ(::pipe(to_child), 0);
  ASSERT_EQ(::pipe(to_parent), 0);
  const pid_t child = ::fork();  // before this process has any thread
  if (child == 0) be_rank_one(to_child[0], to_parent[1]);
  {
    Half half;
    half.attach(get(to_parent[0]));
    put(to_child[1], half.endpoint().address());
    std::vector<std::byte> first(100), second(1 << 20);
    Request got_first, got_second;
    half.mailbox(0).recv(1, {1, 0}, first, &got_first);
    EXPECT_TRUE(wait(half, 0, got_first).ok());
    EXPECT_EQ(first, pattern(100, 1));

    half.mailbox(0).recv(1, {1, 1}, second, &got_second);
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_FALSE(got_second.done());
    const Deadline killed = Clock::now();
    ::kill(child, SIGKILL);
    const Status status = wait(half, 0, got_second);
    EXPECT_LT(Clock::now() - killed, milliseconds(10'000));
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_EQ(status.rank(), 1);
    EXPECT_NE(status.message().find("connection closed"), std::string::npos) << status.message();
  }
  ::waitpid(child, nullptr, 0);
  for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(fd);
}

// A worker that loads data is forked from a rank, and outlives it for a while.
TEST(TcpFailureTest, AKilledProcessIsSeenAtOnceThoughItsChildLivesOn) {
  int to_child[2], to_parent[2];
  ASSERT_EQ(::pipe(to_child), 0);
  ASSERT_EQ(::pipe(to_parent), 0);
  const pid_t child = ::fork();  // before this process has any thread
  if (child == 0) be_rank_one(to_child[0], to_parent[1], true);
  pid_t worker = 0;
  {
    Half half;
    const std::string address = get(to_parent[0]);
    half.attach(address);
    put(to_child[1], half.endpoint().address());
    std::vector<std::byte> first(100);
    Request got_first, got_second;
    half.mailbox(0).recv(1, {1, 0}, first, &got_first);
    EXPECT_TRUE(wait(half, 0, got_first).ok());
    worker = std::stoi(get(to_parent[0]));

    half.mailbox(0).recv(1, {1, 1}, first, &got_second);
    const Deadline killed = Clock::now();
    ::kill(child, SIGKILL);
    const Status status = wait(half, 0, got_second);
    EXPECT_LT(Clock::now() - killed, milliseconds(10'000));
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_EQ(::kill(worker, 0), 0) << "the worker should be there still";

    // Nor does the worker listen where its parent did.
    ::waitpid(child, nullptr, 0);
    int error_number = 0;
    const Fd late = begin_connect(Address::parse(address).value(), &error_number);
    pollfd refused{late.get(), POLLOUT, 0};
    EXPECT_TRUE(!late || (::poll(&refused, 1, 5000) == 1 && (refused.revents & POLLERR) != 0));
  }
  ::kill(worker, SIGKILL);
  for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(fd);
}

TEST(TcpFailureTest, ARefusedConnectionNamesTheRank) {
  for (const bool receive : {true, false}) {
    Half half;
    const std::string nobody = TcpNet(1, tcp_options()).endpoint(0).address();
    half.attach(nobody);
    std::vector<std::byte> data(10);
    Request request;
    const Deadline start = Clock::now();
    if (receive) {
      half.mailbox(0).recv(1, {1, 0}, data, &request);
    } else {
      half.mailbox(0).send(1, {1, 0}, data, &request);
    }
    const Status status = wait(half, 0, request);
    EXPECT_LT(Clock::now() - start, milliseconds(10'000));
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_EQ(status.rank(), 1);
    EXPECT_EQ(status.message(), "rank 1 at " + nobody + ": connection refused");
  }
}

TEST(TcpFailureTest, APeerThatRefusesForAMomentIsReached) {
  Request request;  // outlives the mailbox, which finishes it
  const auto data = pattern(10, 1);
  Half half;
  // A port that is bound but not yet listened at refuses.
  const Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
  const Address any = Address::parse("127.0.0.1:0").value();
  ASSERT_EQ(::bind(socket.get(), any.get(), any.size()), 0);
  half.attach(local_address_of(socket.get()).text());
  half.mailbox(0).send(1, {1, 0}, data, &request);
  std::this_thread::sleep_for(milliseconds(200));
  ASSERT_EQ(::listen(socket.get(), 8), 0);
  const Fd accepted(::accept(socket.get(), nullptr, nullptr));
  EXPECT_TRUE(static_cast<bool>(accepted));
  EXPECT_FALSE(request.done());
}

TEST(TcpFailureTest, AListenerThatIsNotOfTheGroupIsNotBelieved) {
  const KeptLog log;
  Half half;
  TcpNet other(1, tcp_options());
  DoorbellWord bell;
  Mailbox mailbox(1, 2, bell);
  auto group = other.endpoint(0).join("half", std::string(32, 'x'), 1, 2, mailbox);
  half.attach(other.endpoint(0).address());
  std::vector<std::byte> data(10);
  Request request;
  half.mailbox(0).send(1, {1, 0}, data, &request);
  const Status status = wait(half, 0, request);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("connection closed during the handshake"), std::string::npos)
      << status.message();
  group.value()->leave();
}

// A listener of the first version of the protocol spoke first, and knew what it would say.
TEST(TcpFailureTest, AListenerOfAnotherVersionIsNamed) {
  const Fd listener = listen_at(Address::parse("127.0.0.1:0").value()).value();
  Half half;
  half.attach(local_address_of(listener.get()).text());
  std::vector<std::byte> data(10);
  Request request;
  half.mailbox(0).send(1, {1, 0}, data, &request);
  pollfd readable{listener.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&readable, 1, 5000), 1);
  const Fd accepted(::accept(listener.get(), nullptr, nullptr));
  Challenge older;
  older.version = 1;
  EXPECT_EQ(::send(accepted.get(), &older, sizeof older, 0), static_cast<ssize_t>(sizeof older));
  const Status status = wait(half, 0, request);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("it speaks version 1 of the protocol, not 2"), std::string::npos)
      << status.message();
}

// One that closes before it has said anything has too many strangers, and is asked again; what it says at last counts.
TEST(TcpFailureTest, WhoIsTurnedAwayComesAgain) {
  Request request;  // outlives the mailbox, which finishes it
  const auto data = pattern(10, 1);
  Half half(tcp_options("127.0.0.1", 1));
  const Fd listener = listen_at(Address::parse("127.0.0.1:0").value()).value();
  half.attach(local_address_of(listener.get()).text());
  half.mailbox(0).send(1, {1, 0}, data, &request);
  const auto next = [&] {
    pollfd readable{listener.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&readable, 1, 5000), 1);
    return Fd(::accept(listener.get(), nullptr, nullptr));
  };
  for (int i = 0; i < 7; ++i) next();  // more often than a refusal is taken for an answer
  const Fd accepted = next();
  const Challenge challenge;
  Claim claim;
  EXPECT_EQ(::recv(accepted.get(), &claim.opening, sizeof claim.opening, MSG_WAITALL),
            ssize_t{sizeof claim.opening});
  EXPECT_EQ(::send(accepted.get(), &challenge, sizeof challenge, 0), ssize_t{sizeof challenge});
  EXPECT_EQ(::recv(accepted.get(), &claim.proof, sizeof claim.proof, MSG_WAITALL), ssize_t{sizeof claim.proof});
  EXPECT_EQ(claim.proof, prove_connect(kSecret, challenge, claim.opening));
  // And that a place is taken is an answer, too.
  const Digest taken = prove_taken(kSecret, challenge, claim.opening);
  EXPECT_EQ(::send(accepted.get(), &taken, sizeof taken, 0), ssize_t{sizeof taken});
  const Status status = wait(half, 0, request);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("it has a connection of rank 0 from another process already"), std::string::npos)
      << status.message();
}

// A raw member's connection to rank 0, with a receive waiting there.
class TcpProtocolTest : public ::testing::Test {
 protected:
  TcpProtocolTest() : stranger_(half_.endpoint().address()) {
    half_.attach(half_.endpoint().address());
    EXPECT_TRUE(stranger_.is_accepted(stranger_.claim("half", kSecret, 1, 0), kSecret));
    half_.mailbox(0).recv(1, {1, 0}, got_, &request_);
  }
  Frame message(uint32_t bytes) {
    Frame frame;
    frame.kind = FrameKind::kMessage;
    frame.payload_bytes = bytes;
    frame.message_bytes = bytes;
    frame.tag = {1, 0};
    return frame;
  }
  void expect_lost(const std::string& what) {
    const Status status = wait(half_, 0, request_);
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_EQ(status.rank(), 1);
    EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
  }

  std::vector<std::byte> got_ = std::vector<std::byte>(100);
  Request request_;
  Half half_;
  Stranger stranger_;
};

TEST_F(TcpProtocolTest, AFrameByteByByteIsStillAFrame) {
  const auto data = pattern(100, 5);
  const Frame frame = message(100);
  for (size_t i = 0; i < sizeof frame; ++i) stranger_.say(reinterpret_cast<const char*>(&frame) + i, 1);
  for (const std::byte& b : data) stranger_.say(&b, 1);
  EXPECT_TRUE(wait(half_, 0, request_).ok());
  EXPECT_EQ(got_, data);
}

TEST_F(TcpProtocolTest, AnUnknownKindOfFrameLosesThePeer) {
  Frame frame = message(0);
  frame.kind = static_cast<FrameKind>(77);
  stranger_.send_frame(frame);
  expect_lost("it sent a frame of kind 77");
}

TEST_F(TcpProtocolTest, AnOfferLosesThePeer) {
  Frame frame = message(0);
  frame.kind = FrameKind::kOffer;
  stranger_.send_frame(frame);
  expect_lost("it sent a frame of kind 4");
}

TEST_F(TcpProtocolTest, AnOversizedFrameLosesThePeer) {
  stranger_.send_frame(message(0xffffffff));
  expect_lost("more than the 1024 allowed");
}

TEST_F(TcpProtocolTest, APieceNobodyAskedForLosesThePeer) {
  Frame frame = message(8);
  frame.kind = FrameKind::kPiece;
  frame.tag = {9, 9};
  stranger_.send_frame(frame);
  expect_lost("broke the protocol");
}

TEST_F(TcpProtocolTest, AFrameCutInTheMiddleLosesThePeer) {
  {
    Stranger other(half_.endpoint().address());
    EXPECT_TRUE(other.is_accepted(other.claim("half", kSecret, 1, 0, 1), kSecret));
    other.send_frame(message(100), pattern(50, 1));
  }
  expect_lost("connection closed");
}

TEST_F(TcpProtocolTest, WhoAsksForAFrameCutInTheMiddleHearsOfIt) {
  half_.mailbox(0).close();  // the receive that waits is not wanted here
  Half half;
  half.attach(half.endpoint().address());
  {
    Stranger other(half.endpoint().address());
    EXPECT_TRUE(other.is_accepted(other.claim("half", kSecret, 1, 0), kSecret));
    other.send_frame(message(100), pattern(50, 1));
  }
  const Deadline deadline = deadline_after(milliseconds(20'000));
  while (!half.mailbox(0).has_lost() && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(half.mailbox(0).failure().ok());  // nobody has asked yet
  EXPECT_FALSE(half.mailbox(0).look_for_message(1, {1, 0}).arrived);
  Request request;
  half.mailbox(0).recv(1, {1, 0}, got_, &request);
  ASSERT_TRUE(request.done());
  EXPECT_EQ(request.status().code(), Code::kPeerLost);
}

TEST_F(TcpProtocolTest, AMessageThatComesTwiceLosesThePeer) {
  Stranger other(half_.endpoint().address());
  EXPECT_TRUE(other.is_accepted(other.claim("half", kSecret, 1, 0, 1), kSecret));
  stranger_.send_frame(message(100), pattern(50, 1));
  std::this_thread::sleep_for(milliseconds(100));
  other.send_frame(message(100), pattern(100, 2));  // else it would be done, with the rest of the first to come
  expect_lost("broke the protocol");
}

TEST_F(TcpProtocolTest, PiecesThatOverlapLoseThePeer) {
  const size_t bytes = 2000;  // more than goes without being asked for
  std::vector<std::byte> got(bytes);
  Request large;
  half_.mailbox(0).recv(1, {2, 0}, got, &large);
  Frame piece = message(bytes);
  piece.kind = FrameKind::kPiece;
  piece.tag = {2, 0};
  Stranger other(half_.endpoint().address());
  EXPECT_TRUE(other.is_accepted(other.claim("half", kSecret, 1, 0, 1), kSecret));
  stranger_.send_frame(piece, pattern(bytes / 2, 1));
  std::this_thread::sleep_for(milliseconds(100));
  other.send_frame(piece, pattern(bytes, 2));
  EXPECT_EQ(wait(half_, 0, large).code(), Code::kPeerLost);
  expect_lost("broke the protocol");
}

// Much is on its way when the sender, who has written it all, leaves: its idle connections end first.
TEST_F(TcpProtocolTest, WhatComesSlowlyAfterAConnectionHasEndedStillCounts) {
  auto other = std::make_unique<Stranger>(half_.endpoint().address());
  EXPECT_TRUE(other->is_accepted(other->claim("half", kSecret, 1, 0, 1), kSecret));
  const auto data = pattern(100, 5);
  const Frame frame = message(100);
  stranger_.say(&frame, sizeof frame);
  other.reset();
  for (size_t begin = 0; begin < data.size(); begin += 10) {
    stranger_.say(data.data() + begin, 10);
    std::this_thread::sleep_for(milliseconds(80));  // ten of which are longer than silence may last
  }
  EXPECT_TRUE(wait(half_, 0, request_).ok());
  EXPECT_EQ(got_, data);
}

TEST(TcpFailureTest, LeavingOrFailingWhileDataIsInFlightTouchesNothingLater) {
  auto net = std::make_shared<TcpNet>(2, tcp_options("127.0.0.1", 3));
  int interrupted = 0;
  for (int round = 0; round < 30; ++round) {
    const bool fail = round % 2 == 0;
    TcpTestGroup group(net, "round " + std::to_string(round));
    auto data = std::make_unique<std::vector<std::byte>>(8 << 20);
    std::vector<std::byte> got(data->size());
    Request send, recv;
    group.mailbox(1).recv(0, {1, 0}, got, &recv);
    group.mailbox(0).send(1, {1, 0}, *data, &send);
    std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    if (fail) {
      group.mailbox(0).fail({Code::kTimeout, "somebody was too slow", 0});
    } else {
      group.mailbox(0).close();
    }
    data.reset();  // a sanitizer sees who still reads it
    EXPECT_TRUE(send.done());
    const Status status = wait(group, 1, recv);
    if (status.ok()) continue;  // it was through already
    ++interrupted;
    if (fail) {
      EXPECT_EQ(status.message(), "somebody was too slow");
    } else {
      EXPECT_EQ(status.message(), "rank 0 has left the group");
    }
  }
  EXPECT_GT(interrupted, 5);
}

TEST(TcpFailureTest, NoDescriptorIsLeft) {
  const size_t before = open_descriptors();
  for (int round = 0; round < 5; ++round) {
    auto net = std::make_shared<TcpNet>(3, tcp_options());
    TcpTestGroup group(net, "whole"), failing(net, "failing");
    exchange(group, 3, 1, 5000);
    exchange(failing, 3, 1, 5000);
    failing.mailbox(0).fail({Code::kTimeout, "too slow", 0});
    Stranger stranger(net->endpoint(0).address());
    Request request;
    std::vector<std::byte> data(10);
    Half half;
    half.attach("127.0.0.1:1");
    half.mailbox(0).send(1, {1, 0}, data, &request);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(TcpFailureTest, ALivingProcessKeepsNoDescriptorOfAGroupThatEnded) {
  auto net = std::make_shared<TcpNet>(3, tcp_options());
  const size_t before = open_descriptors();
  for (int round = 0; round < 5; ++round) {
    TcpTestGroup group(net, "round " + std::to_string(round));
    exchange(group, 3, 1, 5000);
    if (round % 2 == 0) group.mailbox(0).fail({Code::kTimeout, "too slow", 0});
  }
  for (int i = 0; i < 3000 && open_descriptors() != before; ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace braid::testing
