// SPDX-License-Identifier: Apache-2.0
// Receives that name no sender.
#include <latch>
#include <set>
#include <thread>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

class AnySource : public EveryWire {};

constexpr milliseconds kGroupTimeout{0};

Bytes memory_of(std::vector<uint32_t>& values) { return std::as_writable_bytes(std::span(values)); }
std::vector<uint32_t> letter(size_t count, Node from) {
  return std::vector<uint32_t>(count, static_cast<uint32_t>(from) + 1);
}

std::shared_ptr<Work> started(Result<std::shared_ptr<Work>> work) {
  EXPECT_TRUE(work.ok()) << work.status().message();
  return work.ok() ? std::move(work).value() : nullptr;
}
Status wait(const std::shared_ptr<Work>& work) { return work->wait(deadline_after(milliseconds(30'000))); }

TEST_P(AnySource, EveryMessageIsTakenOnceAndNamesItsSender) {
  constexpr int kRounds = 8;
  on_all_ranks(4, options(), [](Communicator& group) {
    for (const uint32_t count : {1, 1009, 100'000}) {  // each with a tag of its own: senders run ahead
      if (group.rank() != 0) {
        auto mine = letter(count, group.rank());
        for (int i = 0; i < kRounds; ++i) {
          const Status sent = outcome(group.send(0, count, memory_of(mine), kGroupTimeout));
          ASSERT_TRUE(sent.ok()) << sent.message();
        }
        continue;
      }
      std::multiset<Node> sources;
      for (int i = 0; i < 3 * kRounds; ++i) {
        auto got = letter(count, 99);
        const auto work = started(group.recv(kAnyNode, count, memory_of(got), kGroupTimeout));
        ASSERT_TRUE(wait(work).ok()) << wait(work).message();
        EXPECT_EQ(got, letter(count, work->source()));
        sources.insert(work->source());
      }
      for (const Node from : {1, 2, 3}) EXPECT_EQ(sources.count(from), size_t{kRounds});
    }
  });
}

TEST_P(AnySource, PostedBeforeAnythingIsSent) {
  std::latch posted(3);
  on_all_ranks(3, options(), [&](Communicator& group) {
    if (group.rank() != 0) {
      posted.arrive_and_wait();
      auto mine = letter(10, group.rank());
      EXPECT_TRUE(outcome(group.send(0, 1, memory_of(mine), kGroupTimeout)).ok());
      return;
    }
    auto first = letter(10, 98), second = letter(10, 99);
    const auto a = started(group.recv(kAnyNode, 1, memory_of(first), kGroupTimeout));
    const auto b = started(group.recv(kAnyNode, 1, memory_of(second), kGroupTimeout));
    EXPECT_EQ(a->source(), kAnyNode);
    posted.arrive_and_wait();
    ASSERT_TRUE(wait(a).ok() && wait(b).ok()) << wait(a).message() << wait(b).message();
    EXPECT_EQ(a->source() + b->source(), 3);
    EXPECT_EQ(first, letter(10, a->source()));
    EXPECT_EQ(second, letter(10, b->source()));
  });
}

// The rule of MPI: receives take messages in the order posted.
TEST_P(AnySource, AnEarlierReceiveFromAnyRankComesBeforeOneThatNamesTheRank) {
  std::latch posted(2);
  on_all_ranks(2, options(), [&](Communicator& group) {
    if (group.rank() == 1) {
      posted.arrive_and_wait();
      for (const Node text : {10, 20, 30}) {
        auto mine = letter(4, text);
        EXPECT_TRUE(outcome(group.send(0, 2, memory_of(mine), kGroupTimeout)).ok());
      }
      return;
    }
    std::vector<std::vector<uint32_t>> got(3, letter(4, 99));
    const auto any = started(group.recv(kAnyNode, 2, memory_of(got[0]), kGroupTimeout));
    const auto named = started(group.recv(1, 2, memory_of(got[1]), kGroupTimeout));
    const auto last = started(group.recv(1, 2, memory_of(got[2]), kGroupTimeout));
    posted.arrive_and_wait();
    ASSERT_TRUE(wait(any).ok() && wait(named).ok() && wait(last).ok());
    EXPECT_EQ(got[0], letter(4, 10));
    EXPECT_EQ(got[1], letter(4, 20));
    EXPECT_EQ(got[2], letter(4, 30));
  });
}

TEST_P(AnySource, TagsAreIndependent) {
  on_all_ranks(2, options(), [](Communicator& group) {
    auto one = letter(3, 1), two = letter(3, 2);
    if (group.rank() == 1) {
      EXPECT_TRUE(outcome(group.send(0, 8, memory_of(two), kGroupTimeout)).ok());
      EXPECT_TRUE(outcome(group.send(0, 7, memory_of(one), kGroupTimeout)).ok());
      return;
    }
    auto got = letter(3, 99);
    EXPECT_TRUE(outcome(group.recv(kAnyNode, 7, memory_of(got), kGroupTimeout)).ok());
    EXPECT_EQ(got, one);
    EXPECT_TRUE(outcome(group.recv(kAnyNode, 8, memory_of(got), kGroupTimeout)).ok());
    EXPECT_EQ(got, two);
  });
}

TEST_P(AnySource, TimesOut) {
  std::latch done(2);
  on_all_ranks(2, options(), [&](Communicator& group) {
    if (group.rank() == 0) {
      auto got = letter(3, 99);
      const Status status = outcome(group.recv(kAnyNode, 7, memory_of(got), milliseconds(100)));
      EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
      EXPECT_TRUE(says(status, "recv from any rank")) << status.message();
    }
    done.arrive_and_wait();
  });
}

TEST_P(AnySource, EndsWhenTheGroupFailsOrAllOthersHaveLeft) {
  for (const bool fails : {true, false}) {
    std::latch posted(2);
    at_all_places(2, options(), [&](const Place& place) {
      auto group = place.form(fails ? "fails" : "left").value();
      ASSERT_TRUE(run(*group, barrier()).ok());
      if (place.rank == 1) {
        posted.arrive_and_wait();
        if (fails) group->abort("enough");
        group->shutdown();
        return;
      }
      auto got = letter(3, 99);
      const auto work = started(group->recv(kAnyNode, 7, memory_of(got), kGroupTimeout));
      posted.arrive_and_wait();
      const Status status = wait(work);
      EXPECT_EQ(status.code(), fails ? Code::kAborted : Code::kPeerLost) << status.message();
      EXPECT_TRUE(says(status, "rank 1")) << status.message();
      group->shutdown();
    });
  }
}

TEST_P(AnySource, EndsWithItsOwnGroup) {
  std::latch received(2);
  on_all_ranks(2, options(), [&](Communicator& group) {
    auto got = letter(3, 99);
    std::shared_ptr<Work> work;
    if (group.rank() == 0) work = started(group.recv(kAnyNode, 7, memory_of(got), kGroupTimeout));
    received.arrive_and_wait();
    group.abort("over");
    if (!work) return;
    EXPECT_EQ(wait(work).code(), Code::kAborted) << wait(work).message();
  });
}

TEST_P(AnySource, OfAnotherSizeIsAMismatch) {
  on_all_ranks(2, options(), [](Communicator& group) {
    auto memory = letter(group.rank() == 0 ? 10 : 20, 1);
    const Status status = outcome(group.rank() == 0 ? group.recv(kAnyNode, 0, memory_of(memory), kGroupTimeout)
                                                    : group.send(0, 0, memory_of(memory), kGroupTimeout));
    if (group.rank() == 1) return;
    EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
  });
}

TEST_P(AnySource, NeedsSomebodyElse) {
  on_all_ranks(1, options(), [](Communicator& group) {
    auto memory = letter(1, 1);
    const Status status = outcome(group.recv(kAnyNode, 0, memory_of(memory), kGroupTimeout));
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, AnySource, ::testing::ValuesIn(wires()), wire_name);

}  // namespace
}  // namespace braid::testing
