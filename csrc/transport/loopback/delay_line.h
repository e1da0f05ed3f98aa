// SPDX-License-Identifier: Apache-2.0
// Adds latency to wires that have none: delivers everything after a fixed delay, in the same order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace braid {

// Thread-safe. Without a delay it has no thread, and delivers at once.
class DelayLine {
 public:
  explicit DelayLine(std::chrono::microseconds delay);
  ~DelayLine();  // drops everything that is not delivered yet
  DelayLine(const DelayLine&) = delete;
  DelayLine& operator=(const DelayLine&) = delete;

  void send(std::function<void()> deliver);

 private:
  void run();

  const std::chrono::microseconds delay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Clock::time_point, std::function<void()>>> under_way_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace braid
