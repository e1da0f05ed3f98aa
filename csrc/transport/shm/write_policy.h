// SPDX-License-Identifier: Apache-2.0
// Chooses how to write memory that another core will read: through this core's caches, or past them.
//
// Through the caches is best between cores that share a cache. Some cores share none: on two sockets, on two dies,
// or in a virtual machine whose cores move. Then a line that the reader read last must be fetched back before it
// is overwritten: 128 KiB take 60 us instead of 4. Past the caches nothing is fetched: the writer takes 5 us, and
// the reader takes 11 us instead of 4. The writer's own time shows which way is better. So the writer decides
// alone, and tries again from time to time.
#pragma once

#include <chrono>
#include <cstddef>

namespace braid::shm {

class WritePolicy {
 public:
  // Smaller blocks are not worth two looks at the clock.
  static constexpr size_t kLeastBytes = 16 * 1024;

  // True if the next block should be written past the caches.
  bool streams() const { return streams_; }

  // Reports how long the block took.
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
  static constexpr double kGain = 2.5;   // writing past the caches must be this many times faster
  static constexpr int kSlowInARow = 2;  // a single slow block may have been interrupted
  static constexpr int kPeriod = 64;     // blocks until the next trial

  bool streams_ = false;
  bool is_trial_ = false;  // this block is the first past the caches after slow ones
  double through_ = 0;     // ns per byte of the last slow one
  int slow_ = 0;           // in a row
  int left_ = 0;           // blocks until the next change or trial
};

}  // namespace braid::shm
