// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, joined by TCP over loopback.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/contract.h"
#include "transport/tcp/tcp.h"

namespace braid::testing {

inline const std::string kSecret(32, 's');

inline TcpOptions tcp_options(const std::string& interface = "127.0.0.1", int connections = 2) {
  TcpOptions options;
  options.interface = interface;
  options.connections = connections;
  options.eager_bytes = 1024;
  options.piece_bytes = 16 * 1024;
  return options;
}

// One network: a reactor, and one listener for each rank.
class TcpNet {
 public:
  TcpNet(int ranks, const TcpOptions& options)
      : TcpNet(std::vector<TcpOptions>(static_cast<size_t>(ranks), options)) {}
  explicit TcpNet(const std::vector<TcpOptions>& of_ranks) {
    for (const TcpOptions& options : of_ranks) {
      auto endpoint = TcpEndpoint::create(options, reactor_);
      EXPECT_TRUE(endpoint.ok()) << endpoint.status().message();
      endpoints_.push_back(endpoint.value());
    }
  }
  TcpEndpoint& endpoint(Node rank) { return *endpoints_[static_cast<size_t>(rank)]; }
  int ranks() const { return static_cast<int>(endpoints_.size()); }
  Reactor& reactor() { return reactor_; }

 private:
  Reactor reactor_;
  std::vector<std::shared_ptr<TcpEndpoint>> endpoints_;
};

// One group of all ranks of a network.
class TcpTestGroup final : public TestGroup {
 public:
  TcpTestGroup(std::shared_ptr<TcpNet> net, const std::string& name)
      : net_(std::move(net)), bells_(static_cast<size_t>(net_->ranks())) {
    const int ranks = net_->ranks();
    for (Node rank = 0; rank < ranks; ++rank) {
      mailboxes_.push_back(std::make_unique<Mailbox>(rank, ranks, bell(rank)));
      auto group = net_->endpoint(rank).join(name, kSecret, rank, ranks, mailbox(rank));
      EXPECT_TRUE(group.ok()) << group.status().message();
      groups_.push_back(group.value());
    }
    for (Node rank = 0; rank < ranks; ++rank) {
      for (Node peer = 0; peer < ranks; ++peer) {
        if (peer != rank) attach(rank, peer, net_->endpoint(peer).address());
      }
    }
  }

  Mailbox& mailbox(Node rank) override { return *mailboxes_[static_cast<size_t>(rank)]; }
  DoorbellWord& bell(Node rank) override { return bells_[static_cast<size_t>(rank)]; }
  TcpGroup& group(Node rank) { return *groups_[static_cast<size_t>(rank)]; }
  // The rank's mailbox and connections go.
  void end(Node rank) {
    mailboxes_[static_cast<size_t>(rank)].reset();
    groups_[static_cast<size_t>(rank)].reset();
  }

 private:
  void attach(Node rank, Node peer, const std::string& address) {
    auto channel = group(rank).channel(peer, address);
    EXPECT_TRUE(channel.ok()) << channel.status().message();
    mailbox(rank).attach(peer, std::move(channel).value());
  }

  std::shared_ptr<TcpNet> net_;
  std::vector<DoorbellWord> bells_;
  std::vector<std::shared_ptr<TcpGroup>> groups_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
};

// Moves `bytes` with every tag from each rank to each other, and checks the content.
inline void exchange(TestGroup& group, int ranks, uint64_t stream, size_t bytes) {
  on_all_ranks(ranks, [&](Node rank) {
    std::vector<std::vector<std::byte>> out, in;
    std::vector<Request> requests(2 * static_cast<size_t>(ranks));
    const auto seed = [&](Node from, Node to) { return stream * 1000 + static_cast<uint64_t>(from * ranks + to); };
    for (Node peer = 0; peer < ranks; ++peer) {
      out.push_back(pattern(bytes, seed(rank, peer)));
      in.emplace_back(bytes);
    }
    for (Node peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      group.mailbox(rank).recv(peer, {stream, 0}, in[peer], &requests[2 * peer]);
      group.mailbox(rank).send(peer, {stream, 0}, out[peer], &requests[2 * peer + 1]);
    }
    for (Request& request : requests) ASSERT_TRUE(wait(group, rank, request).ok()) << request.status().message();
    for (Node peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      ASSERT_EQ(in[peer], pattern(bytes, seed(peer, rank))) << peer << " to " << rank;
    }
  });
}

}  // namespace braid::testing
