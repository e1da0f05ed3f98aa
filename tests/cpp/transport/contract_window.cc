// SPDX-License-Identifier: Apache-2.0
// What every wire owes to messages that nobody has asked for yet.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <thread>

#include "transport/contract.h"

namespace braid::testing {
namespace {

std::vector<size_t> in_order(size_t count, bool reverse) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  if (reverse) std::reverse(order.begin(), order.end());
  return order;
}

constexpr Mailbox::Limits kLimits{.early_bytes = 64 * 1024, .announced = 60};

// Rank 0 sends `count` messages, all at once. Rank 1 asks for none, until nothing more goes; then for a few at a time.
// How many went before it asked.
size_t flood(TestGroup& group, size_t count, size_t bytes, bool reverse) {
  for (const Node rank : {0, 1}) group.mailbox(rank).set_limits(kLimits);
  std::atomic<bool> asks{false};
  size_t went = 0;
  on_all_ranks(2, [&](Node rank) {
    Mailbox& box = group.mailbox(rank);
    if (rank == 0) {
      std::vector<std::vector<std::byte>> data;
      std::deque<Request> requests(count);
      for (size_t i = 0; i < count; ++i) data.push_back(pattern(bytes, i));
      for (size_t i = 0; i < count; ++i) box.send(1, {kPointToPoint, i}, data[i], &requests[i]);
      const auto done = [](const Request& request) { return request.done(); };
      for (auto quiet_since = Clock::now(); Clock::now() - quiet_since < milliseconds(100);) {
        const auto now_done = static_cast<size_t>(std::count_if(requests.begin(), requests.end(), done));
        if (box.poll() || now_done != went) quiet_since = Clock::now();
        went = now_done;
      }
      asks = true;
      for (Request& request : requests) ASSERT_TRUE(wait(group, 0, request).ok()) << request.status().message();
      return;
    }
    while (!asks) {
      if (!box.poll()) std::this_thread::sleep_for(milliseconds(1));
    }
    constexpr size_t kTogether = 50;
    std::vector<std::vector<std::byte>> got(kTogether, std::vector<std::byte>(bytes));
    const std::vector<size_t> order = in_order(count, reverse);
    for (size_t first = 0; first < count; first += kTogether) {
      const size_t here = std::min(kTogether, count - first);
      std::vector<Request> requests(here);
      for (size_t i = 0; i < here; ++i) box.recv(0, {kPointToPoint, order[first + i]}, got[i], &requests[i]);
      for (size_t i = 0; i < here; ++i) {
        ASSERT_TRUE(wait(group, 1, requests[i]).ok()) << requests[i].status().message();
        ASSERT_EQ(got[i], pattern(bytes, order[first + i])) << order[first + i];
      }
    }
  });
  return went;
}

TEST_P(TransportContract, AFloodOfSmallMessagesWaitsAtItsSender) {
  for (const bool reverse : {false, true}) {
    auto group = make(2);
    EXPECT_LE(flood(*group, 2000, 64, reverse), kLimits.early_bytes / (64 + 256));
  }
}

TEST_P(TransportContract, AFloodOfMessagesWithoutBytesWaitsToo) {
  auto group = make(2);
  EXPECT_LE(flood(*group, 2000, 0, true), kLimits.early_bytes / 256);
}

TEST_P(TransportContract, AFloodOfLargeMessagesArrivesInReverse) {
  auto group = make(2);
  EXPECT_EQ(flood(*group, 500, 20'001, true), 0u);
}

TEST_P(TransportContract, BothWaysAtOnceInAnyOrder) {
  constexpr size_t kCount = 600, kOpen = 16;
  auto group = make(2);
  std::vector<size_t> sizes(kCount);
  std::mt19937 random(7);
  for (size_t& size : sizes) size = random() % 4 == 0 ? random() % 60'000 : random() % 600;
  for (const Node rank : {0, 1}) group->mailbox(rank).set_limits({.early_bytes = 8192, .announced = kOpen});
  on_all_ranks(2, [&](Node rank) {
    Mailbox& box = group->mailbox(rank);
    const Node peer = 1 - rank;
    std::mt19937 own(static_cast<unsigned>(rank) + 3);
    std::vector<size_t> sends = in_order(kCount, false), receives = sends;
    std::shuffle(sends.begin(), sends.end(), own);
    std::shuffle(receives.begin(), receives.end(), own);
    std::deque<Request> sent(kCount), received(kCount);
    std::vector<std::vector<std::byte>> out(kCount), in(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      out[i] = pattern(sizes[i], i + 1000 * static_cast<size_t>(rank));
      in[i].resize(sizes[i]);
    }
    for (const size_t i : sends) box.send(peer, {kPointToPoint, i}, out[i], &sent[i]);
    for (size_t i = 0; i < kCount + kOpen; ++i) {
      if (i < kCount) box.recv(peer, {kPointToPoint, receives[i]}, in[receives[i]], &received[receives[i]]);
      if (i < kOpen) continue;
      Request& request = received[receives[i - kOpen]];
      ASSERT_TRUE(wait(*group, rank, request).ok()) << request.status().message();
    }
    for (Request& request : sent) ASSERT_TRUE(wait(*group, rank, request).ok()) << request.status().message();
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(in[i], pattern(sizes[i], i + 1000 * static_cast<size_t>(peer))) << i;
    }
  });
}

}  // namespace
}  // namespace braid::testing
