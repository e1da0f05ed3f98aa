// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "links/fast_nic.h"

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

}  // namespace braid
