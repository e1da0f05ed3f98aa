// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "links/fast_nic.h"

namespace braid {

// Of the slower NIC's rate: NICs may pass somewhat more than was measured, and must be seen to when they get faster.
inline constexpr double kPace = 1.3;

// Bytes per second at which to send to a peer, when the slower of both NICs takes so long for a byte; 0 for no limit,
// as for fast ones.
inline double pace_for(double s_per_byte) {
  const double measured = 1 / std::max(s_per_byte, 1e-12);
  return measured < kFastNic ? kPace * measured : 0;
}

}  // namespace braid
