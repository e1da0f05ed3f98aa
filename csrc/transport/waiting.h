// SPDX-License-Identifier: Apache-2.0
// How the threads of this process wait before they sleep, and what their waits cost.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/clock.h"

namespace braid {

// auto: stay awake; give the core to others where ranks share it, by what that costs. spin: stay awake, and keep the
// core. yield: stay awake, and give the core to others at every turn. sleep: sleep at once.
enum class WaitMode { kAuto, kSpin, kYield, kSleep };

// Sets how long a Waiter stays awake before it sleeps, in nanoseconds, and whether ranks outnumber cores (`crowded`).
// `awake_ns` should be longer than it takes to wake a thread. Otherwise, if two ranks wait for each other in turn, a
// rank that must be woken makes the other wait so long that it sleeps, too. From then on both sleep every time.
void set_waiting(int64_t awake_ns, bool crowded);
void set_wait_mode(WaitMode mode);

// What set_waiting() and set_wait_mode() say at this moment.
struct WaitRules {
  WaitMode mode = WaitMode::kAuto;
  std::chrono::nanoseconds awake{0};
  bool crowded = false;
};
WaitRules wait_rules();

// What the Waiters of this process have done.
struct WaitCounts {
  std::atomic<uint64_t> turns{0};   // polls in vain
  std::atomic<uint64_t> yields{0};  // times that a thread gave its core to others, and stayed awake
  std::atomic<uint64_t> sleeps{0};
};
WaitCounts& wait_counts();

// What it costs to give a core away with sched_yield(). Ranks of the job give it back soon, since they wait, too. A
// process that only computes keeps it until its time slice ends, or a part of that. A thread that sleeps instead is
// woken at once when the awaited event comes. So once the mean of the last yields is a millisecond or more, yields
// are dear for 16 ms. If the next ones are dear again, that doubles, up to 1 s. Any thread may call these.
class YieldPrice {
 public:
  // True if a thread should sleep instead.
  bool is_dear(Clock::time_point now) const;
  // Tells how long a yield took.
  void paid(Clock::time_point begun, Clock::time_point ended);

 private:
  // In nanoseconds. Threads may overwrite each other's: then the price is known a little later.
  std::atomic<int64_t> mean_{0};  // the last four yields have two thirds of the weight
  std::atomic<int64_t> dear_until_{0};
  std::atomic<int64_t> period_{0};
};

// Of this process.
YieldPrice& yield_price();

// Whether yields of a thread are in vain: nobody takes its core meanwhile. Of one thread.
class VainYields {
 public:
  // A wait begins.
  void begin() { in_a_row_ = 0; }
  // After each yield, with `switches`: how often another thread has taken the core of this one. True once several in
  // a row were in vain.
  bool are_enough(long switches) {
    in_a_row_ = std::exchange(switches_, switches) == switches ? in_a_row_ + 1 : 0;
    return in_a_row_ >= kMost;
  }

 private:
  static constexpr int kMost = 4;

  long switches_ = 0;
  int in_a_row_ = 0;
};

}  // namespace braid
