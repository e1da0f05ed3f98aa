// SPDX-License-Identifier: Apache-2.0
// A started operation, as torch holds it.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "c10d/completion.h"
#include "communicator/communicator.h"

namespace braid::adapter {

class Work final : public ::c10d::Work {
 public:
  // `title`: the name of a profiled event with these inputs, which lasts until the operation ends. Null: no event.
  Work(::c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs, Tensors tensors,
       std::shared_ptr<const Members> members);
  ~Work() override;

  // Adds a function to call when the operation ends. Call it before follow().
  void also(Completion::AtEnd at_end) { completion_->also(std::move(at_end)); }
  // Binds this object to the communicator's work. Call it once, before other threads see this object.
  void follow(std::shared_ptr<braid::Work> started, std::weak_ptr<Communicator> group);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  // In Python's main thread, runs signal handlers and throws their exceptions; the operation goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override;
  // The ranks that had not come when the operation timed out.
  std::vector<Node> missing() const { return started_->missing(); }

 private:
  // True if the operation has ended. Then its results are in place.
  bool settle_if_done() const;

  const int made_under_;  // fork_count()
  const std::shared_ptr<const Members> members_;
  std::shared_ptr<Completion> completion_;
  std::shared_ptr<braid::Work> started_;
  std::weak_ptr<Communicator> group_;
};

}  // namespace braid::adapter
