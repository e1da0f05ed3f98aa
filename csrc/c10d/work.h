// SPDX-License-Identifier: Apache-2.0
// A started operation as torch holds it.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "c10d/completion.h"
#include "communicator/communicator.h"

namespace braid::adapter {

class Work final : public ::c10d::Work {
 public:
  // `title` is null when nobody records profiles. `source_rank` is the sender for recv, -1 otherwise.
  Work(::c10d::OpType type, const char* title, Tensors tensors, std::shared_ptr<const Members> members,
       int source_rank = -1);
  ~Work() override;

  // Binds this to what the communicator started. Once, before anybody else sees this.
  void follow(std::shared_ptr<braid::Work> started, std::weak_ptr<Communicator> group);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override;

 private:
  // Whether the operation has ended; if so, its results are in place.
  bool settled() const;

  const int made_under_;  // fork_count()
  const std::shared_ptr<const Members> members_;
  const int source_rank_;
  std::shared_ptr<Completion> completion_;
  std::shared_ptr<braid::Work> started_;
  std::weak_ptr<Communicator> group_;
};

}  // namespace braid::adapter
