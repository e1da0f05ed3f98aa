// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace braid {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using std::chrono::milliseconds;

inline constexpr Deadline kNoDeadline = Deadline::max();

// A timeout of zero or less means no deadline.
inline Deadline deadline_after(milliseconds timeout) {
  return timeout.count() <= 0 ? kNoDeadline : Clock::now() + timeout;
}

}  // namespace braid
