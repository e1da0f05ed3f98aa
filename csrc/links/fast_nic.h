// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace braid {

// A NIC with this rate (2.5 Gbit/s, in bytes per second) or more is fast. A fast NIC is not what limits a
// measurement: the processors do, and their rate varies by a factor of two. A burst that TCP hands to a fast NIC
// is out within half a millisecond.
inline constexpr double kFastNic = 312.5e6;

}  // namespace braid
