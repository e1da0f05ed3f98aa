// SPDX-License-Identifier: Apache-2.0
// Point-to-point messages.
#include <latch>
#include <thread>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

class Messages : public EveryWire {};

std::vector<uint32_t> letter(size_t count, uint32_t seed) {
  std::vector<uint32_t> values(count);
  for (size_t e = 0; e < count; ++e) values[e] = (seed * 1000 + static_cast<uint32_t>(e)) * 2654435761u;
  return values;
}

Bytes bytes_of(std::vector<uint32_t>& values) { return std::as_writable_bytes(std::span(values)); }

TEST_P(Messages, BothWaysAtOnceInEverySize) {
  on_all_ranks(2, options(), [](Communicator& group) {
    const Node peer = 1 - group.rank();
    for (const size_t count : {0, 1, 1009, 1 << 18}) {
      auto out = letter(count, group.rank());
      auto in = letter(count, 99);
      const auto sent = group.send(peer, 7, bytes_of(out), milliseconds(0));
      const auto received = group.recv(peer, 7, bytes_of(in), milliseconds(0));
      ASSERT_TRUE(outcome(sent).ok()) << outcome(sent).message();
      ASSERT_TRUE(outcome(received).ok()) << outcome(received).message();
      EXPECT_EQ(in, letter(count, peer));
    }
  });
}

TEST_P(Messages, ManyTagsTakenInAnotherOrder) {
  constexpr uint32_t kTags = 60;
  const auto size_of_tag = [](uint32_t tag) { return size_t{1} + (tag % 4) * 3000; };  // eager and large ones
  on_all_ranks(3, options(), [&](Communicator& group) {
    const Node to = (group.rank() + 1) % 3, from = (group.rank() + 2) % 3;
    std::vector<std::vector<uint32_t>> out, in;
    std::vector<std::shared_ptr<Work>> works;
    const auto keep = [&](Result<std::shared_ptr<Work>> work) {
      ASSERT_TRUE(work.ok()) << work.status().message();
      works.push_back(std::move(work).value());
    };
    for (uint32_t tag = 0; tag < kTags; ++tag) {
      out.push_back(letter(size_of_tag(tag), group.rank() * 100 + tag));
      in.push_back(letter(size_of_tag(tag), 9999));
    }
    for (uint32_t tag = 0; tag < kTags; ++tag) keep(group.send(to, tag, bytes_of(out[tag]), milliseconds(0)));
    for (uint32_t tag = kTags; tag-- > 0;) keep(group.recv(from, tag, bytes_of(in[tag]), milliseconds(0)));
    for (const auto& work : works) {
      const Status status = work->wait(deadline_after(milliseconds(30'000)));
      ASSERT_TRUE(status.ok()) << status.message();
    }
    for (uint32_t tag = 0; tag < kTags; ++tag) EXPECT_EQ(in[tag], letter(size_of_tag(tag), from * 100 + tag));
  });
}

TEST_P(Messages, OfOneTagArriveInTheOrderSent) {
  on_all_ranks(2, options(), [](Communicator& group) {
    constexpr uint32_t kCount = 50;
    std::vector<std::vector<uint32_t>> memory;
    std::vector<std::shared_ptr<Work>> works;
    for (uint32_t i = 0; i < kCount; ++i) {
      const size_t count = 1 + (i % 3) * 5000;
      memory.push_back(group.rank() == 0 ? letter(count, i) : letter(count, 9999));
    }
    for (auto& m : memory) {
      auto work = group.rank() == 0 ? group.send(1, 3, bytes_of(m), milliseconds(0))
                                    : group.recv(0, 3, bytes_of(m), milliseconds(0));
      ASSERT_TRUE(work.ok()) << work.status().message();
      works.push_back(std::move(work).value());
    }
    for (uint32_t i = 0; i < kCount; ++i) {
      const Status status = works[i]->wait(deadline_after(milliseconds(30'000)));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(memory[i], letter(memory[i].size(), i));
    }
  });
}

TEST_P(Messages, GoOnBesideCollectives) {
  on_all_ranks(2, options(), [](Communicator& group) {
    const Node peer = 1 - group.rank();
    std::thread talk([&] {
      for (uint32_t i = 0; i < 30; ++i) {
        auto out = letter(1 + 1000 * (i % 5), group.rank() * 100 + i);
        auto in = letter(out.size(), 9999);
        const auto sent = group.send(peer, 1, bytes_of(out), milliseconds(0));
        const auto received = group.recv(peer, 1, bytes_of(in), milliseconds(0));
        ASSERT_TRUE(outcome(received).ok()) << outcome(received).message();
        ASSERT_TRUE(outcome(sent).ok()) << outcome(sent).message();
        ASSERT_EQ(in, letter(in.size(), peer * 100 + i));
      }
    });
    const Collective collective{CollectiveKind::kAllReduce, 2, 0};
    for (uint32_t i = 0; i < 30; ++i) {
      Blocks blocks(collective, group.rank(), 1 + 2000 * (i % 7), false, i);
      const Status status = run(group, operation_on(blocks, collective), i % 2 == 0);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(blocks.right());
    }
    talk.join();
  });
}

// The receiver of a large message must not leave the sender waiting, even when it never calls again and the way
// back is full of small ones that nobody has taken yet.
TEST_P(Messages, ASenderIsReleasedThoughTheReceiverCallsNoMore) {
  std::latch received(1), released(1);
  on_all_ranks(2, options(), [&](Communicator& group) {
    constexpr uint32_t kSmall = 40;
    auto large = letter(100'000, 1);
    std::vector<std::vector<uint32_t>> small(kSmall, letter(1000, 2));
    std::vector<std::shared_ptr<Work>> works;
    if (group.rank() == 0) {
      const auto sent = group.send(1, 0, bytes_of(large), milliseconds(0));
      std::this_thread::sleep_for(milliseconds(50));  // rank 1 sends its small ones into a full ring
      for (auto& m : small) {
        auto work = group.recv(1, 1, bytes_of(m), milliseconds(0));
        ASSERT_TRUE(work.ok()) << work.status().message();
        works.push_back(std::move(work).value());
      }
      for (const auto& work : works) EXPECT_TRUE(work->wait(deadline_after(milliseconds(20'000))).ok());
      received.wait();
      EXPECT_TRUE(outcome(sent).ok()) << outcome(sent).message();
      released.count_down();
    } else {
      for (auto& m : small) {
        auto work = group.send(0, 1, bytes_of(m), milliseconds(0));
        ASSERT_TRUE(work.ok()) << work.status().message();
        works.push_back(std::move(work).value());
      }
      EXPECT_TRUE(outcome(group.recv(0, 0, bytes_of(large), milliseconds(0))).ok());
      for (const auto& work : works) EXPECT_TRUE(work->wait(deadline_after(milliseconds(20'000))).ok());
      received.count_down();
      released.wait();
    }
  });
}

TEST_P(Messages, OfAnotherSizeThanExpectedFailBothSides) {
  for (const auto& [sent, expected] : std::vector<std::pair<size_t, size_t>>{
           {10, 20}, {100'000, 10}, {10, 100'000}, {100'000, 200'000}, {0, 1}, {100'000, 0}}) {
    for (const Node late : {0, 1}) {
      on_all_ranks(2, options(), [&](Communicator& group) {
        std::vector<uint32_t> memory(group.rank() == 0 ? sent : expected);
        if (group.rank() == late) std::this_thread::sleep_for(milliseconds(30));
        const Status status = outcome(group.rank() == 0 ? group.send(1, 0, bytes_of(memory), milliseconds(0))
                                                        : group.recv(0, 0, bytes_of(memory), milliseconds(0)));
        // A small message may be gone before anybody sees that it does not fit; the group fails all the same.
        const Status later = group.rank() == 0 && status.ok() ? run(group, barrier()) : status;
        EXPECT_EQ(later.code(), Code::kMismatch) << sent << " for " << expected << ": " << later.message();
        EXPECT_NE(later.message().find(" of " + std::to_string(4 * sent)), std::string::npos) << later.message();
        EXPECT_NE(later.message().find("rank 0"), std::string::npos) << later.message();
        EXPECT_NE(later.message().find("rank 1"), std::string::npos) << later.message();
      });
    }
  }
}

TEST_P(Messages, WithoutAMatchingCallTimeOutAndNameThePeer) {
  std::latch done(3);
  on_all_ranks(3, options(), [&](Communicator& group) {
    std::vector<uint32_t> memory(10);
    if (group.rank() == 0) {
      const Status status = outcome(group.recv(2, 5, bytes_of(memory), milliseconds(100)));
      EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
      EXPECT_EQ(status.rank(), 2);
      EXPECT_NE(status.message().find("recv from rank 2"), std::string::npos) << status.message();
    }
    done.arrive_and_wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, Messages, ::testing::ValuesIn(wires()), wire_name);

}  // namespace
}  // namespace braid::testing
