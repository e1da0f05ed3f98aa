// SPDX-License-Identifier: Apache-2.0
// Waits that can be given up. Who waits is asked now and then whether to go on: Python runs the handler of a signal
// only when its main thread looks for one.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "base/clock.h"

namespace braid {

// Asked in the thread that waits, while no lock is held. True: it waits no more. Empty: nobody is asked.
using GiveUp = std::function<bool()>;

// How often it is asked, so that Ctrl-C is answered this late. Also how long a collective stays in the thread of a
// caller who wants to look up: what takes longer is handed to the progress thread.
inline constexpr milliseconds kLookUpEvery{50};

enum class Waited { kDone, kLate, kGivenUp };

// `sleep(until)` returns true once what is waited for has come, and false at that time at the latest.
template <class Sleep>
Waited wait_in_slices(Sleep&& sleep, Deadline deadline, const GiveUp& give_up) {
  while (true) {
    const Deadline until = give_up ? std::min(deadline, Clock::now() + kLookUpEvery) : deadline;
    if (sleep(until)) return Waited::kDone;
    if (give_up && give_up()) return Waited::kGivenUp;
    if (Clock::now() >= deadline) return Waited::kLate;
  }
}

// On a condition, whose mutex is held by the caller and is let go while give_up() is asked.
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
