// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/clock.h"

namespace braid::adapter {

// Tells when Python's main thread next runs Python code. Then the handlers of all earlier signals have run.
class MainThreadReturns {
 public:
  // May be called with or without the GIL. If Python's queue of pending calls is full, counts as returned at once.
  static std::shared_ptr<MainThreadReturns> ask() {
    auto asked = std::make_shared<MainThreadReturns>();
    auto kept = std::make_unique<std::shared_ptr<MainThreadReturns>>(asked);
    const auto call = [](void* given) {
      const std::unique_ptr<std::shared_ptr<MainThreadReturns>> kept(
          static_cast<std::shared_ptr<MainThreadReturns>*>(given));
      (*kept)->set();
      return 0;
    };
    if (Py_AddPendingCall(call, kept.get()) == 0) {
      static_cast<void>(kept.release());
    } else {
      asked->set();
    }
    return asked;
  }

  // Waits. True if the main thread has returned within `limit`. REQUIRES: the GIL is not held.
  bool wait(milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return returned_; });
  }

 private:
  void set() {
    const std::lock_guard lock(mutex_);
    returned_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool returned_ = false;
};

}  // namespace braid::adapter
