// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace braid {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using std::chrono::milliseconds;

inline constexpr Deadline kNoDeadline = Deadline::max();

// A timeout of zero or less means no deadline. So does a timeout that ends later than the clock can represent.
inline Deadline deadline_after(milliseconds timeout, Clock::time_point now = Clock::now()) {
  const bool is_told =
      timeout.count() > 0 && timeout < std::chrono::duration_cast<milliseconds>(kNoDeadline - now);
  return is_told ? now + timeout : kNoDeadline;
}

}  // namespace braid
