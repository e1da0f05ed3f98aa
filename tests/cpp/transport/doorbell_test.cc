// SPDX-License-Identifier: Apache-2.0
// Whoever sleeps on a doorbell is woken by the next ring, at once.
#include "transport/doorbell.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "support/slowness.h"

namespace braid::testing {
namespace {

using std::chrono::milliseconds;

// Far more than it takes to wake a thread, also on a busy machine: there it happens now and then, not again and again.
constexpr milliseconds kLate{400};
constexpr int kMostLate = 4;
constexpr int kTurns = 2000;

// Two threads hand a token to each other. Each wait sleeps, since nobody stays awake.
struct Seat {
  DoorbellWord word;
  std::atomic<int> turns{0};
};

// Returns how many waits were late; -1 if one ended without a ring.
int take_turns(Seat& own, Seat& other, bool begins) {
  Waiter waiter(own.word);
  int late = 0;
  for (int turn = 1; turn <= kTurns; ++turn) {
    if (begins) {
      other.turns = turn;
      ring(other.word);
    }
    const auto begun = Clock::now();
    const Deadline deadline = deadline_after(limit(milliseconds(60'000)));
    while (own.turns < turn) {
      if (Clock::now() > deadline) return -1;
      waiter.idle(deadline);
    }
    waiter.moved();
    late += Clock::now() - begun > kLate;
    if (!begins) {
      other.turns = turn;
      ring(other.word);
    }
  }
  return late;
}

class Doorbell : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { set_waiting(0, GetParam()); }
  void TearDown() override { set_waiting(0, false); }
};

TEST_P(Doorbell, NoWakeUpIsLost) {
  std::array<Seat, 2> seats;
  int late = 0;
  std::thread second([&] { late = take_turns(seats[1], seats[0], false); });
  const int late_first = take_turns(seats[0], seats[1], true);
  second.join();
  ASSERT_GE(late_first, 0) << "a ring did not wake the first";
  ASSERT_GE(late, 0) << "a ring did not wake the second";
  EXPECT_LE(late_first + late, kMostLate) << "waits that took longer than 400 ms, of " << 2 * kTurns;
}

TEST_P(Doorbell, ADeadlineEndsASleep) {
  DoorbellWord word;
  Waiter waiter(word);
  const Deadline deadline = deadline_after(milliseconds(30));
  while (Clock::now() < deadline) waiter.idle(deadline);
  EXPECT_EQ(word.rings, 0U);
  waiter.moved();
  EXPECT_EQ(word.sleepers, 0U);
}

INSTANTIATE_TEST_SUITE_P(Crowded, Doorbell, ::testing::Bool());

}  // namespace
}  // namespace braid::testing
