// SPDX-License-Identifier: Apache-2.0
#include "transport/loopback/delay_line.h"

#include "base/caught.h"
#include "base/log.h"

namespace braid {

DelayLine::DelayLine(std::chrono::microseconds delay) : delay_(delay) {
  if (delay_.count() > 0) thread_ = std::thread([this] { run(); });
}

DelayLine::~DelayLine() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DelayLine::send(std::function<void()> deliver) {
  if (delay_.count() <= 0) return deliver();
  const std::lock_guard lock(mutex_);
  under_way_.emplace_back(Clock::now() + delay_, std::move(deliver));
  changed_.notify_all();
}

void DelayLine::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (under_way_.empty()) {
      changed_.wait(lock);
    } else if (const auto due = under_way_.front().first; Clock::now() < due) {
      changed_.wait_until(lock, due);
    } else {
      const std::function<void()> deliver = std::move(under_way_.front().second);
      under_way_.pop_front();
      lock.unlock();
      // The receiver of a lost frame has a timeout: this wire is only for tests and rehearsals.
      if (const Status lost = caught("delivering a frame", deliver); !lost.ok())
        log(LogLevel::kWarning, lost.message());
      lock.lock();
    }
  }
}

}  // namespace braid
