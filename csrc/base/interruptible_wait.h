// SPDX-License-Identifier: Apache-2.0
// Waits that can be given up. The waiting thread asks from time to time whether to go on: Python runs a signal
// handler only when its main thread checks for signals.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "base/clock.h"

namespace braid {

// Called in the thread that waits, while no lock is held. Returns true to end the wait. Empty: never called.
using GiveUp = std::function<bool()>;

// The time between two calls of GiveUp, so Ctrl-C is answered this late at most. Also how long a collective stays
// in the thread of a caller with a GiveUp: a longer collective is handed to the progress thread.
inline constexpr milliseconds kLookUpEvery{50};

enum class Waited { kDone, kLate, kGivenUp };

// `sleep(until)` returns true when the awaited event has come, and false at `until` at the latest.
template <class Sleep>
Waited wait_in_slices(Sleep&& sleep, Deadline deadline, const GiveUp& give_up) {
  while (true) {
    const Deadline until = give_up ? std::min(deadline, Clock::now() + kLookUpEvery) : deadline;
    if (sleep(until)) return Waited::kDone;
    if (give_up && give_up()) return Waited::kGivenUp;
    if (Clock::now() >= deadline) return Waited::kLate;
  }
}

// Waits on a condition. The caller holds its mutex; the mutex is released while give_up() runs.
template <class Done>
Waited wait_looking_up(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Deadline deadline,
                       const GiveUp& give_up, Done done) {
  const GiveUp unlocked = [&] {
    lock.unlock();
    const bool given_up = give_up();
    lock.lock();
    return given_up;
  };
  const auto sleep = [&](Deadline until) {
    if (until != kNoDeadline) return changed.wait_until(lock, until, done);
    changed.wait(lock, done);
    return true;
  };
  return wait_in_slices(sleep, deadline, give_up ? unlocked : GiveUp());
}

}  // namespace braid
