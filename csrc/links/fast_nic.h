// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace braid {

// Bytes per second (2.5 Gbit/s) from which on a NIC is fast. What is measured of such a one is the processors, which
// another time pass half or twice as much; and what TCP hands to it in one burst is out within half a millisecond.
inline constexpr double kFastNic = 312.5e6;

}  // namespace braid
