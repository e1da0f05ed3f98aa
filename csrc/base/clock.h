// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace braid {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using std::chrono::milliseconds;

inline constexpr Deadline kNoDeadline = Deadline::max();

// A timeout of zero or less means no deadline, and so does one that ends when no clock can tell, in centuries.
inline Deadline deadline_after(milliseconds timeout, Clock::time_point now = Clock::now()) {
  const bool is_told =
      timeout.count() > 0 && timeout < std::chrono::duration_cast<milliseconds>(kNoDeadline - now);
  return is_told ? now + timeout : kNoDeadline;
}

}  // namespace braid
