// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace braid::adapter {

// Several operations that torch sees as one: done when all are, failed when one is.
class CoalescedWork final : public ::c10d::Work {
 public:
  CoalescedWork(int rank, ::c10d::OpType type, std::vector<c10::intrusive_ptr<::c10d::Work>> parts);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;  // the first, in the order of the operations
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;  // the results of all, in one list
  float getDuration() const override;                            // of the longest
  uint64_t getSequencenumber() const override;                   // of the last

 private:
  const std::vector<c10::intrusive_ptr<::c10d::Work>> parts_;
};

}  // namespace braid::adapter
