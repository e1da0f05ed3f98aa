// SPDX-License-Identifier: Apache-2.0
#include "c10d/completion.h"

#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include <utility>

#include "base/caught.h"
#include "base/log.h"
#include "c10d/callbacks.h"
#include "c10d/mutations.h"
#include "c10d/open_futures.h"
#include "c10d/staging.h"

namespace braid::adapter {
namespace {

using c10::ivalue::Future;

::c10d::WorkResult result_of(const Status& status) {
  switch (status.code()) {
    case Code::kOk: return ::c10d::WorkResult::SUCCESS;
    case Code::kTimeout: return ::c10d::WorkResult::TIMEOUT;
    default: return ::c10d::WorkResult::COMM_ERROR;
  }
}

// Runs a job on a callback thread. If memory runs out, runs it here: otherwise a future would never complete.
template <class Job>
void run_soon(const Job& job) {
  if (!caught("queueing a callback", [&] { run_callback(job); }).ok()) job();
}

}  // namespace

Completion::Completion(Tensors tensors, std::shared_ptr<const Members> members)
    : results_(tensors.results()),
      members_(std::move(members)),
      staging_(tensors.staging()),
      tensors_(std::move(tensors)) {}

bool Completion::landed() const { return !staging_ || staging_->landed(); }

bool Completion::is_gated() const { return staging_ && staging_->is_gated(); }

void Completion::join_stream() {
  if (staging_) staging_->join();
}

void Completion::settle(const Status& status) {
  Tensors done;
  std::vector<AtEnd> at_end;
  Futures given;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (settled_) return;
    try {
      if (status.ok()) tensors_.copy_back();
      if (!status.ok()) error_ = exception_of(status, *members_);
      verdict_ = result_of(status);
    } catch (...) {
      error_ = std::current_exception();
      verdict_ = ::c10d::WorkResult::UNKNOWN;
    }
    settled_ = true;
    std::swap(done, tensors_);
    std::swap(at_end, at_end_);
    given = futures_;
  }
  // Not under the lock: releasing a tensor may take the GIL, and the thread that holds the GIL may wait for the
  // lock.
  for (const auto& step : at_end) {
    const Status thrown = caught("ending an operation", [&] { step(status); });
    if (!thrown.ok()) log(LogLevel::kWarning, thrown.message());
  }
  // Two jobs: a callback of one future may wait for the operation, and so for the other future.
  const auto self = shared_from_this();
  if (is_gated()) run_soon([tensors = std::make_shared<Tensors>(std::move(done))] {});  // see staging.h
  if (given.values) run_soon([self, given] { self->complete(*given.values); });
  if (given.result) run_soon([self, given] { self->complete_result(*given.result); });
}

void Completion::interrupt(const std::exception_ptr& error) {
  c10::intrusive_ptr<Future> given;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (settled_ || !futures_.values) return;
    given = std::move(futures_.values);  // so that settle() does not complete it
  }
  run_soon([given, error] { given->setError(error); });
}

std::exception_ptr Completion::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

c10::intrusive_ptr<Future> Completion::future() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!futures_.values) {
    std::vector<c10::Device> devices;
    if (staging_ && !mutated(Mutation::kFutureWithoutDevices)) devices = {staging_->device()};
    futures_.values = c10::make_intrusive<Future>(c10::ListType::ofTensors(), std::move(devices));
    if (settled_) {
      complete(*futures_.values);  // it has no callbacks yet
    } else {
      remember_open_future(weak_from_this());
    }
  }
  return futures_.values;
}

c10::intrusive_ptr<Future> Completion::future_result() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!futures_.result) {
    futures_.result = c10::make_intrusive<Future>(c10::IntType::get());
    if (settled_) complete_result(*futures_.result);
  }
  return futures_.result;
}

void Completion::wait_for_futures() const {
  Futures given;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    given = futures_;
  }
  given.wait();
}

void Completion::complete_result(Future& future) const {
  future.markCompleted(c10::IValue(static_cast<int64_t>(verdict_)));
}

void Completion::complete(Future& future) const {
  if (error_) {
    future.setError(error_);
  } else if (staging_) {
    // The future records its event on the current stream: whoever waits for it waits for the copies up.
    const bool wrong = mutated(Mutation::kFutureOnWrongStream);
    const c10::StreamGuard guard(wrong ? default_stream(staging_->device()) : staging_->up());
    future.markCompleted(c10::IValue(results_));
  } else {
    future.markCompleted(c10::IValue(results_));
  }
}

}  // namespace braid::adapter
