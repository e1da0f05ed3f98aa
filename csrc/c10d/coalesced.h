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

// Several operations that torch sees as one: done when all are, failed when one is.
class CoalescedWork final : public ::c10d::Work {
 public:
  // `title` and `inputs` as for Work. `results`, unless empty, are in another order than the operations have them.
  CoalescedWork(int rank, ::c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
                std::vector<at::Tensor> results = {});
  // In the order in which they were started, before anybody else sees this.
  void add(c10::intrusive_ptr<::c10d::Work> part) { parts_.push_back(std::move(part)); }
  // Ends the profiled event; for the last part to call. Null when there is none.
  std::function<void()> profiling_end() { return std::move(recordFunctionEndCallback_); }

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;  // the first, in the order of the operations
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;        // the results of all, in one list
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;  // the worst
  float getDuration() const override;                                  // of the longest
  uint64_t getSequencenumber() const override;                         // of the last

 private:
  void wait_for_futures();

  const std::vector<at::Tensor> results_;
  std::vector<c10::intrusive_ptr<::c10d::Work>> parts_;
  std::mutex mutex_;
  Futures futures_;
};

}  // namespace braid::adapter
