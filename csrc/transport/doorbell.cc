// SPDX-License-Identifier: Apache-2.0
#include "transport/doorbell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "base/pause.h"

namespace braid {
namespace {

std::atomic<int64_t> awake_limit_ns{0};
std::atomic<bool> is_crowded{false};

long futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void set_waiting(int64_t awake_ns, bool crowded) {
  awake_limit_ns = awake_ns;
  is_crowded = crowded;
}

void ring(DoorbellWord& word) {
  // Sequentially consistent on both words: either the sleeper sees the new count, or we see the sleeper.
  word.rings.fetch_add(1, std::memory_order_seq_cst);
  if (word.sleepers.load(std::memory_order_seq_cst) != 0) futex(&word.rings, FUTEX_WAKE, INT_MAX, nullptr);
}

void Waiter::idle(Deadline deadline, bool afar) {
  if (stage_ == Stage::kListed) return sleep(deadline);
  const bool crowded = is_crowded.load(std::memory_order_relaxed);
  const int64_t awake_ns = awake_limit_ns.load(std::memory_order_relaxed);
  const int turn = turns_++;
  const bool look = turn % (crowded ? 4 : 16) == 0;  // reading the clock takes longer than a turn
  const auto now = look ? Clock::now() : Clock::time_point();
  if (turn == 0) awake_until_ = now + std::chrono::nanoseconds(awake_ns);
  if (!(afar && crowded) && (!look || now < awake_until_)) {
    crowded ? static_cast<void>(::sched_yield()) : pause_briefly();
    return;
  }
  word_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  ticket_ = word_.rings.load(std::memory_order_seq_cst);
  stage_ = Stage::kListed;
}

void Waiter::sleep(Deadline deadline) {
  timespec timeout{};
  const timespec* limit = nullptr;
  if (deadline != kNoDeadline) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
    if (left > 0) timeout = {left / 1'000'000'000, left % 1'000'000'000};
    limit = &timeout;
  }
  futex(&word_.rings, FUTEX_WAIT, ticket_, limit);
  moved();
}

}  // namespace braid
