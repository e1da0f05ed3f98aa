// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>

namespace braid {

// The calling thread's time on the CPU: a benchmark that does not wait measures it, so that other processes on the
// machine count as little as can be.
inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace braid
