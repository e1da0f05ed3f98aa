// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace braid::adapter {

// Calls a user's hook after each operation, one call at a time, in the order in which operations ended. The hook
// runs on a callback thread, so it may take the GIL and start operations.
class CompletionHook : public std::enable_shared_from_this<CompletionHook> {
 public:
  using Hook = std::function<void(std::shared_ptr<::c10d::WorkInfo>)>;

  explicit CompletionHook(Hook hook) : hook_(std::move(hook)) {}

  // An operation has started. The caller must call ended() for it later.
  void started();
  void ended(std::shared_ptr<::c10d::WorkInfo> info);
  // Waits until all started operations have ended and the hook has returned. REQUIRES: the GIL is not held.
  void wait();

 private:
  void run();

  const Hook hook_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<std::shared_ptr<::c10d::WorkInfo>> queue_;
  bool running_ = false;
  size_t open_ = 0;  // started and not yet through the hook
};

}  // namespace braid::adapter
