// SPDX-License-Identifier: Apache-2.0
// How to write what another core will read: through this core's caches, or past them.
//
// Through them is the best between cores that share a cache. Where they do not (two sockets, two dies, or a virtual
// machine whose cores are moved about), a line that the other one read last must be fetched back from it before it
// is overwritten: 128 KiB take 60 us in the place of 4. Past the caches nothing is fetched, and it stays at 5; the
// reader then takes 11 us in the place of 4. Which it is shows in the writer's own time alone, so it finds out alone,
// and again from time to time.
#pragma once

#include <chrono>
#include <cstddef>

namespace braid::shm {

class WritePolicy {
 public:
  // Smaller blocks are not worth the question, nor the two looks at the clock.
  static constexpr size_t kLeastBytes = 16 * 1024;

  // Whether the next block is to be written past the caches.
  bool streams() const { return streams_; }

  // Tells how long it took.
  void wrote(size_t bytes, std::chrono::nanoseconds took) {
    const double cost = static_cast<double>(took.count()) / static_cast<double>(bytes);
    if (streams_) {
      const bool pays = !is_trial_ || kGain * cost < through_;
      is_trial_ = false;
      streams_ = pays && --left_ > 0;
      if (!pays) left_ = kPeriod;
      if (!streams_) slow_ = 0;
      return;
    }
    if (left_ > 0) {
      --left_;
      return;
    }
    through_ = cost;
    slow_ = cost > kSlow ? slow_ + 1 : 0;
    if (slow_ < kSlowInARow) return;
    streams_ = is_trial_ = true;
    left_ = kPeriod;
  }

 private:
  static constexpr double kSlow = 0.25;  // ns per byte: 4 GB/s
  static constexpr double kGain = 2.5;   // at least, that the other way must be faster
  static constexpr int kSlowInARow = 2;  // one alone may have been interrupted
  static constexpr int kPeriod = 64;     // blocks, after which to ask again

  bool streams_ = false;
  bool is_trial_ = false;  // the first block past the caches after slow ones through them
  double through_ = 0;     // ns per byte of the last slow one
  int slow_ = 0;           // in a row
  int left_ = 0;           // blocks until the other way, or the question, comes up again
};

}  // namespace braid::shm
