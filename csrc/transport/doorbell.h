// SPDX-License-Identifier: Apache-2.0
// A process sleeps on its doorbell when none of its operations can move. Every wire rings it. Peers on the same
// host ring it from their own process, because the word lies in shared memory; the network thread rings it from
// this one.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "transport/waiting.h"

namespace braid {

class Neighbours;

struct DoorbellWord {
  alignas(64) std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> sleepers{0};
  // The core_number() of a thread that has waited here last. Others read it as often as they poll, so it has a cache
  // line of its own.
  alignas(64) std::atomic<uint32_t> core{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// The core that the calling thread runs on, counted from 1; 0 if the kernel does not say.
uint32_t core_number();

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
  // Without `neighbours` it does not see who else wants its core. They outlive it.
  explicit Waiter(DoorbellWord& word, const Neighbours* neighbours = nullptr)
      : word_(word), neighbours_(neighbours) {}
  ~Waiter() { moved(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  void moved() {
    if (stage_ == Stage::kListed) word_.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    stage_ = Stage::kAwake;
    if (turns_ != 0) end_of_wait();
  }
  // True if the next idle() will sleep.
  bool before_sleep() const { return stage_ == Stage::kListed; }
  // Stays awake for a while, as wait_rules() say, then sleeps until a ring or the deadline. A thread whose core is
  // wanted by other ranks gives it to them meanwhile, unless that is dear: then it sleeps. It sleeps as well where
  // ranks outnumber cores but nobody takes the core: others wait for another core, and can move to an empty one.
  // `afar`: the wait is for another host, which takes longer than to wake a thread. Then a thread that shares its core
  // sleeps at once.
  void idle(Deadline deadline, bool afar = false);

 private:
  enum class Stage { kAwake, kListed };  // listed: counted as a sleeper, with a ticket

  bool stays_awake(bool afar);
  bool yields_in_vain(Clock::time_point now);
  void list();
  void sleep(Deadline deadline);
  void end_of_wait();

  DoorbellWord& word_;
  const Neighbours* const neighbours_;
  Stage stage_ = Stage::kAwake;
  int turns_ = 0;
  VainYields vain_yields_;
  bool shares_core_ = false;  // a neighbour wants it
  Clock::time_point awake_until_;
  uint32_t ticket_ = 0;
};

}  // namespace braid
