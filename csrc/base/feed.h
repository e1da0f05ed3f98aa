// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>

namespace braid {

// How far the memory of one operation is, if its inputs come and its outputs leave while it runs. All counts are
// lengths of a prefix that holds for each block: the first `bytes` of every block, or all of a block that is shorter.
//
// Thread safe. Counts never go back.
class Feed {
 public:
  // The whole of every block.
  static constexpr size_t kAll = ~size_t{0};

  // `on_settled` is called after each settle(), in the thread that carries the operation. It must not block.
  explicit Feed(std::function<void()> on_settled = nullptr) : on_settled_(std::move(on_settled)) {}

  // The first bytes of every input are in memory. Wakes the operation.
  void arrive(size_t bytes) {
    arrived_.store(bytes, std::memory_order_release);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (wake_) wake_();
  }
  size_t arrived() const { return arrived_.load(std::memory_order_acquire); }

  // The first bytes of every output are final, and the operation reads the same bytes of the inputs no more.
  void settle(size_t bytes) {
    settled_.store(bytes, std::memory_order_release);
    if (on_settled_) on_settled_();
  }
  size_t settled() const { return settled_.load(std::memory_order_acquire); }

  // Sets what wakes the operation; null: nothing. The old function is not called after this call.
  void listen(std::function<void()> wake) {
    const std::lock_guard<std::mutex> lock(mutex_);
    wake_ = std::move(wake);
  }

 private:
  std::atomic<size_t> arrived_{0};
  std::atomic<size_t> settled_{0};
  const std::function<void()> on_settled_;
  std::mutex mutex_;  // for wake_
  std::function<void()> wake_;
};

}  // namespace braid
