// SPDX-License-Identifier: Apache-2.0
// Shared memory with ranks as threads of one process. Each rank maps its peers' segments at other addresses than
// they do, as between processes.
#include "transport/shm/shm.h"

#include <cstring>
#include <random>
#include <thread>

#include "transport/contract.h"
#include "transport/shm/group_endpoint.h"
#include "transport/shm/layout.h"
#include "transport/shm_side.h"

namespace braid::testing {
namespace {

class ShmThreads final : public TestGroup {
 public:
  ShmThreads(int ranks, const ShmOptions& options) {
    for (Node rank = 0; rank < ranks; ++rank) sides_.emplace_back(rank, ranks, options);
    for (ShmSide& side : sides_) {
      for (const ShmSide& other : sides_) {
        if (other.rank == side.rank) continue;
        const Status status = side.group->connect(other.rank, other.group->endpoint());
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
    for (ShmSide& side : sides_) {
      for (const ShmSide& other : sides_) {
        if (other.rank != side.rank) side.attach(other.rank, other.group->can_read(side.rank));
      }
    }
  }

  Mailbox& mailbox(Node rank) override { return *side(rank).mailbox; }
  DoorbellWord& bell(Node rank) override { return side(rank).bell->word(); }
  ShmSide& side(Node rank) { return sides_[static_cast<size_t>(rank)]; }

 private:
  std::vector<ShmSide> sides_;
};

ShmOptions options_of(size_t ring_bytes, bool single_copy) {
  ShmOptions options;
  options.ring_bytes = ring_bytes;
  options.single_copy = single_copy;
  return options;
}

Wire shm(const std::string& name, size_t ring_bytes, bool single_copy) {
  return {name,
          [=](int ranks) { return std::make_unique<ShmThreads>(ranks, options_of(ring_bytes, single_copy)); }};
}

INSTANTIATE_TEST_SUITE_P(Shm, TransportContract,
                         ::testing::Values(shm("pieces", 128 * 1024, false), shm("single_copy", 128 * 1024, true),
                                           shm("smallest_ring", 4096, false),
                                           shm("smallest_ring_single_copy", 4096, true)),
                         wire_name);

// A side and its view of one peer's raw segment, to do to the ring what a broken process would.
Segment raw_inbox(const ShmSide& side) {
  return Segment::attach(shm::GroupEndpoint::parse(side.group->endpoint()).value().inbox).value();
}

shm::Ring raw_ring(const Segment& inbox, Node writer) { return shm::ring_of(inbox, 2, 128 * 1024, writer); }

TEST(ShmTest, EightRanksExchangeMessagesOfRandomSizes) {
  constexpr int kRanks = 8;
  ShmThreads group(kRanks, options_of(16 * 1024, true));
  on_all_ranks(kRanks, [&](Node rank) {
    std::mt19937 shared(5);  // the same sizes everywhere
    ShmSide& side = group.side(rank);
    for (uint64_t round = 0; round < 30; ++round) {
      std::vector<std::vector<std::byte>> out(kRanks), in(kRanks);
      std::vector<Request> requests(2 * kRanks);
      for (Node from = 0; from < kRanks; ++from) {
        for (Node to = 0; to < kRanks; ++to) {
          const size_t bytes = shared() % 3 == 0 ? shared() % 100'000 : shared() % 5'000;
          const uint64_t seed = round * 64 + static_cast<uint64_t>(from * kRanks + to);
          if (from == to) continue;
          if (from == rank) out[static_cast<size_t>(to)] = pattern(bytes, seed);
          if (to == rank) in[static_cast<size_t>(from)].resize(bytes);
        }
      }
      for (Node peer = 0; peer < kRanks; ++peer) {
        const auto i = static_cast<size_t>(peer);
        if (peer == rank) continue;
        side.mailbox->send(peer, {round, 0}, out[i], &requests[2 * i]);
        side.mailbox->recv(peer, {round, 0}, in[i], &requests[2 * i + 1]);
      }
      for (Request& request : requests) {
        const Status status = side.wait(request);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      for (Node peer = 0; peer < kRanks; ++peer) {
        const auto i = static_cast<size_t>(peer);
        if (peer == rank) continue;
        ASSERT_EQ(in[i], pattern(in[i].size(), round * 64 + static_cast<uint64_t>(peer * kRanks + rank)));
      }
    }
  });
}

TEST(ShmTest, ASleeperIsAlwaysWoken) {
  // Nobody spins: every one of these waits goes to sleep, and a lost wake-up would last for 20 s.
  set_waiting(0, false);
  ShmThreads group(2, {});
  on_all_ranks(2, [&](Node rank) {
    uint64_t word = 0;
    for (uint64_t round = 0; round < 5'000; ++round) {
      const Bytes bytes = std::as_writable_bytes(std::span(&word, 1));
      if (rank == 0) {
        word = round;
        ASSERT_TRUE(group.side(0).send(1, {round, 0}, bytes).ok());
        ASSERT_TRUE(group.side(0).recv(1, {round, 1}, bytes).ok());
        ASSERT_EQ(word, round + 1);
      } else {
        ASSERT_TRUE(group.side(1).recv(0, {round, 0}, bytes).ok());
        ++word;
        ASSERT_TRUE(group.side(1).send(0, {round, 1}, bytes).ok());
      }
    }
  });
}

TEST(ShmTest, AWriterThatWaitsForRoomIsWoken) {
  ShmOptions options = options_of(4096, false);
  ShmThreads group(2, options);
  constexpr size_t kMessages = 3'000;
  on_all_ranks(2, [&](Node rank) {
    const auto data = pattern(700, 3);
    std::vector<std::byte> got(700);
    for (uint64_t i = 0; i < kMessages; ++i) {
      if (rank == 0) {
        const Status sent = group.side(0).send(1, {1, i}, data);
        ASSERT_TRUE(sent.ok()) << sent.message();
      } else {
        if (i % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
        const Status received = group.side(1).recv(0, {1, i}, got);
        ASSERT_TRUE(received.ok()) << received.message();
        ASSERT_EQ(got, data);
      }
    }
  });
}

TEST(ShmTest, BothSidesComeToTheSameLimits) {
  ShmOptions small = options_of(8192, true);
  ShmOptions large;
  large.eager_bytes = 1 << 20;
  ShmSide a(0, 2, small), b(1, 2, large);
  ASSERT_TRUE(a.group->connect(1, b.group->endpoint()).ok());
  ASSERT_TRUE(b.group->connect(0, a.group->endpoint()).ok());
  const auto to_b = a.group->channel(1, *a.mailbox, b.group->can_read(0));
  const auto to_a = b.group->channel(0, *b.mailbox, a.group->can_read(1));
  EXPECT_EQ(to_a->traits().eager_bytes, to_b->traits().eager_bytes);
  EXPECT_LE(to_a->traits().eager_bytes, 8192u / 4);
  EXPECT_LE(to_a->traits().piece_bytes, 8192u / 4);
  EXPECT_EQ(to_a->traits().peer_reads, to_b->traits().reads_peer);
  EXPECT_EQ(to_a->traits().reads_peer, to_b->traits().peer_reads);
}

TEST(ShmTest, SingleCopyIsOnlyUsedWhereItIsAllowed) {
  ShmSide with(0, 2, options_of(128 * 1024, true)), without(1, 2, options_of(128 * 1024, false));
  ASSERT_TRUE(with.group->connect(1, without.group->endpoint()).ok());
  ASSERT_TRUE(without.group->connect(0, with.group->endpoint()).ok());
  EXPECT_TRUE(with.group->can_read(1));
  EXPECT_FALSE(without.group->can_read(0));
  with.attach(1, without.group->can_read(0));
  without.attach(0, with.group->can_read(1));
  const auto data = pattern(1 << 20, 1);
  for (auto [sender, receiver] : {std::pair{&with, &without}, std::pair{&without, &with}}) {
    std::vector<std::byte> got(data.size());
    std::thread other([&, s = sender, r = receiver] { EXPECT_TRUE(s->send(r->rank, {1, 0}, data).ok()); });
    EXPECT_TRUE(receiver->recv(sender->rank, {1, 0}, got).ok());
    other.join();
    EXPECT_EQ(got, data);
  }
}

TEST(ShmTest, EndpointsThatCannotBeAreRefused) {
  ShmSide a(0, 3), b(1, 3), other_group(1, 2);
  const std::string endpoint = b.group->endpoint();
  EXPECT_EQ(a.group->connect(1, "").code(), Code::kInvalidArgument);
  EXPECT_EQ(a.group->connect(1, "braid-shm-1").code(), Code::kInvalidArgument);
  EXPECT_EQ(a.group->connect(1, endpoint + " x").code(), Code::kInvalidArgument);
  EXPECT_EQ(a.group->connect(1, "x" + endpoint).code(), Code::kInvalidArgument);
  EXPECT_EQ(a.group->connect(1, other_group.group->endpoint()).code(), Code::kInvalidArgument)
      << "another group size";
  EXPECT_EQ(a.group->connect(2, endpoint).code(), Code::kInvalidArgument) << "another rank";
  EXPECT_EQ(a.group->connect(0, endpoint).code(), Code::kInvalidArgument);
  EXPECT_EQ(a.group->connect(3, endpoint).code(), Code::kInvalidArgument);

  std::string respelt = endpoint;
  respelt.insert(respelt.find(' ') + 1, "0");  // "00", or "01": the same number
  EXPECT_FALSE(shm::GroupEndpoint::parse(respelt).ok()) << respelt;

  auto larger = shm::GroupEndpoint::parse(endpoint).value();
  larger.ring_bytes *= 2;
  EXPECT_EQ(a.group->connect(1, larger.text()).code(), Code::kInvalidArgument);
  auto elsewhere = shm::GroupEndpoint::parse(endpoint).value();
  elsewhere.bell = a.group->endpoint();
  EXPECT_FALSE(a.group->connect(1, elsewhere.text()).ok());
  EXPECT_TRUE(a.group->connect(1, endpoint).ok()) << "a refused endpoint does no harm";

  auto unreadable = shm::GroupEndpoint::parse(a.group->endpoint()).value();
  unreadable.probe_address = 16;
  EXPECT_TRUE(b.group->connect(0, unreadable.text()).ok());
  EXPECT_FALSE(b.group->can_read(0));
}

TEST(ShmTest, ImpossibleOptionsAreRefused) {
  ShmSide side(0, 1);
  for (const size_t ring_bytes : {size_t{0}, size_t{2048}, size_t{5000}, size_t{1} << 40}) {
    auto group = ShmGroup::create(0, 2, *side.bell, *side.watch, options_of(ring_bytes, true));
    EXPECT_EQ(group.status().code(), Code::kInvalidArgument) << ring_bytes;
  }
  EXPECT_FALSE(ShmGroup::create(2, 2, *side.bell, *side.watch, {}).ok());
}

TEST(ShmTest, ABrokenRecordLosesThePeer) {
  for (const bool bad_kind : {false, true}) {
    ShmThreads group(2, {});
    const Segment inbox = raw_inbox(group.side(1));
    const shm::Ring ring = raw_ring(inbox, 0);
    Frame frame;
    frame.kind = bad_kind ? FrameKind{77} : FrameKind::kMessage;
    frame.payload_bytes = bad_kind ? 0 : 1 << 30;
    std::memcpy(ring.data, &frame, sizeof frame);
    ring.control->written = 64;
    std::vector<std::byte> got(8);
    const Status status = group.side(1).recv(0, {1, 0}, got);
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_EQ(status.rank(), 0);
    EXPECT_NE(status.message().find("broken record"), std::string::npos) << status.message();
  }
}

TEST(ShmTest, BrokenCountsLoseThePeer) {
  {
    ShmThreads group(2, {});
    const Segment inbox = raw_inbox(group.side(1));
    raw_ring(inbox, 0).control->written = uint64_t{1} << 50;
    std::vector<std::byte> got(8);
    EXPECT_EQ(group.side(1).recv(0, {1, 0}, got).code(), Code::kPeerLost);
  }
  std::vector<std::byte> data(1 << 20), got(1 << 20);
  Request send, recv;  // before the group, whose end finishes them
  ShmThreads group(2, options_of(128 * 1024, false));
  group.mailbox(1).recv(0, {1, 0}, got, &recv);
  group.mailbox(0).send(1, {1, 0}, data, &send);
  while (group.mailbox(0).poll()) {
  }
  ASSERT_FALSE(send.done()) << "rank 1 does not poll, so the ring is full";
  const Segment inbox = raw_inbox(group.side(1));
  raw_ring(inbox, 0).control->read = 12345;
  const Status status = group.side(0).wait(send);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(status.rank(), 1);
  EXPECT_NE(status.message().find("broke the ring"), std::string::npos) << status.message();
}

TEST(ShmTest, PullReportsMemoryThatCannotBeRead) {
  ShmSide a(0, 2), b(1, 2);
  ASSERT_TRUE(a.group->connect(1, b.group->endpoint()).ok());
  const auto channel = a.group->channel(1, *a.mailbox, true);
  const auto data = pattern(100'000, 5);
  std::vector<std::byte> got(data.size());
  EXPECT_TRUE(channel->pull(reinterpret_cast<uint64_t>(data.data()), got).ok());
  EXPECT_EQ(got, data);
  EXPECT_TRUE(channel->pull(16, {}).ok());
  const Status status = channel->pull(16, got);
  EXPECT_EQ(status.code(), Code::kSystem);
  EXPECT_EQ(status.rank(), 1);
  EXPECT_NE(status.message().find("Bad address"), std::string::npos) << status.message();
}

TEST(ShmTest, WhatIsReadWhileThePeerGivesUpDoesNotCount) {
  ShmThreads group(2, {});
  const auto data = pattern(1 << 20, 5);
  std::vector<std::byte> got(data.size());
  Request send;
  group.mailbox(0).send(1, {1, 0}, data, &send);
  group.mailbox(0).fail({Code::kTimeout, "enough"});
  EXPECT_EQ(send.status().code(), Code::kTimeout) << "from here on the memory may hold anything";
  EXPECT_FALSE(group.side(1).recv(0, {1, 0}, got).ok());
}

TEST(ShmTest, AClosedChannelTouchesNothing) {
  ShmThreads group(2, options_of(4096, false));
  auto data = std::make_unique<std::vector<std::byte>>(pattern(1 << 20, 1));
  std::vector<std::byte> got(data->size());
  Request send, recv;
  group.mailbox(1).recv(0, {1, 0}, got, &recv);
  group.mailbox(0).send(1, {1, 0}, *data, &send);
  for (int i = 0; i < 100 && !group.mailbox(0).poll(); ++i) {
  }
  EXPECT_FALSE(send.done()) << "the ring is far too small";
  group.mailbox(0).fail({Code::kTimeout, "enough"});
  EXPECT_EQ(send.status().code(), Code::kTimeout);
  data.reset();
  group.mailbox(0).poll();
  // The ring was full when rank 0 failed; its reason still got through.
  const Status status = group.side(1).wait(recv);
  EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
  EXPECT_EQ(status.message(), "enough");
}

TEST(ShmTest, TheReasonComesPastOffersThatWaitForRoom) {
  for (const size_t letters : {size_t{6}, size_t{3000}}) {
    ShmThreads group(2, options_of(16 * 1024, true));
    const auto data = pattern(1 << 20, 1);
    std::vector<Request> sends(200);
    for (size_t i = 0; i < sends.size(); ++i) {
      group.mailbox(0).send(1, {1, i}, std::span(data).first(i < 100 ? 200 : data.size()), &sends[i]);
    }
    const std::string reason(letters, 'x');
    group.mailbox(0).fail({Code::kTimeout, reason});
    std::vector<std::byte> got(8);
    const Status status = group.side(1).recv(0, {2, 0}, got);
    EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
    EXPECT_GE(status.message().size(), std::min<size_t>(letters, 900));
    EXPECT_TRUE(reason.starts_with(status.message()));
  }
}

TEST(ShmTest, APeerThatClosesWithoutAWordIsLost) {
  ShmThreads group(2, {});
  std::vector<std::byte> got(8);
  Request recv;
  group.mailbox(1).recv(0, {1, 0}, got, &recv);
  group.side(0).mailbox.reset();
  const Status status = group.side(1).wait(recv);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(status.rank(), 0);
}

TEST(ShmTest, TheStreamOfASilentPeerIsKnown) {
  ShmThreads group(2, {});
  EXPECT_EQ(group.mailbox(0).peer_streams()[1], -1);
  group.mailbox(1).begin(41, {});
  EXPECT_EQ(group.mailbox(0).peer_streams()[1], 41);
}

}  // namespace
}  // namespace braid::testing
