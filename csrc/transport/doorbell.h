// SPDX-License-Identifier: Apache-2.0
// What a process sleeps on when none of its operations can move. Every wire rings it: peers on the same host
// from their own process (the word lies in shared memory), the network thread from inside this one.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace braid {

struct DoorbellWord {
  alignas(64) std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> sleepers{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Wakes everybody who sleeps on `word`; cheap when nobody does. Any thread, any process.
void ring(DoorbellWord& word);

// The waiting side, of one thread. Poll everything; say moved() when something did and idle() when nothing did, and
// poll again:
//
//   while (!done) poll() ? waiter.moved() : waiter.idle(deadline);
//
// What is looked at only now and then must be looked at when before_sleep().
//
// A poll lies between the moment from which rings count and each sleep, so nothing that is followed by a ring, nor
// anything whose maker looks for sleepers afterwards, is ever missed.
class Waiter {
 public:
  explicit Waiter(DoorbellWord& word) : word_(word) {}
  ~Waiter() { moved(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  void moved() {
    if (stage_ == Stage::kListed) word_.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    stage_ = Stage::kAwake;
    turns_ = 0;
  }
  // The next idle() will sleep.
  bool before_sleep() const { return stage_ == Stage::kListed; }
  // Stays awake for a while (set_waiting), then sleeps until a ring or the deadline. What is `afar`, on another host,
  // takes longer than to wake somebody: where ranks share cores others get them at once.
  void idle(Deadline deadline, bool afar = false);

 private:
  enum class Stage { kAwake, kListed };  // listed: counted as a sleeper, with a ticket

  void sleep(Deadline deadline);

  DoorbellWord& word_;
  Stage stage_ = Stage::kAwake;
  int turns_ = 0;
  Clock::time_point awake_until_;
  uint32_t ticket_ = 0;
};

// How long a Waiter stays awake before it sleeps, in nanoseconds, and whether ranks share cores, so that it lets others
// run meanwhile. Longer than it takes to wake somebody: of two ranks that wait for each other in turn, one that must
// first be woken makes the other wait that long, and once both sleep every time they never stop.
void set_waiting(int64_t awake_ns, bool crowded);

}  // namespace braid
