// SPDX-License-Identifier: Apache-2.0
// Several threads, several groups.
#include <atomic>
#include <thread>

#include "communicator/ranks.h"
#include "engine/engine_impl.h"

namespace braid::testing {
namespace {

class Concurrency : public EveryWire {};

TEST_P(Concurrency, ThreadsOfOneRankWorkOnTheirOwnGroups) {
  constexpr int kThreads = 4;
  at_all_places(3, options(), [](const Place& place) {
    std::vector<std::shared_ptr<Communicator>> groups;
    for (int t = 0; t < kThreads; ++t) {
      auto group = place.form("group" + std::to_string(t));
      ASSERT_TRUE(group.ok()) << group.status().message();
      groups.push_back(std::move(group).value());
    }
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const Collective collective{t % 2 == 0 ? CollectiveKind::kAllReduce : CollectiveKind::kAllToAll, 3, 0};
        for (uint32_t i = 0; i < 20; ++i) {
          Blocks blocks(collective, place.rank, i % 5 == 0 ? 30'000 : 10 + i, false, i);
          const Status status = run(*groups[t], operation_on(blocks, collective), (i + t) % 3 != 0);
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_TRUE(blocks.right());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& group : groups) group->shutdown();
  });
}

// The caller gives up carrying an operation that nobody else has come to; what it started meanwhile, from another
// thread, must come after it.
TEST_P(Concurrency, AnInlineOperationIsHandedOverBeforeWhatWasQueuedMeanwhile) {
  std::atomic<uint32_t> handed_over{0};
  on_all_ranks(2, options(), [&](Communicator& group) {
    const Collective collective{CollectiveKind::kAllReduce, 2, 0};
    for (uint32_t round = 0; round < 5; ++round) {
      Blocks first(collective, group.rank(), 30'000, round % 2 == 0, 2 * round);
      Blocks second(collective, group.rank(), 1000, false, 2 * round + 1);
      if (group.rank() == 1) {
        while (handed_over <= round) std::this_thread::sleep_for(milliseconds(1));
        ASSERT_TRUE(run(group, operation_on(first, collective)).ok());
        ASSERT_TRUE(run(group, operation_on(second, collective)).ok());
      } else {
        std::thread other([&] {
          while (group.sequence() == 2 * round) std::this_thread::yield();  // until the first is started
          const Status status = run(group, operation_on(second, collective), false);
          EXPECT_TRUE(status.ok()) << status.message();
        });
        Operation operation = operation_on(first, collective);
        operation.inline_for = milliseconds(15);
        auto work = group.start(operation, true);
        ASSERT_TRUE(work.ok()) << work.status().message();
        EXPECT_FALSE(work.value()->done());
        ++handed_over;
        const Status status = work.value()->wait(deadline_after(milliseconds(30'000)));
        EXPECT_TRUE(status.ok()) << status.message();
        other.join();
      }
      ASSERT_TRUE(first.right());
      ASSERT_TRUE(second.right());
    }
  });
}

// A queue must be carried in order, and an inline call that comes to a busy queue must wait its turn.
TEST_P(Concurrency, QueuedAndInlineOperationsOfOneGroupKeepTheirOrder) {
  on_all_ranks(3, options(), [](Communicator& group) {
    const Collective collective{CollectiveKind::kAllReduce, 3, 0};
    for (uint32_t round = 0; round < 10; ++round) {
      std::vector<std::unique_ptr<Blocks>> blocks;
      std::vector<std::shared_ptr<Work>> works;
      for (uint32_t i = 0; i < 8; ++i) {
        blocks.push_back(std::make_unique<Blocks>(collective, group.rank(), 1 + 3000 * (i % 3), i % 2 == 0, i));
        auto work = group.start(operation_on(*blocks.back(), collective), i % 4 == 3);
        ASSERT_TRUE(work.ok()) << work.status().message();
        EXPECT_EQ(work.value()->sequence(), round * 8 + i + 1);
        works.push_back(std::move(work).value());
      }
      for (size_t i = works.size(); i-- > 0;) {
        const Status status = works[i]->wait(deadline_after(milliseconds(30'000)));
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_TRUE(blocks[i]->right());
      }
    }
    EXPECT_EQ(group.sequence(), 80u);
  });
}

TEST_P(Concurrency, AHundredGroupsAtOnce) {
  constexpr int kGroups = 100;
  Options few = options();
  few.tcp_connections = 1;
  at_all_places(2, few, [](const Place& place) {
    const Collective collective{CollectiveKind::kAllReduce, 2, 0};
    std::vector<std::shared_ptr<Communicator>> groups;
    std::vector<std::unique_ptr<Blocks>> blocks;
    std::vector<std::shared_ptr<Work>> works;
    for (int g = 0; g < kGroups; ++g) {
      auto group = place.form("group" + std::to_string(g));
      ASSERT_TRUE(group.ok()) << group.status().message();
      groups.push_back(std::move(group).value());
    }
    for (int i = 0; i < kGroups; ++i) {
      // The ranks start them in different orders: no group may hold up another.
      const int g = place.rank == 0 ? i : kGroups - 1 - i;
      blocks.push_back(std::make_unique<Blocks>(collective, place.rank, 5000, true, g));
      auto work = groups[g]->start(operation_on(*blocks.back(), collective), false);
      ASSERT_TRUE(work.ok()) << work.status().message();
      works.push_back(std::move(work).value());
    }
    for (int i = 0; i < kGroups; ++i) {
      const Status status = works[i]->wait(deadline_after(milliseconds(60'000)));
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_TRUE(blocks[i]->right());
    }
    for (const auto& group : groups) group->shutdown();
  });
}

// A callback may start the next operation; groups may go away in one.
TEST_P(Concurrency, ACallbackStartsTheNextOperation) {
  on_all_ranks(2, options(), [](Communicator& group) {
    constexpr int kLinks = 20;
    std::vector<std::vector<float>> values(kLinks, std::vector<float>(10, 1.0f));
    std::atomic<int> done{0};
    std::function<void(int)> next = [&](int link) {
      auto work = group.start(all_reduce(values[link]), link % 2 == 0);
      ASSERT_TRUE(work.ok()) << work.status().message();
      work.value()->on_done([&, link](const Status& status) {
        EXPECT_TRUE(status.ok()) << status.message();
        if (link + 1 < kLinks) next(link + 1);
        done.fetch_add(1);
        done.notify_all();
      });
    };
    next(0);
    for (int seen = done; seen < kLinks; seen = done) done.wait(seen);
    for (const auto& link : values) EXPECT_EQ(link, std::vector<float>(10, 2.0f));
  });
}

// Or every message of every peer would ring for it.
TEST(ProgressThread, WithNothingToCarryIsNoSleeper) {
  at_all_places(2, options_for(wires()[0]), [](const Place& place) {
    const auto group = place.form("group").value();
    std::vector<float> values(10, 1.0f);
    ASSERT_TRUE(outcome(group->start(all_reduce(values), false)).ok());
    const DoorbellWord& bell = static_cast<EngineImpl&>(*place.engine).bell();
    const Deadline deadline = deadline_after(milliseconds(20'000));
    // It carries nothing from soon after the end; that it goes on sleeping elsewhere shows after a while only.
    int quiet = 0;
    while (quiet < 100 && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
      quiet = bell.sleepers.load() == 0 ? quiet + 1 : 0;
    }
    EXPECT_EQ(quiet, 100);
    group->shutdown();
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, Concurrency, ::testing::ValuesIn(wires()), wire_name);

}  // namespace
}  // namespace braid::testing
