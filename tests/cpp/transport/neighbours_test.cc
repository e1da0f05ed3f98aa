// SPDX-License-Identifier: Apache-2.0
// A Waiter gives its core to a neighbour that was there last.
#include "transport/neighbours.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>

#include "transport/shm_side.h"
#include "transport/waiting.h"

namespace braid::testing {
namespace {

// Stays on the core that it is on.
class NeighboursTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<int>(core_number()) - 1, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    set_waiting(std::chrono::nanoseconds(milliseconds(20)).count(), false);
  }
  void TearDown() override {
    set_waiting(0, false);
    EXPECT_EQ(::sched_setaffinity(0, sizeof before_, &before_), 0);
  }

  // How often a wait yields until it would sleep.
  static uint64_t yields(const Neighbours& neighbours) {
    const uint64_t before = wait_counts().yields;
    DoorbellWord word;
    Waiter waiter(word, &neighbours);
    while (!waiter.before_sleep()) waiter.idle(kNoDeadline);
    return wait_counts().yields - before;
  }

 private:
  cpu_set_t before_;
};

TEST_F(NeighboursTest, GetTheCoreTheyShare) {
  Neighbours neighbours;
  EXPECT_EQ(yields(neighbours), 0U);
  DoorbellWord here, there, nowhere;
  there.core = core_number() + 1;
  neighbours.add(there);
  neighbours.add(nowhere);
  EXPECT_EQ(yields(neighbours), 0U);
  here.core = core_number();
  neighbours.add(here);
  // Beside other work a yield may be dear for a while.
  const Deadline deadline = deadline_after(limit(milliseconds(20'000)));
  uint64_t yielded = 0;
  while (yielded == 0 && Clock::now() < deadline) yielded = yields(neighbours);
  EXPECT_GT(yielded, 0U);
  neighbours.remove(here);
  EXPECT_EQ(yields(neighbours), 0U);
}

TEST_F(NeighboursTest, WaitersSayWhereTheyAre) {
  DoorbellWord word;
  Waiter waiter(word);
  waiter.idle(kNoDeadline);
  EXPECT_EQ(word.core, core_number());
}

TEST_F(NeighboursTest, ComeAndGoWhileOthersLook) {
  Neighbours neighbours;
  std::atomic<bool> stops{false};
  std::thread looks([&] {
    while (!stops) static_cast<void>(neighbours.any_on(1));
  });
  for (int i = 0; i < 10'000; ++i) {
    DoorbellWord bell;
    bell.core = 1;
    neighbours.add(bell);
    neighbours.remove(bell);
  }
  stops = true;
  looks.join();
  EXPECT_FALSE(neighbours.any_on(1));
}

TEST_F(NeighboursTest, AreThoseThatAGroupHasConnectedTo) {
  ShmSide first(0, 2, {}), second(1, 2, {});
  second.bell->word().core = core_number();
  EXPECT_FALSE(first.bell->neighbours().any_on(core_number()));
  ASSERT_TRUE(first.group->connect(1, second.group->endpoint()).ok());
  EXPECT_TRUE(first.bell->neighbours().any_on(core_number()));
  first.mailbox.reset();
  first.group.reset();
  EXPECT_FALSE(first.bell->neighbours().any_on(core_number()));
}

}  // namespace
}  // namespace braid::testing
