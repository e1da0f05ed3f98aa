// SPDX-License-Identifier: Apache-2.0
// What copies between a device and page-locked memory of the host take, as measured.
#pragma once

#include <cstdint>

namespace braid {

// Of one way: a copy of n bytes takes latency_s + n * s_per_byte.
struct CopyTimes {
  double latency_s = 0;
  double s_per_byte = 0;

  // 0 for no bytes: then nothing is copied.
  double of(int64_t bytes) const { return bytes == 0 ? 0 : latency_s + static_cast<double>(bytes) * s_per_byte; }
};

// Down to the host, and up to the device.
struct CopyRates {
  CopyTimes down, up;
};

}  // namespace braid
