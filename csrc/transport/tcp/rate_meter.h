// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace braid {

// Measures the rate of a busy connection or NIC, from the bytes that passed in successive intervals of some
// milliseconds.
//
// An interval counts if it was busy, and the intervals before and after it were busy, too. At the beginning of
// work, buckets and buffers pass a burst; at the end less passes than could. Counted intervals are joined to
// windows, long enough to even out acknowledgements that come in lumps. The rate is the third quartile of the
// windows' rates: other work on the host makes windows slow, and hardly anything makes them fast.
class RateMeter {
 public:
  // Adds the next interval, in which `bytes` passed. `busy`: from its beginning to its end there was more to pass.
  void interval(Clock::duration length, uint64_t bytes, bool busy);
  // The next interval does not follow directly after the last one.
  void pause() { interval({}, 0, false); }
  // Bytes per second since the last call; 0 if too few of the bytes since then count.
  double take();

 private:
  struct Interval {
    Clock::duration length{};
    uint64_t bytes = 0;
    bool busy = false;
  };
  void count(const Interval& interval);

  uint64_t passed_bytes_ = 0;  // since the last take(), counted or not
  uint64_t counted_bytes_ = 0;
  Interval last_;
  bool busy_before_last_ = false;
  Interval window_;            // the window that is being filled
  std::vector<double> rates_;  // rates of the last windows, in no order
  size_t windows_ = 0;
};

}  // namespace braid
