// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/look_up.h"

namespace braid::adapter {

// Runs what users have attached to an operation, soon, on a thread that carries no operations: a callback may take
// the GIL, start operations and wait for them, and even for callbacks of theirs. So a job never queues behind a
// running one; threads are added when all are busy, and end when idle for a while. When the system has no thread to give,
// a job waits for one to end its own, and without any it runs on the caller's. What a job throws is logged.
void run_callback(std::function<void()> job);

// Until no callback runs or waits to run. For the end of the process: Python, as it ends, kills a thread that asks for
// the GIL, and a thread killed in C++ takes the process with it. REQUIRES: the GIL is not held.
void wait_for_callbacks(Deadline deadline, const GiveUp& give_up);

}  // namespace braid::adapter
