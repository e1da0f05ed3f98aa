// SPDX-License-Identifier: Apache-2.0
#include "transport/contract.h"

#include <cstring>
#include <thread>

#include "support/slowness.h"

namespace braid::testing {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportContract);

std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  std::vector<uint64_t> words(bytes / sizeof state + 1);
  for (uint64_t& word : words) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    word = state ^ (state >> 29);
  }
  const auto all = std::as_bytes(std::span(words));
  return {all.begin(), all.begin() + static_cast<ptrdiff_t>(bytes)};
}

Status wait(TestGroup& group, Node rank, Request& request) {
  const Deadline deadline = deadline_after(limit(milliseconds(20'000)));
  Waiter waiter(group.bell(rank));
  while (!request.done()) {
    if (group.mailbox(rank).poll() || request.done()) {
      waiter.moved();
      continue;
    }
    if (Clock::now() > deadline) return {Code::kTimeout, "the test waited too long"};
    waiter.idle(deadline);
  }
  return request.status();
}

void on_all_ranks(int ranks, const std::function<void(Node)>& body) {
  std::vector<std::thread> threads;
  for (Node rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

namespace {

// Sizes around every threshold a wire may have.
const std::vector<size_t> kSizes = {
    0, 1, 7, 63, 64, 1023, 1024, 1025, 4096, 16 * 1024 + 1, 100'003, 1 << 20, (3 << 20) + 5};

TEST_P(TransportContract, EverySizeArrivesUnchanged) {
  auto group = make(2);
  on_all_ranks(2, [&](Node rank) {
    for (size_t i = 0; i < kSizes.size(); ++i) {
      const auto data = pattern(kSizes[i], i);
      Request request;
      if (rank == 0) {
        group->mailbox(0).send(1, {1, i}, data, &request);
        EXPECT_TRUE(wait(*group, 0, request).ok()) << request.status().message();
      } else {
        std::vector<std::byte> got(kSizes[i]);
        group->mailbox(1).recv(0, {1, i}, got, &request);
        EXPECT_TRUE(wait(*group, 1, request).ok()) << request.status().message();
        EXPECT_EQ(got, data) << kSizes[i] << " bytes";
      }
    }
  });
}

TEST_P(TransportContract, MessagesAreMatchedByTagNotByOrder) {
  auto group = make(2);
  constexpr size_t kCount = 40;
  on_all_ranks(2, [&](Node rank) {
    std::vector<std::vector<std::byte>> data;
    std::vector<Request> requests(kCount);
    for (size_t i = 0; i < kCount; ++i) data.push_back(pattern(kSizes[i % kSizes.size()], i));
    std::vector<std::vector<std::byte>> got;
    for (size_t i = 0; i < kCount; ++i) got.emplace_back(data[i].size());
    for (size_t i = 0; i < kCount; ++i) {
      if (rank == 0) {
        group->mailbox(0).send(1, {5, i}, data[i], &requests[i]);
      } else {
        const size_t k = kCount - 1 - i;
        group->mailbox(1).recv(0, {5, k}, got[k], &requests[k]);
      }
    }
    for (Request& request : requests) EXPECT_TRUE(wait(*group, rank, request).ok()) << request.status().message();
    if (rank == 1) {
      EXPECT_EQ(got, data);
    }
  });
}

TEST_P(TransportContract, AllPairsExchangeAtOnce) {
  constexpr int kRanks = 5;
  auto group = make(kRanks);
  on_all_ranks(kRanks, [&](Node rank) {
    for (uint64_t round = 0; round + 1 < kSizes.size(); ++round) {
      const size_t bytes = kSizes[round];
      std::vector<std::vector<std::byte>> out, in;
      std::vector<Request> requests(2 * kRanks);
      for (Node peer = 0; peer < kRanks; ++peer) {
        out.push_back(pattern(bytes, round * 100 + static_cast<uint64_t>(rank * kRanks + peer)));
        in.emplace_back(bytes);
      }
      for (Node step = 1; step < kRanks; ++step) {
        const Node to = (rank + step) % kRanks;
        const Node from = (rank + kRanks - step) % kRanks;
        group->mailbox(rank).recv(from, {round, 0}, in[from], &requests[2 * from]);
        group->mailbox(rank).send(to, {round, 0}, out[to], &requests[2 * to + 1]);
      }
      for (Request& request : requests)
        ASSERT_TRUE(wait(*group, rank, request).ok()) << request.status().message();
      for (Node peer = 0; peer < kRanks; ++peer) {
        if (peer == rank) continue;
        ASSERT_EQ(in[peer], pattern(bytes, round * 100 + static_cast<uint64_t>(peer * kRanks + rank)));
      }
    }
  });
}

TEST_P(TransportContract, SizesThatDisagreeFailTheGroupOnBothSides) {
  for (const auto& [sent, expected] :
       std::vector<std::pair<size_t, size_t>>{{10, 20}, {1 << 20, 2 << 20}, {8, 1 << 20}}) {
    auto group = make(2);
    const auto data = pattern(sent, 1);
    std::vector<std::byte> got(expected);
    Request send, recv;
    group->mailbox(0).send(1, {1, 0}, data, &send);
    group->mailbox(1).recv(0, {1, 0}, got, &recv);
    const Status status = [&] {
      std::thread other([&] { (void)wait(*group, 0, send); });
      Status outcome = wait(*group, 1, recv);
      // The sender of a small message is done already; it hears of the failure while it polls.
      for (int i = 0; i < 2000 && group->mailbox(0).failure().ok(); ++i) {
        group->mailbox(0).poll();
        std::this_thread::sleep_for(milliseconds(1));
      }
      other.join();
      return outcome;
    }();
    EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
    EXPECT_EQ(group->mailbox(0).failure().code(), Code::kMismatch);
    EXPECT_NE(status.message().find("sizes disagree"), std::string::npos) << status.message();
  }
}

TEST_P(TransportContract, SignaturesThatDisagreeAreNamed) {
  for (const bool sender_first : {true, false}) {
    auto group = make(2);
    std::vector<std::byte> data(64);
    Request send, recv;
    const auto start_sender = [&] {
      group->mailbox(0).begin(7, {.kind = 0, .dtype = 1, .bytes = 64});
      group->mailbox(0).send(1, {7, 0}, data, &send);
    };
    std::vector<std::byte> got(64);
    if (sender_first) {
      start_sender();
      for (int i = 0; i < 50; ++i) {
        group->mailbox(1).poll();
        std::this_thread::sleep_for(milliseconds(1));
      }
    }
    group->mailbox(1).begin(7, {.kind = 3, .dtype = 1, .root = 1, .bytes = 64});
    group->mailbox(1).recv(0, {7, 0}, got, &recv);
    if (!sender_first) start_sender();
    const Status status = wait(*group, 1, recv);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.message().find("all_reduce sum of 64 bytes of float32"), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("broadcast of 64 bytes of float32 with root 1"), std::string::npos);
  }
}

TEST_P(TransportContract, AFailureReachesAPeerThatWaits) {
  auto group = make(3);
  std::vector<std::byte> got(1 << 20), small(8);
  Request recv;
  Request warm_send, warm_recv;
  group->mailbox(0).send(1, {0, 9}, small, &warm_send);
  group->mailbox(1).recv(0, {0, 9}, small, &warm_recv);
  std::thread sender([&] { EXPECT_TRUE(wait(*group, 0, warm_send).ok()); });
  EXPECT_TRUE(wait(*group, 1, warm_recv).ok());
  sender.join();
  group->mailbox(1).recv(0, {1, 0}, got, &recv);
  group->mailbox(0).fail({Code::kPeerLost, "rank 2 died of old age", 2});
  const Status status = wait(*group, 1, recv);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(status.rank(), 2);
  EXPECT_EQ(status.message(), "rank 2 died of old age");
  Request late;
  group->mailbox(1).recv(0, {2, 0}, got, &late);
  EXPECT_TRUE(late.done());
  EXPECT_EQ(late.status().code(), Code::kPeerLost);
}

TEST_P(TransportContract, LeavingIsAFailureOnlyToWhoStillWaits) {
  auto group = make(2);
  std::vector<std::byte> data = pattern(100, 1), got(100);
  Request send, recv;
  group->mailbox(0).send(1, {1, 0}, data, &send);
  ASSERT_TRUE(wait(*group, 0, send).ok());
  group->mailbox(1).poll();
  group->mailbox(0).close();
  group->mailbox(1).recv(0, {1, 0}, got, &recv);
  EXPECT_TRUE(wait(*group, 1, recv).ok()) << "what was sent before leaving still arrives";
  EXPECT_EQ(got, data);
  EXPECT_TRUE(group->mailbox(1).failure().ok());
}

TEST_P(TransportContract, PeersTellTheirStream) {
  auto group = make(2);
  group->mailbox(1).begin(41, {});
  group->mailbox(0).ask();
  int64_t known = -1;
  for (int i = 0; i < 2000 && known < 0; ++i) {
    group->mailbox(0).poll();
    group->mailbox(1).poll();
    known = group->mailbox(0).peer_streams()[1];
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(known, 41);
}

}  // namespace
}  // namespace braid::testing
