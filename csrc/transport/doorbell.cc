// SPDX-License-Identifier: Apache-2.0
#include "transport/doorbell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "base/pause.h"
#include "transport/neighbours.h"

namespace braid {
namespace {

constexpr int kLookTurns = 16;  // reading the clock takes longer than a turn
constexpr int kFirstLook = 8;   // for neighbours: a short wait ends before

long futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

// How often another thread took the calling thread's core.
long switches_of_thread() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw + usage.ru_nivcsw;
}

}  // namespace

uint32_t core_number() { return static_cast<uint32_t>(::sched_getcpu() + 1); }

void ring(DoorbellWord& word) {
  // Sequentially consistent on both words: either the sleeper sees the new count, or we see the sleeper.
  word.rings.fetch_add(1, std::memory_order_seq_cst);
  if (word.sleepers.load(std::memory_order_seq_cst) != 0) futex(&word.rings, FUTEX_WAKE, INT_MAX, nullptr);
}

void Waiter::idle(Deadline deadline, bool afar) {
  if (stage_ == Stage::kListed) return sleep(deadline);
  if (!stays_awake(afar)) list();
}

// Lets a moment pass. False if it is time to sleep.
bool Waiter::stays_awake(bool afar) {
  const WaitRules rules = wait_rules();
  const int turn = turns_++;
  if (turn % kLookTurns == kFirstLook || turn == 0) {
    const uint32_t core = core_number();
    if (word_.core.load(std::memory_order_relaxed) != core) word_.core.store(core, std::memory_order_relaxed);
    shares_core_ = turn != 0 && neighbours_ != nullptr && neighbours_->any_on(core);
  }
  if (rules.mode == WaitMode::kSleep) return false;
  const bool gives =
      rules.mode == WaitMode::kYield || (rules.mode == WaitMode::kAuto && (rules.crowded || shares_core_));
  if (!gives && turn % kLookTurns != 0) {
    pause_briefly();
    return true;
  }
  const auto now = Clock::now();
  if (turn == 0) awake_until_ = now + rules.awake;
  if (now >= awake_until_) return false;
  if (!gives) {
    pause_briefly();
    return true;
  }
  if (rules.mode == WaitMode::kAuto && ((afar && rules.crowded) || yield_price().is_dear(now))) return false;
  return !yields_in_vain(now) || rules.mode != WaitMode::kAuto || !rules.crowded;
}

// Gives the core away for a moment. True if nobody takes it, as often as this is tried.
bool Waiter::yields_in_vain(Clock::time_point now) {
  ::sched_yield();
  yield_price().paid(now, Clock::now());
  wait_counts().yields.fetch_add(1, std::memory_order_relaxed);
  return vain_yields_.are_enough(switches_of_thread());
}

void Waiter::list() {
  word_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  ticket_ = word_.rings.load(std::memory_order_seq_cst);
  stage_ = Stage::kListed;
}

void Waiter::end_of_wait() {
  wait_counts().turns.fetch_add(static_cast<uint64_t>(turns_), std::memory_order_relaxed);
  turns_ = 0;
  vain_yields_.begin();
  shares_core_ = false;
}

void Waiter::sleep(Deadline deadline) {
  timespec timeout{};
  const timespec* limit = nullptr;
  if (deadline != kNoDeadline) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
    if (left > 0) timeout = {left / 1'000'000'000, left % 1'000'000'000};
    limit = &timeout;
  }
  wait_counts().sleeps.fetch_add(1, std::memory_order_relaxed);
  futex(&word_.rings, FUTEX_WAIT, ticket_, limit);
  moved();
}

}  // namespace braid
