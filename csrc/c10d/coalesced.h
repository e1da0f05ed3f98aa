// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "c10d/futures.h"

namespace braid::adapter {

// Several operations that torch sees as one. It is done when all are done, and failed when one has failed.
class CoalescedWork final : public ::c10d::Work {
 public:
  // `title` and `inputs`: as for Work. `results`: the results in the caller's order; empty: in the order of the
  // operations.
  CoalescedWork(int rank, ::c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
                std::vector<at::Tensor> results = {});
  // Adds an operation. Call it in the order of their starts, before other threads see this object.
  void add(c10::intrusive_ptr<::c10d::Work> part) { parts_.push_back(std::move(part)); }
  // A function that ends the profiled event; the last part calls it. Null if there is no event.
  std::function<void()> profiling_end() { return std::move(recordFunctionEndCallback_); }

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;  // the first one in the order of the operations
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;        // all results in one list
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;  // the worst WorkResult
  float getDuration() const override;                                  // of the longest operation
  uint64_t getSequencenumber() const override;                         // of the last operation

 private:
  void wait_for_futures();

  const std::vector<at::Tensor> results_;
  std::vector<c10::intrusive_ptr<::c10d::Work>> parts_;
  std::mutex mutex_;
  Futures futures_;
};

}  // namespace braid::adapter
