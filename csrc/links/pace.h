// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "links/fast_nic.h"
#include "topology/topology.h"

namespace braid {

// The limit as a multiple of the slower NIC's measured rate. It leaves room for NICs that pass a little more than
// was measured, and lets the watch see NICs that have become faster.
inline constexpr double kPace = 1.3;

// Bytes per second at which to send to a peer. `s_per_byte` is that of the slower of both NICs. 0 for no limit, as
// for fast NICs.
inline double pace_for(double s_per_byte) {
  const double measured = 1 / std::max(s_per_byte, 1e-12);
  return measured < kFastNic ? kPace * measured : 0;
}

// At least two messages of the smallest chunks, and at most what any network needs.
inline constexpr double kLeastCredit_bytes = 128 * 1024;
inline constexpr double kMostCredit_bytes = 4 * 1024 * 1024;

// The bytes that may be under way to one of `sharers` ranks behind a NIC. All of them together fit the NIC's queue.
inline double credit_for(double down_s_per_byte, int sharers) {
  const double queue_bytes = kNicQueue_s / std::max(down_s_per_byte, 1e-12);
  return std::clamp(queue_bytes / sharers, kLeastCredit_bytes, kMostCredit_bytes);
}

}  // namespace braid
