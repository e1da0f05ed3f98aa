// SPDX-License-Identifier: Apache-2.0
#include "c10d/coalesced.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "c10d/gil.h"

namespace braid::adapter {
namespace {

using c10::ivalue::Future;
using Inputs = std::optional<std::vector<at::Tensor>>;

// The tensors of all finished futures in one list, or `results` unless that is empty. Throws the error of the
// first future that failed.
c10::IValue tensors_of(Future& all, const std::vector<at::Tensor>& results) {
  std::vector<at::Tensor> tensors;
  const c10::IValue parts = all.value();
  for (const c10::IValue& part : parts.toListRef()) {
    const c10::IValue own = part.toFuture()->value();
    for (const at::Tensor& tensor : own.toTensorVector()) tensors.push_back(tensor);
  }
  return results.empty() ? tensors : results;
}

}  // namespace

CoalescedWork::CoalescedWork(int rank, ::c10d::OpType type, const char* title,
                             const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> results)
    : ::c10d::Work(rank, type, title, title == nullptr ? Inputs() : Inputs(inputs)),
      results_(std::move(results)) {}

bool CoalescedWork::isCompleted() {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isCompleted(); });
}

bool CoalescedWork::isSuccess() const { return exception() == nullptr; }

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& part : parts_) {
    if (auto error = part->exception()) return error;
  }
  return nullptr;
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> results;
  for (const auto& part : parts_) {
    for (const at::Tensor& tensor : part->result()) results.push_back(tensor);
  }
  return results_.empty() ? results : results_;
}

void CoalescedWork::synchronize() { wait(); }

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  const Deadline deadline = deadline_after(timeout);
  try {
    for (const auto& part : parts_) {
      if (deadline == kNoDeadline) {
        part->wait();
        continue;
      }
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      part->wait(std::max(left, milliseconds(1)));
    }
  } catch (...) {
    // If one operation fails, the others fail with it. After a timeout of wait(), do not wait for the futures.
    if (isCompleted()) wait_for_futures();
    throw;
  }
  wait_for_futures();
  return true;
}

void CoalescedWork::abort() {
  if (!parts_.empty()) parts_.front()->abort();  // aborts the group
}

c10::intrusive_ptr<Future> CoalescedWork::getFuture() {
  const WithoutGil without_gil;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (futures_.values) return futures_.values;
  c10::List<c10::intrusive_ptr<Future>> futures(c10::FutureType::create(c10::ListType::ofTensors()));
  for (const auto& part : parts_) futures.push_back(part->getFuture());
  const auto all = [results = results_](Future& parts) { return tensors_of(parts, results); };
  return futures_.values = c10::collectAll(futures)->then(all, c10::ListType::ofTensors());
}

c10::intrusive_ptr<Future> CoalescedWork::getFutureResult() {
  const WithoutGil without_gil;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (futures_.result) return futures_.result;
  c10::List<c10::intrusive_ptr<Future>> futures(c10::FutureType::create(c10::IntType::get()));
  for (const auto& part : parts_) futures.push_back(part->getFutureResult());
  const auto worst = [](Future& all) {
    int64_t result = 0;
    const c10::IValue parts = all.value();
    for (const c10::IValue& part : parts.toListRef()) result = std::max(result, part.toFuture()->value().toInt());
    return c10::IValue(result);
  };
  return futures_.result = c10::collectAll(futures)->then(worst, c10::IntType::get());
}

// The given out futures complete a moment after the futures of the parts.
void CoalescedWork::wait_for_futures() {
  const WithoutGil without_gil;
  Futures given;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    given = futures_;
  }
  given.wait();
}

float CoalescedWork::getDuration() const {
  float longest = 0;
  for (const auto& part : parts_) longest = std::max(longest, part->getDuration());
  return longest;
}

uint64_t CoalescedWork::getSequencenumber() const {
  return parts_.empty() ? 0 : parts_.back()->getSequencenumber();
}

}  // namespace braid::adapter
