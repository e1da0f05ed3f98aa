// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp.h"

#include <random>

#include "transport/tcp/address.h"
#include "transport/tcp_group.h"

namespace braid::testing {
namespace {

Wire tcp(const std::string& name, const std::string& interface, int connections) {
  return {name, [=](int ranks) {
            auto net = std::make_shared<TcpNet>(ranks, tcp_options(interface, connections));
            return std::make_unique<TcpTestGroup>(net, "contract");
          }};
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportContract,
                         ::testing::Values(tcp("ipv4_1", "127.0.0.1", 1), tcp("ipv4_3", "127.0.0.1", 3),
                                           tcp("ipv6_1", "::1", 1), tcp("ipv6_3", "::1", 3)),
                         wire_name);

TEST(TcpTest, EightRanksExchangeRandomTraffic) {
  constexpr int kRanks = 8;
  constexpr uint64_t kMessages = 25;
  TcpTestGroup group(std::make_shared<TcpNet>(kRanks, tcp_options("127.0.0.1", 3)), "eight");
  const auto seed = [](Node from, Node to, uint64_t i) {
    return (static_cast<uint64_t>(from) * kRanks + static_cast<uint64_t>(to)) * kMessages + i;
  };
  const auto size = [](uint64_t s) {
    return static_cast<size_t>((s * 2654435761u) % 997 * (s % 5 == 0 ? 150 : 2));
  };
  on_all_ranks(kRanks, [&](Node rank) {
    struct Transfer {
      bool out;
      Node peer;
      uint64_t index;
      std::vector<std::byte> bytes;
      Request request;
    };
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (Node peer = 0; peer < kRanks; ++peer) {
      for (uint64_t i = 0; peer != rank && i < kMessages; ++i) {
        const uint64_t out = seed(rank, peer, i);
        transfers.emplace_back(new Transfer{true, peer, i, pattern(size(out), out), {}});
        transfers.emplace_back(
            new Transfer{false, peer, i, std::vector<std::byte>(size(seed(peer, rank, i))), {}});
      }
    }
    std::shuffle(transfers.begin(), transfers.end(), std::mt19937(static_cast<unsigned>(rank)));
    for (const auto& t : transfers) {
      if (t->out) {
        group.mailbox(rank).send(t->peer, {3, t->index}, t->bytes, &t->request);
      } else {
        group.mailbox(rank).recv(t->peer, {3, t->index}, t->bytes, &t->request);
      }
    }
    for (const auto& t : transfers) {
      const Status status = wait(group, rank, t->request);
      ASSERT_TRUE(status.ok()) << status.message();
      const uint64_t in = seed(t->peer, rank, t->index);
      if (t->out) continue;
      ASSERT_TRUE(t->bytes == pattern(size(in), in)) << t->peer << " to " << rank;
    }
  });
}

TEST(TcpTest, AStalledReceiverHoldsUpOnlyItsOwnGroup) {
  auto net = std::make_shared<TcpNet>(2, tcp_options());
  TcpTestGroup stalled(net, "stalled"), busy(net, "busy");
  const auto data = pattern(4 << 20, 1);
  Request send;
  stalled.mailbox(0).send(1, {1, 0}, data, &send);
  std::vector<Request> eager(200);
  for (uint64_t i = 0; i < eager.size(); ++i) {
    stalled.mailbox(0).send(1, {2, i}, std::span(data).first(1000), &eager[i]);
  }
  for (uint64_t round = 0; round < 5; ++round) exchange(busy, 2, round, 100'000);
  EXPECT_FALSE(send.done());
  std::vector<std::byte> got(data.size());
  Request recv;
  stalled.mailbox(1).recv(0, {1, 0}, got, &recv);
  EXPECT_TRUE(wait(stalled, 1, recv).ok());
  EXPECT_TRUE(wait(stalled, 0, send).ok());
  EXPECT_EQ(got, data);
}

TEST(TcpTest, LongMessagesArePacedAndShortOnesPassThem) {
  constexpr double kBytesPerSecond = 10e6;
  TcpTestGroup group(std::make_shared<TcpNet>(2, tcp_options()), "paced");
  group.mailbox(0).pace(1, kBytesPerSecond);
  const auto data = pattern(4 << 20, 1);
  std::vector<std::byte> got(data.size()), got_short(100);
  Request send, send_short, recv, recv_short;
  const auto begun = Clock::now();
  group.mailbox(1).recv(0, {1, 0}, got, &recv);
  group.mailbox(1).recv(0, {2, 0}, got_short, &recv_short);
  group.mailbox(0).send(1, {1, 0}, data, &send);
  while (group.mailbox(0).poll()) {
  }
  group.mailbox(0).send(1, {2, 0}, std::span(data).first(100), &send_short);
  EXPECT_TRUE(wait(group, 1, recv_short).ok());
  EXPECT_FALSE(recv.done());
  EXPECT_TRUE(wait(group, 1, recv).ok());
  const double spent_s = std::chrono::duration<double>(Clock::now() - begun).count();
  EXPECT_GT(spent_s, 0.5 * static_cast<double>(data.size()) / kBytesPerSecond);  // the first packets go at once
  EXPECT_EQ(got, data);

  group.mailbox(0).pace(1, 0);
  for (uint64_t round = 0; round < 3; ++round) exchange(group, 2, 10 + round, 100'000);
}

// Frames that came before the sink had the channel wait, instead of meeting a sink that does not know the peer.
TEST(TcpTest, WhatComesBeforeTheChannelIsAttachedWaits) {
  auto net = std::make_shared<TcpNet>(2, tcp_options());
  std::vector<DoorbellWord> bells(2);
  Mailbox early(0, 2, bells[0]), late(1, 2, bells[1]);
  auto early_group = net->endpoint(0).join("g", kSecret, 0, 2, early).value();
  auto late_group = net->endpoint(1).join("g", kSecret, 1, 2, late).value();
  early.attach(1, early_group->channel(1, net->endpoint(1).address()).value());
  const auto data = pattern(500, 1);
  Request send;
  early.send(1, {1, 0}, data, &send);
  while (!send.done()) std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(20));

  late.attach(0, late_group->channel(0, net->endpoint(0).address()).value());
  std::vector<std::byte> got(500);
  Request recv;
  late.recv(0, {1, 0}, got, &recv);
  for (int i = 0; i < 5000 && !recv.done(); ++i) std::this_thread::sleep_for(milliseconds(1));
  ASSERT_TRUE(recv.done());
  EXPECT_EQ(got, data);
}

TEST(TcpTest, AddressesRoundTrip) {
  for (const std::string text : {"10.0.0.1:4711", "[::1]:80", "[fe80::1%lo]:4711", "[2001:db8::2]:65535"}) {
    const auto address = Address::parse(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(address.value().text(), text);
  }
  for (const std::string text : {"", "10.0.0.1", "host:80", "10.0.0.1:", ":80", "10.0.0.1:http", "[::1]",
                                 "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:+80", "10.0.0.1: 80", " 10.0.0.1:80",
                                 "10.0.0.1:80\n", "10.0.0.1\n:80", "[fe80::1%nowhere]:80"}) {
    EXPECT_EQ(Address::parse(text).status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_FALSE(Address::parse(std::string("10.0.0.1\0.example:80", 20)).ok());
  // What a peer left in the store is not repeated at any length, nor with what would drive a terminal.
  const Status huge = Address::parse("\033[2J" + std::string(1 << 20, 'x') + ":80").status();
  EXPECT_LT(huge.message().size(), 200u);
  EXPECT_EQ(huge.message().find('\033'), std::string::npos);
}

TEST(TcpTest, ListensWhereItIsTold) {
  Reactor reactor;
  const auto address_for = [&](const std::string& interface, const std::string& reach) {
    TcpOptions options;
    options.interface = interface;
    options.reach = reach;
    const auto endpoint = TcpEndpoint::create(options, reactor);
    return endpoint.ok() ? endpoint.value()->address() : endpoint.status().message();
  };
  EXPECT_EQ(address_for("lo", "").rfind("127.0.0.1:", 0), 0u);
  EXPECT_EQ(address_for("::1", "").rfind("[::1]:", 0), 0u);
  EXPECT_EQ(address_for("", "127.0.0.1").rfind("127.", 0), 0u);
  EXPECT_EQ(address_for("", "::1").rfind("[::1]:", 0), 0u);
  const std::string localhost = address_for("", "localhost");
  EXPECT_TRUE(localhost.starts_with("127.") || localhost.starts_with("[::1]")) << localhost;
  EXPECT_TRUE(Address::parse(address_for("", "")).ok());
  const auto loopback = TcpEndpoint::create(tcp_options(), reactor).value();
  EXPECT_EQ(loopback->place(), "lo (127.0.0.1)");
  const std::string wrong = address_for("ethernet7", "");
  EXPECT_NE(wrong.find("'ethernet7'; there are "), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("lo (127.0.0.1"), std::string::npos) << wrong;
}

TEST(TcpTest, WrongArgumentsAreNamed) {
  Reactor reactor;
  EXPECT_EQ(TcpEndpoint::create(tcp_options("127.0.0.1", 0), reactor).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(TcpEndpoint::create(tcp_options("127.0.0.1", 17), reactor).status().code(), Code::kInvalidArgument);
  auto endpoint = TcpEndpoint::create(tcp_options(), reactor).value();
  DoorbellWord bell;
  Mailbox mailbox(0, 2, bell);
  EXPECT_EQ(endpoint->join("g", "short", 0, 2, mailbox).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(endpoint->join("g", kSecret, 2, 2, mailbox).status().code(), Code::kInvalidArgument);
  auto group = endpoint->join("g", kSecret, 0, 2, mailbox);
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(endpoint->join("g", kSecret, 0, 2, mailbox).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(group.value()->channel(0, "127.0.0.1:80").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(group.value()->channel(1, "nowhere").status().code(), Code::kInvalidArgument);
  group.value()->leave();
  EXPECT_TRUE(endpoint->join("g", kSecret, 0, 2, mailbox).ok()) << "a group may be joined again";
}

}  // namespace
}  // namespace braid::testing
