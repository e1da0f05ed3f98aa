// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace braid {

// How fast something goes while it is busy, from what passed in one interval of some milliseconds after another.
//
// An interval counts when it was busy, and those before and after it too: at the beginning of work buckets and
// buffers let a burst through, and at the end less passes than could. What counts is put together to windows, long
// enough to even out acknowledgements that come in lumps. The rate is the third quartile of theirs: other work on
// the host makes windows slow, little makes them fast.
class RateMeter {
 public:
  // `bytes` passed in the next interval. `busy`: there was more to pass from its beginning to its end.
  void interval(Clock::duration length, uint64_t bytes, bool busy);
  // The next interval does not follow upon the last.
  void pause() { interval({}, 0, false); }
  // Bytes per second, of what has passed since the last call; 0 when too little of it counts to speak for it.
  double take();

 private:
  struct Interval {
    Clock::duration length{};
    uint64_t bytes = 0;
    bool busy = false;
  };
  void count(const Interval& interval);

  uint64_t passed_bytes_ = 0;  // since the last take(), whether they count or not
  uint64_t counted_bytes_ = 0;
  Interval last_;
  bool busy_before_last_ = false;
  Interval window_;            // that is being filled
  std::vector<double> rates_;  // of the last windows, in no order
  size_t windows_ = 0;
};

}  // namespace braid
