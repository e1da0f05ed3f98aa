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

// The waiting side: take a ticket, poll, and if nothing moved wait on the ticket. A ring after the ticket was
// taken makes the wait return at once, so no ring is ever missed.
class Waiter {
 public:
  explicit Waiter(DoorbellWord& word) : word_(word) { take_ticket(); }

  void take_ticket() { ticket_ = word_.rings.load(std::memory_order_acquire); }
  // Spins for a moment when a core is likely to be free, then sleeps until a ring or the deadline.
  void wait(Deadline deadline);

 private:
  DoorbellWord& word_;
  uint32_t ticket_ = 0;
};

// How long Waiter spins before it sleeps, in nanoseconds; 0 when the host's ranks outnumber its cores.
void set_spin_ns(int64_t spin_ns);

}  // namespace braid
