// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "base/status.h"
#include "c10d/errors.h"
#include "c10d/futures.h"
#include "c10d/tensors.h"

namespace braid::adapter {

// The last steps of an operation: copies results back, releases tensors, and completes the futures. They are done
// once, by the first thread that notices the end: the thread that finished the operation, or one that asks.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  Completion(Tensors tensors, std::shared_ptr<const Members> members);
  using AtEnd = std::function<void(const Status&)>;
  // Adds a function to call at the end, also after a failure. Call it before settle() can run.
  void also(AtEnd at_end) { at_end_.push_back(std::move(at_end)); }

  // Does the last steps. REQUIRES: the operation is done, with this outcome.
  void settle(const Status& status);
  // Null for success. REQUIRES: settled.
  std::exception_ptr error() const;
  const std::vector<at::Tensor>& results() const { return results_; }
  // For tensors on an accelerator: whether their results are there, and not only under way.
  bool landed() const;
  // True if join_stream() may be called before the end: the calling thread need not wait for it.
  bool is_gated() const;
  // For tensors on an accelerator: the calling thread's current stream waits for the results.
  // REQUIRES: settled, or is_gated().
  void join_stream();
  // Completes with the list of results, or with the error, on a callback thread.
  c10::intrusive_ptr<c10::ivalue::Future> future();
  // Completes with a c10d::WorkResult, as an integer, and never with an error.
  c10::intrusive_ptr<c10::ivalue::Future> future_result();
  // Completes the given out future() with this error, on a callback thread, unless the operation is done. The
  // operation goes on. The next call of future() makes a new one. REQUIRES: the GIL is not held.
  void interrupt(const std::exception_ptr& error);
  // Waits until the given out futures are complete. A caller that has waited for the operation calls it.
  void wait_for_futures() const;

 private:
  // REQUIRES: the lock is held, or the operation is settled.
  void complete(c10::ivalue::Future& future) const;
  void complete_result(c10::ivalue::Future& future) const;

  const std::vector<at::Tensor> results_;
  const std::shared_ptr<const Members> members_;
  const std::shared_ptr<Staging> staging_;  // null for CPU tensors

  mutable std::mutex mutex_;
  bool settled_ = false;
  Tensors tensors_;
  std::vector<AtEnd> at_end_;
  ::c10d::WorkResult verdict_ = ::c10d::WorkResult::SUCCESS;
  std::exception_ptr error_;
  Futures futures_;
};

}  // namespace braid::adapter
