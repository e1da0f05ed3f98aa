// SPDX-License-Identifier: Apache-2.0
#include "transport/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace braid {
namespace {

std::atomic<int64_t> spin_limit_ns{0};

long futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

void set_spin_ns(int64_t spin_ns) { spin_limit_ns = spin_ns; }

void ring(DoorbellWord& word) {
  // Sequentially consistent on both words: either the sleeper sees the new count, or we see the sleeper.
  word.rings.fetch_add(1, std::memory_order_seq_cst);
  if (word.sleepers.load(std::memory_order_seq_cst) != 0) futex(&word.rings, FUTEX_WAKE, INT_MAX, nullptr);
}

void Waiter::wait(Deadline deadline) {
  const int64_t spin_ns = spin_limit_ns.load(std::memory_order_relaxed);
  if (spin_ns > 0) {
    const auto stop = Clock::now() + std::chrono::nanoseconds(spin_ns);
    do {
      for (int i = 0; i < 32; ++i) {
        if (word_.rings.load(std::memory_order_acquire) != ticket_) return;
        pause_briefly();
      }
    } while (Clock::now() < stop);
  }
  word_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (word_.rings.load(std::memory_order_seq_cst) == ticket_) {
    timespec timeout{};
    const timespec* limit = nullptr;
    if (deadline != kNoDeadline) {
      const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
      if (left > 0) timeout = {left / 1'000'000'000, left % 1'000'000'000};
      limit = &timeout;
    }
    futex(&word_.rings, FUTEX_WAIT, ticket_, limit);
  }
  word_.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace braid
