// SPDX-License-Identifier: Apache-2.0
#include "c10d/hooks.h"

#include <exception>
#include <string>
#include <utility>

#include "base/log.h"
#include "c10d/callbacks.h"
#include "c10d/gil.h"

namespace braid::adapter {

void CompletionHook::started() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++open_;
}

void CompletionHook::ended(std::shared_ptr<::c10d::WorkInfo> info) {
  const std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(info));
  if (!std::exchange(running_, true)) run_callback([self = shared_from_this()] { self->run(); });
}

void CompletionHook::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!queue_.empty()) {
    std::shared_ptr<::c10d::WorkInfo> info = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      hook_(std::move(info));
    } catch (const std::exception& error) {  // no caller could catch it
      log(LogLevel::kWarning, std::string("a completion hook has failed: ") + error.what());
    }
    lock.lock();
    --open_;
  }
  running_ = false;
  idle_.notify_all();
}

void CompletionHook::wait() {
  Interrupts interrupts;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    static_cast<void>(
        wait_looking_up(idle_, lock, kNoDeadline, interrupts.give_up(), [this] { return open_ == 0; }));
  }
  throw_if_any(interrupts);
}

}  // namespace braid::adapter
