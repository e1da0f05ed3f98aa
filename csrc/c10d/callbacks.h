// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/interruptible_wait.h"

namespace braid::adapter {

// Runs a user's callback soon, on a thread that carries no operations. A callback may take the GIL, start
// operations, and wait for them and for their callbacks. So a job never waits for a running job: a thread is added
// when all are busy. A thread ends when it is idle for a while. If the system can start no thread, the job waits
// for a busy thread, or runs on the caller's thread if there is none. An exception of a job is logged.
void run_callback(std::function<void()> job);

// Waits until no callback runs or waits to run. For the end of the process: Python then kills a thread that asks
// for the GIL, and killing a thread in C++ code ends the process. REQUIRES: the GIL is not held.
void wait_for_callbacks(Deadline deadline, const GiveUp& give_up);

}  // namespace braid::adapter
