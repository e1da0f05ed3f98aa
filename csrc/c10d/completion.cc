// SPDX-License-Identifier: Apache-2.0
#include "c10d/completion.h"

#include <ATen/core/jit_type.h>

#include <utility>

#include "c10d/callbacks.h"

namespace braid::adapter {

Completion::Completion(Tensors tensors, std::shared_ptr<const Members> members,
                       std::function<void()> profiling_end)
    : results_(tensors.results()),
      members_(std::move(members)),
      tensors_(std::move(tensors)),
      profiling_end_(std::move(profiling_end)) {}

void Completion::settle(const Status& status) {
  Tensors done;
  std::function<void()> profiling_end;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (settled_) return;
    try {
      if (status.ok()) tensors_.copy_back();
      if (!status.ok()) error_ = exception_of(status, *members_);
    } catch (...) {
      error_ = std::current_exception();
    }
    settled_ = true;
    std::swap(done, tensors_);
    std::swap(profiling_end, profiling_end_);
    future = future_;
  }
  // Outside the lock: letting go of a tensor may take the GIL, whose holder may be waiting for the lock.
  if (profiling_end) profiling_end();
  if (future) run_callback([self = shared_from_this(), future] { self->complete(*future); });
}

std::exception_ptr Completion::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

c10::intrusive_ptr<c10::ivalue::Future> Completion::future() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!future_) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    if (settled_) complete(*future_);  // nobody has attached a callback yet
  }
  return future_;
}

void Completion::wait_for_future() const {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    future = future_;
  }
  if (future) future->wait();
}

void Completion::complete(c10::ivalue::Future& future) const {
  if (error_) {
    future.setError(error_);
  } else {
    future.markCompleted(c10::IValue(results_));
  }
}

}  // namespace braid::adapter
