// SPDX-License-Identifier: Apache-2.0
// A process sleeps on its doorbell when none of its operations can move. Every wire rings it. Peers on the same
// host ring it from their own process, because the word lies in shared memory; the network thread rings it from
// this one.
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

// Wakes all threads that sleep on `word`; cheap if none does. May be called from any thread of any process.
void ring(DoorbellWord& word);

// The waiting side; used by one thread. Poll everything, call moved() if something moved and idle() if nothing
// moved, and poll again:
//
//   while (!done) poll() ? waiter.moved() : waiter.idle(deadline);
//
// Conditions that are not checked in every poll must be checked if before_sleep() is true.
//
// Rings count from one idle() on, and only the next idle() sleeps. A poll lies between the two. So no event is
// missed whose maker rings after it, or looks for sleepers after it.
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
  // True if the next idle() will sleep.
  bool before_sleep() const { return stage_ == Stage::kListed; }
  // Stays awake for a while (set_waiting), then sleeps until a ring or the deadline. `afar`: the wait is for
  // another host, which takes longer than to wake a thread. Then a thread that shares its core gives it up at
  // once.
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

// Sets how long a Waiter stays awake before it sleeps, in nanoseconds, and whether ranks share cores (`crowded`),
// so that it lets others run meanwhile. `awake_ns` should be longer than it takes to wake a thread. Otherwise, if
// two ranks wait for each other in turn, a rank that must be woken makes the other wait so long that it sleeps,
// too. From then on both sleep every time.
void set_waiting(int64_t awake_ns, bool crowded);

}  // namespace braid
